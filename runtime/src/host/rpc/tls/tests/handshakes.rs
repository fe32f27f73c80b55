//! Two ends, each with what it has to show.
use super::*;

fn refuses_us(reason: &Reason) -> bool {
    matches!(reason, Reason::RefusesUs(_))
}

#[tokio::test]
async fn two_roles_of_one_job_meet_and_know_one_another() {
    let desk = Desk::new();
    let (trainer, pserver) = (desk.role(Role::Trainer), desk.role(Role::Pserver));
    let (at_trainer, at_pserver) = meet(&trainer, &pserver, Role::Pserver).await;
    let identity = |role| Identity { job: "digits".to_owned(), role };
    assert_eq!(at_trainer, Ok(Some(identity(Role::Pserver))));
    assert_eq!(at_pserver, Ok(Some(identity(Role::Trainer))));
}

#[tokio::test]
async fn who_shows_no_certificate_is_refused_and_told_so() {
    let desk = Desk::new();
    let pserver = desk.role(Role::Pserver);
    let Security::Tls(credentials) = desk.role(Role::Trainer) else { unreachable!() };
    // Believes whatever it meets, and has nothing to show.
    let mut bare = credentials.present();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(rustls::RootCertStore::empty());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    let verifier = verify::Verifier::new(
        {
            use rustls::pki_types::{CertificateDer, pem::PemObject};
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(desk.place("authority/ca.pem")).unwrap()).unwrap();
            roots
        },
        Arc::new(rustls::crypto::ring::default_provider()),
        "digits",
    );
    config.dangerous().set_certificate_verifier(Arc::new(verifier.unwrap()));
    config.time_provider = Arc::clone(&desk.clock) as _;
    bare.client = Arc::new(config);
    credentials.use_for_tests(bare);
    let (at_caller, at_pserver) = meet(&Security::Tls(credentials), &pserver, Role::Pserver).await;
    assert_eq!(at_pserver, Err(Reason::NoCertificate));
    assert!(at_caller.as_ref().is_err_and(|why| why.to_string().contains("--tls DIR")), "{at_caller:?}");
}

#[tokio::test]
async fn another_job_is_refused_by_both_ends() {
    let desk = Desk::new();
    let pserver = desk.role(Role::Pserver);
    let stranger = desk.secured(&desk.issue("stranger", "other", Role::Trainer, validity(1000)));
    // The caller looks first.
    let (at_caller, _) = meet(&stranger, &pserver, Role::Pserver).await;
    let theirs = Identity { job: "digits".to_owned(), role: Role::Pserver };
    assert_eq!(at_caller, Err(Reason::OtherJob { theirs, ours: "other".to_owned() }));
    // One that does not look is refused by the other end.
    let Security::Tls(credentials) = &stranger else { unreachable!() };
    credentials.believe_job_for_tests("digits", &desk.place("authority/ca.pem"));
    let (at_caller, at_pserver) = meet(&stranger, &pserver, Role::Pserver).await;
    let theirs = Identity { job: "other".to_owned(), role: Role::Trainer };
    assert_eq!(at_pserver, Err(Reason::OtherJob { theirs, ours: "digits".to_owned() }));
    assert!(at_caller.as_ref().is_err_and(refuses_us), "{at_caller:?}");
    assert!(at_caller.unwrap_err().to_string().contains("another job"));
}

#[tokio::test]
async fn another_authority_is_refused_whatever_it_signs() {
    let (desk, other) = (Desk::new(), Desk::new());
    let (pserver, stranger) = (desk.role(Role::Pserver), other.role(Role::Trainer));
    let (at_caller, _) = meet(&stranger, &pserver, Role::Pserver).await;
    assert_eq!(at_caller, Err(Reason::Foreign));
    let Security::Tls(credentials) = &stranger else { unreachable!() };
    credentials.believe_job_for_tests("digits", &desk.place("authority/ca.pem"));
    let (at_caller, at_pserver) = meet(&stranger, &pserver, Role::Pserver).await;
    assert_eq!(at_pserver, Err(Reason::Foreign));
    assert!(at_caller.as_ref().is_err_and(refuses_us), "{at_caller:?}");
}

