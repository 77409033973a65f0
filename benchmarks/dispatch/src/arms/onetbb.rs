//! oneTBB's `parallel_for`, through a small C++ library that is built from `shims/onetbb.cpp`.

use super::stage::STAGE;
use super::{Arm, Kind, Section, Visitor};
use libloading::Library;
use std::ffi::{c_int, c_void};

type With = unsafe extern "C" fn(c_int, extern "C" fn(*mut c_void), *mut c_void);
type For = unsafe extern "C" fn(usize, extern "C" fn(usize));

pub struct OneTbb {
    name: &'static str,
    about: &'static str,
    with: With,
    run: For,
}

/// The arms of the library `file`. Its threads outlive every section, so it is never unloaded.
pub fn load(file: &str) -> Result<Vec<Box<dyn Arm>>, String> {
    // SAFETY: the initialisers of oneTBB start no thread and have no other precondition.
    let library = unsafe { Library::new(file) }.map_err(|error| format!("{file} cannot be loaded: {error}"))?;
    let library = Box::leak(Box::new(library));
    let missing = |error: libloading::Error| format!("{file} is not built from shims/onetbb.cpp: {error}");
    // SAFETY: `shims/onetbb.cpp` defines the function with this signature.
    let with = *unsafe { library.get::<With>(b"onetbb_with\0") }.map_err(missing)?;
    let entry = |symbol: &[u8], name, about| -> Result<Box<dyn Arm>, String> {
        // SAFETY: as above.
        let run = *unsafe { library.get::<For>(symbol) }.map_err(missing)?;
        Ok(Box::new(OneTbb { name, about, with, run }))
    };
    Ok(vec![
        entry(b"onetbb_auto\0", "onetbb", "oneTBB: parallel_for inside an arena")?,
        entry(b"onetbb_static\0", "onetbb.static", "oneTBB: the same with its static partitioner")?,
    ])
}

impl Arm for OneTbb {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Claimed
    }

    fn about(&self) -> &str {
        self.about
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        let mut call = Call { run: self.run, visit };
        let threads = c_int::try_from(threads).map_err(|error| format!("{threads} threads: {error}"))?;
        // SAFETY: `enter` takes a `Call`, which outlives this call, on this thread.
        unsafe { (self.with)(threads, enter, (&raw mut call).cast()) };
        Ok(())
    }
}

struct Call<'v> {
    run: For,
    visit: Visitor<'v>,
}

extern "C" fn enter(data: *mut c_void) {
    // SAFETY: `with` passes its own `Call`, which nobody else uses meanwhile.
    let call = unsafe { &mut *data.cast::<Call<'_>>() };
    (call.visit)(&mut Loop(call.run));
}

struct Loop(For);

extern "C" fn part(part: usize) {
    STAGE.part(part);
}

impl Section for Loop {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        // SAFETY: `with` has entered the arena on this thread; `part` may run on any.
        unsafe { (self.0)(parts, part) };
    }
}
