//! An etcd of a test's own, on loopback ports, in a folder that goes with it. It must never touch another etcd.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One etcd member, killed by its process id when dropped.
#[derive(Debug)]
pub(crate) struct Etcd {
    program: String,
    more: &'static [&'static str],
    /// Its certificates: it speaks TLS, and asks clients for theirs.
    secured: Option<PathBuf>,
    folder: tempfile::TempDir,
    client: u16,
    peer: u16,
    process: Option<Child>,
}

impl Etcd {
    /// A running etcd, with more arguments; none where none is installed, which fails where all is required.
    pub(crate) async fn start(more: &'static [&'static str]) -> Option<Etcd> {
        Etcd::start_with(more, None).await
    }

    /// The same over TLS, by `ca.pem`, `cert.pem` and `key.pem` in that folder.
    pub(crate) async fn start_secured(folder: &Path) -> Option<Etcd> {
        Etcd::start_with(&[], Some(folder.to_owned())).await
    }

    async fn start_with(more: &'static [&'static str], secured: Option<PathBuf>) -> Option<Etcd> {
        let program = std::env::var("SHOAL_ETCD").unwrap_or_else(|_| "etcd".to_owned());
        let probe = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
        if !probe.is_ok_and(|probe| probe.success()) {
            let missing =
                format!("{program} cannot be run (Debian's package etcd-server; SHOAL_ETCD names it)");
            assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{missing}");
            eprintln!("NOT TESTED: {missing}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // Both are free at the same time, so they differ.
        let ports = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
        let [client, peer] = ports.map(|listener| listener.local_addr().unwrap().port());
        let mut etcd = Etcd { program, more, secured, folder, client, peer, process: None };
        etcd.restart().await;
        Some(etcd)
    }

    /// `host:port` for clients.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.client)
    }

    /// Ends it without a goodbye.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts it with what it has in its folder, and waits until it answers.
    pub(crate) async fn restart(&mut self) {
        let scheme = if self.secured.is_some() { "https" } else { "http" };
        let (client, peer) =
            (format!("{scheme}://{}", self.address()), format!("http://127.0.0.1:{}", self.peer));
        let tls = self.secured.iter().flat_map(|folder| {
            let files =
                [("--cert-file", "cert.pem"), ("--key-file", "key.pem"), ("--trusted-ca-file", "ca.pem")];
            let files = files.map(|(flag, file)| [flag.to_owned(), folder.join(file).display().to_string()]);
            files.into_iter().flatten().chain(["--client-cert-auth".to_owned()])
        });
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let process = Command::new(&self.program)
            .args(["--name", "one", "--data-dir"])
            .arg(self.folder.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            // Short, so that leases of a second are granted.
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .args(self.more)
            .args(tls)
            .env_remove("ETCD_NAME")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        for _ in 0..300 {
            // Who has no certificate hears no more than that it listens.
            if self.secured.is_some() && TcpStream::connect(self.address()).await.is_ok() {
                return;
            }
            let key = r#"{"key":"eA=="}"#;
            if self.gateway("/v3/kv/range", key).await.is_ok_and(|answer| answer.contains("revision")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd: {}", std::fs::read_to_string(self.folder.path().join("log")).unwrap());
    }

    /// What etcd's own JSON gateway answers: a second way in, which knows nothing of our protobuf.
    pub(crate) async fn gateway(&self, path: &str, json: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address()).await?;
        let length = json.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{json}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
