//! What a section costs on this machine, for `threadteam calibrate`.

use crate::costs::kind_of;
use crate::errors;
use crate::numbers;
use pyo3::prelude::*;
use std::time::Duration;
use threadteam::{Pool, Sample};

/// How long a team waits for its members: only a hung system lets it wait so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A pool of its own whose sections are timed.
#[pyclass(frozen, module = "threadteam._native", name = "Sampler")]
pub(crate) struct PySampler(Pool);

#[pymethods]
impl PySampler {
    #[new]
    fn new(py: Python<'_>, width: &Bound<'_, PyAny>) -> PyResult<Self> {
        let width = numbers::at_least_one(width, "width")?.get();
        let pool = py.detach(|| Pool::builder().threads(width).acquire_timeout(PATIENCE).build());
        pool.map(PySampler).map_err(|error| errors::from_core(py, &error))
    }

    /// Seconds of one section beyond one of its shares, which noise may make negative, and the members that took part:
    /// means over so many sections.
    fn take(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        width: &Bound<'_, PyAny>,
        sections: &Bound<'_, PyAny>,
    ) -> PyResult<(f64, f64)> {
        let kind = kind_of(kind)?;
        let (width, sections) = (numbers::at_least_one(width, "width")?, numbers::small_count(sections, "sections")?);
        let sample = py.detach(|| Sample::take(&self.0, kind, width, sections));
        let sample = sample.map_err(|error| errors::from_core(py, &error))?;
        Ok((sample.section.as_secs_f64() - sample.share.as_secs_f64(), sample.members))
    }
}
