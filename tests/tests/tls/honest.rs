//! Our own roles with the wrong credentials: each says what is the matter, and ends when nothing mends it.

use crate::edges::Edge;
use crate::job::{Job, master_settings, pserver_settings, train, trainer_settings};
use crate::shown::{Issuers, JOB, lasting};
use shoal_runtime::host::rpc::tls::{Credentials, Role};
use shoal_runtime::host::rpc::{Dial, Security, TcpDial};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::wire::Fault;
use shoal_trainer_sdk::{TrainError, TrainerSettings};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A clock that is slow by some minutes.
#[derive(Debug)]
struct Slow;

impl rustls::time_provider::TimeProvider for Slow {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        let now = shoal_runtime::host::clock::wall_seconds();
        Some(rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(now - 300)))
    }
}

/// What one of our own may have by mistake, and what it then hears.
fn mistakes(issuers: &Issuers, role: Role) -> Vec<(Security, &'static str)> {
    let open = |folder: PathBuf| Security::open(Some(&folder), false, None).unwrap();
    let name = |what: &str| format!("{what}-{role}");
    let expired = issuers.issue(&name("expired"), JOB, role, lasting(-5));
    let foreign = issuers.issue_foreign(&name("foreign"), JOB, role);
    vec![
        (Security::Loopback, "give --tls DIR"),
        (Security::Plaintext, "give --tls DIR"),
        (Security::Tls(Arc::new(Credentials::open(&expired, Arc::new(Slow)).unwrap())), "it has expired"),
        (open(foreign.clone()), "of another authority"),
        (open(issuers.believing_both("both", &foreign)), "of another authority than those in its ca.pem"),
        (open(issuers.issue(&name("job"), "other", role, lasting(3600))), "one job's roles do not speak"),
    ]
}

#[tokio::test]
async fn every_role_with_the_wrong_credentials_hears_from_every_other_what_is_the_matter() {
    let talk = async {
        let issuers = Issuers::new();
        let job = Job::start(&issuers, &[]).await;
        let client = issuers.secured(Role::Client);
        let status = job.until(&client, |status| status.pservers.len() == 2).await;
        let pserver = status.pservers[0].address.clone();
        for edge in Edge::ALL {
            let address = if edge.called() == Role::Master { &job.master } else { &pserver };
            for (security, words) in mistakes(&issuers, edge.caller()) {
                let dial = TcpDial { security: security.clone(), ..TcpDial::default() };
                let channel = dial.dial(address, Some(edge.called())).unwrap();
                match edge.call(channel).await {
                    Err(Fault::Untrusted(why)) => {
                        assert!(
                            why.contains(words) && why.contains(address),
                            "{edge:?}, {security:?}: {why}"
                        );
                    }
                    other => panic!("{edge:?}, {security:?}: {other:?}"),
                }
            }
        }
        job.stop().await;
    };
    tokio::task::LocalSet::new().run_until(talk).await;
}

#[tokio::test]
async fn a_trainer_that_is_not_believed_ends_within_its_patience_and_says_why() {
    let talk = async {
        let issuers = Issuers::new();
        let job = Job::start(&issuers, &[]).await;
        let foreign = issuers.issue_foreign("foreign", JOB, Role::Trainer);
        let cases = [
            (None, "give --tls DIR"),
            (Some(issuers.believing_both("both", &foreign)), "of another authority than those in its ca.pem"),
            (
                Some(issuers.issue("other", "other", Role::Trainer, lasting(3600))),
                "one job's roles do not speak",
            ),
        ];
        for (tls, words) in cases {
            let settings = trainer_settings(&job.master, "wrong", tls);
            let settings = TrainerSettings { patience: Duration::from_secs(1), ..settings };
            let began = Instant::now();
            let ended = train(settings, job.stopped()).await.unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(5), "{ended}");
            assert!(matches!(ended, TrainError::Unreachable { .. }) && ended.exit_code() == 3, "{ended}");
            assert!(ended.to_string().contains(words) && ended.to_string().contains(&job.master), "{ended}");
        }
        job.stop().await;
    };
    tokio::task::LocalSet::new().run_until(talk).await;
}

