//! The extension module `threadteam._native`: bindings only.

mod arguments;
mod attach;
mod body;
mod calibrate;
mod callable;
mod capsule;
mod collectable;
mod costs;
mod deferred;
mod ending;
mod errors;
mod exec;
mod external;
mod flow;
mod home;
mod hook;
mod ledger;
mod life;
mod numbers;
mod on;
mod openmp;
mod participant;
mod payoff;
mod pending;
mod pool;
mod probe;
mod program;
mod section;
mod single;
mod slots;
mod stack;
mod stats;
mod team;
mod teamexec;
mod token;
mod trace;
mod wait;

use pyo3::prelude::*;

/// A section that notices a fork unwinds to its entry, which raises an exception: that is no panic to report.
fn keep_forks_quiet() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<threadteam::ForkedInside>() {
            report(info);
        }
    }));
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    life::register(module)?;
    keep_forks_quiet();
    module.add_class::<pool::PyPool>()?;
    module.add_class::<exec::PyExec>()?;
    module.add_class::<team::PyTeam>()?;
    module.add_class::<teamexec::PyTeamExec>()?;
    module.add_class::<participant::PyParticipant>()?;
    module.add_class::<teamexec::TeamScope>()?;
    module.add_class::<external::ExternalScope>()?;
    module.add_class::<stats::PyPoolStats>()?;
    module.add_class::<wait::PyWaitPolicy>()?;
    module.add_class::<wait::PyWaitOverride>()?;
    module.add_class::<costs::PyWidthCosts>()?;
    module.add_class::<costs::PyDispatchCosts>()?;
    module.add_class::<costs::PyDispatchKind>()?;
    module.add_class::<costs::PyHostClass>()?;
    module.add_class::<calibrate::PySampler>()?;
    module.add_class::<body::NativeBody>()?;
    module.add_class::<trace::PyTrace>()?;
    module.add_class::<ledger::PyLedger>()?;
    module.add_class::<openmp::OpenMp>()?;
    module.add_class::<program::PyProgram>()?;
    module.add_class::<program::PyCancelFlag>()?;
    module.add_function(wrap_pyfunction!(costs::pays_at, module)?)?;
    module.add_function(wrap_pyfunction!(costs::width_for_by, module)?)?;
    module.add_function(wrap_pyfunction!(capsule::capsule, module)?)?;
    module.add_function(wrap_pyfunction!(probe::round_trip, module)?)?;
    module.add("PAYS", threadteam::PAYS)?;
    module.add("MOST_THREADS", threadteam::Pool::MAX_THREADS)?;
    module.add("IN_PLACE_BYTES", threadteam_kernels::in_place_bytes())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    home::register(module)
}
