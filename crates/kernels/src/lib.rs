//! Array kernels that run on a [`threadteam::Exec`] token.

mod layout;

pub use layout::{Layout, View, ViewMut, MAX_RANK};
