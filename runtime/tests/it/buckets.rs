//! Credentials of buckets, as pods have them: keys in variables, or a token of a service account. They reach the service that they are
//! for, and nothing that is printed or logged.
//!
//! In builds with buckets: `cargo test -p shoal-runtime --features s3 --test it buckets::`.

use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::telemetry::{self, LogFormat};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// What must be shown nowhere.
const KEY: &str = "an-access-key-that-nobody-sees";
const SECRET: &str = "a-secret-key-that-nobody-sees";
const TOKEN: &str = "a-token-of-a-service-account-that-nobody-sees";
const SESSION: &str = "a-session-token-that-nobody-sees";

/// Whether the service knows who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    Welcomes,
    Refuses,
}

/// A bucket and a token service at one address: what they were asked, and where they are. Both end with the test's process.
fn service(how: Service) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut bytes = [0; 4096];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut bytes) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => request.extend_from_slice(&bytes[..read]),
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            heard.lock().unwrap().push(request.clone());
            // The first is what the agent of a cluster says that gives pods their keys.
            let answer = if how == Service::Refuses {
                "who are you?".to_owned()
            } else if request.starts_with("GET /keys") {
                format!(
                    r#"{{"AccessKeyId":"{KEY}","SecretAccessKey":"{SECRET}","Token":"{SESSION}","Expiration":"2099-01-01T00:00:00Z"}}"#
                )
            } else {
                "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>".to_owned()
            };
            let code = if how == Service::Welcomes { "200 OK" } else { "403 Forbidden" };
            let _ = write!(
                stream,
                "HTTP/1.1 {code}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
                answer.len()
            );
        }
    });
    (address, asked)
}

/// What the process says that looks into a bucket: this test's program once more, at the most talkative level.
fn said(address: &str, credentials: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "buckets::the_process_that_looks_into_a_bucket", "--ignored", "--nocapture"]);
    command.env("SHOAL_LOG", "trace").env("AWS_REGION", "nowhere-1").env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ENDPOINT_URL", format!("http://{address}")).envs(credentials.iter().copied());
    let output = command.output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("DEBUG"), "it is talkative: {said}");
    said
}

#[tokio::test]
#[ignore = "no test by itself: the tests below run it as a process of its own, for its log and variables"]
async fn the_process_that_looks_into_a_bucket() {
    telemetry::start("test", LogFormat::Text);
    let storage = Storage::open("s3://bucket/checkpoints").await.unwrap();
    // Whatever comes of it is what there is to say.
    eprintln!("{:?}", storage.list("").await);
}

fn assert_silent(said: &str) {
    for secret in [SECRET, TOKEN, SESSION] {
        assert!(!said.contains(secret), "{secret} is shown:\n{said}");
    }
}

#[test]
fn keys_in_variables_sign_requests_and_are_printed_nowhere() {
    let keys = [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    for how in [Service::Welcomes, Service::Refuses] {
        let (address, asked) = service(how);
        let said = said(&address, &keys);
        assert_silent(&said);
        let asked = asked.lock().unwrap().concat();
        assert!(
            asked.contains(KEY) && asked.contains("AWS4-HMAC-SHA256"),
            "a request is signed: {asked}\n{said}"
        );
        assert!(!asked.contains(SECRET));
    }
}

/// A file with a token, as a kubelet writes it.
fn token() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    (folder, file.display().to_string())
}

#[test]
fn a_pods_token_is_exchanged_for_keys_and_neither_is_printed() {
    let (_folder, file) = token();
    for how in [Service::Welcomes, Service::Refuses] {
        let (address, asked) = service(how);
        let keys = format!("http://{address}/keys");
        let account = [
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", keys.as_str()),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file),
        ];
        assert_silent(&said(&address, &account));
        let asked = asked.lock().unwrap().concat();
        assert!(asked.contains(TOKEN), "the token goes to its service: {asked}");
        let is_used = asked.contains(SESSION) && asked.contains("AWS4-HMAC-SHA256");
        assert_eq!(is_used, how == Service::Welcomes, "{asked}");
    }
}

/// The token is part of a URL there, which is https alone: no stand-in can be asked, and what fails is told all the same.
#[test]
fn the_token_of_a_web_identity_is_not_in_what_is_said_of_a_failure() {
    let (_folder, file) = token();
    let (address, asked) = service(Service::Welcomes);
    let endpoint = format!("http://{address}");
    let account = [
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/training"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &file),
        ("AWS_ENDPOINT_URL_STS", &endpoint),
    ];
    let said = said(&address, &account);
    assert!(said.contains("WebIdentity") && said.contains("Err("), "it is tried: {said}");
    assert_silent(&said);
    assert!(!asked.lock().unwrap().concat().contains(TOKEN), "nothing is sent without TLS");
}
