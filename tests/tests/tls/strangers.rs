//! Strangers who call: a hand-made client, which believes whatever it meets, shows each of the wrong things to each role.

use crate::edges::{Edge, was_heard};
use crate::job::Job;
use crate::shown::{Issuers, JOB, lasting, pair};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use shoal_runtime::host::rpc::Channel;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::wire::{Fault, proto};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::Endpoint;
use tower::util::BoxCloneSyncService;

/// Believes whatever it meets.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// What a stranger shows.
#[derive(Clone, Debug)]
enum Shows {
    Plaintext,
    Nothing,
    Certificate(PathBuf),
}

fn config(shows: &Shows) -> Option<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gullible));
    let mut config = match shows {
        Shows::Plaintext => return None,
        Shows::Nothing => builder.with_no_client_auth(),
        Shows::Certificate(folder) => {
            let (chain, key) = pair(folder);
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Some(Arc::new(config))
}

fn channel(address: &str, shows: &Shows) -> Channel {
    let (config, address) = (config(shows), address.to_owned());
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).unwrap().timeout(Duration::from_secs(3));
    let channel = match config {
        None => endpoint.connect_lazy(),
        Some(config) => endpoint.connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| {
            let (connector, address) = (TlsConnector::from(Arc::clone(&config)), address.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
                Ok::<_, std::io::Error>(TokioIo::new(connector.connect(name, stream).await?))
            }
        })),
    };
    BoxCloneSyncService::new(tower::ServiceExt::map_err(channel, Into::into))
}

/// The wrong things that one who plays `role` may show.
fn wrong(issuers: &Issuers, role: Role) -> Vec<(&'static str, Shows)> {
    let name = |what: &str| format!("{what}-{role}");
    let issue =
        |what, job, role, seconds| Shows::Certificate(issuers.issue(what, job, role, lasting(seconds)));
    // Those who may ask how the job is, and nothing of this.
    let other = if role == Role::Trainer { Role::Client } else { Role::Trainer };
    vec![
        ("plaintext", Shows::Plaintext),
        ("no certificate", Shows::Nothing),
        ("an expired one", issue(&name("expired"), JOB, role, -5)),
        ("another job's", issue(&name("job"), "other", role, 3600)),
        ("another role's", issue(&name("role"), JOB, other, 3600)),
        ("a foreign one", Shows::Certificate(issuers.issue_foreign(&name("foreign"), JOB, role))),
    ]
}

/// What no stranger may change.
async fn state(job: &Job, issuers: &Issuers) -> String {
    let status = job.status(&issuers.secured(Role::Client)).await.unwrap();
    let names = |names: Vec<String>| names.join(",");
    let counters = status.pservers.iter().map(|pserver| {
        let counters = pserver.counters.unwrap_or_default();
        (pserver.name.clone(), counters.pushes, counters.bytes_in)
    });
    let counters: Vec<_> = counters.collect();
    let trainers = names(status.trainers.iter().map(|trainer| trainer.name.clone()).collect());
    format!(
        "{} {} [{trainers}] {counters:?} {} {} {:?}",
        status.phase, status.step, status.trainers_wanted, status.pservers_wanted, status.routing
    )
}

#[tokio::test]
async fn whoever_shows_the_wrong_thing_is_refused_by_every_role_and_changes_nothing() {
    tokio::task::LocalSet::new().run_until(refuse_all()).await;
}

async fn refuse_all() {
    let issuers = Issuers::new();
    let job = Job::start(&issuers, &[]).await;
    let client = issuers.secured(Role::Client);
    job.until(&client, |status| status.pservers.len() == 2).await;
    // Somebody declares the parameters, so that there are blocks to be spoilt.
    let declared =
        Edge::TrainerJoins.call(channel(&job.master, &Shows::Certificate(issuers.good(Role::Trainer)))).await;
    declared.unwrap();
    let status = job.until(&client, |status| status.routing.is_some() && status.pservers.len() == 2).await;
    let pserver = status.pservers[0].address.clone();
    let address = |edge: Edge| if edge.called() == Role::Master { &job.master } else { &pserver };
    // The hand that declared is silent: it is given up after some TTLs, and then nothing moves any more.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = state(&job, &issuers).await;
    for edge in Edge::ALL {
        for (what, shows) in wrong(&issuers, edge.caller()) {
            let answer = edge.call(channel(address(edge), &shows)).await;
            assert!(!was_heard(&answer), "{edge:?} with {what}: {answer:?}");
        }
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(state(&job, &issuers).await, before);
    // The same calls with the right certificate are heard: they would have done harm.
    for edge in Edge::ALL {
        let shows = Shows::Certificate(issuers.good(edge.caller()));
        let answer = edge.call(channel(address(edge), &shows)).await;
        assert!(was_heard(&answer), "{edge:?}: {answer:?}");
    }
    assert_ne!(state(&job, &issuers).await, before);
    job.stop().await;
}

#[tokio::test]
async fn a_role_that_calls_what_is_not_its_own_is_told_who_may() {
    let talk = async {
        let issuers = Issuers::new();
        let job = Job::start(&issuers, &[]).await;
        job.until(&issuers.secured(Role::Client), |status| status.pservers.len() == 2).await;
        let mut trainer = job.client(&issuers.secured(Role::Trainer));
        let asked = trainer.scale(proto::ScaleRequest {
            job: JOB.to_owned(),
            trainers: Some(77),
            ..Default::default()
        });
        let fault = Fault::from(asked.await.unwrap_err());
        assert!(
            matches!(&fault, Fault::Impossible(why) if why.contains("a trainer may not call Scale")),
            "{fault}"
        );
        assert!(job.status(&issuers.secured(Role::Trainer)).await.is_some(), "everybody may ask how it is");
        job.stop().await;
    };
    tokio::task::LocalSet::new().run_until(talk).await;
}
