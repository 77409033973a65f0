//! NumPy arrays as the memory of a run: what is accepted, and what is said about the rest.

use std::ops::Range;

use numpy::npyffi::{self, PY_ARRAY_API};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyImportError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use threadteam::ForkLock;
use threadteam_program::{Buffer, BufferMut, Dtype};

/// NumPy's descriptor of `dtype`.
pub(super) fn descriptor(py: Python<'_>, dtype: Dtype) -> PyResult<Bound<'_, PyArrayDescr>> {
    // No lock is held while NumPy makes one: two threads may, and the later one counts.
    static DESCRIPTORS: [ForkLock<Option<Py<PyArrayDescr>>>; Dtype::ALL.len()] =
        [const { ForkLock::new(None) }; Dtype::ALL.len()];
    let known = &DESCRIPTORS[dtype as usize];
    if let Some(descriptor) = &*known.lock() {
        return Ok(descriptor.bind(py).clone());
    }
    let make = || match dtype {
        Dtype::Bfloat16 => {
            let module = py.import("ml_dtypes").map_err(|error| {
                let message = "bfloat16 arrays need the package ml_dtypes: pip install 'threadteam[onnx]'";
                let refined = PyImportError::new_err(message);
                refined.set_cause(py, Some(error));
                refined
            })?;
            PyArrayDescr::new(py, module.getattr("bfloat16")?)
        }
        other => PyArrayDescr::new(py, other.name()),
    };
    let descriptor = make()?;
    let earlier = known.lock().replace(descriptor.clone().unbind());
    drop(earlier);
    Ok(descriptor)
}

/// The element type that a descriptor of native byte order stands for.
pub(super) fn dtype_of(descriptor: &Bound<'_, PyArrayDescr>) -> PyResult<Option<Dtype>> {
    if descriptor.is_native_byteorder() == Some(false) {
        return Ok(None);
    }
    let name: String = descriptor.getattr("name")?.extract()?;
    let Some(dtype) = Dtype::from_name(&name) else { return Ok(None) };
    Ok(descriptor.is_equiv_to(&self::descriptor(descriptor.py(), dtype)?).then_some(dtype))
}

/// The fields of an array that the macros of NumPy's C interface read.
pub(super) struct Raw {
    pub(super) data: *mut u8,
    pub(super) bytes: usize,
    flags: i32,
}

impl Raw {
    pub(super) fn of(array: &Bound<'_, PyUntypedArray>, item: usize) -> Self {
        // SAFETY: `array` is an array, so it has these fields. Whoever moves its memory meanwhile breaks NumPy's own functions too.
        let (data, flags) = unsafe {
            let fields = npyffi::_PyArray_GET_ITEM_DATA(array.as_array_ptr());
            ((*fields).data.cast(), (*fields).flags)
        };
        Raw { data, bytes: array.len() * item, flags }
    }

    /// Whether the elements are row-major without gaps, at addresses that suit their type.
    pub(super) fn is_plain(&self, alignment: usize) -> bool {
        let wanted = npyffi::NPY_ARRAY_C_CONTIGUOUS;
        self.flags & wanted == wanted && self.data.addr().is_multiple_of(alignment)
    }

    fn is_writeable(&self) -> bool {
        self.flags & npyffi::NPY_ARRAY_WRITEABLE != 0
    }

    /// The addresses of the elements.
    pub(super) fn span(&self) -> Range<usize> {
        self.data.addr()..self.data.addr() + self.bytes
    }
}

/// An input or an output as arrays have to be.
pub(super) struct ArrayPort {
    /// `"input"` or `"output"`.
    what: &'static str,
    name: String,
    dtype: Dtype,
    descriptor: Py<PyArrayDescr>,
    dims: Vec<usize>,
}

impl ArrayPort {
    pub(super) fn new(
        py: Python<'_>,
        what: &'static str,
        name: String,
        dtype: Dtype,
        dims: Vec<usize>,
    ) -> PyResult<Self> {
        Ok(ArrayPort { what, name, dtype, descriptor: descriptor(py, dtype)?.unbind(), dims })
    }

    /// The memory of an array given as this input.
    pub(super) fn input<'a>(&self, object: &'a Bound<'_, PyAny>) -> PyResult<(Buffer<'a>, Range<usize>)> {
        let raw = self.check(object)?;
        // SAFETY: the caller keeps `object` alive for `'a`; Python code that writes to an array while it is in use by a
        // run gets unspecified elements, as with NumPy's own functions.
        Ok((unsafe { Buffer::from_raw(raw.data, raw.bytes) }, raw.span()))
    }

    /// The memory of an array given as this output, which must lie apart from all of `others`.
    pub(super) fn output<'a>(
        &self,
        object: &'a Bound<'_, PyAny>,
        mut others: impl Iterator<Item = Range<usize>>,
    ) -> PyResult<(BufferMut<'a>, Range<usize>)> {
        let raw = self.check(object)?;
        if !raw.is_writeable() {
            return Err(self.refuse("is read-only; give a writeable array or None"));
        }
        let span = raw.span();
        if others.any(|other| span.start < other.end && other.start < span.end) {
            return Err(self.refuse("shares memory with an input, a constant or another output; give one of its own"));
        }
        // SAFETY: the caller keeps `object` alive for `'a`, and it overlaps nothing else of the run.
        Ok((unsafe { BufferMut::from_raw(raw.data, raw.bytes) }, span))
    }

    /// A new array for this output, its elements not initialised.
    pub(super) fn allocate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        empty(self.descriptor.bind(py).clone(), &self.dims)
    }

    fn check(&self, object: &Bound<'_, PyAny>) -> PyResult<Raw> {
        let Ok(array) = object.cast::<PyUntypedArray>() else {
            let given = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "{} {} is a {given}, but a numpy.ndarray of {} is expected",
                self.what, self.name, self.dtype
            )));
        };
        if !self.has_dtype(array) {
            let given = array.dtype().str()?;
            let expected = self.dtype;
            let message =
                format!("{} {} is {given}, but {expected} of native byte order is expected", self.what, self.name);
            return Err(PyTypeError::new_err(message));
        }
        if array.shape() != self.dims {
            let (given, expected) = (array.shape(), &self.dims);
            return Err(self.refuse(&format!("has the shape {given:?}, but {expected:?} is expected")));
        }
        let raw = Raw::of(array, self.dtype.size());
        if !raw.is_plain(self.dtype.alignment()) {
            return Err(
                self.refuse("is not C-contiguous and aligned; numpy.require(array, requirements='CA') makes it so")
            );
        }
        Ok(raw)
    }

    fn has_dtype(&self, array: &Bound<'_, PyUntypedArray>) -> bool {
        let expected = self.descriptor.bind(array.py());
        let given = array.dtype();
        given.is(expected) || (given.is_equiv_to(expected) && given.is_native_byteorder() != Some(false))
    }

    fn refuse(&self, why: &str) -> PyErr {
        PyValueError::new_err(format!("{} {} {why}", self.what, self.name))
    }
}

/// A new C-contiguous array, its elements not initialised.
pub(super) fn empty<'py>(descriptor: Bound<'py, PyArrayDescr>, dims: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let py = descriptor.py();
    let mut dims: Vec<_> = dims.iter().map(|&extent| extent as npyffi::npy_intp).collect();
    let rank = dims.len() as std::ffi::c_int;
    // SAFETY: `dims` has `rank` extents; the call takes over the reference to the descriptor, and returns a new
    // reference or null with an exception set.
    unsafe {
        let array = PY_ARRAY_API.PyArray_Empty(py, rank, dims.as_mut_ptr(), descriptor.into_dtype_ptr(), 0);
        Bound::from_owned_ptr_or_err(py, array)
    }
}
