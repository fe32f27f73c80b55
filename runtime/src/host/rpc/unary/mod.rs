//! Calls of one message for one message, as gRPC has them, whose large fields nobody copies: tonic's own calls write each
//! message into one piece of memory and gather it into another. Compression is not spoken.

mod body;
mod client;
mod server;
#[cfg(test)]
mod tests;

pub use client::PserverClient;
pub use server::PserverServer;

use body::{Going, NoMessage, received};

/// Where a pserver's methods are.
mod paths {
    pub(super) const PUSH: &str = "/shoal.v1.Pserver/Push";
    pub(super) const PULL: &str = "/shoal.v1.Pserver/Pull";
    pub(super) const READ_STATE: &str = "/shoal.v1.Pserver/ReadState";
    pub(super) const FOLLOW: &str = "/shoal.v1.Pserver/Follow";
    pub(super) const DECIDE: &str = "/shoal.v1.Pserver/Decide";
    pub(super) const SHARE: &str = "/shoal.v1.Pserver/Share";
}
