//! The deterministic simulation: the real code of all roles in one thread, under a clock and a network that a seed
//! decides.
//!
//! [`run::play`] plays one scenario. [`scenario`] draws it from a seed, [`world`] builds it, [`script`] plays it, [`invariants`]
//! judge it. [`network`] and [`host`] are the faults' tools; directed tests use them by hand.

pub mod call;
pub mod coverage;
pub mod data_set;
pub mod evaluated;
pub mod evidence;
pub mod faults;
pub mod hand;
pub mod history;
pub mod host;
pub mod invariants;
pub mod link;
pub mod network;
pub mod observer;
pub mod place;
pub mod points;
pub mod program;
pub mod reference;
pub mod run;
pub mod scenario;
pub mod script;
pub mod seeds;
pub mod seen;
pub mod shrink;
pub mod spoiled;
pub mod stage;
pub mod tables;
pub mod trace;
pub mod units;
pub mod watcher;
pub mod weather;
pub mod wire;
mod words;
pub mod world;
