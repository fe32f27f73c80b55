//! Calls over TCP even inside a host, where trainers and pservers would take a Unix socket: as between hosts, but for the cable.

use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial, Limits, Security, dial_on};
use std::error::Error;
use tokio::net::TcpStream;

/// TCP, and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct OnlyTcp;

impl Dial for OnlyTcp {
    fn dial(&self, address: &str, role: Option<Role>) -> Result<Channel, String> {
        let open = |address: String| async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, Box<dyn Error + Send + Sync>>(stream)
        };
        dial_on(address, role, Limits::default(), &Security::default(), open)
    }
}
