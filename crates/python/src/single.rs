//! Objects of which there is one: what stands for slots or threads is neither copied nor pickled.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Why a token cannot be copied or pickled.
pub(crate) fn refuse_copy(name: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "{name} cannot be copied or pickled: its slots would count twice; lend it with reborrow(), or take another token \
         from the pool"
    ))
}

/// Why a participant cannot be copied or pickled.
pub(crate) fn refuse_copy_of_participant(name: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "{name} cannot be copied or pickled: it stands for one share of a running section; hand the body what it needs"
    ))
}

/// Why the owner of threads cannot be copied or pickled.
pub(crate) fn refuse_copy_of_owner(name: &str) -> PyErr {
    PyTypeError::new_err(format!("{name} cannot be copied or pickled: it owns threads; make one in each process"))
}

/// Makes `copy`, `deepcopy` and `pickle` raise `TypeError` for a class; `$name` tells what its message calls the object.
///
/// `copy` and `deepcopy` have methods of their own: both would fall back on `__reduce_ex__`, but after a look into the
/// registry of `copyreg`, where somebody may have entered the class.
macro_rules! never_copied {
    ($class:ty, |$object:ident| $name:expr) => {
        $crate::single::never_copied!($class, |$object| $name, $crate::single::refuse_copy);
    };
    ($class:ty, |$object:ident| $name:expr, $refuse:path) => {
        #[pyo3::pymethods]
        impl $class {
            fn __copy__(&self) -> pyo3::PyResult<()> {
                let $object = self;
                Err($refuse($name))
            }

            fn __deepcopy__(&self, _memo: &pyo3::Bound<'_, pyo3::PyAny>) -> pyo3::PyResult<()> {
                self.__copy__()
            }

            fn __reduce_ex__(&self, _protocol: &pyo3::Bound<'_, pyo3::PyAny>) -> pyo3::PyResult<()> {
                self.__copy__()
            }
        }
    };
}

pub(crate) use never_copied;
