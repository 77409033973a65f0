//! The entries of `Exec` whose bodies have results: `map`, `reduce`.

use super::PyExec;
use crate::arguments::{callable, items, Optional};
use crate::attach;
use crate::callable::Callable;
use crate::deferred;
use crate::flow::Within;
use crate::numbers::{at_least_one, length as a_length};
use crate::slots::{list, Slots};
use pyo3::prelude::*;
use std::num::NonZeroUsize;

#[pymethods]
impl PyExec {
    /// Call `function` on every item and return the results in order.
    ///
    /// Parameters
    /// ----------
    /// function : callable
    ///     Called with one item.
    /// iterable : iterable
    ///     Read to its end first.
    /// grain : int, default 1
    ///     The fewest items that a participant takes at once.
    ///
    /// Returns
    /// -------
    /// list
    ///     One result for each item.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     pool.exec().map(str.upper, "abc")
    /// ['A', 'B', 'C']
    #[pyo3(
        signature = (function, iterable, *, grain = Optional::LeftOut),
        text_signature = "($self, function, iterable, *, grain=1)"
    )]
    fn map<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        iterable: &Bound<'py, PyAny>,
        grain: Optional<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let grain = grain.read(|given| at_least_one(given, "grain"))?.unwrap_or(NonZeroUsize::MIN);
        let body = Callable::body(function, "function", "Exec.map()")?;
        let items = items(iterable, "iterable")?;
        let results = Slots::new(items.len(), "results")?;
        let mut entry = self.token.enter(py, "Exec.map()")?;
        self.section(py, &mut entry, true, |exec, flow| {
            exec.for_ranges(items.len(), grain, |range| {
                flow.body(|py| {
                    for index in range.take_while(|_| !flow.stopped()) {
                        let arguments = (&items[index],).into_pyobject(py)?;
                        results.put(index, body.call(py, flow, arguments)?.unbind());
                    }
                    Ok(())
                });
            });
        })?;
        list(py, results.take())
    }

    /// Combine the results of fixed chunks in a fixed order: the same result for every budget.
    ///
    /// Parameters
    /// ----------
    /// length : int
    ///     Items.
    /// grain : int
    ///     Items of a chunk; the last may be smaller.
    /// map_body : callable
    ///     ``map_body(start, stop)`` is the result of a chunk.
    /// combine : callable
    ///     ``combine(so_far, chunk)``, called on the calling thread in the order of the chunks.
    /// initial : object
    ///     Comes first, once; it is the result for no items.
    ///
    /// Returns
    /// -------
    /// object
    ///     What the last `combine` returned.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     pool.exec().reduce(10, 3, lambda a, b: sum(range(a, b)), lambda x, y: x + y, 0)
    /// 45
    #[pyo3(signature = (length, grain, map_body, combine, initial))]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        length: &Bound<'py, PyAny>,
        grain: &Bound<'py, PyAny>,
        map_body: &Bound<'py, PyAny>,
        combine: &Bound<'py, PyAny>,
        initial: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let length = a_length(length, "length")?;
        let grain = at_least_one(grain, "grain")?.get();
        let body = Callable::body(map_body, "map_body", "Exec.reduce()")?;
        callable(combine, "combine")?;
        let chunks = length.div_ceil(grain);
        let partials = Slots::new(chunks, "partial results")?;
        let mut entry = self.token.enter(py, "Exec.reduce()")?;
        self.section(py, &mut entry, true, |exec, flow| {
            exec.for_ranges(chunks, NonZeroUsize::MIN, |range| {
                flow.body(|py| {
                    for chunk in range.take_while(|_| !flow.stopped()) {
                        let start = chunk * grain;
                        let arguments = (start, length.min(start.saturating_add(grain))).into_pyobject(py)?;
                        partials.put(chunk, body.result(py, flow, arguments)?.unbind());
                    }
                    Ok(())
                });
            });
        })?;
        let flow = entry.flow();
        let _within = Within::enter(&flow);
        // In the order of the chunks, on the caller: the same association for every budget.
        partials.take().try_fold(initial, |sum, partial| {
            let sum = attach::call(combine, &(sum, partial).into_pyobject(py)?)?;
            deferred::refuse_awaitable(&sum, combine, "Exec.reduce()")?;
            Ok(sum)
        })
    }
}
