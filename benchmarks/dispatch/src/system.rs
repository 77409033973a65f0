//! What the benchmark asks of Linux: affinity, the threads of this process, CPU time, a CPU hog.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::mem::{size_of, zeroed};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The kernel's number of a thread.
pub type Tid = libc::pid_t;

/// The calling thread.
pub fn tid() -> Tid {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// The CPUs that this process may use, ascending.
pub fn cpus() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the set outlives the call and its true size is passed.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Restricts a thread to `cpus`. A thread that has ended meanwhile is an error the caller may ignore.
pub fn restrict(thread: Tid, cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    for &cpu in cpus {
        // SAFETY: the CPUs come from `cpus()`, so they are below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set outlives the call and its true size is passed.
    match unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until no other thread of this process is running, at most for `limit`. False when one still is.
///
/// A worker that spins after its section would be a CPU hog to the arm that is measured next.
pub fn wait_until_quiet(limit: Duration) -> bool {
    let start = Instant::now();
    while !others_sleep() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

fn others_sleep() -> bool {
    let this = tid().to_string();
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return true };
    tasks.flatten().filter(|task| task.file_name() != *this).all(|task| {
        // The state is the first field after the name, which is in brackets and may contain any character.
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
    })
}

/// User and system time of this process so far.
pub fn cpu_time() -> Duration {
    cpu_time_of(libc::RUSAGE_SELF)
}

fn cpu_time_of(who: libc::c_int) -> Duration {
    // SAFETY: rusage is plain integers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: the structure outlives the call, which cannot fail for the constants used here.
    unsafe { libc::getrusage(who, &mut usage) };
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// How much CPU time other processes, and the hypervisor for other guests, take from a measurement.
pub struct Company {
    since: Instant,
    foreign: f64,
}

impl Company {
    pub fn start() -> Company {
        Company { since: Instant::now(), foreign: foreign_seconds() }
    }

    /// The share of one CPU since the start.
    pub fn share(&self) -> f64 {
        ((foreign_seconds() - self.foreign) / self.since.elapsed().as_secs_f64()).max(0.0)
    }
}

/// CPU seconds used on this machine that are neither this process's nor its ended children's.
fn foreign_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // user nice system idle iowait irq softirq steal, in ticks; see proc_stat(5).
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: f64 = fields
        .take(8)
        .enumerate()
        .filter(|(field, _)| ![3, 4].contains(field))
        .filter_map(|(_, value)| value.parse::<f64>().ok())
        .sum();
    // SAFETY: sysconf has no precondition.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let own = cpu_time() + cpu_time_of(libc::RUSAGE_CHILDREN);
    ticks / per_second - own.as_secs_f64()
}

/// The processor's name and the kernel's version, for the record.
pub fn description() -> (String, String) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo")
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_string());
    (model, read("/proc/sys/kernel/osrelease").trim().to_string())
}

/// A process that uses all of one CPU until it is dropped.
pub struct Hog(Child);

impl Hog {
    /// Starts this program again as a hog, in the class for batch work or in the ordinary one, and waits until it spins.
    pub fn start(cpu: usize, batch: bool) -> io::Result<Hog> {
        let program = std::env::current_exe()?;
        let option = if batch { "--batch-hog" } else { "--hog" };
        let mut child = Command::new(program).arg(option).arg(cpu.to_string()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().expect("standard output was requested");
        let hog = Hog(child);
        BufReader::new(output).read_line(&mut String::new())?;
        Ok(hog)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // Both fail only if the hog is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hog itself: never returns, and ends with the process that started it.
pub fn be_a_hog(cpu: usize, batch: bool) -> io::Result<std::convert::Infallible> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and no pointer.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    restrict(0, &[cpu])?;
    if batch {
        // SAFETY: all-zero parameters are valid, and the class has no priority of its own.
        let changed = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &zeroed()) };
        if changed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    println!("spinning");
    loop {
        crate::work::chain(1 << 20);
    }
}
