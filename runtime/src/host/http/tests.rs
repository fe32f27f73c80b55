//! The pages as a client on a socket sees them.

use super::*;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Role {
    readiness: Mutex<Result<(), String>>,
}

impl Watched for Role {
    fn metrics(&self) -> String {
        "shoal_a 1\n".to_owned()
    }
    async fn readiness(&self) -> Result<(), String> {
        self.readiness.lock().unwrap().clone()
    }
}

/// Runs `ask` against a role's pages.
async fn beside(readiness: Result<(), String>, ask: impl AsyncFnOnce(SocketAddr, &Role)) {
    let role = Role { readiness: Mutex::new(readiness) };
    let listener = listen(Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = listener.as_ref().unwrap().local_addr().unwrap();
    tokio::select! {
        never = serve(listener, &role) => match never {},
        () = ask(address, &role) => {}
    }
}

/// What comes back for these bytes: all until the other side closes.
async fn said(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The other side may have hung up in the middle.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn asked(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = said(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn each_page_says_one_thing_and_another_path_says_which_there_are() {
    beside(Ok(()), async |address, _| {
        assert_eq!(asked(address, "/metrics").await, (200, "shoal_a 1\n".to_owned()));
        assert_eq!(asked(address, "/healthz").await, (200, "alive\n".to_owned()));
        assert_eq!(asked(address, "/readyz?verbose").await, (200, "ready\n".to_owned()));
        let (code, text) = asked(address, "/").await;
        assert!(code == 404 && text.contains("/readyz"), "{code} {text}");
        let head = said(address, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("version=0.0.4"), "{head}");
        let refused = said(address, b"POST /metrics HTTP/1.1\r\nHost: x\r\ncontent-length: 0\r\n\r\n").await;
        assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn who_is_not_ready_says_why_in_one_line_and_is_alive() {
    beside(Err("the master was\nnot heard".to_owned()), async |address, role| {
        assert_eq!(asked(address, "/readyz").await, (503, "the master was not heard\n".to_owned()));
        assert_eq!(asked(address, "/healthz").await.0, 200);
        *role.readiness.lock().unwrap() = Ok(());
        assert_eq!(asked(address, "/readyz").await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn a_head_that_is_too_large_or_never_ends_is_hung_up_on() {
    beside(Ok(()), async |address, _| {
        let long = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(HEAD_BYTES_MAX));
        assert!(!said(address, long.as_bytes()).await.starts_with("HTTP/1.1 200"));
        let many = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1));
        assert!(!said(address, many.as_bytes()).await.starts_with("HTTP/1.1 200"));
        let began = tokio::time::Instant::now();
        assert_eq!(said(address, b"GET /healthz HTTP/1.1\r\n").await, "");
        assert!(began.elapsed() < HEAD_WAIT * 2, "{:?}", began.elapsed());
    })
    .await;
}

#[tokio::test]
async fn idlers_at_the_limit_keep_others_out_for_a_moment_only() {
    beside(Ok(()), async |address, _| {
        let mut idlers = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idlers.push(TcpStream::connect(address).await.unwrap());
        }
        let began = tokio::time::Instant::now();
        assert_eq!(asked(address, "/healthz").await.0, 200);
        let waited = began.elapsed();
        assert!(
            waited > HEAD_WAIT / 2 && waited < HEAD_WAIT * 2,
            "one at a time has to go first: {waited:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn an_address_in_use_is_named_and_none_is_nothing_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    assert!(listen(Some(address)).await.unwrap_err().to_string().contains(&address.to_string()));
    assert!(listen(None).await.unwrap().is_none());
    let role = Role { readiness: Mutex::new(Ok(())) };
    let soon = Duration::from_millis(20);
    assert!(tokio::time::timeout(soon, serve(None, &role)).await.is_err());
}

#[tokio::test]
async fn a_role_with_a_certificate_shows_when_it_expires_and_one_without_shows_nothing() {
    use crate::host::authority::Authority;
    use crate::host::rpc::tls::{Identity, Role, Validity};
    assert_eq!(certificate(&rpc::Security::Loopback), "");
    let folder = tempfile::tempdir().unwrap();
    let until = crate::host::clock::wall_seconds() + 1000;
    let validity = Validity { from: until - 2000, until };
    let authority = Authority::create(&folder.path().join("authority"), validity).unwrap();
    let identity = Identity { job: "digits".to_owned(), role: Role::Master };
    authority.issue(&identity, validity).unwrap().write(&folder.path().join("x")).unwrap();
    let security = rpc::Security::open(Some(&folder.path().join("x")), false, None).unwrap();
    let page = certificate(&security);
    assert!(page.ends_with(&format!("\nshoal_certificate_expiry_seconds {until}\n")), "{page}");
}
