//! The published crate, version 0.3.0.

super::token::token_arms!(threadteam_030, "0.3.0");
