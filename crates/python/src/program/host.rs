//! Steps that call a Python function.

use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyList, PyTuple};
use threadteam_program::{Buffer, BufferMut, HostCall, HostError, HostInput, HostOutput};

use crate::attach::{self, attached, call};
use crate::collectable::Collectable;

use super::arrays::{descriptor, dtype_of, empty, Raw};

/// A Python function called as `function(*copies of the inputs)`, which returns a tuple of arrays.
pub(super) struct PythonCall {
    pub(super) function: Collectable,
}

impl HostCall for PythonCall {
    fn call(&self, inputs: &[Option<HostInput<'_>>], outputs: &mut [Option<HostOutput<'_>>]) -> Result<(), HostError> {
        attached(|py| {
            let function = self.function.get(py).ok_or_else(|| failure("its function was collected as garbage"))?;
            let inputs = inputs.iter().map(|input| copy_out(py, input.as_ref())).collect::<PyResult<Vec<_>>>();
            let arguments = inputs.and_then(|inputs| PyTuple::new(py, inputs)).map_err(raised)?;
            let results = results(&call(&function, &arguments).map_err(raised)?, outputs.len())?;
            for (at, (result, output)) in results.iter().zip(outputs).enumerate() {
                if let Some(output) = output {
                    copy_in(result, output).map_err(raised)?.map_err(|why| failure(&format!("result {at} {why}")))?;
                }
            }
            Ok(())
        })
    }
}

fn failure(message: &str) -> HostError {
    HostError { message: message.to_owned(), cause: None }
}

fn raised(error: PyErr) -> HostError {
    HostError { message: error.to_string(), cause: Some(Box::new(error)) }
}

/// A new array with the elements of an input, or `None` for an absent one.
fn copy_out<'py>(py: Python<'py>, input: Option<&HostInput<'_>>) -> PyResult<Bound<'py, PyAny>> {
    let Some(input) = input else { return Ok(py.None().into_bound(py)) };
    let array = empty(descriptor(py, input.dtype())?, input.dims())?;
    let raw = Raw::of(array.cast::<PyUntypedArray>()?, input.dtype().size());
    // SAFETY: the array is new, so nothing else reaches its elements.
    let mut target = unsafe { BufferMut::from_raw(raw.data, raw.bytes) };
    assert!(input.copy_to(&mut target), "NumPy aligns new arrays for their type");
    Ok(array)
}

/// The `expected` results of a call.
fn results<'py>(returned: &Bound<'py, PyAny>, expected: usize) -> Result<Vec<Bound<'py, PyAny>>, HostError> {
    let results: Vec<_> = if let Ok(tuple) = returned.cast::<PyTuple>() {
        tuple.iter().collect()
    } else if let Ok(list) = returned.cast::<PyList>() {
        list.iter().collect()
    } else {
        let given = returned.get_type().name().map_err(raised)?;
        return Err(failure(&format!("its function returned a {given}, but a tuple of {expected} arrays is expected")));
    };
    if results.len() == expected {
        Ok(results)
    } else {
        Err(failure(&format!("its function returned {} results, but {expected} are expected", results.len())))
    }
}

/// Copies a result to an output, or says why it does not fit.
fn copy_in(result: &Bound<'_, PyAny>, output: &mut HostOutput<'_>) -> PyResult<Result<(), String>> {
    let py = result.py();
    let numpy = py.import("numpy")?;
    let mut object = result.clone();
    if object.is_instance(&numpy.getattr("generic")?)? {
        object = attach::call_method(numpy.as_any(), "asarray", (object,))?;
    }
    let Ok(array) = object.cast::<PyUntypedArray>() else {
        return Ok(Err(format!("is a {}, but an array is expected", result.get_type().name()?)));
    };
    if dtype_of(&array.dtype())? != Some(output.dtype()) {
        return Ok(Err(format!("is {}, but {} is expected", array.dtype().str()?, output.dtype())));
    }
    if array.shape() != output.dims() {
        return Ok(Err(format!("has the shape {:?}, but {:?} is expected", array.shape(), output.dims())));
    }
    let mut array = array.clone();
    if !Raw::of(&array, output.dtype().size()).is_plain(output.dtype().alignment()) {
        let options = [("order", "C")].into_py_dict(py)?;
        array = numpy.getattr("array")?.call((array,), Some(&options))?.cast_into::<PyUntypedArray>()?;
    }
    let raw = Raw::of(&array, output.dtype().size());
    // SAFETY: `array` is alive and holds this many bytes.
    let fits = output.copy_from(&unsafe { Buffer::from_raw(raw.data, raw.bytes) });
    assert!(fits, "type, shape and layout were checked");
    Ok(Ok(()))
}
