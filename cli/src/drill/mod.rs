//! Breaking jobs on purpose: [`chaos`] injects faults that a seed decides, [`verb_chaos`] judges job after job under them, [`demo`] shows one.

pub(crate) mod chaos;
pub(crate) mod demo;
pub(crate) mod flags;
pub(crate) mod verb_chaos;
