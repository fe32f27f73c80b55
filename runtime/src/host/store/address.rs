//! Which store an address means. It must never guess: what it does not understand is an error.

use super::{EtcdStore, FileStore, LEASE_TTL, Store, StoreError};
use crate::host::rpc::{NamedDial, Security, TcpDial};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Opens the store at `address`: a folder's path, or `etcd://host:port[,host:port]/prefix[?ttl_seconds=N]`, or the same with `etcds://`.
///
/// `etcd://` is plaintext, and so on this machine alone unless plaintext was asked for by name. `etcds://` is TLS, by the authority and the
/// client's certificate in the folder `credentials`: what etcd's `--trusted-ca-file` and `--client-cert-auth` ask for.
///
/// # Errors
/// `Broken` where the address cannot be understood, the folder not made, or credentials not read. etcd is not called yet.
pub fn open(
    address: &str,
    security: &Security,
    credentials: Option<&Path>,
) -> Result<Arc<dyn Store>, StoreError> {
    if let Some(rest) = address.strip_prefix("etcds://") {
        let (endpoints, prefix, ttl) = parsed(address, rest)?;
        let why =
            "an etcd over TLS takes --store-tls: a folder with ca.pem, and a client's cert.pem and key.pem";
        let folder = credentials.ok_or_else(|| StoreError::Broken(format!("{address:?}: {why}")))?;
        let dial =
            NamedDial::open(folder).map_err(|why| StoreError::Broken(format!("--store-tls: {why}")))?;
        return Ok(Arc::new(EtcdStore::new(&dial, &endpoints, &prefix, ttl)?));
    }
    if let Some(folder) = credentials {
        let folder = folder.display();
        return Err(StoreError::Broken(format!(
            "{address:?}: --store-tls {folder} is for etcds://HOST:PORT/PREFIX: write that, or leave it out"
        )));
    }
    if let Some(rest) = address.strip_prefix("etcd://") {
        let (endpoints, prefix, ttl) = parsed(address, rest)?;
        let security = match security {
            Security::Plaintext => Security::Plaintext,
            Security::Loopback | Security::Tls(_) => Security::Loopback,
        };
        let dial = TcpDial { security, ..TcpDial::default() };
        return Ok(Arc::new(EtcdStore::new(&dial, &endpoints, &prefix, ttl)?));
    }
    if address.is_empty() || address.contains("://") {
        return Err(StoreError::Broken(format!("{address:?} is no store: name a folder, or etcd://…")));
    }
    Ok(Arc::new(FileStore::open(Path::new(address))?))
}

/// Members, prefix and time to live.
type Etcd = (Vec<String>, String, Duration);

fn parsed(address: &str, rest: &str) -> Result<Etcd, StoreError> {
    let scheme = address.split("://").next().unwrap_or_default();
    parse_etcd(rest).map_err(|what| {
        let form = format!("{scheme}://host:port[,host:port]/prefix[?ttl_seconds=N]");
        StoreError::Broken(format!("{address:?}: {what}; write {form}"))
    })
}

fn parse_etcd(rest: &str) -> Result<Etcd, &'static str> {
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let (endpoints, prefix) = path.split_once('/').ok_or("the prefix is missing")?;
    let prefix = prefix.trim_end_matches('/');
    if prefix.is_empty() {
        return Err("the prefix is missing");
    }
    let endpoints: Vec<String> = endpoints.split(',').map(str::to_owned).collect();
    let has_port = |endpoint: &String| {
        endpoint.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    if !endpoints.iter().all(has_port) {
        return Err("an endpoint is not host:port");
    }
    let ttl = match query {
        None => LEASE_TTL,
        Some(query) => {
            let seconds = query.strip_prefix("ttl_seconds=").and_then(|seconds| seconds.parse().ok());
            let seconds = seconds.filter(|seconds| (1..=3600).contains(seconds));
            Duration::from_secs(seconds.ok_or("the only setting is ttl_seconds, from 1 to 3600")?)
        }
    };
    Ok((endpoints, format!("/{prefix}"), ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str) -> String {
        match open(address, &Security::Loopback, None) {
            Err(StoreError::Broken(what)) => what,
            other => panic!("{address}: {other:?}"),
        }
    }

    #[test]
    fn an_etcd_address_names_members_prefix_and_ttl() {
        let seconds = Duration::from_secs;
        let parsed = |rest| parse_etcd(rest).unwrap();
        assert_eq!(parsed("a:2379/jobs/one"), (vec!["a:2379".into()], "/jobs/one".into(), LEASE_TTL));
        assert_eq!(
            parsed("a:2379,[::1]:9/x/?ttl_seconds=12"),
            (vec!["a:2379".into(), "[::1]:9".into()], "/x".into(), seconds(12))
        );
    }

    #[tokio::test]
    async fn an_address_opens_the_store_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        assert!(
            format!("{:?}", open(inner.to_str().unwrap(), &Security::Loopback, None).unwrap())
                .starts_with("FileStore")
        );
        assert!(inner.is_dir());
        assert!(
            format!("{:?}", open("etcd://localhost:2379/job", &Security::Loopback, None).unwrap())
                .starts_with("EtcdStore")
        );
    }

    #[tokio::test]
    async fn etcd_on_another_machine_is_called_in_plaintext_only_if_that_was_asked_for() {
        let address = "etcd://10.0.0.1:2379/job";
        assert!(refused(address).contains("--plaintext"));
        assert!(open(address, &Security::Plaintext, None).is_ok());
    }

    #[test]
    fn etcd_over_tls_takes_credentials_and_nothing_else_does() {
        assert!(refused("etcds://a:1/job").contains("--store-tls"));
        assert!(refused("etcds://a/job").contains("write etcds://host:port"));
        let none = tempfile::tempdir().unwrap();
        let with = |address: &str| match open(address, &Security::Plaintext, Some(none.path())) {
            Err(StoreError::Broken(what)) => what,
            other => panic!("{address}: {other:?}"),
        };
        assert!(with("etcds://a:1/job").contains("no cert.pem"));
        for other in ["etcd://a:1/job", "/a/folder"] {
            assert!(with(other).contains("is for etcds://"), "{other}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_the_form_to_write() {
        for rest in ["a:1", "a:1/", "a:1//", "/job", "a/job", "a:b/job", "a:1,/job", ":1/job"] {
            let what = refused(&format!("etcd://{rest}"));
            assert!(what.contains(rest) && what.contains("host:port"), "{what}");
        }
        for query in ["", "ttl=5", "ttl_seconds=", "ttl_seconds=0", "ttl_seconds=3601", "ttl_seconds=5&a=b"] {
            assert!(refused(&format!("etcd://a:1/job?{query}")).contains("ttl_seconds"));
        }
        assert!(refused("").contains("folder") && refused("s3://bucket").contains("s3://bucket"));
    }
}
