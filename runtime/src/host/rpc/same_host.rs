//! Connections inside one host. Beside a TCP listener there is one on a Unix socket, which moves bytes for about two thirds of
//! the processor time; whoever calls the TCP address tries that first. It changes nothing else: names, identities, TLS and limits are
//! those of the TCP address.
//!
//! Its name is made from the TCP address and lies in Linux's abstract namespace. So nothing is left on a disk, it is gone with
//! its process, and it is seen from where the address leads to this listener alone: a network namespace has names of its own,
//! as it has addresses. Any user of the host might take such a name: both ends must be of the same user, or TCP it is.

use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

/// Bytes to and from another process, over the network or inside this host.
pub(super) type ByteStream = Either<TcpStream, UnixStream>;

/// Where callers of one TCP address come in.
pub(super) struct Listeners {
    tcp: TcpListener,
    unix: Option<UnixListener>,
    /// Where those come from who come by Unix socket.
    here: SocketAddr,
}

impl Listeners {
    /// That address, and the Unix socket beside it where there can be one.
    pub(super) fn beside(tcp: TcpListener) -> Listeners {
        let here = tcp.local_addr().unwrap_or_else(|_| ([0, 0, 0, 0], 0).into());
        let bound = name(here).map(UnixListener::bind).transpose();
        if let Err(error) = &bound {
            tracing::debug!(address = %here, %error, "processes of this host come by TCP as well");
        }
        Listeners { tcp, unix: bound.ok().flatten(), here: SocketAddr::new(here.ip(), 0) }
    }

    /// The next caller, and where it comes from.
    pub(super) async fn accept(&self) -> io::Result<(ByteStream, SocketAddr)> {
        loop {
            let unix = async {
                match &self.unix {
                    Some(unix) => unix.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                accepted = self.tcp.accept() => {
                    let (stream, from) = accepted?;
                    // Without it small answers wait for one another; it works everywhere or is not missed.
                    let _ = stream.set_nodelay(true);
                    return Ok((Either::Left(stream), from));
                }
                accepted = unix => {
                    let (stream, _) = accepted?;
                    if is_of_this_user(&stream) {
                        return Ok((Either::Right(stream), self.here));
                    }
                    tracing::debug!("a process of another user is refused: it can come by TCP");
                }
            }
        }
    }
}

/// A connection to who listens at `address` beside TCP, if it is a process of this host and this user.
pub(super) async fn connect(address: SocketAddr) -> Option<UnixStream> {
    let stream = UnixStream::connect(name(address)?).await.ok()?;
    is_of_this_user(&stream).then_some(stream)
}

/// None for an address that is not one host's: who listens on all of its addresses is called by others than the one it knows.
fn name(address: SocketAddr) -> Option<String> {
    let is_name = cfg!(target_os = "linux") && !address.ip().is_unspecified() && address.port() != 0;
    is_name.then(|| format!("\0shoal/{address}"))
}

/// As the system says of the process that has connected, or listens.
fn is_of_this_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn listening() -> io::Result<(TcpListener, SocketAddr)> {
        let tcp = TcpListener::bind("127.0.0.1:0").await?;
        let address = tcp.local_addr()?;
        Ok((tcp, address))
    }

    #[tokio::test]
    async fn a_process_of_this_host_comes_by_unix_socket_and_one_that_knows_only_tcp_by_tcp() {
        let (tcp, address) = listening().await.unwrap();
        let listeners = Listeners::beside(tcp);
        let mut near = connect(address).await.expect("its name is there");
        near.write_all(b"near").await.unwrap();
        let (mut stream, from) = listeners.accept().await.unwrap();
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!((&heard, from.ip()), (b"near", address.ip()));
        assert!(matches!(stream, Either::Right(_)));
        let far = TcpStream::connect(address).await.unwrap();
        let (stream, from) = listeners.accept().await.unwrap();
        assert!(matches!(stream, Either::Left(_)) && from == far.local_addr().unwrap());
    }

    #[tokio::test]
    async fn where_nobody_listens_and_once_a_listener_is_gone_there_is_no_name() {
        let (tcp, address) = listening().await.unwrap();
        let listeners = Listeners::beside(tcp);
        let other = SocketAddr::new([127, 0, 0, 2].into(), address.port());
        assert!(connect(other).await.is_none());
        drop(listeners);
        assert!(connect(address).await.is_none());
    }

    #[tokio::test]
    async fn who_listens_everywhere_has_no_name() {
        let tcp = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = tcp.local_addr().unwrap().port();
        let listeners = Listeners::beside(tcp);
        assert!(listeners.unix.is_none());
        assert!(connect(([127, 0, 0, 1], port).into()).await.is_none());
    }

    #[tokio::test]
    async fn a_name_that_somebody_has_taken_leaves_tcp() {
        let (tcp, address) = listening().await.unwrap();
        let _taken = UnixListener::bind(name(address).unwrap()).unwrap();
        let listeners = Listeners::beside(tcp);
        let _far = TcpStream::connect(address).await.unwrap();
        assert!(matches!(listeners.accept().await.unwrap().0, Either::Left(_)));
    }
}
