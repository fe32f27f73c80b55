//! Who gets what of the page's server, over real connections.

use super::*;
use crate::action::Asked;
use crate::flags::bind;
use shoal_runner::client::JobChoice;
use shoal_runner::folder::RunFolder;
use shoal_runner::journal::{Begun, Entry, Journal};
use shoal_runtime::wire::proto::StatusReply;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn page(hands: Option<Hands>) -> (Ui, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&RunFolder(folder.path().to_owned()).journal());
    journal.write(&Entry::Begun(Begun::of(&["digits".into()], &StatusReply::default(), 1)));
    let run = folder.path().to_owned();
    let source = Source::of(JobChoice { master: None, run, tls: None, plaintext: false });
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (Ui::start(listener, source, hands).unwrap(), folder)
}

/// The whole answer to a request; of a stream what comes until it ends.
async fn answer(ui: &Ui, request: &str) -> String {
    let mut stream = TcpStream::connect(ui.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = String::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut said)).await.unwrap().unwrap();
    said
}

async fn get_with(ui: &Ui, path: &str, header: &str) -> String {
    answer(ui, &format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{header}\r\n")).await
}

async fn act(ui: &Ui, kind: &str, body: &str) -> String {
    let (token, length) = (&ui.token, body.len());
    let head =
        format!("POST /do HTTP/1.1\r\nHost: here\r\nConnection: close\r\nAuthorization: Bearer {token}");
    answer(ui, &format!("{head}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")).await
}

#[tokio::test]
async fn without_the_token_nobody_gets_anything() {
    let (ui, _folder) = page(None).await;
    let token = ui.token.to_string();
    let port = ui.address.port();
    let wrong = token.replace(|letter: char| letter.is_ascii_digit(), "x");
    for (path, header) in [
        ("/".to_owned(), String::new()),
        ("/frame".to_owned(), String::new()),
        ("/events".to_owned(), String::new()),
        ("/nowhere".to_owned(), String::new()),
        (format!("/?token={wrong}"), String::new()),
        (format!("/?token={}", &token[1..]), String::new()),
        ("/?token=".to_owned(), String::new()),
        ("/".to_owned(), format!("Cookie: shoal-ui-{}={token}\r\n", port.wrapping_add(1))),
        ("/".to_owned(), format!("Authorization: Bearer {wrong}\r\n")),
    ] {
        let said = get_with(&ui, &path, &header).await;
        assert!(said.starts_with("HTTP/1.1 403") && !said.contains(&token), "{path} {header}: {said}");
    }
    for (path, header) in [
        (format!("/?token={token}"), String::new()),
        ("/".to_owned(), format!("Cookie: other=1; shoal-ui-{port}={token}\r\n")),
        ("/frame".to_owned(), format!("Authorization: Bearer {token}\r\n")),
    ] {
        let said = get_with(&ui, &path, &header).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{path} {header}: {said}");
    }
}

#[tokio::test]
async fn a_page_that_only_looks_refuses_to_act_and_one_with_buttons_says_what_was_done() {
    let (ui, _folder) = page(None).await;
    let said = act(&ui, "application/json", r#"{"action":"kill","name":"trainer-0"}"#).await;
    assert!(said.starts_with("HTTP/1.1 403") && said.contains("--hands-on"), "{said}");

    let (hands, mut hands_on) = Hands::new(None);
    let (ui, _folder) = page(Some(hands)).await;
    let runs = tokio::spawn(async move {
        while let Some(Asked { action, answer }) = hands_on.recv().await {
            let done = match action {
                Action::Kill { name } => Ok(format!("{name} is killed")),
                other => Err(format!("{other:?}")),
            };
            answer.send(done).unwrap();
        }
    });
    let said = act(&ui, "application/json", r#"{"action":"kill","name":"trainer-0"}"#).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("trainer-0 is killed"), "{said}");
    let said = act(&ui, "application/json", r#"{"action":"add","role":"pserver"}"#).await;
    assert!(said.starts_with("HTTP/1.1 409") && said.contains("refused"), "{said}");
    // What a form of another site could send.
    let said = act(&ui, "text/plain", r#"{"action":"kill","name":"trainer-0"}"#).await;
    assert!(said.starts_with("HTTP/1.1 415"), "{said}");
    for wrong in [r#"{"action":"burn","name":"x"}"#, r#"{"action":"kill"}"#, "{", ""] {
        let said = act(&ui, "application/json", wrong).await;
        assert!(said.starts_with("HTTP/1.1 4"), "{wrong}: {said}");
    }
    let long = format!(r#"{{"action":"kill","name":"{}"}}"#, "x".repeat(ASKED_BYTES_MAX));
    assert!(act(&ui, "application/json", &long).await.starts_with("HTTP/1.1 413"));
    runs.abort();
    let _ = runs.await;
    let said = act(&ui, "application/json", r#"{"action":"kill","name":"trainer-0"}"#).await;
    assert!(said.contains("the run is over"), "{said}");
}

#[tokio::test]
async fn open_pages_hear_how_a_run_ended_and_then_nothing_is_served() {
    let (ui, _folder) = page(None).await;
    let (address, header) = (ui.address, format!("Authorization: Bearer {}\r\n", ui.token));
    let request = format!("GET /events HTTP/1.1\r\nHost: here\r\n{header}\r\n");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 1024];
    assert!(stream.read(&mut first).await.unwrap() > 0);
    let verdicts = vec![(true, "all is well".to_owned())];
    ui.conclude(Conclusion { verdicts, ..Conclusion::default() }).await;
    let mut said = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("all is well") && said.contains("event: over"), "{said}");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn so_many_pages_are_open_at_a_time_and_no_more() {
    let (ui, _folder) = page(None).await;
    let request = format!("GET /events HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {}\r\n\r\n", ui.token);
    let mut open = Vec::new();
    for at in 0..=PAGES_MAX {
        let mut stream = TcpStream::connect(ui.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, if at < PAGES_MAX { b"HTTP/1.1 200" } else { b"HTTP/1.1 503" });
        open.push(stream);
    }
}

#[tokio::test]
async fn a_place_that_is_taken_is_named_with_the_way_out() {
    let (ui, _folder) = page(None).await;
    let error = bind(ui.address).unwrap_err().to_string();
    assert!(error.contains(&ui.address.to_string()) && error.contains("name another HOST:PORT"), "{error}");
}
