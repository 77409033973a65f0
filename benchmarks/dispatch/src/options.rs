//! The command line.

use lexopt::prelude::*;
use std::path::PathBuf;

pub const HELP: &str = "\
What one parallel section costs in threadteam and in its peers, against a store-and-poll floor.

Usage: dispatch [OPTIONS]

  --rounds N           rounds per scenario (default 40; slow scenarios run half of them)
  --quick              5 rounds
  --threads N          participants per section (default 2)
  --arms A,B           only arms whose name contains one of these; floor and serial are always kept
  --scenarios A,B      only scenarios whose name contains one of these
  --pin all|floor      who is pinned in the quiet scenarios (default all)
  --openmp FILE        the OpenMP runtime to load (default libgomp.so.1)
  --onetbb FILE        the library built from shims/onetbb.cpp (default none)
  --json PATH          write everything as JSON (also --output)
  --lines              measure what stores to, and loads of, many lines cost, and stop
  --list               name the arms and scenarios and stop
  --help
";

/// What to do.
pub enum Command {
    Help,
    Hog { cpu: usize, batch: bool },
    Run(Options),
}

pub struct Options {
    pub rounds: usize,
    pub threads: usize,
    pub arms: Vec<String>,
    pub scenarios: Vec<String>,
    pub pin_all: bool,
    pub openmp: String,
    pub onetbb: Option<String>,
    pub json: Option<PathBuf>,
    pub lines: bool,
    pub list: bool,
}

impl Options {
    pub fn wants_arm(&self, name: &str) -> bool {
        matches(&self.arms, name)
    }

    pub fn wants_scenario(&self, name: &str) -> bool {
        matches(&self.scenarios, name)
    }
}

fn matches(filters: &[String], name: &str) -> bool {
    filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
}

/// Reads the arguments of this process.
pub fn parse() -> Result<Command, lexopt::Error> {
    let mut options = Options {
        rounds: 40,
        threads: 2,
        arms: Vec::new(),
        scenarios: Vec::new(),
        pin_all: true,
        openmp: "libgomp.so.1".into(),
        onetbb: None,
        json: None,
        lines: false,
        list: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("rounds") => options.rounds = positive(&mut parser, "--rounds", 1)?,
            Long("quick") => options.rounds = 5,
            Long("threads") => options.threads = positive(&mut parser, "--threads", 2)?,
            Long("arms") => options.arms = list(&mut parser)?,
            Long("scenarios") => options.scenarios = list(&mut parser)?,
            Long("pin") => {
                options.pin_all = match parser.value()?.string()?.as_str() {
                    "all" => true,
                    "floor" => false,
                    other => return Err(format!("--pin takes all or floor, not {other}").into()),
                }
            }
            Long("openmp") => options.openmp = parser.value()?.string()?,
            Long("onetbb") => options.onetbb = Some(parser.value()?.string()?),
            Long("json" | "output") => options.json = Some(parser.value()?.into()),
            Long("lines") => options.lines = true,
            Long("list") => options.list = true,
            Long("help") | Short('h') => return Ok(Command::Help),
            Long("hog") => return Ok(Command::Hog { cpu: parser.value()?.parse()?, batch: false }),
            Long("batch-hog") => return Ok(Command::Hog { cpu: parser.value()?.parse()?, batch: true }),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Run(options))
}

fn positive(parser: &mut lexopt::Parser, name: &str, least: usize) -> Result<usize, lexopt::Error> {
    let value: usize = parser.value()?.parse()?;
    match value < least {
        true => Err(format!("{name} takes a number of at least {least}, not {value}").into()),
        false => Ok(value),
    }
}

fn list(parser: &mut lexopt::Parser) -> Result<Vec<String>, lexopt::Error> {
    Ok(parser.value()?.string()?.split(',').map(|name| name.trim().to_string()).collect())
}
