//! A page of a pod, as a probe asks for it.

use k8s_openapi::api::core::v1::HTTPGetAction;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The status code of a page.
pub(super) async fn get_page(ip: &str, get: &HTTPGetAction) -> std::io::Result<u16> {
    let IntOrString::Int(port) = get.port else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    let mut stream = tokio::net::TcpStream::connect(format!("{ip}:{port}")).await?;
    let path = get.path.as_deref().unwrap_or("/");
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut head = vec![0; 64];
    let read = stream.read(&mut head).await?;
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    head.split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}
