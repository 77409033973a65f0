//! From the rounds of a case to its table and its JSON.

use crate::arms::{Arm, FLOOR, SERIAL};
use crate::scenarios::{Body, Case, Metric};
use crate::session::{Bench, Outcome, IDLE};
use crate::stats::{median, quantile, sort};
use crate::targets::Verdict;
use serde::Serialize;
use std::fmt::Write;

/// The whole run.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub arms: Vec<Legend>,
    pub missing: Vec<Missing>,
    pub scenarios: Vec<ScenarioReport>,
    pub targets: Vec<Verdict>,
}

#[derive(Serialize)]
pub struct Machine {
    pub cpu: String,
    pub kernel: String,
    pub cpus: usize,
    pub threads: usize,
    pub rounds: usize,
    pub counter_ghz: f64,
    pub stamp_ns: f64,
    pub pause_ns: f64,
    pub locked_add_ns: f64,
    pub round_trip_ns: f64,
    pub wake_ns: f64,
    pub pinning: &'static str,
}

#[derive(Serialize)]
pub struct Legend {
    pub name: String,
    pub kind: &'static str,
    pub about: String,
}

#[derive(Serialize)]
pub struct Missing {
    pub name: String,
    pub reason: String,
}

#[derive(Serialize)]
pub struct ScenarioReport {
    pub name: &'static str,
    pub about: &'static str,
    pub metric: &'static str,
    pub rounds: usize,
    /// How much of one CPU other processes and other guests used meanwhile.
    pub company: f64,
    /// One probe per round.
    pub round_trip_ns: Vec<f64>,
    /// The time a body claims to take, and the median and extremes of what it took, over all sessions.
    pub body_ns: Option<BodyTime>,
    pub arms: Vec<ArmReport>,
    pub skipped: Vec<Missing>,
}

