//! The three entries of a token crate. The same lines compile against every version: their API is one.

/// Defines `arms()` for the crate `$krate`, whose names start with `$label`.
macro_rules! token_arms {
    ($krate:ident, $label:literal) => {
        use super::stage::STAGE;
        use super::{Arm, Kind, Section, Visitor};
        use std::num::NonZeroUsize;
        use std::time::Duration;
        use $krate::{Exec, Pool, TeamExec};

        pub fn arms() -> Vec<Box<dyn Arm>> {
            vec![Box::new(Run), Box::new(Team), Box::new(Plain)]
        }

        struct Run;
        struct Team;
        struct Plain;

        fn pool(threads: usize) -> Result<Pool, String> {
            // Members are acquired once for the whole visit: on a busy machine that may take longer than a caller
            // who has an alternative would wait.
            let builder = Pool::builder().threads(threads).acquire_timeout(Duration::from_secs(5));
            builder.build().map_err(|error| format!("no pool: {error}"))
        }

        impl Arm for Run {
            fn name(&self) -> &str {
                concat!($label, ".run")
            }

            fn kind(&self) -> Kind {
                Kind::Gang
            }

            fn about(&self) -> &str {
                concat!($label, ": TeamExec::run, one share per participant")
            }

            fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
                let pool = pool(threads)?;
                let mut exec = Exec::new(&pool, threads).map_err(|error| format!("no token: {error}"))?;
                let entered = exec.team(|team| visit(&mut Shares(team)));
                entered.map_err(|refused| format!("no team: {refused:?}"))
            }
        }

        impl Arm for Team {
            fn name(&self) -> &str {
                concat!($label, ".team")
            }

            fn kind(&self) -> Kind {
                Kind::Claimed
            }

            fn about(&self) -> &str {
                concat!($label, ": Exec::for_ranges on a token that carries a team")
            }

            fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
                let team = pool(threads)?.into_team(threads);
                let team = team.map_err(|error| format!("no team: {:?}", error.reason()))?;
                visit(&mut Ranges(team.exec(threads)));
                Ok(())
            }
        }

        impl Arm for Plain {
            fn name(&self) -> &str {
                concat!($label, ".plain")
            }

            fn kind(&self) -> Kind {
                Kind::Claimed
            }

            fn about(&self) -> &str {
                concat!($label, ": Exec::for_ranges on a plain token")
            }

            fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
                let pool = pool(threads)?;
                visit(&mut Ranges(Exec::new(&pool, threads).map_err(|error| format!("no token: {error}"))?));
                Ok(())
            }
        }

        struct Shares<'team>(TeamExec<'team>);

        impl Section for Shares<'_> {
            fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
                // SAFETY: this arm leads the only section, which has ended when this function returns.
                unsafe { STAGE.set(parts, body) };
                self.0.reborrow().run(|index, size| STAGE.share(index, size));
            }
        }

        struct Ranges<'p>(Exec<'p>);

        impl Section for Ranges<'_> {
            fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
                // SAFETY: this arm leads the only section, which has ended when this function returns.
                unsafe { STAGE.set(parts, body) };
                self.0.reborrow().for_ranges(parts, NonZeroUsize::MIN, |range| range.for_each(|part| STAGE.part(part)));
            }
        }
    };
}

pub(super) use token_arms;