#[tokio::test]
async fn a_trainer_that_the_master_believes_and_pservers_do_not_ends_within_its_patience_too() {
    let talk = async {
        let issuers = Issuers::new();
        issuers.believing_both("master", &issuers.issue("first", JOB, Role::Master, lasting(3600)));
        let job = Job::start(&issuers, &[]).await;
        let foreign = issuers.issue_foreign("foreign", JOB, Role::Trainer);
        let settings = trainer_settings(&job.master, "wrong", Some(issuers.believing_both("both", &foreign)));
        let settings = TrainerSettings { patience: Duration::from_secs(1), ..settings };
        let began = Instant::now();
        let ended = tokio::time::timeout(Duration::from_secs(20), train(settings, job.stopped())).await;
        let ended = ended.expect("it waits for ever").unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10), "{ended}");
        assert!(matches!(ended, TrainError::Refused { role: "pserver", .. }), "{ended:?}");
        assert!(ended.to_string().contains("of another authority than those in its ca.pem"), "{ended}");
        job.stop().await;
    };
    tokio::task::LocalSet::new().run_until(talk).await;
}

#[tokio::test]
async fn a_role_does_not_start_with_a_certificate_of_another_job_or_role_or_time() {
    let issuers = Issuers::new();
    let issue = |name, job, role, seconds| issuers.issue(name, job, role, lasting(seconds));
    let expired = issue("1", JOB, Role::Master, -5);
    let (other_job, other_role) =
        (issue("2", "other", Role::Master, 3600), issue("3", JOB, Role::Pserver, 3600));
    for (tls, words) in
        [(&expired, "has expired"), (&other_job, "issue one with --job"), (&other_role, "--role master")]
    {
        let (_stop, stopped) = Shutdown::pair();
        let settings = master_settings(issuers.folder.path(), tls, &[]);
        let refused = shoal_master::run(settings, |_| panic!("it listens"), stopped).await.unwrap_err();
        assert!(format!("{refused:#}").contains(words), "{refused:#}");
    }
    assert!(!issuers.place("state").exists(), "nothing was begun");
    let settings = pserver_settings("127.0.0.1:1", "p", &other_job);
    assert!(settings.security().unwrap_err().to_string().contains("--role pserver"));
    let mut settings = pserver_settings("127.0.0.1:1", "p", &other_role);
    settings.job = Some("another".to_owned());
    assert!(settings.security().unwrap_err().to_string().contains("--job \"another\""));
    let settings = trainer_settings("127.0.0.1:1", "t", Some(other_role));
    assert!(matches!(settings.security(), Err(TrainError::Settings(why)) if why.contains("--role trainer")));
}

#[tokio::test]
async fn without_tls_no_role_listens_or_calls_off_this_machine() {
    let issuers = Issuers::new();
    let (_stop, stopped) = Shutdown::pair();
    let mut settings = master_settings(issuers.folder.path(), &issuers.good(Role::Master), &[]);
    settings.tls = None;
    settings.listen = "0.0.0.0:0".parse().unwrap();
    let refused = shoal_master::run(settings, |_| panic!("it listens"), stopped.clone()).await.unwrap_err();
    let refused = format!("{refused:#}");
    assert!(
        refused.contains("0.0.0.0:0") && refused.contains("--tls DIR") && refused.contains("--plaintext"),
        "{refused}"
    );
    for (listen, master) in [("0.0.0.0:0", "127.0.0.1:1"), ("127.0.0.1:0", "10.1.1.1:7400")] {
        let mut settings = pserver_settings(master, "p", &issuers.good(Role::Pserver));
        (settings.tls, settings.listen) = (None, listen.parse().unwrap());
        settings.advertise = Some("p:1".to_owned());
        let refused = shoal_pserver::run(settings, stopped.clone(), stopped.clone()).await.unwrap_err();
        assert!(format!("{refused:#}").contains("--plaintext"), "{refused:#}");
    }
    let refused = train(trainer_settings("10.1.1.1:7400", "t", None), stopped).await.unwrap_err();
    assert!(refused.exit_code() == 2 && refused.to_string().contains("10.1.1.1:7400"), "{refused}");
}
