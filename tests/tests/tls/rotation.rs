//! Certificates that change, and run out, while a job runs.

use crate::edges::Edge;
use crate::job::{Job, RECORDS, train, trainer_settings};
use crate::shown::{Issuers, JOB, lasting};
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{self, Dial, Limits, Security, TcpDial};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::wire::Fault;
use shoal_trainer_sdk::{Ended, TrainerSettings};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// How long a certificate is good for, and how often it is issued anew.
const LIFE: u64 = 5;
const EVERY: Duration = Duration::from_secs(2);
const EPOCHS: u32 = 5;

#[tokio::test]
async fn certificates_change_and_expire_in_mid_run_and_every_record_counts_once() {
    tokio::task::LocalSet::new().run_until(rotate()).await;
}

async fn rotate() {
    let issuers = Issuers::new();
    let issue = || Role::ALL.map(|role| issuers.issue(role.word(), JOB, role, lasting(LIFE as i64)));
    issue();
    let epochs = EPOCHS.to_string();
    let job = Job::start(&issuers, &["--epochs", &epochs]).await;
    let began = Instant::now();
    let client = issuers.secured(Role::Client);
    let trainers = ["a", "b"].map(|name| {
        let settings = trainer_settings(&job.master, name, Some(issuers.good(Role::Trainer)));
        let settings = TrainerSettings { pace: Duration::from_millis(120), ..settings };
        tokio::task::spawn_local(train(settings, job.stopped()))
    });
    let done = async {
        for trainer in trainers {
            assert_eq!(trainer.await.unwrap().unwrap(), Ended::JobDone);
        }
    };
    let changing = async {
        loop {
            tokio::time::sleep(EVERY).await;
            issue();
        }
    };
    tokio::select! {
        () = done => {}
        never = changing => never,
    }
    // Nothing that anybody showed at the start is good any more, twice over.
    assert!(began.elapsed() > Duration::from_secs(2 * LIFE), "{:?}", began.elapsed());
    issue();
    let status = job.until(&client, |status| status.phase == "done").await;
    assert_eq!((status.rewind, status.pservers.len()), (0, 2), "nobody was lost");
    let exact: u32 = (0..EPOCHS).map(|epoch| 1 << (2 * epoch)).sum();
    let elements = job.elements(&client, &status).await;
    assert_eq!(elements, vec![exact as f32; 3 * RECORDS as usize]);
    job.stop().await;
}

/// Connections of one caller within 2.5 s, to a server that wants a new one every half second, where it wants any.
async fn connections(security: fn(&Issuers, Role) -> Security) -> usize {
    let issuers = Issuers::new();
    let listener = rpc::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let incoming = futures_util::stream::unfold(listener, move |listener| {
        let counted = Arc::clone(&counted);
        async move {
            let came = listener.accept().await;
            counted.fetch_add(1, Relaxed);
            Some((came, listener))
        }
    });
    let limits = Limits { connection_age: Duration::from_millis(500), ..Limits::default() };
    let (_stop, stopped) = Shutdown::pair();
    let master = security(&issuers, Role::Master);
    tokio::spawn(rpc::serve_on(incoming, tonic::service::Routes::default(), limits, master, stopped));
    let dial = TcpDial { security: security(&issuers, Role::Client), ..TcpDial::default() };
    let channel = dial.dial(&address, Some(Role::Master)).unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2500) {
        // No such service is there, and that is an answer; no answer may be lost with a connection that is given up.
        let answer = Edge::ClientScales.call(channel.clone()).await;
        assert!(matches!(answer, Err(Fault::Impossible(_))), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    accepted.load(Relaxed)
}

#[tokio::test]
async fn a_connection_over_tls_is_made_anew_when_it_is_old_and_no_call_is_lost() {
    let secured = connections(Issuers::secured).await;
    assert!((4..=7).contains(&secured), "{secured}");
    assert_eq!(connections(|_, _| Security::Loopback).await, 1, "nobody is asked anew");
}

#[tokio::test]
async fn a_trainer_whose_certificate_runs_out_ends_and_says_so() {
    let talk = async {
        let issuers = Issuers::new();
        let job = Job::start(&issuers, &["--epochs", "10"]).await;
        let brief = issuers.issue("brief", JOB, Role::Trainer, lasting(6));
        let settings = trainer_settings(&job.master, "brief", Some(brief));
        let (pace, patience) = (Duration::from_millis(50), Duration::from_secs(2));
        let began = Instant::now();
        let ended = train(TrainerSettings { pace, patience, ..settings }, job.stopped()).await.unwrap_err();
        assert!(ended.exit_code() != 0 && ended.to_string().contains("has expired"), "{ended}");
        assert!((5..20).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        let client = issuers.secured(Role::Client);
        assert!(job.status(&client).await.is_some_and(|status| status.step > 0), "it had worked");
        job.stop().await;
    };
    tokio::task::LocalSet::new().run_until(talk).await;
}

#[tokio::test]
async fn what_cannot_be_used_leaves_the_old_in_use_and_the_job_goes_on() {
    let talk = async {
        let issuers = Issuers::new();
        let job = Job::start(&issuers, &[]).await;
        let client = issuers.secured(Role::Client);
        job.until(&client, |status| status.pservers.len() == 2).await;
        // Another job's certificate comes where the pservers' lies, and an expired one where the master's is.
        issuers.issue("pserver", "other", Role::Pserver, lasting(3600));
        issuers.issue("master", JOB, Role::Master, lasting(-5));
        let settings = trainer_settings(&job.master, "t", Some(issuers.good(Role::Trainer)));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(train(settings, job.stopped()).await.unwrap(), Ended::JobDone);
        let fresh = Security::open(Some(&issuers.good(Role::Client)), false, None).unwrap();
        let status = job.status(&fresh).await.unwrap();
        assert_eq!(job.elements(&fresh, &status).await, vec![1.0; 3 * RECORDS as usize]);
        job.stop().await;
    };
    tokio::task::LocalSet::new().run_until(talk).await;
}
