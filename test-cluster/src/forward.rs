//! A port of a pod over a WebSocket, as a kubelet forwards it: each message is a byte that names a channel, then what goes over it.
//! Channel 0 has the port's bytes and 1 what went wrong; each begins with the port's number. One port for a connection.

use super::kubelet::{Shared, locked};
use futures_util::{SinkExt, StreamExt};
use std::io::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// What kubelets speak over WebSockets.
const PROTOCOL: &str = "v4.channel.k8s.io";
const BYTES: u8 = 0;
const ERRORS: u8 = 1;

/// Answers a request for a port of the pod `NAMESPACE/NAME`, whose head has been read.
pub(super) async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    head: &str,
    pod: &str,
    query: &str,
    shared: &Shared,
) -> std::io::Result<()> {
    let header = |name: &str| {
        head.lines().filter_map(|line| line.split_once(':')).find(|(one, _)| one.eq_ignore_ascii_case(name))
    };
    let key = header("sec-websocket-key").map(|(_, key)| key.trim());
    let port = query.split('&').find_map(|pair| pair.strip_prefix("port=")?.parse::<u16>().ok());
    let is_meant = |named: &&super::hosts::Named| format!("{}/{}", named.namespace, named.name) == pod;
    let ip = locked(&shared.named).values().find(is_meant).map(|named| named.ip.clone());
    let (Some(key), Some(port), Some(ip)) = (key, port, ip) else {
        let why = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 20\r\n\r\nno such pod or port\n";
        return stream.write_all(why.as_bytes()).await;
    };
    let accept = derive_accept_key(key.as_bytes());
    let switched = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
    );
    stream.write_all(switched.as_bytes()).await?;
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    forward(socket, &ip, port).await.map_err(Error::other)
}

async fn forward<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: WebSocketStream<S>,
    ip: &str,
    port: u16,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    for channel in [BYTES, ERRORS] {
        let [low, high] = port.to_le_bytes();
        socket.send(Message::binary(vec![channel, low, high])).await?;
    }
    let mut pod = match TcpStream::connect((ip, port)).await {
        Ok(pod) => pod,
        Err(why) => {
            let mut message = vec![ERRORS];
            message.extend(format!("cannot connect to {ip}:{port}: {why}").into_bytes());
            socket.send(Message::binary(message)).await?;
            return socket.close(None).await;
        }
    };
    let mut bytes = vec![0; 32 << 10];
    bytes[0] = BYTES;
    loop {
        tokio::select! {
            said = socket.next() => match said {
                Some(Ok(Message::Binary(message))) if message.first() == Some(&BYTES) => {
                    pod.write_all(&message[1..]).await?;
                }
                Some(Ok(Message::Close(_))) | None => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(why)) => return Err(why),
            },
            read = pod.read(&mut bytes[1..]) => match read? {
                0 => return socket.close(None).await,
                read => socket.send(Message::binary(bytes[..=read].to_vec())).await?,
            },
        }
    }
}
