//! Credentials as files that change while somebody uses them.
use super::*;

async fn later() {
    tokio::time::advance(Duration::from_millis(1001)).await;
}

#[tokio::test(start_paused = true)]
async fn new_files_are_in_use_a_second_later_and_not_before() {
    let desk = Desk::new();
    let credentials = desk.open(&desk.issue("x", "digits", Role::Master, validity(100))).unwrap();
    desk.issue("x", "digits", Role::Master, validity(200));
    assert_eq!(credentials.validity(), validity(100), "looked at a moment ago");
    later().await;
    assert_eq!(credentials.validity(), validity(200));
}

#[tokio::test(start_paused = true)]
async fn a_set_that_cannot_be_used_does_not_take_the_place_of_one_that_can() {
    let (desk, other) = (Desk::new(), Desk::new());
    let place = desk.place("plain");
    std::fs::create_dir(&place).unwrap();
    let copy = |from: &Path, names: &[&str]| {
        for name in names {
            std::fs::write(place.join(name), std::fs::read(from.join(name)).unwrap()).unwrap();
        }
    };
    let all = ["ca.pem", "cert.pem", "key.pem"];
    copy(&desk.issue("1", "digits", Role::Master, validity(100)), &all);
    let credentials = desk.open(&place).unwrap();
    let second = desk.issue("2", "digits", Role::Master, validity(200));
    // Half of a new set, then what is none.
    copy(&second, &["cert.pem"]);
    later().await;
    assert_eq!(credentials.validity(), validity(100), "the key is another's");
    std::fs::write(place.join("cert.pem"), "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
    later().await;
    assert_eq!(credentials.validity(), validity(100), "half a file");
    std::fs::remove_file(place.join("key.pem")).unwrap();
    later().await;
    assert_eq!(credentials.validity(), validity(100), "no key");
    for (name, from, what) in [
        ("3", desk.issue("3", "other", Role::Master, validity(300)), "another job"),
        ("4", desk.issue("4", "digits", Role::Client, validity(300)), "another role"),
        ("5", other.issue("5", "digits", Role::Master, validity(300)), "not of its own authority"),
        ("6", desk.issue("6", "digits", Role::Master, Validity { from: NOW - 9, until: NOW - 1 }), "expired"),
    ] {
        copy(&from, &["cert.pem", "key.pem"]);
        later().await;
        assert_eq!(credentials.validity(), validity(100), "{name}: {what}");
    }
    // The rest of the set has come.
    copy(&second, &all);
    later().await;
    assert_eq!(credentials.validity(), validity(200));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_whose_time_comes_is_taken_then() {
    let desk = Desk::new();
    let credentials = desk.open(&desk.issue("x", "digits", Role::Master, validity(100))).unwrap();
    desk.issue("x", "digits", Role::Master, Validity { from: NOW + 50, until: NOW + 200 });
    later().await;
    assert_eq!(credentials.validity(), validity(100));
    desk.clock.0.store(NOW + 50, Relaxed);
    later().await;
    assert_eq!(credentials.validity().until, NOW + 200);
}

#[tokio::test]
async fn the_layout_of_a_kubernetes_secret_is_read_too() {
    let desk = Desk::new();
    let from = desk.issue("x", "digits", Role::Trainer, validity(100));
    let (place, set) = (desk.place("secret"), desk.place("secret/..2026"));
    std::fs::create_dir_all(&set).unwrap();
    std::os::unix::fs::symlink("..2026", place.join("..data")).unwrap();
    for (ours, theirs) in [("ca.pem", "ca.crt"), ("cert.pem", "tls.crt"), ("key.pem", "tls.key")] {
        std::fs::write(set.join(theirs), std::fs::read(from.join(ours)).unwrap()).unwrap();
        std::os::unix::fs::symlink(Path::new("..data").join(theirs), place.join(theirs)).unwrap();
    }
    assert_eq!(desk.open(&place).unwrap().identity().role, Role::Trainer);
    // All three by way of the certificate's folder, which stays whatever the link turns to meanwhile.
    let set = std::fs::canonicalize(set).unwrap();
    assert!(super::super::files::paths(&place).unwrap().iter().all(|path| path.starts_with(&set)));
}

#[tokio::test]
async fn what_is_wrong_at_the_start_is_said_with_the_file_and_without_its_contents() {
    let (desk, other) = (Desk::new(), Desk::new());
    let refused = |place: &Path| desk.open(place).unwrap_err();
    assert!(refused(&desk.place("nowhere")).contains("shoal certs issue"));
    let expired = desk.issue("1", "digits", Role::Master, Validity { from: NOW - 9, until: NOW - 1 });
    assert!(refused(&expired).contains("expired"));
    let early = desk.issue("2", "digits", Role::Master, Validity { from: NOW + 9, until: NOW + 99 });
    assert!(refused(&early).contains("not valid yet"));
    let place = desk.place("plain");
    std::fs::create_dir(&place).unwrap();
    let good = desk.issue("3", "digits", Role::Master, validity(100));
    let put = |from: &Path, name: &str| std::fs::copy(from.join(name), place.join(name)).unwrap();
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        put(&good, name);
    }
    put(&other.issue("x", "digits", Role::Master, validity(100)), "ca.pem");
    assert!(refused(&place).contains("ca.pem has signed"));
    put(&good, "ca.pem");
    put(&expired, "key.pem");
    assert!(refused(&place).contains("not of one another"));
    std::fs::remove_file(place.join("key.pem")).unwrap();
    std::fs::write(place.join("key.pem"), "SECRET nonsense").unwrap();
    let said = refused(&place);
    assert!(said.contains("key.pem") && !said.contains("SECRET"), "{said}");
}

#[tokio::test]
async fn no_key_is_in_what_debugging_shows() {
    let desk = Desk::new();
    let place = desk.issue("x", "digits", Role::Master, validity(100));
    let shown = format!("{:?}", desk.secured(&place));
    assert!(shown.contains("Credentials") && shown.len() < 300, "{shown}");
}
