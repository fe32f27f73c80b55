//! Roles as a cluster sees them: every line of their logs is one JSON object, their pages answer probes.

use crate::exposition;
use crate::roles::{Role, digits, log_of, page, shoal};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// What every line has.
fn check(line: &Value, role: &str) {
    let keys: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    for key in ["time", "level", "role", "message", "fields"] {
        assert!(keys.contains(&key), "{line} has no {key}");
    }
    assert_eq!(line["role"], role);
    assert!(["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&line["level"].as_str().unwrap()));
    assert!(line["fields"].is_object());
}

fn master(folder: &Path, data: &Path, more: &[&str]) -> Role {
    let mut command = shoal(folder);
    command.args([
        "master",
        "--job",
        "digits-7",
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--data",
    ]);
    Role::start(command.arg(data).args(more))
}

/// Asks whether a role is ready until the answer has this code, and returns what it says.
fn until(pages: &str, code: u16) -> String {
    for _ in 0..1000 {
        let (answered, said) = page(pages, "/readyz");
        if answered == code {
            return said;
        }
        #[allow(clippy::disallowed_methods, reason = "real processes take real time")]
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("/readyz never answered {code}");
}

#[test]
fn a_masters_pages_and_lines_are_read_by_programs() {
    let folder = tempfile::tempdir().unwrap();
    let data = digits(folder.path());
    let mut master = master(folder.path(), &data, &["--http", "127.0.0.1:0"]);
    let pages = master.until("pages for probes")["fields"]["address"].as_str().unwrap().to_owned();
    let leads = master.until("this master leads");
    check(&leads, "master");
    assert_eq!(leads["job"], "digits-7");
    assert!(leads["name"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(leads["fields"]["term"], 1);
    assert_eq!(page(&pages, "/healthz").0, 200);
    assert_eq!(page(&pages, "/readyz"), (200, "ready\n".to_owned()));
    let metrics = exposition::read(&page(&pages, "/metrics").1).unwrap();
    assert_eq!(exposition::faults(&metrics), [] as [String; 0]);
    let phase = exposition::value(&metrics, "shoal_job_phase", Some(("phase", "waiting")));
    assert_eq!(phase, Some(1.0));
}

#[test]
fn a_pserver_is_ready_once_its_master_has_taken_it_in_and_not_when_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let data = digits(folder.path());
    let mut master = master(folder.path(), &data, &["--lease-ttl-millis", "300"]);
    let address = master.until("master listens")["fields"]["address"].as_str().unwrap().to_owned();
    let mut command = shoal(folder.path());
    command.env("SHOAL_LOG_FORMAT", "json").env("SHOAL_HTTP", "127.0.0.1:0").env("SHOAL_LOG", "info");
    let mut pserver = Role::start(command.args(["pserver", "--name", "ps-3", "--master", &address]));
    let pages = pserver.until("pages for probes")["fields"]["address"].as_str().unwrap().to_owned();
    let registered = pserver.until("pserver registered");
    check(&registered, "pserver");
    assert_eq!((&registered["job"], &registered["name"]), (&"digits-7".into(), &"ps-3".into()));
    until(&pages, 200);
    let metrics = exposition::read(&page(&pages, "/metrics").1).unwrap();
    assert_eq!(exposition::faults(&metrics), [] as [String; 0]);
    master.child.kill().unwrap();
    let why = until(&pages, 503);
    assert!(why.contains(&address) && why.lines().count() == 1, "{why}");
    assert_eq!(page(&pages, "/healthz").0, 200, "it is alive all the same");
}

#[test]
fn the_last_words_of_roles_and_programs_are_json_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut missing = shoal(folder.path());
    missing.args(["master", "--data", "none-*.recordio", "--log-format", "json"]);
    let ended = missing.output().unwrap();
    let log = log_of(&ended);
    log.iter().for_each(|line| check(line, "master"));
    let last = log.last().unwrap();
    assert!(last["level"] == "ERROR" && last["message"].as_str().unwrap().contains("none-*"), "{last}");
    assert_eq!(ended.status.code(), Some(2));

    let program = |format: &str| {
        let mut program = shoal(folder.path());
        program.env("SHOAL_LOG_FORMAT", format).env("SHOAL_PATIENCE_SECONDS", "0");
        program.env("SHOAL_MASTER", "127.0.0.1:1").env("SHOAL_TRAINER_NAME", "t-5").arg("demo-trainer");
        program.output().unwrap()
    };
    let ended = program("json");
    let log = log_of(&ended);
    log.iter().for_each(|line| check(line, "trainer"));
    assert_eq!((log.last().unwrap()["level"].as_str(), ended.status.code()), (Some("ERROR"), Some(3)));
    let wrong = program("yaml");
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("SHOAL_LOG_FORMAT") && said.contains("text or json"), "{said}");
    assert_eq!(wrong.status.code(), Some(2));
    let text = program("text");
    assert!(serde_json::from_slice::<Value>(&text.stderr).is_err());
}

#[test]
fn the_filter_is_the_environments_and_a_wrong_one_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let lines = |name: &str, filter: &str| {
        let mut command = shoal(folder.path());
        command.env(name, filter).env("SHOAL_PATIENCE_SECONDS", "0").env("SHOAL_MASTER", "127.0.0.1:1");
        let output = command.env("SHOAL_LOG_FORMAT", "json").arg("demo-trainer").output().unwrap();
        log_of(&output).len()
    };
    assert_eq!((lines("SHOAL_LOG", "off"), lines("RUST_LOG", "off"), lines("SHOAL_LOG", "error")), (0, 0, 1));
    assert_eq!(lines("SHOAL_LOG", "shoal=loud"), 2, "a warning and the error");
    let mut both = shoal(folder.path());
    both.env("SHOAL_LOG", "error").env("RUST_LOG", "off").env("SHOAL_MASTER", "127.0.0.1:1");
    let both = both.env("SHOAL_PATIENCE_SECONDS", "0").arg("demo-trainer").output().unwrap();
    assert!(!both.stderr.is_empty(), "SHOAL_LOG goes first");
}
