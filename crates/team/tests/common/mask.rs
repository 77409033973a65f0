//! The affinity mask of the calling thread, for tests that read and change it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use threadteam::{Exec, Pool};

pub type Mask = BTreeSet<usize>;

/// One test at a time, and the affinity mask of its thread back afterwards.
pub struct Alone {
    pub before: Mask,
    _guard: MutexGuard<'static, ()>,
}

pub fn alone() -> Alone {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    Alone { before: own_mask(), _guard: guard }
}

impl Drop for Alone {
    fn drop(&mut self) {
        set_own_mask(&self.before);
    }
}

pub fn own_mask() -> Mask {
    // SAFETY: an all-zero set is valid, the kernel writes at most its size, and the numbers are below it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

pub fn set_own_mask(mask: &Mask) {
    // SAFETY: an all-zero set is valid, and the numbers are below its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        mask.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}

/// The masks of all participants of the pool outside of any team scope.
pub fn masks_of(pool: &Pool) -> Vec<Mask> {
    let seen: Vec<Mutex<Mask>> = (0..pool.width().get()).map(|_| Mutex::default()).collect();
    let note = |index: usize| *seen[index].lock().unwrap() = own_mask();
    Exec::new(pool, pool.width().get()).unwrap().broadcast(note).unwrap();
    seen.into_iter().map(|mask| mask.into_inner().unwrap()).collect()
}
