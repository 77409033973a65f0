//! What one parallel section costs in threadteam and in its peers, against a store-and-poll floor, all in one run.

mod arms;
mod clock;
mod lines;
mod options;
mod probe;
mod report;
mod scenarios;
mod session;
mod stats;
mod system;
mod targets;
mod work;

use arms::{Arm, Arms, Kind, FLOOR, SERIAL};
use clock::Clock;
use options::{Command, Options};
use report::{Legend, Machine, Missing, Report, Round};
use scenarios::{Body, Case, Metric, Neighbour};
use session::Bench;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use work::Work;

fn main() -> ExitCode {
    let done = match options::parse() {
        Ok(Command::Help) => {
            print!("{}", options::HELP);
            Ok(())
        }
        Ok(Command::Hog { cpu, batch }) => match system::be_a_hog(cpu, batch) {
            Ok(never) => match never {},
            Err(error) => Err(format!("the CPU hog cannot start: {error}")),
        },
        Ok(Command::Run(options)) if options.lines => lines(&options),
        Ok(Command::Run(options)) => run(&options),
        Err(error) => Err(format!("{error} (see --help)")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("dispatch: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Measures what many lines cost, and runs nothing else.
fn lines(options: &Options) -> Result<(), String> {
    let clock = Clock::calibrate();
    let measured =
        lines::measure(&clock, &cpus()?).map_err(|error| format!("the lines cannot be measured: {error}"))?;
    print!("{}", lines::table(&measured));
    write_json(options, &measured)
}

/// The CPUs of this process, at least two.
fn cpus() -> Result<Vec<usize>, String> {
    let cpus = system::cpus().map_err(|error| format!("the CPUs of this process are unknown: {error}"))?;
    match cpus.len() {
        0 | 1 => Err(format!("two CPUs are needed, this process may use {}", cpus.len())),
        _ => Ok(cpus),
    }
}

fn write_json(options: &Options, report: &impl serde::Serialize) -> Result<(), String> {
    let Some(path) = &options.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let made = folder.map_or(Ok(()), std::fs::create_dir_all);
    let written = made.and_then(|()| std::fs::write(path, text + "\n"));
    written.map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

fn run(options: &Options) -> Result<(), String> {
    let Arms { found, missing } = arms::all(&options.openmp, options.onetbb.as_deref());
    let arms: Vec<&dyn Arm> = found
        .iter()
        .map(Box::as_ref)
        .filter(|arm| [FLOOR, SERIAL].contains(&arm.name()) || options.wants_arm(arm.name()))
        .collect();
    let cases: Vec<Case> = scenarios::all().into_iter().filter(|case| options.wants_scenario(case.name)).collect();
    if options.list {
        arms.iter().for_each(|arm| println!("arm       {:<20} {}", arm.name(), arm.about()));
        cases.iter().for_each(|case| println!("scenario  {:<20} {}", case.name, case.about));
        return Ok(());
    }
    if cases.is_empty() {
        return Err("no scenario has a name like that (see --list)".into());
    }

    let cpus = cpus()?;
    if options.threads > cpus.len() {
        let count = cpus.len();
        return Err(format!("--threads takes at most the {count} CPUs of this process; the crowd scenarios use more"));
    }
    let clock = Clock::calibrate();
    let bench =
        Bench { work: Work::calibrate(&clock), clock, cpus, threads: options.threads, pin_all: options.pin_all };
    let mut report = Report {
        machine: machine(&bench, options)?,
        arms: arms.iter().map(|arm| legend(*arm)).collect(),
        missing: missing.into_iter().map(|(name, reason)| Missing { name, reason }).collect(),
        scenarios: Vec::new(),
        targets: Vec::new(),
    };
    println!("{}", report::heading(&bench, &report));
    for case in &cases {
        let scenario = scenario(&bench, case, &arms, case.rounds_of(options.rounds))?;
        println!("{}", report::table(&scenario));
        report.scenarios.push(scenario);
    }
    report.targets = targets::judge(&report);
    println!("{}", targets::table(&report.targets, report.machine.wake_ns));
    write_json(options, &report)
}

/// Runs the rounds of one case: a probe, then every arm, starting with another one each time.
fn scenario(bench: &Bench, case: &Case, arms: &[&dyn Arm], rounds: usize) -> Result<report::ScenarioReport, String> {
    let arms: Vec<&dyn Arm> = arms.iter().copied().filter(|arm| applies(case, *arm)).collect();
    let floor = arms.iter().copied().find(|arm| arm.is_floor());
    let mut failed = vec![None; arms.len()];
    let mut done = Vec::with_capacity(rounds);
    let company = system::Company::start();
    for number in 0..rounds {
        progress(&format!("{} {}/{rounds}", case.name, number + 1));
        let trip = probe::round_trip(&bench.clock, &bench.cpus);
        let round_trip_ns = trip.map_err(|error| format!("the round trip cannot be probed: {error}"))?;
        let neighbours = neighbours(bench, case.neighbour);
        let _neighbours = neighbours.map_err(|error| format!("the neighbour cannot be started: {error}"))?;
        let mut outcomes: Vec<_> = arms.iter().map(|_| Err(String::new())).collect();
        for step in 0..arms.len() {
            let index = (step + number) % arms.len();
            // An arm that cannot run a case cannot run it in the next round either.
            outcomes[index] = match &failed[index] {
                Some(reason) => Err(String::clone(reason)),
                None => session::measure_beside(bench, floor, arms[index], case),
            };
            failed[index] = outcomes[index].as_ref().err().cloned();
        }
        done.push(Round { round_trip_ns, outcomes });
    }
    progress("");
    Ok(report::reduce(case, &arms, &done, company.share()))
}

/// Runs until it is dropped.
fn neighbours(bench: &Bench, kind: Neighbour) -> std::io::Result<Vec<system::Hog>> {
    let (cpus, batch) = match kind {
        Neighbour::Nobody => (&[][..], false),
        Neighbour::Hog => (&bench.cpus[bench.cpus.len() - 1..], false),
        Neighbour::Batch => (&bench.cpus[..], true),
    };
    cpus.iter().map(|&cpu| system::Hog::start(cpu, batch)).collect()
}

fn applies(case: &Case, arm: &dyn Arm) -> bool {
    match case.body {
        _ if case.metric == Metric::IdleCpu => arm.kind() != Kind::Serial,
        Body::Rendezvous => arm.overlaps(),
        _ if case.crowd > 1 && arm.is_floor() => case.versus_floor,
        _ => arm.kind() != Kind::Serial || case.versus_serial,
    }
}

fn legend(arm: &dyn Arm) -> Legend {
    Legend { name: arm.name().into(), kind: arm.kind().label(), about: arm.about().into() }
}

fn machine(bench: &Bench, options: &Options) -> Result<Machine, String> {
    let (cpu, kernel) = system::description();
    let counter = AtomicU64::new(0);
    let probes = probe::round_trip(&bench.clock, &bench.cpus)
        .and_then(|trip| Ok((trip, probe::wake(&bench.clock, &bench.cpus)?)));
    let (round_trip_ns, wake_ns) = probes.map_err(|error| format!("the machine cannot be probed: {error}"))?;
    Ok(Machine {
        cpu,
        kernel,
        cpus: bench.cpus.len(),
        threads: bench.threads,
        rounds: options.rounds,
        counter_ghz: bench.clock.ticks_per_ns,
        stamp_ns: bench.clock.stamp_ns,
        pause_ns: bench.clock.per_call_ns(std::hint::spin_loop),
        locked_add_ns: bench.clock.per_call_ns(|| {
            counter.fetch_add(1, Ordering::Relaxed);
        }),
        round_trip_ns,
        wake_ns,
        pinning: if bench.pin_all { "every arm" } else { "the floor only" },
    })
}

/// Shows where the run is, on a terminal only.
fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}");
        let _ = stderr.flush();
    }
}
