//! Directed traces: orders of events that random seeds may miss, each built by hand out of real roles. Numbers are those of
//! the traces that broke earlier wordings of the rules.

mod altered;
mod asynchronous;
mod copies;
mod decisions;
mod evaluations;
mod exclusions;
mod losses;
mod masters;
mod moves;
mod recording;
mod rewind;
mod standstill;
mod steps;
mod verification;
