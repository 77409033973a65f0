//! The published crate, version 0.1.3.

super::token::token_arms!(threadteam_013, "0.1.3");
