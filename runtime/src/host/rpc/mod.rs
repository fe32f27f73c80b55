//! Rpc: how to reach a role and how to be reached, with a limit on everything.
//!
//! The seam is [`Dial`]: it turns an address into a [`Channel`], any service that carries gRPC calls. In
//! production that is HTTP/2 over TCP, inside a host over Unix sockets, with TLS or without ([`tls`]); in a simulation it is
//! a call in memory with faults.
//! Calls to pservers carry megabytes, and share their buffers ([`PserverClient`], [`PserverServer`]). Every client and
//! every service tells its wire version and checks the other's ([`asking`], [`answering`]).

mod answers;
#[cfg(test)]
mod answers_tests;
mod capacity;
mod dial;
mod limits;
mod masters;
mod named;
mod renewing;
mod same_host;
mod serve;
pub mod tls;
mod unary;
mod versions;

use dial::BoxError;
pub use dial::{Channel, Dial, TcpDial, dial_on, master_client, pserver_client};
pub use limits::Limits;
pub use masters::{Asked, Masters};
pub use named::NamedDial;
pub use renewing::{KeptOpen, kept_open};
pub use serve::{listen, listen_secured, serve, serve_on};
pub use tls::Security;
pub use unary::{PserverClient, PserverServer};
pub use versions::{Answering, answering, asking};
