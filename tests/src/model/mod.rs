//! The protocol of copies, failover, movement, checkpoints, delay, scalars, exclusions and master failover, small enough
//! to be run in every order that a seed or a trace can think of. It must never use the code that ships: it is what that
//! code is compared with.
//!
//! **Read** `words` (names, the document) and `state`, then `decide` (what a master makes of the document), `pserver`,
//! `copy` and `replication` (what a pserver makes of a slice), `scalars`, `trainer`. `Rule` has one switch for each
//! sentence that a trace in `tests/tests/sim/model/` is about; all on is the protocol.
//!
//! **How it is put.** The master's truth is one document, changed by compare-and-swap; every swap raises its version,
//! and a term, a fill or a rewind number is the version of the swap that made it. Instructions are state: a pserver is
//! told the newest document and makes its copies agree with it. A follower asks its primary for what comes after the
//! state that it names, which is its acknowledgement at the same time.
//!
//! **What stands for what.** A gradient is its unit (step or microbatch), the rewind number it was computed under, and
//! whether it leaves the one record out that can be excluded, and that every unit has. A partial is the root it was taken
//! of, a decision the partials it was combined from. A state is the list of the updates it applied, each with its
//! decision. The arithmetic is deterministic, so equal lists are equal bits, and exactly once can be read off. The network
//! is a list of messages, any of which may be lost, late or repeated; a pause is a process for which messages wait.
//!
//! `witness` looks after every action: each unit once, whole and in order; what was answered `Applied`, or published, is
//! on every copy that may lead; one state per name; one decision per step, and none of two histories; histories and
//! manifests are not mixed; the record is out from the exclusion's first step on and in before; nothing goes back after a
//! single loss. After a walk everything heals, everybody acts in turn (`fair`), and the job must be done with its last
//! checkpoint durable.
//!
//! **Not here**: what a decision says, partials that differ, a second record, probing and budgets, microbatches that are
//! excluded whole, evaluation, decisions taken from metrics, leases and their time (any trainer may compute anything, for
//! leases are advice), several manifests, a storage that fails, pieces torn while they are written, liveness under a
//! clock.

mod action;
mod copy;
mod decide;
mod draw;
mod fair;
mod held;
mod master;
mod message;
mod notation;
mod pserver;
mod replication;
mod rules;
mod scalars;
mod script;
mod state;
mod trainer;
mod walk;
mod weather;
mod witness;
mod words;
mod world;

pub use rules::{Rule, Rules};
pub use script::{Letters, Script};
pub use walk::{Walks, story, walks};
pub use witness::{Fault, Violation};
pub use words::{Mode, Shape};
