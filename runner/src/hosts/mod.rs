//! Hosts of a run's own, for who breaks their network or fills their disk: a [`network`] in which each process is a host, and a
//! [`disk`] for the master's state. Both end with the run.

pub mod disk;
pub mod network;
pub mod tools;
