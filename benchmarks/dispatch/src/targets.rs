//! What this project promises of a section, and whether a run kept it.
//!
//! A row takes its figure from one scenario of the same run; the peers' figures beside it are formed in the same way.

use crate::report::{amount, times, ArmReport, Report, ScenarioReport};
use crate::stats::{quantile, sort};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is compared with the limit.
#[derive(Clone, Copy)]
enum Figure {
    /// The ratio to another arm inside each round: the median of the rounds.
    Times(&'static str),
    /// The same: the 90 % quantile of the rounds.
    TimesP90(&'static str),
    /// The ratio of the p99 of all sections.
    TimesOfP99(&'static str),
    /// How much more than another arm, in ns: the median of the rounds.
    Above(&'static str),
    /// The figure itself, in ns: the median of the rounds.
    Time,
}

use Figure::{Above, Time, Times, TimesOfP99, TimesP90};

#[derive(Clone, Copy)]
enum Limit {
    Fixed(f64),
    /// What it costs to wake a sleeping thread, as probed in the same run.
    OneWake,
}

use Limit::{Fixed, OneWake};

struct Target {
    scenario: &'static str,
    arm: &'static str,
    figure: Figure,
    limit: Limit,
}

const fn target(scenario: &'static str, arm: &'static str, figure: Figure, limit: Limit) -> Target {
    Target { scenario, arm, figure, limit }
}

const RUN: &str = "threadteam.run";
const TEAM: &str = "threadteam.team";
const PLAIN: &str = "threadteam.plain";
const SIZED: &str = "threadteam.sized";

const FLOOR: &str = crate::arms::FLOOR;
const SERIAL: &str = crate::arms::SERIAL;

/// Every target that Rust can measure; those of calls from Python are in `python_call`.
const TARGETS: &[Target] = &[
    // A section on a quiet machine, one CPU per participant.
    target("empty", TEAM, Times(FLOOR), Fixed(0.70)),
    target("empty", TEAM, TimesP90(FLOOR), Fixed(0.80)),
    target("empty", TEAM, Times("0.1.3.team"), Fixed(0.60)),
    target("empty", RUN, Times(FLOOR), Fixed(0.60)),
    target("empty", RUN, TimesP90(FLOOR), Fixed(0.75)),
    target("empty", RUN, Times("0.1.3.run"), Fixed(0.60)),
    target("rendezvous", RUN, Times(FLOOR), Fixed(1.10)),
    target("rendezvous", RUN, TimesP90(FLOOR), Fixed(1.20)),
    target("work-2us", TEAM, Times(FLOOR), Fixed(1.05)),
    target("work-2us", TEAM, TimesP90(FLOOR), Fixed(1.30)),
    target("work-2us", RUN, Times(FLOOR), Fixed(1.05)),
    target("work-2us", RUN, TimesP90(FLOOR), Fixed(1.30)),
    target("empty", PLAIN, Times(FLOOR), Fixed(0.75)),
    target("empty", PLAIN, TimesP90(FLOOR), Fixed(0.85)),
    target("empty", PLAIN, Times("0.1.3.plain"), Fixed(0.05)),
    target("work-2us", PLAIN, Times(FLOOR), Fixed(1.10)),
    target("work-2us", PLAIN, TimesP90(FLOOR), Fixed(1.30)),
    // Any size.
    target("size-200ns", SIZED, Times(SERIAL), Fixed(1.05)),
    target("size-1us", SIZED, Times(SERIAL), Fixed(1.05)),
    target("size-4us", SIZED, Times(SERIAL), Fixed(1.05)),
    target("size-20us", SIZED, Times(SERIAL), Fixed(1.05)),
    target("size-400us", SIZED, Times(SERIAL), Fixed(1.05)),
    // Pauses between sections.
    target("gap-10us", TEAM, Times(SERIAL), Fixed(1.05)),
    target("gap-100us", TEAM, Times(SERIAL), Fixed(1.05)),
    target("gap-1ms", TEAM, Above(SERIAL), Fixed(1000.0)),
    target("gap-1ms", PLAIN, Above(SERIAL), Fixed(1000.0)),
    target("gap-20ms", TEAM, Above(SERIAL), OneWake),
    target("gap-20ms", PLAIN, Above(SERIAL), OneWake),
    target("gap-20ms", RUN, Above(SERIAL), OneWake),
    // Company.
    target("hog-2us", TEAM, TimesOfP99(SERIAL), Fixed(1.5)),
    target("hog-2us", PLAIN, TimesOfP99(SERIAL), Fixed(1.5)),
    target("hog-10us", TEAM, TimesOfP99(SERIAL), Fixed(1.5)),
    target("hog-10us", PLAIN, TimesOfP99(SERIAL), Fixed(1.5)),
    target("hog-chunks", TEAM, TimesOfP99(SERIAL), Fixed(1.5)),
    target("hog-chunks", PLAIN, TimesOfP99(SERIAL), Fixed(1.5)),
    target("batch-10us", TEAM, TimesOfP99(SERIAL), Fixed(1.5)),
    target("batch-10us", PLAIN, TimesOfP99(SERIAL), Fixed(1.5)),
    target("batch-chunks", TEAM, TimesOfP99(SERIAL), Fixed(1.5)),
    target("batch-chunks", PLAIN, TimesOfP99(SERIAL), Fixed(1.5)),
    target("crowd-2us", TEAM, Above(SERIAL), Fixed(10_000.0)),
    target("crowd-2us", PLAIN, Above(SERIAL), Fixed(10_000.0)),
    target("crowd-2us", RUN, Above(SERIAL), Fixed(10_000.0)),
    target("crowd-10us", TEAM, Above(SERIAL), Fixed(10_000.0)),
    target("crowd-10us", TEAM, TimesOfP99(SERIAL), Fixed(1.5)),
    target("crowd-10us", PLAIN, TimesOfP99(SERIAL), Fixed(1.5)),
    target("throng-2us", TEAM, Above(SERIAL), Fixed(10_000.0)),
    target("throng-2us", PLAIN, Above(SERIAL), Fixed(10_000.0)),
    target("throng-2us", RUN, Above(SERIAL), Fixed(10_000.0)),
    target("throng-10us", TEAM, Above(SERIAL), Fixed(10_000.0)),
    target("throng-10us", TEAM, TimesOfP99(SERIAL), Fixed(1.5)),
    target("throng-10us", PLAIN, TimesOfP99(SERIAL), Fixed(1.5)),
    // What the measurement itself uses is below 0.1 ms.
    target("idle-later", TEAM, Time, Fixed(100_000.0)),
    target("idle-later", PLAIN, Time, Fixed(100_000.0)),
];

/// One row: a target and what the run gave.
#[derive(Serialize)]
pub struct Verdict {
    pub scenario: &'static str,
    pub arm: &'static str,
    pub figure: String,
    /// Whether the figure is a ratio; otherwise it is in ns.
    pub is_ratio: bool,
    pub limit: f64,
    pub measured: f64,
    /// The 10 % and 90 % quantiles of the rounds, where the figure is formed inside each.
    pub spread: Option<(f64, f64)>,
    pub met: bool,
    /// The same figure of each peer's best entry that ran the scenario.
    pub peers: BTreeMap<&'static str, f64>,
}

/// Every target whose scenario and arms were part of the run.
pub fn judge(report: &Report) -> Vec<Verdict> {
    TARGETS.iter().filter_map(|target| verdict(target, report)).collect()
}

fn verdict(target: &Target, report: &Report) -> Option<Verdict> {
    let scenario = report.scenarios.iter().find(|scenario| scenario.name == target.scenario)?;
    let (measured, spread) = measured(target.figure, scenario, target.arm)?;
    let limit = match target.limit {
        Fixed(limit) => limit,
        OneWake => report.machine.wake_ns,
    };
    let figure = match target.figure {
        Times(other) => format!("x {other}"),
        TimesP90(other) => format!("x {other}, p90"),
        TimesOfP99(other) => format!("p99 x {other}'s"),
        Above(other) => format!("more than {other}"),
        Time => "time".to_string(),
    };
    Some(Verdict {
        scenario: target.scenario,
        arm: target.arm,
        figure,
        is_ratio: !matches!(target.figure, Above(_) | Time),
        limit,
        measured,
        spread,
        met: measured <= limit,
        peers: peers(target, scenario),
    })
}

/// The peers, in the order of the columns, each named after its entries.
const PEERS: [&str; 7] = ["0.1.3", "0.3.0", "fork_union", "rayon", "chili", "libgomp", "onetbb"];

fn peers(target: &Target, scenario: &ScenarioReport) -> BTreeMap<&'static str, f64> {
    let entries = |peer: &'static str| scenario.arms.iter().filter(move |arm| is_entry(target.arm, peer, &arm.name));
    let best = |peer| {
        let figures = entries(peer).filter_map(|arm| Some(measured(target.figure, scenario, &arm.name)?.0));
        figures.min_by(f64::total_cmp).map(|best| (peer, best))
    };
    PEERS.into_iter().filter_map(best).collect()
}

/// Whether `name` is an entry of `peer` that belongs beside `arm`: of the published crates the one with the same name.
fn is_entry(arm: &str, peer: &str, name: &str) -> bool {
    let own = if arm == SIZED { PLAIN } else { arm };
    let entry = own.trim_start_matches("threadteam.");
    match name.strip_prefix(peer) {
        Some(rest) if peer.starts_with('0') => rest.strip_prefix('.') == Some(entry),
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    }
}

type Measured = (f64, Option<(f64, f64)>);

fn measured(figure: Figure, scenario: &ScenarioReport, name: &str) -> Option<Measured> {
    let arm = |name: &str| scenario.arms.iter().find(|arm| arm.name == name);
    let own = arm(name)?;
    let rounds = |other: &str, pair: fn(f64, f64) -> f64| -> Option<Vec<f64>> {
        let beside: &ArmReport = arm(other)?;
        let others = if other == FLOOR { &own.floor_round_ns } else { &beside.round_ns };
        // An arm that failed in some round has no figure for it, so rounds cannot be paired.
        (own.round_ns.len() == others.len() && own.name != beside.name)
            .then(|| own.round_ns.iter().zip(others).map(|(&own, &other)| pair(own, other)).collect())
    };
    let series = match figure {
        Times(other) | TimesP90(other) => rounds(other, |own, other| own / other)?,
        Above(other) => rounds(other, |own, other| own - other)?,
        Time => own.round_ns.clone(),
        TimesOfP99(other) => return Some((own.p99_ns / arm(other)?.p99_ns, None)),
    };
    let mut series: Vec<f64> = series.into_iter().filter(|value| value.is_finite()).collect();
    sort(&mut series);
    let wanted = if matches!(figure, TimesP90(_)) { 0.9 } else { 0.5 };
    (!series.is_empty()).then(|| (quantile(&series, wanted), Some((quantile(&series, 0.1), quantile(&series, 0.9)))))
}

/// The table at the end of a run.
pub fn table(verdicts: &[Verdict], wake_ns: f64) -> String {
    let mut text = format!(
        "targets, with the p10 and p90 of the rounds and the best entry of each peer; a wake took {}\n  {:<51} {:>8} {:>8} {:>17} {:<6}",
        amount(wake_ns),
        "",
        "target",
        "measured",
        "",
        "",
    );
    PEERS.iter().for_each(|peer| text += &format!(" {peer:>10}"));
    text.push('\n');
    for row in verdicts {
        let cell = |value: f64| if row.is_ratio { times(value) } else { amount(value) };
        let spread = row.spread.map_or(String::new(), |(low, high)| format!("{} to {}", cell(low), cell(high)));
        let verdict = if row.met { "met" } else { "missed" };
        let (limit, measured) = (cell(row.limit), cell(row.measured));
        let _ = write!(
            text,
            "  {:<11} {:<16} {:<22} {limit:>8} {measured:>8} {spread:>17} {verdict:<6}",
            row.scenario, row.arm, row.figure,
        );
        for peer in PEERS {
            let _ = write!(text, " {:>10}", row.peers.get(peer).map_or(String::new(), |&value| cell(value)));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    let met = verdicts.iter().filter(|row| row.met).count();
    let _ = writeln!(text, "  {met} of {} met", verdicts.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arms;
    use crate::scenarios;

    #[test]
    fn every_target_names_a_scenario_and_arms_that_exist() {
        let arms = arms::all("", None).found;
        let cases = scenarios::all();
        let is_arm = |name: &str| arms.iter().any(|arm| arm.name() == name);
        for target in TARGETS {
            assert!(cases.iter().any(|case| case.name == target.scenario), "{}", target.scenario);
            assert!(is_arm(target.arm), "{}", target.arm);
            if let Times(other) | TimesP90(other) | TimesOfP99(other) | Above(other) = target.figure {
                assert!(is_arm(other), "{other}");
            }
        }
    }

    #[test]
    fn of_a_published_crate_the_entry_of_the_same_name_is_the_peer() {
        assert!(is_entry(RUN, "0.1.3", "0.1.3.run") && !is_entry(RUN, "0.1.3", "0.1.3.team"));
        assert!(is_entry(SIZED, "0.3.0", "0.3.0.plain"));
        assert!(is_entry(RUN, "rayon", "rayon.join") && is_entry(RUN, "fork_union", "fork_union"));
        assert!(!is_entry(RUN, "rayon", "chili.join"));
    }
}
