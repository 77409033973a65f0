//! Threads that the interpreter ends, at its own end, in the middle of Python code.
//!
//! Before CPython 3.14 a daemon thread that asks for the interpreter during the finalisation is ended by `pthread_exit`, which unwinds
//! its stack by force. Rust frames do not survive that: the process would abort. Python code runs below Rust frames wherever the
//! interpreter is asked for anything: in a body or a hook, but also in the `__index__` of an argument, the `__repr__` of what an error
//! quotes, the `__del__` of what a drop lets go, or a collection that an allocation began. No call can be singled out as safe, so threads
//! are: one that was [watched](watch) sleeps in `pthread_exit`, before the first frame is unwound. CPython 3.14 lets such threads sleep
//! itself.

use pyo3::prelude::*;
use std::cell::Cell;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Sees to it that the calling thread sleeps when the interpreter ends it. To be called before Python code may run below this
/// thread's Rust frames, that is, before anything is asked of the interpreter.
#[inline]
pub(crate) fn watch() {
    if !WATCHED.get() {
        begin();
    }
}

/// An argument of a type whose extraction may run Python code: that happens before the function's first line.
pub(crate) struct Watched<T>(pub(crate) T);

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Watched<T> {
    type Error = T::Error;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> Result<Self, Self::Error> {
        watch();
        T::extract(given).map(Watched)
    }
}

#[cold]
fn begin() {
    WATCHED.set(true);
    #[cfg(target_os = "linux")]
    handler::push();
}

/// A cleanup handler of the thread, which its C library runs as `pthread_exit` begins. Elsewhere than on Linux that unwinds nothing.
#[cfg(target_os = "linux")]
mod handler {
    use crate::life;
    use pyo3::ffi;
    use std::ffi::{c_int, c_void};
    use std::ptr::NonNull;

    /// `struct _pthread_cleanup_buffer` of glibc, which has all that musl's has.
    #[repr(C)]
    struct Buffer {
        routine: usize,
        argument: usize,
        cancel_type: c_int,
        previous: usize,
    }

    unsafe extern "C" {
        fn _pthread_cleanup_push(buffer: *mut Buffer, routine: extern "C" fn(*mut c_void), argument: *mut c_void);
        fn _pthread_cleanup_pop(buffer: *mut Buffer, run: c_int);
    }

    /// The thread's buffer, until its thread-locals are destroyed.
    struct Pushed(NonNull<Buffer>);

    impl Drop for Pushed {
        fn drop(&mut self) {
            // SAFETY: `push` made it of a box and entered it in the list of this thread, where it is the last: what was entered later
            // was taken off again by the code that did so.
            unsafe {
                _pthread_cleanup_pop(self.0.as_ptr(), 0);
                drop(Box::from_raw(self.0.as_ptr()));
            }
        }
    }

    thread_local! {
        static PUSHED: std::cell::OnceCell<Pushed> = const { std::cell::OnceCell::new() };
    }

    /// The buffer lies outside of the stack. glibc runs a handler when the unwinding has left the frame that the buffer lies in: this
    /// one at once.
    pub(super) fn push() {
        // Not when the thread-locals are being destroyed.
        let _ = PUSHED.try_with(|pushed| {
            pushed.get_or_init(|| {
                let buffer = Box::leak(Box::new(Buffer { routine: 0, argument: 0, cancel_type: 0, previous: 0 }));
                let buffer = NonNull::from(buffer);
                // SAFETY: the buffer stays where it is until the thread has ended; the routine touches nothing of it.
                unsafe { _pthread_cleanup_push(buffer.as_ptr(), sleep_if_the_interpreter_ends, std::ptr::null_mut()) };
                Pushed(buffer)
            });
        });
    }

    extern "C" fn sleep_if_the_interpreter_ends(_nothing: *mut c_void) {
        if !life::closing() {
            return;
        }
        // SAFETY: both may be asked at any time.
        let uses_python = unsafe { ffi::Py_IsInitialized() == 0 || !ffi::PyGILState_GetThisThreadState().is_null() };
        // A thread that ends itself has no Python code on its stack, and somebody may wait for it.
        if uses_python {
            life::sleep_for_good();
        }
    }
}
