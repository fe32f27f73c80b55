//! What a kubelet answers the API server: a pod's log, or, by [`forward`], one of its ports. It must never change a log.

use super::forward;
use super::kubelet::{Shared, locked};
use anyhow::Context;
use rustls::pki_types::PrivateKeyDer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A container's log, by the names in its URL.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) file: PathBuf,
    pub(super) is_over: bool,
}

/// Listens with a certificate that nobody knows: API servers do not ask for more.
pub(super) async fn listen() -> anyhow::Result<(TcpListener, TlsAcceptor)> {
    let made = rcgen::generate_simple_self_signed(["kubelet".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
    Ok((listener, TlsAcceptor::from(Arc::new(config))))
}

/// Answers until it is dropped.
pub(super) async fn serve(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            if let Ok(stream) = tls.accept(stream).await {
                // Whoever asked has gone: nothing is lost.
                let _ = answer(stream, &shared).await;
            }
        });
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, shared: &Shared) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if let Some(pod) = path.strip_prefix("/portForward/") {
        return forward::answer(stream, &head, pod, query, shared).await;
    }
    let key = path.trim_start_matches("/containerLogs/");
    let Some(log) = locked(&shared.logs).get(key).cloned() else {
        let why = "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 12\r\n\r\nno such log\n";
        return stream.write_all(why.as_bytes()).await;
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n").await?;
    let said = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let text = tokio::fs::read(&log.file).await.unwrap_or_default();
    let from = said("tailLines").and_then(|lines| lines.parse().ok()).map_or(0, |lines| tail(&text, lines));
    stream.write_all(&text[from..]).await?;
    stream.flush().await?;
    let mut sent = text.len();
    while said("follow") == Some("true") {
        let is_over = locked(&shared.logs).get(key).is_none_or(|now| now.is_over || now.file != log.file);
        let text = tokio::fs::read(&log.file).await.unwrap_or_default();
        stream.write_all(text.get(sent..).unwrap_or_default()).await?;
        stream.flush().await?;
        sent = text.len();
        if is_over {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    stream.shutdown().await
}

/// Where the last so many lines begin.
fn tail(text: &[u8], lines: usize) -> usize {
    let ends = text.iter().enumerate().rev().skip(1).filter(|(_, byte)| **byte == b'\n');
    if lines == 0 { text.len() } else { ends.map(|(at, _)| at + 1).nth(lines - 1).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::tail;

    #[test]
    fn the_last_lines_are_found() {
        let text = b"one\ntwo\nthree\n";
        for (lines, rest) in
            [(0, ""), (1, "three\n"), (2, "two\nthree\n"), (3, "one\ntwo\nthree\n"), (9, "one\ntwo\nthree\n")]
        {
            assert_eq!(&text[tail(text, lines)..], rest.as_bytes());
        }
        assert_eq!(tail(b"", 2), 0);
    }
}
