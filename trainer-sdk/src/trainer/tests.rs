//! Whole trainers against a master and pservers that answer by a script: which calls follow from which answers.

mod areas;
mod asynchronous;
mod care;
mod fake;
mod frozen;
mod master;
mod messages;
mod panics;
mod services;
mod sync;
mod threads;

use fake::State;
use shoal_runtime::cluster::{LeaseId, Microbatch, Node, Rewind, Step, Task, Work};
use shoal_runtime::wire::proto;

/// A task of one or more leaves of a step of four.
fn node(lease: u64, step: u64, node: Node, rewind: u64) -> Task {
    let work = Work::Node { step: Step(step), node, rewind: Rewind(rewind) };
    Task {
        lease: LeaseId(lease),
        work,
        microbatches: microbatches(node.width().into()),
        is_careful: false,
        verified: Vec::new(),
        is_second: false,
    }
}

fn run(lease: u64, first: u64, length: u64) -> Task {
    Task {
        lease: LeaseId(lease),
        work: Work::Run { first },
        microbatches: microbatches(length),
        is_careful: false,
        verified: Vec::new(),
        is_second: false,
    }
}

fn microbatches(count: u64) -> Vec<Microbatch> {
    (0..count).map(|index| Microbatch { index, slices: Vec::new() }).collect()
}

/// What the trainer has said of a lease, the last time it spoke of it.
fn last_word(state: &State, lease: u64) -> Option<proto::Progress> {
    let words = state.leases.iter().rev().flat_map(|(_, words)| &words.progress);
    words.copied().find(|word| word.lease == lease)
}

fn is_told_pushed(state: &State, lease: u64) -> bool {
    last_word(state, lease).is_some_and(|word| word.pushed)
}

/// The blocks pushed to one pserver, in order of arrival.
fn blocks_pushed_to(state: &State, pserver: usize) -> Vec<u32> {
    let to = state.pushes.iter().filter(|(_, push)| push.pserver == pserver);
    to.map(|(_, push)| push.block).collect()
}
