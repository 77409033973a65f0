//! This project's runtime: the three entries, and a section whose caller says how long it takes.

super::token::token_arms!(threadteam_ours, "threadteam");

/// What a kernel does that knows its work.
pub struct Sized;

impl Arm for Sized {
    fn name(&self) -> &str {
        "threadteam.sized"
    }

    fn kind(&self) -> Kind {
        Kind::Claimed
    }

    fn about(&self) -> &str {
        "threadteam: the same after Exec::sized_for, which takes the width that pays"
    }

    fn with(&self, threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        let pool = pool(threads)?;
        let exec = Exec::new(&pool, threads).map_err(|error| format!("no token: {error}"))?;
        visit(&mut SizedRanges(exec, Duration::ZERO));
        Ok(())
    }
}

/// A token and the time that its sections take on one thread, zero when nobody said.
struct SizedRanges<'p>(Exec<'p>, Duration);

impl Section for SizedRanges<'_> {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: this arm leads the only section, which has ended when this function returns.
        unsafe { STAGE.set(parts, body) };
        let exec = self.0.reborrow();
        let exec = if self.1.is_zero() { exec } else { exec.sized_for(self.1) };
        exec.for_ranges(parts, NonZeroUsize::MIN, |range| range.for_each(|part| STAGE.part(part)));
    }

    fn expect(&mut self, serial: Duration) {
        self.1 = serial;
    }
}
