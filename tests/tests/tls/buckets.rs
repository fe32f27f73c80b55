//! Credentials of buckets, as pods have them: keys in variables, or a token of a service account. They reach the service that they are
//! for, and nothing that is printed or logged.

use shoal_tests::processes::programs;
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
            let answer = if request.contains("AssumeRoleWithWebIdentity") {
                format!(
                    "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><SessionToken>{SESSION}</SessionToken>\
                     <SecretAccessKey>{SECRET}</SecretAccessKey><AccessKeyId>{KEY}</AccessKeyId><Expiration>2099-01-01T00:00:00Z</Expiration>\
                     </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
                )
            } else {
                "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>".to_owned()
            };
            let code = if how == Service::Welcomes { "200 OK" } else { "403 Forbidden" };
            let _ = write!(
                stream,
                "HTTP/1.1 {code}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
                answer.len()
            );
            heard.lock().unwrap().push(request);
        }
    });
    (address, asked)
}

/// All that a command says which looks into a bucket, at the most talkative level.
fn said(address: &str, credentials: &[(&str, &str)]) -> String {
    let mut command = Command::new(&programs().unwrap().shoal);
    command.args(["checkpoint", "ls", "--place", "s3://bucket/checkpoints"]);
    command.env("SHOAL_LOG", "trace").env("AWS_REGION", "nowhere-1").env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ENDPOINT_URL", format!("http://{address}")).envs(credentials.iter().copied());
    let output = command.output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
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

#[test]
fn a_service_accounts_token_is_exchanged_for_keys_and_neither_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    for how in [Service::Welcomes, Service::Refuses] {
        let (address, asked) = service(how);
        let endpoint = format!("http://{address}");
        let account = [
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/training"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap()),
            ("AWS_ENDPOINT_URL_STS", &endpoint),
        ];
        assert_silent(&said(&address, &account));
        let asked = asked.lock().unwrap().concat();
        assert!(asked.contains(TOKEN), "the token goes to its service: {asked}");
        let is_used = asked.contains(SESSION) && asked.contains(KEY);
        assert_eq!(is_used, how == Service::Welcomes, "{asked}");
    }
}