#[tokio::test]
async fn what_has_expired_is_refused_by_both_ends_and_its_owner_is_told_first() {
    let desk = Desk::new();
    let (trainer, pserver) = (desk.role(Role::Trainer), desk.role(Role::Pserver));
    let brief = desk.secured(&desk.issue("brief", "digits", Role::Pserver, validity(5)));
    let short = desk.secured(&desk.issue("short", "digits", Role::Trainer, validity(5)));
    desk.clock.0.store(NOW + 5, Relaxed);
    assert!(meet(&trainer, &brief, Role::Pserver).await.0.is_ok(), "the last second counts");
    desk.clock.0.store(NOW + 6, Relaxed);
    assert_eq!(meet(&trainer, &brief, Role::Pserver).await.0, Err(Reason::Expired));
    let own = meet(&short, &pserver, Role::Pserver).await.0.unwrap_err();
    assert!(matches!(&own, Reason::Own(what) if what.contains("issue a new one")), "{own}");
    // One whose clock is slow hears it from the other end.
    let slow = Desk { clock: Arc::new(Clock(AtomicU64::new(NOW))), ..desk };
    let late = slow.secured(&slow.place("short"));
    let (at_caller, at_pserver) = meet(&late, &pserver, Role::Pserver).await;
    assert_eq!(at_pserver, Err(Reason::Expired));
    assert!(at_caller.as_ref().is_err_and(|why| why.to_string().contains("expired")), "{at_caller:?}");
}

#[tokio::test]
async fn who_answers_must_be_of_the_role_that_was_called() {
    let desk = Desk::new();
    let (trainer, pserver) = (desk.role(Role::Trainer), desk.role(Role::Pserver));
    let at_trainer = meet(&trainer, &pserver, Role::Master).await.0.unwrap_err();
    let theirs = Identity { job: "digits".to_owned(), role: Role::Pserver };
    assert_eq!(at_trainer, Reason::OtherRole { theirs, expected: Role::Master });
}

