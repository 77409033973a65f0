//! What runs in a section: a Python callable, or native code that never takes the interpreter.

use crate::callable::Callable;
use crate::flow::Flow;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyFunction, PyTuple, PyType};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

/// The native signatures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signature {
    /// `void (int64_t start, int64_t stop, void *data)`
    Range,
    /// `void (int64_t index, void *data)`
    Index,
}

impl Signature {
    const fn text(self) -> &'static str {
        match self {
            Signature::Range => "void (int64_t start, int64_t stop, void *data)",
            Signature::Index => "void (int64_t index, void *data)",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Signature::Range => "range",
            Signature::Index => "index",
        }
    }
}

/// Native code as a body: what `threadteam.native` returns.
///
/// Made by `threadteam.native`, which checks the declared types; it holds the function and the data alive.
///
/// Examples
/// --------
/// >>> import threadteam as tt
/// >>> import ctypes
/// >>> kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
/// >>> tt.native(kind(lambda index, data: None)).signature
/// 'index'
#[pyclass(frozen, module = "threadteam", name = "NativeBody")]
pub(crate) struct NativeBody {
    address: usize,
    data: usize,
    signature: Signature,
    /// What the two addresses belong to.
    kept: Py<PyAny>,
    description: String,
}

#[pymethods]
impl NativeBody {
    #[new]
    fn new(address: usize, data: usize, signature: &str, kept: Py<PyAny>, description: String) -> PyResult<Self> {
        let signature = match signature {
            "range" => Signature::Range,
            "index" => Signature::Index,
            other => return Err(PyTypeError::new_err(format!("signature {other:?}, expected 'range' or 'index'"))),
        };
        if address == 0 {
            return Err(PyTypeError::new_err(format!("{description} is a null function pointer")));
        }
        Ok(NativeBody { address, data, signature, kept, description })
    }

    /// The native signature: "range" or "index".
    #[getter]
    fn signature(&self) -> &'static str {
        self.signature.name()
    }

    /// The function's address.
    #[getter]
    fn address(&self) -> usize {
        self.address
    }

    /// The address that the function is given as its last argument; 0 for a null pointer.
    #[getter]
    fn data(&self) -> usize {
        self.data
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kept)
    }

    fn __repr__(&self) -> String {
        format!("<native {} body {}>", self.signature.name(), self.description)
    }
}

/// A body, ready to run on any participant while the caller's argument lives.
pub(crate) enum Body<'a> {
    Python(Callable),
    Native {
        address: usize,
        data: usize,
        /// The argument, or what was made of it: what the two addresses belong to.
        _kept: Kept<'a>,
    },
}

/// A native body that outlives the section.
pub(crate) enum Kept<'a> {
    /// The caller has it, so nothing counts references.
    Lent(PhantomData<&'a NativeBody>),
    /// Made for this section.
    Made { _body: Py<NativeBody> },
}

impl<'a> Body<'a> {
    /// The body that `given` stands for, as an argument of `operation`.
    pub(crate) fn of(given: &'a Bound<'_, PyAny>, signature: Signature, operation: &str) -> PyResult<Body<'a>> {
        if let Ok(native) = given.cast_exact::<NativeBody>() {
            return Body::native(native, signature, operation, Kept::Lent(PhantomData));
        }
        // Most bodies are functions: nothing about those needs a look.
        if given.is_exact_instance_of::<PyFunction>() || given.is_exact_instance_of::<PyCFunction>() {
            return Ok(Body::Python(Callable::new(given)?));
        }
        let py = given.py();
        let recognised = py.import("threadteam._bodies")?.call_method1("recognise", (given, signature.name()))?;
        if let Ok(native) = recognised.cast_exact::<NativeBody>() {
            return Body::native(native, signature, operation, Kept::Made { _body: native.clone().unbind() });
        }
        Body::python(given, operation)
    }

    /// The callable that `given` is: for bodies that are handed Python objects.
    pub(crate) fn python(given: &Bound<'_, PyAny>, operation: &str) -> PyResult<Body<'a>> {
        if given.cast_exact::<NativeBody>().is_ok() {
            return Err(PyTypeError::new_err(format!(
                "{operation} hands its body Python objects, so native code cannot be one; pass a Python callable"
            )));
        }
        if !given.is_callable() {
            let kind: Bound<'_, PyType> = given.get_type();
            return Err(PyTypeError::new_err(format!(
                "{operation} got a body of type {}, expected a callable or native code; wrap a function pointer with \
                 threadteam.native",
                kind.name()?
            )));
        }
        Ok(Body::Python(Callable::new(given)?))
    }

    fn native(
        native: &Bound<'_, NativeBody>,
        signature: Signature,
        operation: &str,
        kept: Kept<'a>,
    ) -> PyResult<Body<'a>> {
        let body = native.get();
        if body.signature != signature {
            return Err(PyTypeError::new_err(format!(
                "{operation} got native code of signature {}, expected {}",
                body.signature.text(),
                signature.text()
            )));
        }
        Ok(Body::Native { address: body.address, data: body.data, _kept: kept })
    }

    pub(crate) fn is_python(&self) -> bool {
        matches!(self, Body::Python(_))
    }

    /// Calls a Python body for a participant of `flow`.
    pub(crate) fn call<'py>(
        &self,
        py: Python<'py>,
        flow: &Flow,
        arguments: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Body::Python(function) => function.call(py, flow, arguments),
            Body::Native { .. } => Err(PyTypeError::new_err("native code cannot be called with Python objects")),
        }
    }

    /// Runs a chunk of a range section.
    pub(crate) fn run_range(&self, flow: &Flow, range: Range<usize>) {
        match self {
            Body::Python(function) => {
                flow.body(|py| function.call(py, flow, (range.start, range.end).into_pyobject(py)?).map(drop));
            }
            Body::Native { address, data, .. } => {
                if flow.is_led_here() {
                    flow.before_native_chunk();
                }
                if !flow.stopped() {
                    let _task = flow.task();
                    // SAFETY: `threadteam.native` made the address from a function of this signature, held by `_kept`.
                    let function =
                        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(i64, i64, *mut c_void)>(*address) };
                    // SAFETY: the user vouches for the function and that it may run on several threads at once.
                    unsafe { function(range.start as i64, range.end as i64, *data as *mut c_void) }
                }
            }
        }
    }

    /// Runs one job or one participant's share, with what `arguments` makes for a Python callable.
    pub(crate) fn run_index<'b>(
        &self,
        flow: &Flow,
        index: usize,
        arguments: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>> + 'b,
    ) -> bool {
        match self {
            Body::Python(function) => flow.body(|py| function.call(py, flow, arguments(py)?).map(drop)),
            Body::Native { address, data, .. } => {
                if flow.is_led_here() {
                    flow.before_native_chunk();
                }
                if flow.stopped() {
                    return false;
                }
                let _task = flow.task();
                // SAFETY: as in `run_range`.
                let function =
                    unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(i64, *mut c_void)>(*address) };
                // SAFETY: as in `run_range`.
                unsafe { function(index as i64, *data as *mut c_void) }
                true
            }
        }
    }
}
