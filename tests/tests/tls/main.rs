//! Zero trust: who may speak with whom, over real sockets and with the roles' real code, in one process each test.
//!
//! The matrix has rows (what a peer shows) and columns (which call, of which role): strangers of a hand-made client are
//! refused without a change of state, strangers who answer are not spoken to, our own roles say what is the matter, and
//! certificates that change and expire while a job runs cost nothing.
//!
//! One of them: `cargo test -p shoal-tests --test tls rotation::`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod edges;
mod honest;
mod impostors;
mod job;
mod processes;
mod rotation;
mod shown;
mod strangers;