#[tokio::test]
async fn who_comes_again_shows_its_certificate_again() {
    use rustls::HandshakeKind;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let desk = Desk::new();
    let (Security::Tls(trainer), Security::Tls(pserver)) =
        (desk.role(Role::Trainer), desk.role(Role::Pserver))
    else {
        unreachable!()
    };
    // One that would rather not.
    let mut config = (*trainer.present().client).clone();
    config.resumption = rustls::client::Resumption::in_memory_sessions(8);
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    for _ in 0..2 {
        let (near, far) = tokio::io::duplex(1 << 16);
        let accepting = tokio_rustls::TlsAcceptor::from(pserver.present().server).accept(far);
        let name = rustls::pki_types::ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
        let (called, caller) = tokio::join!(accepting, connector.connect(name, near));
        let (mut called, mut caller) = (called.unwrap(), caller.unwrap());
        called.write_all(b"x").await.unwrap();
        called.flush().await.unwrap();
        caller.read_u8().await.unwrap();
        assert_eq!(called.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(called.get_ref().1.peer_certificates().map(<[_]>::len), Some(1));
    }
}

#[tokio::test]
async fn one_that_speaks_plaintext_is_told_apart_from_a_bad_line() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let desk = Desk::new();
    let (near, mut far) = tokio::io::duplex(1 << 16);
    far.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let refused = desk.role(Role::Pserver).accept(near).await.err();
    assert!(matches!(&refused, Some(Unsecured::Untrusted(Reason::NoTls))), "{refused:?}");
    // What it answered is an alert, by which a plaintext caller knows whom it met.
    assert_eq!(far.read_u8().await.unwrap(), 0x15);
    let (near, far) = tokio::io::duplex(1 << 16);
    drop(far);
    let gone = desk.role(Role::Pserver).accept(near).await.err();
    assert!(matches!(&gone, Some(Unsecured::Io(_))), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_when_the_first_of_its_two_certificates_does() {
    use tokio::io::AsyncReadExt;
    let desk = Desk::new();
    let pserver = desk.role(Role::Pserver);
    let brief = desk.secured(&desk.issue("brief", "digits", Role::Trainer, validity(30)));
    let (near, far) = tokio::io::duplex(1 << 16);
    let began = tokio::time::Instant::now();
    let accepting = async {
        let mut connection = pserver.accept(far).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut connection, b"x").await.unwrap();
        tokio::io::AsyncWriteExt::flush(&mut connection).await.unwrap();
        connection
    };
    let calling = brief.connect(near, Some(Role::Pserver), Arc::new(AtomicBool::new(false)));
    let (mut at_pserver, at_caller) = tokio::join!(accepting, calling);
    let mut at_caller = at_caller.unwrap();
    at_caller.read_u8().await.unwrap();
    for end in [&mut at_pserver, &mut at_caller] {
        let ended = tokio::time::timeout(Duration::from_secs(60), end.read_u8()).await;
        let ended = ended.expect("it goes on").unwrap_err();
        assert!(ended.to_string().contains("expired"), "{ended}");
        assert_eq!(began.elapsed().as_secs(), 31);
    }
}

#[tokio::test(start_paused = true)]
async fn who_never_finishes_its_handshake_holds_up_nobody() {
    use futures_util::StreamExt;
    let desk = Desk::new();
    let (trainer, pserver) = (desk.role(Role::Trainer), desk.role(Role::Pserver));
    let from = std::net::SocketAddr::from(([10, 0, 0, 1], 9));
    // More than may be under way, then one who means it.
    let mut silent = Vec::new();
    let (near, honest) = tokio::io::duplex(1 << 16);
    let mut streams = Vec::new();
    for _ in 0..1000 {
        let (near, far) = tokio::io::duplex(64);
        silent.push(near);
        streams.push(Ok((far, from)));
    }
    streams.push(Ok((honest, from)));
    let capacity = crate::host::rpc::capacity::Capacity::new(crate::host::rpc::Limits::default());
    let mut incoming = std::pin::pin!(secured(futures_util::stream::iter(streams), pserver, capacity));
    let began = tokio::time::Instant::now();
    let calling = tokio::spawn(async move {
        trainer.connect(near, Some(Role::Pserver), Arc::new(AtomicBool::new(false))).await.is_ok()
    });
    let mut connection = incoming.next().await.unwrap().unwrap();
    assert_eq!(connection.peer().identity.as_ref().map(|peer| peer.role), Some(Role::Trainer));
    tokio::io::AsyncWriteExt::write_all(&mut connection, b"x").await.unwrap();
    assert!(calling.await.unwrap());
    assert_eq!(began.elapsed(), Duration::ZERO, "nobody was waited for");
    // The oldest were let go of to make capacity, the newest are after their time.
    let mut byte = [0];
    for (number, is_dropped) in [(0, true), (700, true), (999, false)] {
        let read = tokio::io::AsyncReadExt::read(&mut silent[number], &mut byte);
        assert_eq!(futures_util::FutureExt::now_or_never(read).is_some(), is_dropped, "{number}");
    }
    assert!(incoming.next().await.is_none());
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[test]
fn plaintext_stays_on_this_machine_unless_asked_for_by_name() {
    let check = |security: &Security, address: &str| security.check_address(address.parse().unwrap());
    for address in ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(check(&Security::Loopback, address), Ok(()));
    }
    for address in
        ["0.0.0.0:1", "[::]:1", "10.1.2.3:1", "[2001:db8::1]:1", "192.168.0.1:1", "[::ffff:10.0.0.1]:1"]
    {
        let refused = check(&Security::Loopback, address).unwrap_err().to_string();
        assert!(
            refused.contains(address) && refused.contains("--tls DIR") && refused.contains("--plaintext")
        );
        assert_eq!(check(&Security::Plaintext, address), Ok(()));
    }
}
