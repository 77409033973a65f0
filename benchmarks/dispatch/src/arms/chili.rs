//! `chili`: joins that become parallel at the next heartbeat, so a short section stays on its caller.

use super::stage::STAGE;
use super::{Arm, Kind, Section, Visitor};
use ::chili::{Config, Scope, ThreadPool};
use std::num::NonZeroUsize;

pub struct Join;

impl Arm for Join {
    fn name(&self) -> &str {
        "chili.join"
    }

    fn kind(&self) -> Kind {
        Kind::Claimed
    }

    fn about(&self) -> &str {
        "chili: nested join, shared every 100 us"
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        let config = Config { thread_count: NonZeroUsize::new(threads), ..Config::default() };
        let pool = ThreadPool::with_config(config);
        visit(&mut Nested(pool.scope()));
        Ok(())
    }
}

struct Nested<'s>(Scope<'s>);

impl Section for Nested<'_> {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        split(&mut self.0, 0, parts);
    }
}

fn split(scope: &mut Scope<'_>, first: usize, end: usize) {
    match end - first {
        0 => {}
        1 => STAGE.part(first),
        parts => {
            let middle = first + parts / 2;
            scope.join(|scope| split(scope, first, middle), |scope| split(scope, middle, end));
        }
    }
}
