//! Strangers who answer: whoever calls them finds out before it has said anything.

use crate::edges::Edge;
use crate::shown::{Issuers, JOB, lasting, pair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{self, Dial, Limits, Security, TcpDial};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::wire::Fault;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Listens with the certificate in `folder`, asks for none, speaks first as HTTP/2 does, and counts what it hears.
async fn impostor(folder: &Path) -> (String, Arc<AtomicUsize>) {
    let (chain, key) = pair(folder);
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heard = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            // An empty SETTINGS frame.
            let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
            let _ = stream.flush().await;
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                counted.fetch_add(read, Relaxed);
            }
        }
    });
    (address, heard)
}

async fn fault(edge: Edge, address: &str, security: Security) -> String {
    let dial = TcpDial { security, ..TcpDial::default() };
    let channel = dial.dial(address, Some(edge.called())).unwrap();
    match edge.call(channel).await {
        Err(Fault::Untrusted(why)) => why,
        other => panic!("{edge:?} at {address}: {other:?}"),
    }
}

#[tokio::test]
async fn an_impostor_is_told_nothing_whatever_it_shows_and_whoever_calls_it() {
    let issuers = Issuers::new();
    for edge in Edge::ALL {
        let (caller, called) = (edge.caller(), edge.called());
        let name = |what: &str| format!("{what}-{called}");
        let other = if called == Role::Master { Role::Pserver } else { Role::Master };
        let shown = [
            (issuers.issue(&name("expired"), JOB, called, lasting(-5)), "has expired"),
            (
                issuers.issue(&name("job"), "other", called, lasting(3600)),
                "one job's roles do not speak with another's",
            ),
            (issuers.issue(&name("role"), JOB, other, lasting(3600)), "was called"),
            (issuers.issue_foreign(&name("foreign"), JOB, called), "another authority"),
        ];
        for (folder, words) in shown {
            let (address, heard) = impostor(&folder).await;
            let why = fault(edge, &address, issuers.secured(caller)).await;
            assert!(why.contains(words) && why.contains(&address), "{edge:?}: {why}");
            assert_eq!(heard.load(Relaxed), 0, "{edge:?}, {words}: something was said");
        }
        // One that is as it should be is spoken to, or the count above would prove nothing.
        let (address, heard) = impostor(&issuers.good(called)).await;
        let dial = TcpDial { security: issuers.secured(caller), ..TcpDial::default() };
        let channel = dial.dial(&address, Some(called)).unwrap();
        let _ = tokio::time::timeout(std::time::Duration::from_millis(500), edge.call(channel)).await;
        assert!(heard.load(Relaxed) > 0, "{edge:?}");
    }
}

#[tokio::test]
async fn plaintext_and_tls_know_one_another_and_do_not_mix() {
    let issuers = Issuers::new();
    let serve = async |security: Security| {
        let listener = rpc::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = Shutdown::pair();
        tokio::spawn(rpc::serve(
            listener,
            tonic::service::Routes::default(),
            Limits::default(),
            security,
            stopped,
        ));
        (address, stop)
    };
    let (plain, _plain) = serve(Security::Loopback).await;
    let (master, _master) = serve(issuers.secured(Role::Master)).await;
    let (pserver, _pserver) = serve(issuers.secured(Role::Pserver)).await;
    for edge in Edge::ALL {
        let why = fault(edge, &plain, issuers.secured(edge.caller())).await;
        assert!(why.contains("does not speak TLS") && why.contains(&plain), "{edge:?}: {why}");
        let secured = if edge.called() == Role::Master { &master } else { &pserver };
        let why = fault(edge, secured, Security::Loopback).await;
        assert!(why.contains("it speaks TLS: give --tls DIR") && why.contains(secured), "{edge:?}: {why}");
    }
}

#[tokio::test]
async fn who_is_refused_may_end_its_sentence_and_so_hears_why() {
    let issuers = Issuers::new();
    let listener = rpc::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = Shutdown::pair();
    let master = issuers.secured(Role::Master);
    tokio::spawn(rpc::serve(listener, tonic::service::Routes::default(), Limits::default(), master, stopped));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    // Had it hung up, the first of these would be answered by a reset, and the next would fail.
    for _ in 0..3 {
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        stream.write_all(&[0; 100]).await.unwrap();
    }
    assert_eq!(stream.read_u8().await.unwrap(), 0x15);
}

#[tokio::test]
async fn a_name_that_leads_off_this_machine_is_not_called_in_plaintext() {
    let literal = TcpDial::default().dial("10.255.255.1:7400", None).err().unwrap();
    assert!(literal.contains("10.255.255.1:7400") && literal.contains("--plaintext"), "{literal}");
    // A name is known by its address only when it is called; this one is a number in another spelling.
    let channel = TcpDial::default().dial("0xaffffff1:7400", None);
    if let Ok(channel) = channel {
        let answer = Edge::ClientScales.call(channel).await;
        assert!(answer.is_err(), "{answer:?}");
    }
}
