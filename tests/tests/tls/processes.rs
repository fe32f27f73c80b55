//! A whole run with TLS as processes: what people type, and what others on the machine may see of it.

use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Between two looks at a run that starts, and how many there are.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE_LOOKS: u32 = 1200;

fn shoal(programs: &Programs, folder: &Path, words: &[&str]) -> Output {
    Command::new(&programs.shoal).current_dir(folder).args(words).output().unwrap()
}

/// The command lines and environments of all processes of this user that name `folder`.
fn seen(folder: &Path) -> String {
    let folder = folder.display().to_string();
    let mut seen = String::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if text.contains(&folder) {
                seen += &text;
            }
        }
    }
    seen
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { vec![entry.path()] })
        .collect()
}

/// What of a key would give it away: any line of its PEM, or its bytes in hexadecimal.
fn secrets(tls: &Path) -> Vec<String> {
    let keys = files(tls)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "key") || path.ends_with("key.pem"));
    let secrets = keys.flat_map(|path| {
        let pem = std::fs::read_to_string(&path).unwrap();
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let hexadecimal: String = key.secret_der().iter().map(|byte| format!("{byte:02x}")).collect();
        let lines = pem.lines().filter(|line| !line.starts_with('-')).map(str::to_owned).collect::<Vec<_>>();
        lines.into_iter().chain([hexadecimal, "PRIVATE KEY".to_owned()])
    });
    secrets.collect()
}

#[tokio::test]
async fn a_run_with_tls_works_as_one_without_and_shows_no_key_to_anybody() {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    let run = folder.path().join("run");
    let more = [
        "--tls",
        "--folder",
        run.to_str().unwrap(),
        "--epochs",
        "2",
        "--pace-millis",
        "60",
        "--replicas",
        "1",
    ];
    let more = more.map(str::to_owned).to_vec();
    let (program, folder) = (programs.count.as_path(), folder.path());
    let job = Job {
        programs: &programs,
        folder,
        program,
        data: &data,
        trainers: "2",
        pservers: 2,
        more,
        hyper: Vec::new(),
    };
    let mut command = job.command();
    command.env("SHOAL_LOG", "debug");
    let running = command.spawn().unwrap();
    // Until the master answers and all roles have started: trainers are given credentials by their environment.
    let mut met = None;
    for _ in 0..PATIENCE_LOOKS {
        tokio::time::sleep(LOOK).await;
        let status = shoal(&programs, folder, &["status", "--run", "run", "-o", "json"]);
        let lines = seen(&run);
        if status.status.success() && lines.contains("--tls") && lines.contains("SHOAL_TLS") {
            met = Some((status, lines));
            break;
        }
    }
    let (status, lines) = met.expect("a run with TLS, with all of its roles, was never met");
    let status = closing(&status).unwrap();
    assert!(status["job"].as_str().is_some_and(|job| job.starts_with("count")), "{status}");
    let secrets = secrets(&run.join("tls"));
    assert!(secrets.len() > 20);
    // Without a certificate nobody is answered, and told why.
    let master = std::fs::read_to_string(run.join("master.address")).unwrap();
    let stranger = shoal(&programs, folder, &["status", "--master", &master]);
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(stranger.status.code() == Some(3) && said.contains("give --tls DIR"), "{said}");
    let output = tokio::task::spawn_blocking(|| running.wait_with_output().unwrap()).await.unwrap();
    let ended = closing(&output).unwrap();
    assert_eq!((&ended["records_wrong"], &ended["records_counted"]), (&0.into(), &2996.into()), "{ended}");
    let logs = files(&run.join("logs"));
    assert!(logs.len() >= 5);
    let logs = logs.iter().map(|log| std::fs::read_to_string(log).unwrap()).collect::<String>();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(logs.contains("credentials"), "the logs were not read");
    for secret in secrets {
        assert!(
            !lines.contains(&secret) && !logs.contains(&secret) && !said.contains(&secret),
            "a key is seen"
        );
    }
}

#[test]
fn certs_are_made_issued_and_shown_by_command() {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let call = |words: &[&str]| shoal(&programs, folder.path(), words);
    assert!(call(&["certs", "init", "authority"]).status.success());
    assert_eq!(call(&["certs", "init", "authority"]).status.code(), Some(2), "an authority is made once");
    let issue = ["certs", "issue", "--authority", "authority", "--job", "digits"];
    assert!(call(&[&issue[..], &["certs"]].concat()).status.success());
    let shown = closing(&call(&["certs", "show", "certs/pserver", "-o", "json"])).unwrap();
    assert_eq!((&shown["job"], &shown["role"]), (&"digits".into(), &"pserver".into()), "{shown}");
    assert!(
        shown["seconds_left"].as_u64().is_some_and(|left| (7_775_000..=7_776_000).contains(&left)),
        "{shown}"
    );
    // Issued again, one role at a time.
    assert!(
        call(&[&issue[..], &["--role", "pserver", "--valid", "1s", "certs/pserver"]].concat())
            .status
            .success()
    );
    Command::new("sleep").arg("2.1").status().unwrap();
    let shown = call(&["certs", "show", "certs/pserver"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.code() == Some(1) && text.contains("expired"), "{text}");
    let unknown = call(&[&issue[..], &["--role", "king", "certs/king"]].concat());
    assert_eq!(unknown.status.code(), Some(2));
    assert!(!folder.path().join("certs/king").exists());
}
