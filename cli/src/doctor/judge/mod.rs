//! What was found of a machine, and whether jobs run on it: a judge for each check. Whatever they know is passed to them.

pub(crate) mod build;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod disk;
pub(crate) mod limits;
pub(crate) mod network;
pub(crate) mod trust;
