//! The bytes of a pull or a push over a plain TCP connection: no gRPC, no blocks. What the way alone costs, with one copy into
//! the kernel and one out of it.

use anyhow::Context;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The end that asks. Its buffer lies ready.
#[derive(Debug)]
pub struct Plain {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Plain {
    /// To an end that answers.
    ///
    /// # Errors
    /// Nobody listens at `address`.
    pub fn connect(address: SocketAddr) -> anyhow::Result<Plain> {
        let stream = TcpStream::connect(address).context("connecting to plain TCP")?;
        stream.set_nodelay(true)?;
        Ok(Plain { stream, buffer: Vec::new() })
    }

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

/// The end that answers one connection until it is closed, on a thread of its own. Returns where it listens.
///
/// # Errors
/// No port is free.
pub fn answer() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let (mut buffer, mut head) = (Vec::new(), [[0; 8]; 2]);
        while stream.read_exact(head.as_flattened_mut()).is_ok() {
            let [sent, taken] = head.map(|bytes| u64::from_le_bytes(bytes) as usize);
            buffer.resize(buffer.len().max(sent).max(taken), 0);
            stream.read_exact(&mut buffer[..sent])?;
            stream.write_all(&buffer[..taken])?;
        }
        Ok::<(), std::io::Error>(())
    });
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_come_as_were_asked_for() {
        let mut plain = Plain::connect(answer().unwrap()).unwrap();
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
