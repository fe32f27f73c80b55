//! Hosts of a run's own, for who breaks their network or fills their disk: a [`network`] in which each process is a host, and a
//! [`disk`] for the master's state. Both end with the run.

pub(crate) mod disk;
pub(crate) mod network;
pub(crate) mod tools;
