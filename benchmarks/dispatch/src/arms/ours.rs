//! This project's runtime.

super::token::token_arms!(threadteam_ours, "threadteam");