#[derive(Serialize, Clone, Copy)]
pub struct BodyTime {
    pub claimed: f64,
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

#[derive(Serialize)]
pub struct ArmReport {
    pub name: String,
    pub sections: usize,
    pub participants: usize,
    pub pinned: bool,
    pub left_threads_running: bool,
    pub median_ns: f64,
    pub p90_ns: f64,
    pub p99_ns: f64,
    /// A section in a batch of sections, where batches were timed.
    pub batched_ns: Option<f64>,
    pub floor: Option<Ratio>,
    pub serial: Option<Ratio>,
    /// What the ratios are formed of: of each round the median batch, or the median section without batches.
    pub round_ns: Vec<f64>,
    /// The same of the floor, measured right before; empty where the case does not compare with it.
    pub floor_round_ns: Vec<f64>,
}

/// Ratios to another arm in the same round.
#[derive(Serialize, Clone, Copy)]
pub struct Ratio {
    /// Median over the rounds of the ratio of the rounds' figures.
    pub median: f64,
    /// The 90 % quantile over the rounds.
    pub p90: f64,
    /// The ratio of the p99 of all samples.
    pub of_p99: f64,
}

/// One round: the probe and what each arm gave.
pub struct Round {
    pub round_trip_ns: f64,
    pub outcomes: Vec<Result<Outcome, String>>,
}

/// Reduces the rounds of one case. `arms` are in the order of each round's outcomes; `company` is what other
/// processes used meanwhile.
pub fn reduce(case: &Case, arms: &[&dyn Arm], rounds: &[Round], company: f64) -> ScenarioReport {
    let good = |arm: usize| rounds.iter().map(move |round| round.outcomes[arm].as_ref().ok());
    let index_of = |name: &str| arms.iter().position(|arm| arm.name() == name);
    let mut reports = Vec::new();
    let mut skipped = Vec::new();
    for (index, arm) in arms.iter().enumerate() {
        if let Some(reason) = rounds.iter().find_map(|round| round.outcomes[index].as_ref().err()) {
            skipped.push(Missing { name: arm.name().into(), reason: reason.clone() });
        }
        let sessions: Vec<&Outcome> = good(index).flatten().collect();
        if sessions.is_empty() {
            continue;
        }
        let samples = pooled(&sessions);
        let ratio = |wanted: bool, name: &str| -> Option<Ratio> {
            let other = index_of(name).filter(|&other| wanted && other != index)?;
            let of_round = |(own, other): (Option<&Outcome>, Option<&Outcome>)| {
                let other = if name == FLOOR { own?.floor_ns } else { other.map(Outcome::figure) };
                Some(own?.figure() / other?)
            };
            let mut ratios: Vec<f64> =
                good(index).zip(good(other)).filter_map(of_round).filter(|ratio| ratio.is_finite()).collect();
            sort(&mut ratios);
            let others = pooled(&good(other).flatten().collect::<Vec<_>>());
            let of_p99 = quantile(&samples, 0.99) / quantile(&others, 0.99);
            (!ratios.is_empty()).then(|| Ratio { median: quantile(&ratios, 0.5), p90: quantile(&ratios, 0.9), of_p99 })
        };
        reports.push(ArmReport {
            name: arm.name().into(),
            sections: samples.len(),
            participants: sessions.iter().map(|session| session.participants).min().unwrap_or(0),
            pinned: sessions[0].pinned,
            left_threads_running: sessions.iter().any(|session| !session.quiet_after),
            median_ns: quantile(&samples, 0.5),
            p90_ns: quantile(&samples, 0.9),
            p99_ns: quantile(&samples, 0.99),
            batched_ns: batched(&sessions),
            floor: ratio(case.versus_floor, FLOOR),
            serial: ratio(case.versus_serial, SERIAL),
            round_ns: sessions.iter().map(|session| session.figure()).collect(),
            floor_round_ns: sessions.iter().filter_map(|session| session.floor_ns).collect(),
        });
    }
    ScenarioReport {
        name: case.name,
        about: case.about,
        metric: match case.metric {
            Metric::Overhead => "time over the ideal, ns",
            Metric::Total => "time, ns",
            Metric::IdleCpu => "CPU time in 1 s, ns",
        },
        rounds: rounds.len(),
        company,
        round_trip_ns: rounds.iter().map(|round| round.round_trip_ns).collect(),
        body_ns: body_time(case, rounds),
        arms: reports,
        skipped,
    }
}

/// The median over the rounds of a section's time in a batch.
fn batched(sessions: &[&Outcome]) -> Option<f64> {
    let rounds = sessions.iter().filter(|session| !session.batches.is_empty());
    let mut figures: Vec<f64> = rounds.map(|session| session.figure()).collect();
    (!figures.is_empty()).then(|| median(&mut figures))
}

fn pooled(sessions: &[&Outcome]) -> Vec<f64> {
    let mut samples: Vec<f64> = sessions.iter().flat_map(|session| session.samples.iter().copied()).collect();
    sort(&mut samples);
    samples
}

fn body_time(case: &Case, rounds: &[Round]) -> Option<BodyTime> {
    let Body::Work(claimed) = case.body else { return None };
    let mut times: Vec<f64> =
        rounds.iter().flat_map(|round| &round.outcomes).flatten().map(|outcome| outcome.body_ns).collect();
    sort(&mut times);
    let (least, most) = (*times.first()?, *times.last()?);
    Some(BodyTime { claimed, median: quantile(&times, 0.5), least, most })
}

/// The table of one case.
pub fn table(report: &ScenarioReport) -> String {
    let mut trips = report.round_trip_ns.clone();
    sort(&mut trips);
    let mut text = format!(
        "{}: {}\n  {}; {} rounds; round trip {:.0} ns (p10 {:.0}, p90 {:.0}); other processes used {:.2} CPU\n",
        report.name,
        report.about,
        report.metric,
        report.rounds,
        quantile(&trips, 0.5),
        quantile(&trips, 0.1),
        quantile(&trips, 0.9),
        report.company,
    );
    if let Some(body) = report.body_ns {
        let _ = writeln!(
            text,
            "  a {:.0} ns body took {:.0} ns (least {:.0}, most {:.0})",
            body.claimed, body.median, body.least, body.most
        );
        if (body.median / body.claimed - 1.0).abs() > 0.05 {
            text.push_str("  warning: the body is more than 5 % off; the clock speed changed after calibration\n");
        }
    }
    let versus = |pick: fn(&ArmReport) -> Option<Ratio>| report.arms.iter().any(|arm| pick(arm).is_some());
    let (floor, serial) = (versus(|arm| arm.floor), versus(|arm| arm.serial));
    let _ = write!(text, "  {:<20} {:>10} {:>10} {:>10}", "", "median", "p90", "p99");
    let batched = report.arms.iter().any(|arm| arm.batched_ns.is_some());
    if batched {
        let _ = write!(text, " {:>10}", "batched");
    }
    if floor {
        let _ = write!(text, " {:>8} {:>8}", "x floor", "(p90)");
    }
    if serial {
        let _ = write!(text, " {:>8} {:>8} {:>8}", "x serial", "(p90)", "p99/p99");
    }
    text.push('\n');
    for arm in &report.arms {
        let _ = write!(
            text,
            "  {:<20} {:>10} {:>10} {:>10}",
            arm.name,
            amount(arm.median_ns),
            amount(arm.p90_ns),
            amount(arm.p99_ns)
        );
        if batched {
            let _ = write!(text, " {:>10}", arm.batched_ns.map_or(String::new(), amount));
        }
        if floor {
            let cell = |value: fn(Ratio) -> f64| arm.floor.map_or(String::new(), |ratio| times(value(ratio)));
            let _ = write!(text, " {:>8} {:>8}", cell(|ratio| ratio.median), cell(|ratio| ratio.p90));
        }
        if serial {
            let cell = |value: fn(Ratio) -> f64| arm.serial.map_or(String::new(), |ratio| times(value(ratio)));
            let _ = write!(
                text,
                " {:>8} {:>8} {:>8}",
                cell(|ratio| ratio.median),
                cell(|ratio| ratio.p90),
                cell(|ratio| ratio.of_p99)
            );
        }
        text.push_str(&notes(arm, report));
        text.push('\n');
    }
    for skipped in &report.skipped {
        let _ = writeln!(text, "  {:<20} skipped: {}", skipped.name, skipped.reason);
    }
    text
}

fn notes(arm: &ArmReport, report: &ScenarioReport) -> String {
    let mut notes = Vec::new();
    if report.arms.iter().any(|other| other.pinned) && !arm.pinned {
        notes.push("not pinned");
    }
    if arm.participants < 2 && arm.name != SERIAL {
        notes.push("one participant");
    }
    if arm.left_threads_running {
        notes.push("left threads running");
    }
    match notes.is_empty() {
        true => String::new(),
        false => format!("  {}", notes.join(", ")),
    }
}

/// A time in the unit that suits it.
pub fn amount(ns: f64) -> String {
    match ns.abs() {
        size if size < 9_999.5 => format!("{ns:.0} ns"),
        size if size < 9_999_500.0 => format!("{:.1} us", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

pub fn times(ratio: f64) -> String {
    match ratio.abs() {
        size if size < 99.5 => format!("{ratio:.2}"),
        _ => format!("{ratio:.0}"),
    }
}

/// The lines above the tables.
pub fn heading(bench: &Bench, report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{} CPUs, {}, Linux {}\n\
         width {}, counter {:.3} GHz, a stamp {:.0} ns, PAUSE {:.1} ns, locked add {:.1} ns, round trip {:.0} ns\n\
         pinned in quiet cases: {}; an idle pool is watched for {} s\n\n",
        bench.cpus.len(),
        machine.cpu,
        machine.kernel,
        machine.threads,
        machine.counter_ghz,
        machine.stamp_ns,
        machine.pause_ns,
        machine.locked_add_ns,
        machine.round_trip_ns,
        machine.pinning,
        IDLE.as_secs(),
    );
    for arm in &report.arms {
        let _ = writeln!(text, "  {:<20} {:<8} {}", arm.name, arm.kind, arm.about);
    }
    for missing in &report.missing {
        let _ = writeln!(text, "  {:<20} missing: {}", missing.name, missing.reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms;
    use crate::scenarios;

    fn outcome(samples: &[f64], batches: &[f64], floor_ns: Option<f64>) -> Result<Outcome, String> {
        Ok(Outcome {
            samples: samples.to_vec(),
            batches: batches.to_vec(),
            body_ns: 0.0,
            participants: 2,
            pinned: true,
            quiet_after: true,
            floor_ns,
        })
    }

    fn reduced(own: [Result<Outcome, String>; 2]) -> ScenarioReport {
        let found = arms::all("", None).found;
        let pick = |name: &str| found.iter().find(|arm| arm.name() == name).map(|arm| &**arm).expect("the arm exists");
        let case = &scenarios::all()[0];
        // The floor's own turn in a round says nothing of what it takes beside another arm.
        let rounds = own.map(|own| Round { round_trip_ns: 100.0, outcomes: vec![outcome(&[1.0], &[], None), own] });
        reduce(case, &[pick(FLOOR), pick("fork_union")], &rounds, 0.0)
    }

    #[test]
    fn a_ratio_to_the_floor_is_formed_with_its_turn_right_before() {
        let report = reduced([outcome(&[200.0], &[], Some(100.0)), outcome(&[800.0], &[], Some(400.0))]);
        let ratio = report.arms[1].floor.expect("both ran");
        assert_eq!((ratio.median, ratio.p90), (2.0, 2.0));
    }

    #[test]
    fn batches_are_preferred_for_ratios() {
        let one = || outcome(&[200.0], &[150.0], Some(100.0));
        let report = reduced([one(), one()]);
        assert_eq!(report.arms[1].floor.expect("both ran").median, 1.5);
        assert_eq!(report.arms[1].median_ns, 200.0);
    }

    #[test]
    fn an_arm_that_failed_is_named_with_its_reason() {
        let report = reduced([Err("no pool".into()), Err("no pool".into())]);
        assert_eq!(report.arms.len(), 1);
        assert_eq!(report.skipped[0].reason, "no pool");
        assert!(table(&report).contains("skipped: no pool"));
    }
}
