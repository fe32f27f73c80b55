//! One file for each command: its arguments and what it does with them.

pub(crate) mod certs;
pub(crate) mod checkpoint;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod export;
pub(crate) mod new;
pub(crate) mod recordio;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod roles;
pub(crate) mod run;
pub(crate) mod scale;
#[cfg(feature = "cluster")]
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod ui;
pub(crate) mod why;
