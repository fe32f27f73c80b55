//! Zero trust: who may speak with whom, over real sockets and with the roles' real code, in one process each test.
//!
//! The matrix has rows (what a peer shows) and columns (which call, of which role): strangers of a hand-made client are
//! refused without a change of state, strangers who answer are not spoken to, our own roles say what is the matter, and
//! certificates that change and expire while a job runs cost nothing.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "tls/edges.rs"]
mod edges;
#[path = "tls/honest.rs"]
mod honest;
#[path = "tls/impostors.rs"]
mod impostors;
#[path = "tls/job.rs"]
mod job;
#[path = "tls/processes.rs"]
mod processes;
#[path = "tls/rotation.rs"]
mod rotation;
#[path = "tls/shown.rs"]
mod shown;
#[path = "tls/strangers.rs"]
mod strangers;
