//! The width of a pool that is given none.

use std::num::NonZeroUsize;
use std::path::Path;

/// What the process may use at once: its affinity mask and its control group's quota, as the standard library reads them.
///
/// When the mask has every CPU of the machine, simultaneous multithreading does not count: one participant a core, since
/// a second thread on a core does not speed up compute-bound work. A narrower mask is taken at its word.
pub(crate) fn default_width() -> NonZeroUsize {
    let allowed = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    cores_of_whole_machine(Path::new("/sys/devices/system/cpu"), mask_size())
        .map_or(allowed, |cores| allowed.min(cores))
}

/// The cores of the machine below `base`, if `mask` CPUs are all that it has online.
fn cores_of_whole_machine(base: &Path, mask: Option<usize>) -> Option<NonZeroUsize> {
    let online = cpu_list(&std::fs::read_to_string(base.join("online")).ok()?)?;
    if mask != Some(online.len()) {
        return None;
    }
    let leads_its_core = |&&cpu: &&usize| {
        let topology = base.join(format!("cpu{cpu}/topology"));
        let siblings = ["core_cpus_list", "thread_siblings_list"]
            .iter()
            .find_map(|name| cpu_list(&std::fs::read_to_string(topology.join(name)).ok()?));
        // A CPU that nothing is said about is a core of its own.
        siblings.is_none_or(|siblings| {
            !siblings.contains(&cpu) || siblings.iter().find(|sibling| online.contains(sibling)) == Some(&cpu)
        })
    };
    NonZeroUsize::new(online.iter().filter(leads_its_core).count())
}

/// The kernel's list format: `0-3,8`. `None` for anything else, and for more CPUs than a kernel numbers.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    const MOST: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last >= MOST || cpus.len() > MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(target_os = "linux")]
fn mask_size() -> Option<usize> {
    // SAFETY: the set is a plain value of the size given; pid 0 is the calling thread.
    unsafe {
        let mut mask: libc::cpu_set_t = std::mem::zeroed();
        let got = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut mask) == 0;
        got.then(|| libc::CPU_COUNT(&mask) as usize)
    }
}

#[cfg(not(target_os = "linux"))]
fn mask_size() -> Option<usize> {
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory that stands for `/sys/devices/system/cpu`.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, online: &str, siblings: &[&str]) -> Self {
            let base = std::env::temp_dir().join(format!("threadteam-width-{name}-{}", std::process::id()));
            for (cpu, list) in siblings.iter().enumerate() {
                let topology = base.join(format!("cpu{cpu}/topology"));
                std::fs::create_dir_all(&topology).unwrap();
                std::fs::write(topology.join("core_cpus_list"), list).unwrap();
            }
            std::fs::create_dir_all(&base).unwrap();
            std::fs::write(base.join("online"), online).unwrap();
            Tree(base)
        }

        fn cores(&self, mask: usize) -> Option<usize> {
            cores_of_whole_machine(&self.0, Some(mask)).map(NonZeroUsize::get)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn siblings_of_a_whole_machine_count_once() {
        let adjacent = Tree::new("adjacent", "0-3\n", &["0-1\n", "0-1\n", "2-3\n", "2-3\n"]);
        let rounds = Tree::new("rounds", "0-3\n", &["0,2\n", "1,3\n", "0,2\n", "1,3\n"]);
        assert_eq!((adjacent.cores(4), rounds.cores(4)), (Some(2), Some(2)));
    }

    #[test]
    fn a_narrower_mask_is_taken_at_its_word() {
        let tree = Tree::new("narrow", "0-3\n", &["0-1\n", "0-1\n", "2-3\n", "2-3\n"]);
        assert_eq!(tree.cores(2), None);
        assert_eq!(cores_of_whole_machine(&tree.0, None), None);
    }

    #[test]
    fn an_offline_sibling_does_not_hide_its_core() {
        let tree = Tree::new("offline", "1-3\n", &["0-1\n", "0-1\n", "2-3\n", "2-3\n"]);
        assert_eq!(tree.cores(3), Some(2));
    }

    #[test]
    fn cpus_that_nothing_is_said_about_are_cores() {
        let tree = Tree::new("silent", "0-2\n", &["nonsense"]);
        assert_eq!(tree.cores(3), Some(3));
    }

    #[test]
    fn a_list_that_is_none_is_refused() {
        for text in ["", "a", "0-", "-1", "0-99999999999", "1,,2", "0-65536"] {
            assert_eq!(cpu_list(text), None, "{text:?}");
        }
        assert_eq!(cpu_list(" 0-2,7\n"), Some(vec![0, 1, 2, 7]));
    }

    #[test]
    fn a_missing_tree_says_nothing() {
        assert_eq!(cores_of_whole_machine(Path::new("/no/such/tree"), Some(4)), None);
    }
}
