//! The store in an etcd that speaks TLS and asks clients for certificates. Without an etcd the test says so and passes, or fails when
//! `SHOAL_REQUIRE_ALL=1`.

use super::process::Etcd;
use super::{SLACK, TTL};
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::store::{Store, StoreError, open};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::time::{Instant, timeout};

/// An authority, and a folder with what an etcd shows, and one with what its clients show.
struct Certificates {
    place: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    fn new() -> Certificates {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let all = Certificates { place: tempfile::tempdir().unwrap(), authority };
        all.issue("etcd", &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
        all.issue("client", &["master"], ExtendedKeyUsagePurpose::ClientAuth);
        all
    }

    fn issue(&self, name: &str, hosts: &[&str], usage: ExtendedKeyUsagePurpose) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut parameters = CertificateParams::new(hosts).unwrap();
        parameters.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.authority).unwrap();
        let folder = self.folder(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in [
            ("ca.pem", self.authority.pem()),
            ("cert.pem", certificate.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            std::fs::write(folder.join(file), text).unwrap();
        }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }
}

fn secured(etcd: &Etcd, folder: &Path) -> Arc<dyn Store> {
    let ttl = TTL.as_secs();
    let address = format!("etcds://{}/job?ttl_seconds={ttl}", etcd.address());
    open(&address, &Security::Loopback, Some(folder)).unwrap()
}

/// What a store says once it answers; an etcd takes a moment from when it listens.
async fn soon(store: &dyn Store) -> Result<Option<Bytes>, StoreError> {
    let deadline = Instant::now() + SLACK;
    loop {
        let loaded = store.load().await.map(|found| found.map(|(_, bytes)| bytes));
        if loaded.is_ok() || Instant::now() >= deadline {
            return loaded;
        }
        tokio::time::sleep(TTL / 10).await;
    }
}

#[tokio::test]
async fn an_etcd_over_tls_keeps_the_document_of_who_has_its_certificate_and_of_nobody_else() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let Some(mut etcd) = Etcd::start_secured(&ours.folder("etcd")).await else { return };
    let store = secured(&etcd, &ours.folder("client"));
    assert_eq!(soon(&*store).await, Ok(None));
    let _leads = timeout(TTL + SLACK, store.lead("one")).await.expect("nobody leads").unwrap();
    store.swap(None, Bytes::from("a")).await.unwrap();
    assert_eq!(soon(&*store).await, Ok(Some(Bytes::from("a"))));

    // A stranger's certificate, one that believes in another etcd, and no TLS at all.
    std::fs::copy(ours.folder("client").join("ca.pem"), others.folder("client").join("ca.pem")).unwrap();
    let stranger = secured(&etcd, &others.folder("client")).load().await;
    assert!(matches!(stranger, Err(StoreError::Unavailable(_))), "{stranger:?}");
    let plain = open(&format!("etcd://{}/job", etcd.address()), &Security::Loopback, None).unwrap();
    assert!(matches!(plain.load().await, Err(StoreError::Unavailable(_))));
    ours.issue("elsewhere", &["192.0.2.1"], ExtendedKeyUsagePurpose::ServerAuth);
    let Some(elsewhere) = Etcd::start_secured(&ours.folder("elsewhere")).await else { return };
    let named = secured(&elsewhere, &ours.folder("client")).load().await;
    assert!(format!("{named:?}").contains("not valid for name"), "{named:?}");

    // Another authority at both ends, while the store is open.
    etcd.kill();
    for (folder, file) in ["etcd", "client"]
        .into_iter()
        .flat_map(|folder| ["ca.pem", "cert.pem", "key.pem"].map(|file| (folder, file)))
    {
        let from = if (folder, file) == ("client", "ca.pem") { "etcd" } else { folder };
        std::fs::copy(others.folder(from).join(file), ours.folder(folder).join(file)).unwrap();
    }
    etcd.restart().await;
    assert_eq!(soon(&*store).await, Ok(Some(Bytes::from("a"))), "the new certificates are used");
}
