//! The bytes of a pull or a push over a plain connection, TCP or a Unix socket: no gRPC, no blocks. What the way alone costs,
//! with one copy into the kernel and one out of it.

use anyhow::Context;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixListener, UnixStream};

/// The end that asks. Its buffer lies ready.
#[derive(Debug)]
pub struct Plain<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl Plain<TcpStream> {
    /// By TCP to an end that answers at this address.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn tcp(address: &str) -> anyhow::Result<Plain<TcpStream>> {
        let stream = TcpStream::connect(address).context("connecting to plain TCP")?;
        stream.set_nodelay(true)?;
        Ok(Plain { stream, buffer: Vec::new() })
    }
}

impl Plain<UnixStream> {
    /// By a Unix socket to the same end.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn unix(address: &str) -> anyhow::Result<Plain<UnixStream>> {
        let stream = UnixStream::connect_addr(&beside(address)?).context("connecting to a Unix socket")?;
        Ok(Plain { stream, buffer: Vec::new() })
    }
}

impl<S: Read + Write> Plain<S> {
    /// Sends so many bytes and takes so many back.
    ///
    /// # Errors
    /// The connection broke.
    pub fn exchange(&mut self, sent: usize, taken: usize) -> anyhow::Result<()> {
        self.buffer.resize(self.buffer.len().max(sent).max(taken), 1);
        let head = [sent, taken].map(|bytes| (bytes as u64).to_le_bytes());
        self.stream.write_all(head.as_flattened())?;
        self.stream.write_all(&self.buffer[..sent])?;
        Ok(self.stream.read_exact(&mut self.buffer[..taken])?)
    }
}

/// The Unix socket beside a TCP address.
fn beside(address: &str) -> std::io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("shoal-plain/{address}"))
}

/// The end that answers, one connection of either kind until it is closed, each on a thread of its own. Returns where it listens.
///
/// # Errors
/// No port is free.
pub fn answer() -> anyhow::Result<String> {
    let tcp = TcpListener::bind(("127.0.0.1", 0))?;
    let address = tcp.local_addr()?.to_string();
    let unix = UnixListener::bind_addr(&beside(&address)?)?;
    std::thread::spawn(move || {
        let (stream, _) = tcp.accept()?;
        stream.set_nodelay(true)?;
        answer_on(stream)
    });
    std::thread::spawn(move || answer_on(unix.accept()?.0));
    Ok(address)
}

fn answer_on(mut stream: impl Read + Write) -> std::io::Result<()> {
    let (mut buffer, mut head) = (Vec::new(), [[0; 8]; 2]);
    while stream.read_exact(head.as_flattened_mut()).is_ok() {
        let [sent, taken] = head.map(|bytes| u64::from_le_bytes(bytes) as usize);
        buffer.resize(buffer.len().max(sent).max(taken), 0);
        stream.read_exact(&mut buffer[..sent])?;
        stream.write_all(&buffer[..taken])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_come_as_were_asked_for() {
        let address = answer().unwrap();
        exchanges(Plain::tcp(&address).unwrap());
        exchanges(Plain::unix(&address).unwrap());
    }

    fn exchanges(mut plain: Plain<impl Read + Write>) {
        // The answering end has one buffer: what it was sent comes first, then zeros.
        for (sent, taken) in [(3, 500_000), (400_000, 3), (0, 500_000)] {
            plain.buffer.clear();
            plain.exchange(sent, taken).unwrap();
            plain.buffer.truncate(taken);
            let most = if sent == 0 { 400_000 } else { sent };
            let ones = plain.buffer.iter().take_while(|byte| **byte == 1).count();
            assert_eq!((plain.buffer.len(), ones), (taken, most.min(taken)));
        }
    }
}
