//! An OpenMP runtime through `GOMP_parallel`, the entry that compiled `#pragma omp parallel` calls. GNU's, LLVM's and
//! Intel's libraries all export it.

use super::stage::STAGE;
use super::{Arm, Kind, Section, Visitor};
use libloading::Library;
use std::error::Error;
use std::ffi::{c_int, c_uint, c_void};

type Parallel = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);
type ThreadNumber = unsafe extern "C" fn() -> c_int;

pub struct OpenMp {
    name: String,
    about: String,
    parallel: Parallel,
    thread_number: ThreadNumber,
}

impl OpenMp {
    /// Loads a library such as `libgomp.so.1`. Its threads outlive every region, so it is never unloaded.
    pub fn load(file: &str) -> Result<OpenMp, String> {
        // SAFETY: the initialisers of an OpenMP runtime start no thread and have no other precondition.
        let library = unsafe { Library::new(file) };
        let library = library.map_err(|error| match error.source() {
            Some(reason) => format!("{file} cannot be loaded: {reason}"),
            None => format!("{file} cannot be loaded: {error}"),
        })?;
        let library = Box::leak(Box::new(library));
        let missing = |error: libloading::Error| format!("{file} is no OpenMP runtime: {error}");
        // SAFETY: the symbol has this signature in every OpenMP runtime that exports it.
        let parallel = *unsafe { library.get::<Parallel>(b"GOMP_parallel\0") }.map_err(missing)?;
        // SAFETY: as above; the signature is set by the OpenMP standard.
        let thread_number = *unsafe { library.get::<ThreadNumber>(b"omp_get_thread_num\0") }.map_err(missing)?;
        let base = file.rsplit('/').next().unwrap_or(file);
        let name = base.split(".so").next().unwrap_or(base).to_string();
        let about = format!("{base}: GOMP_parallel, one share per thread; default waiting");
        Ok(OpenMp { name, about, parallel, thread_number })
    }
}

impl Arm for OpenMp {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Gang
    }

    fn about(&self) -> &str {
        &self.about
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        let call = Box::new(Call { threads, thread_number: self.thread_number });
        visit(&mut Region { runtime: self, threads, call });
        Ok(())
    }
}

struct Region<'a> {
    runtime: &'a OpenMp,
    threads: usize,
    /// Made once, not for every section; see [`stage`](super::stage).
    call: Box<Call>,
}

#[repr(align(128))]
struct Call {
    threads: usize,
    thread_number: ThreadNumber,
}

extern "C" fn enter(data: *mut c_void) {
    // SAFETY: `run` passes a `Call` that lives until GOMP_parallel returns, which is after every thread has left here.
    let call = unsafe { &*data.cast::<Call>() };
    // SAFETY: no precondition; inside a region it is below the number of threads.
    let index = unsafe { (call.thread_number)() } as usize;
    STAGE.share(index, call.threads);
}

impl Section for Region<'_> {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        let data = (&raw const *self.call).cast_mut().cast();
        // SAFETY: `enter` takes a `Call` and only reads it, and the box outlives the region. No flags.
        unsafe { (self.runtime.parallel)(enter, data, self.threads as c_uint, 0) };
    }
}
