//! No dispatch: the calling thread runs every part.

use super::{Arm, Kind, Section, Visitor, SERIAL};

pub struct Serial;

impl Arm for Serial {
    fn name(&self) -> &str {
        SERIAL
    }

    fn kind(&self) -> Kind {
        Kind::Serial
    }

    fn about(&self) -> &str {
        "the calling thread runs every part"
    }

    fn with(&self, _threads: usize, visit: Visitor<'_>) -> Result<(), String> {
        visit(&mut Serial);
        Ok(())
    }
}

impl Section for Serial {
    fn run(&mut self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        for part in 0..parts {
            body(part);
        }
    }
}
