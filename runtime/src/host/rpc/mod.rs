//! Rpc: how to reach a role and how to be reached, with a limit on everything.
//!
//! The seam is [`Dial`]: it turns an address into a [`Channel`], any service that carries gRPC calls. In
//! production that is HTTP/2 over TCP; in a simulation it is a call in memory with faults.

mod dial;
mod limits;
mod masters;
mod serve;

pub use dial::{Channel, Dial, TcpDial, master_client, pserver_client};
pub use limits::Limits;
pub use masters::{Asked, Masters};
pub use serve::{listen, serve};
