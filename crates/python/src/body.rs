//! What runs in a section: a Python callable, or native code that never takes the interpreter.

use crate::arguments;
use crate::attach;
use crate::callable::Callable;
use crate::ending::{self, Watched};
use crate::flow::Flow;
use crate::life;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyFunction};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
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
    address: NonZeroUsize,
    data: usize,
    signature: Signature,
    /// What the two addresses belong to.
    kept: Py<PyAny>,
    description: String,
}

impl Drop for NativeBody {
    fn drop(&mut self) {
        // Whatever thread drops it may run a finaliser of what it kept.
        ending::watch();
    }
}

#[pymethods]
impl NativeBody {
    #[new]
    fn new(
        address: Watched<usize>,
        data: Watched<usize>,
        signature: &str,
        kept: Py<PyAny>,
        description: String,
    ) -> PyResult<Self> {
        let (Watched(address), Watched(data)) = (address, data);
        let signature = match signature {
            "range" => Signature::Range,
            "index" => Signature::Index,
            other => return Err(PyTypeError::new_err(format!("signature {other:?}, expected 'range' or 'index'"))),
        };
        let Some(address) = NonZeroUsize::new(address) else {
            return Err(PyTypeError::new_err(format!("{description} is a null function pointer")));
        };
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
        self.address.get()
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
        code: Code,
        /// The argument, or what was made of it: what the code's two addresses belong to.
        _kept: Kept<'a>,
    },
}

/// Native code and its data. Sections copy it into their closures, which saves participants a cache line.
#[derive(Clone, Copy)]
pub(crate) struct Code {
    address: NonZeroUsize,
    data: usize,
}

impl Code {
    /// Runs a chunk of a range section.
    pub(crate) fn run_range(self, flow: &Flow, range: Range<usize>) {
        if !may_run(flow) {
            return;
        }
        let _task = flow.task();
        // SAFETY: `threadteam.native` made the address from a function of this signature; the caller has it (`Kept`).
        let function =
            unsafe { std::mem::transmute::<NonZeroUsize, unsafe extern "C" fn(i64, i64, *mut c_void)>(self.address) };
        // SAFETY: the user vouches for the function and that it may run on several threads at once.
        unsafe { function(range.start as i64, range.end as i64, self.data as *mut c_void) }
    }

    /// Runs one job or one participant's share; whether it did.
    pub(crate) fn run_index(self, flow: &Flow, index: usize) -> bool {
        if !may_run(flow) {
            return false;
        }
        let _task = flow.task();
        // SAFETY: as in `run_range`.
        let function =
            unsafe { std::mem::transmute::<NonZeroUsize, unsafe extern "C" fn(i64, *mut c_void)>(self.address) };
        // SAFETY: as in `run_range`.
        unsafe { function(index as i64, self.data as *mut c_void) }
        true
    }
}

/// Whether a native chunk may run now. The leader looks for signals on the way, which may say no.
fn may_run(flow: &Flow) -> bool {
    if flow.is_led_here() {
        flow.before_native_chunk();
    }
    !flow.stopped()
}

/// A native body that outlives the section.
pub(crate) enum Kept<'a> {
    /// The caller has it, so nothing counts references.
    Lent(PhantomData<&'a NativeBody>),
    /// Made for this section.
    Made { _body: Py<NativeBody> },
}

/// Whether it is a function of Python, or a built-in one.
///
/// The first call looks the two types up: made when the module is.
pub(crate) fn is_function(given: &Bound<'_, PyAny>) -> bool {
    given.is_exact_instance_of::<PyFunction>() || given.is_exact_instance_of::<PyCFunction>()
}

impl<'a> Body<'a> {
    /// The body that `given` stands for, as an argument of `operation`.
    pub(crate) fn of(given: &'a Bound<'_, PyAny>, signature: Signature, operation: &'static str) -> PyResult<Body<'a>> {
        if let Ok(native) = given.cast_exact::<NativeBody>() {
            return Body::native(native, signature, operation, Kept::Lent(PhantomData));
        }
        // Most bodies are functions: nothing about those needs a look.
        if is_function(given) {
            return Ok(Body::Python(Callable::new(given, operation)?));
        }
        let py = given.py();
        let recognised = match py.import("threadteam._bodies") {
            // The modules are gone, and with them the libraries whose functions it recognises.
            Err(_) if life::closing() => None,
            bodies => Some(attach::call_method(bodies?.as_any(), "recognise", (given, signature.name()))?),
        };
        if let Some(Ok(native)) = recognised.as_ref().map(Bound::cast_exact::<NativeBody>) {
            return Body::native(native, signature, operation, Kept::Made { _body: native.clone().unbind() });
        }
        if !given.is_callable() {
            let expected = "callable or native code (threadteam.native wraps a function pointer)";
            return Err(arguments::refusal(given, format_args!("body of {operation}"), expected));
        }
        Ok(Body::Python(Callable::new(given, operation)?))
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
        Ok(Body::Native { code: Code { address: body.address, data: body.data }, _kept: kept })
    }

    pub(crate) fn is_python(&self) -> bool {
        matches!(self, Body::Python(_))
    }
}
