//! TLS: who may speak with whom. Both ends show a certificate of one authority, for the same job; what a caller may
//! call follows from the role in its certificate. Credentials are files, and may be changed while a process runs.
//!
//! Generic over the stream of bytes: TCP is one, a simulated network another. Nothing here opens a socket.

mod accept;
mod admission;
mod connection;
mod credentials;
mod files;
mod identity;
mod named;
mod permissions;
mod security;
#[cfg(test)]
mod tests;
mod untrusted;
mod verify;

pub(super) use accept::secured;
pub(super) use admission::Admission;
pub use connection::{Connection, Peer};
pub use credentials::{Credentials, described};
pub use files::PemSet;
pub use identity::{Identity, Role, Validity};
pub(super) use named::NamedCredentials;
pub use security::{Security, Unsecured};
pub use untrusted::{Reason, Untrusted};
