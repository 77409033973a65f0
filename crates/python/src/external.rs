//! `with exec.external() as width:`, the scope in which other libraries use the token's budget.

use crate::attach;
use crate::exec::PyExec;
use crate::flow::Within;
use crate::token::{GiveBack, Loan, Token};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Arc, Mutex, PoisonError};
use threadteam::Exec;

/// What `exec.external()` returns: limits the other thread pools on entering, restores them on leaving.
#[pyclass(frozen, module = "threadteam", name = "ExternalScope")]
pub(crate) struct ExternalScope {
    token: Arc<Token<Exec<'static>>>,
    open: Mutex<Option<Arc<Open>>>,
}

impl ExternalScope {
    pub(crate) fn open<'py>(py: Python<'py>, token: &Arc<Token<Exec<'static>>>) -> PyResult<Bound<'py, ExternalScope>> {
        Bound::new(py, ExternalScope { token: Arc::clone(token), open: Mutex::new(None) })
    }
}

/// The open scope: a loan of the token.
struct Open {
    give_back: GiveBack,
    /// A `threadteam.interop.limits.Limit`.
    limit: Mutex<Option<Py<PyAny>>>,
}

impl Open {
    fn restore(&self, py: Python<'_>) -> PyResult<()> {
        let limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner).take();
        let outcome = limit.map_or(Ok(()), |limit| attach::call_method(limit.bind(py), "close", ()).map(drop));
        self.give_back.now();
        outcome
    }
}

impl Loan for Open {
    fn end_loan(&self, py: Python<'_>, _wait: bool) -> PyResult<()> {
        self.restore(py)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.limit.get_mut().unwrap_or_else(PoisonError::into_inner).is_some() {
            Python::attach(|py| {
                if let Err(error) = self.restore(py) {
                    error.write_unraisable(py, None);
                }
            });
        }
        self.give_back.now();
    }
}

#[pymethods]
impl ExternalScope {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let open = self
            .token
            .lend_to_scope(py, "with Exec.external()", |give_back| Open { give_back, limit: Mutex::new(None) })?;
        // The other library may start threads from this one.
        threadteam::before_foreign_work();
        let limit = attach::call_function(py, "threadteam.interop.limits", "Limit", (self.token.budget.get(),))?;
        let width = limit.getattr("width")?;
        *open.limit.lock().unwrap_or_else(PoisonError::into_inner) = Some(limit.unbind());
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(open);
        Ok(width)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        open.map_or(Ok(()), |open| open.restore(py))
    }
}

#[pymethods]
impl PyExec {
    /// Hand the budget to other libraries as a plain width, and limit their thread pools to it.
    ///
    /// Parameters
    /// ----------
    /// function : callable, optional
    ///     Called as ``function(width)``; without it, a context manager is returned that hands out the width.
    ///
    /// Returns
    /// -------
    /// object
    ///     The function's result, or a context manager. The width knows what is `limited` and what is `unlimited`.
    ///
    /// Examples
    /// --------
    /// >>> import threadteam as tt
    /// >>> with tt.Pool(2) as pool:
    /// ...     token = pool.exec()
    /// ...     token.external(lambda width: width + 1)
    /// ...     with token.external() as width:
    /// ...         int(width)
    /// 3
    /// 2
    #[pyo3(signature = (function = None))]
    fn external<'py>(&self, py: Python<'py>, function: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let Some(function) = function else {
            return Ok(ExternalScope::open(py, &self.token)?.into_any());
        };
        if !function.is_callable() {
            let kind = function.get_type();
            return Err(PyTypeError::new_err(format!("Exec.external() needs a callable, got {}", kind.name()?)));
        }
        let entry = self.token.enter(py, "Exec.external()")?;
        let flow = entry.flow();
        let _within = Within::enter(&flow);
        // As above.
        threadteam::before_foreign_work();
        let within = py.import("threadteam.interop.limits")?.getattr("call_limited")?;
        attach::call(&within, &(function, self.token.budget.get()).into_pyobject(py)?)
    }
}
