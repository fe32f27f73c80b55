//! What an authority makes, and what it refuses.
use super::*;
use crate::host::rpc::tls::Role;
use std::os::unix::fs::PermissionsExt;

const DAY: Validity = Validity { from: 1_000_000, until: 1_086_400 };

fn identity() -> Identity {
    Identity { job: "a job: ä".to_owned(), role: Role::Pserver }
}

fn certificate(folder: &Path) -> (Identity, Validity) {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let pem = CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap();
    Identity::of_certificate(&pem).unwrap()
}

#[test]
fn an_authority_is_made_once_and_its_key_is_for_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("authority");
    Authority::create(&place, DAY).unwrap();
    let mode = |name: &str| std::fs::metadata(place.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("ca.key"), mode("ca.pem")), (0o600, 0o644));
    let before = std::fs::read(place.join("ca.key")).unwrap();
    assert!(Authority::create(&place, DAY).unwrap_err().contains("there already"));
    assert_eq!(std::fs::read(place.join("ca.key")).unwrap(), before);
    assert!(Authority::open(folder.path()).unwrap_err().contains("shoal certs init"));
}

#[test]
fn a_certificate_says_whom_it_is_for_and_when_it_counts() {
    let folder = tempfile::tempdir().unwrap();
    Authority::create(folder.path(), DAY).unwrap();
    let (out, hour) = (folder.path().join("out"), Validity { until: DAY.from + 3600, ..DAY });
    Authority::open(folder.path()).unwrap().issue(&identity(), hour).unwrap().write(&out).unwrap();
    assert_eq!(certificate(&out), (identity(), hour));
    let mode = std::fs::metadata(out.join("key.pem")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[test]
fn a_set_takes_the_place_of_another_and_only_the_one_before_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::create(folder.path(), DAY).unwrap();
    let out = folder.path().join("out");
    for days in 1..5u64 {
        let validity = Validity { until: DAY.from + days, ..DAY };
        let real = std::fs::canonicalize(out.join("cert.pem")).ok();
        authority.issue(&identity(), validity).unwrap().write(&out).unwrap();
        assert_eq!(certificate(&out).1, validity);
        assert!(real.is_none_or(|real| real.exists()), "somebody may read it just now");
        let beside = |name: &str| std::fs::canonicalize(out.join(name)).unwrap().parent().unwrap().to_owned();
        assert_eq!(beside("cert.pem"), beside("key.pem"));
    }
    let sets = std::fs::read_dir(&out).unwrap().flatten();
    let sets = sets.filter(|entry| entry.file_name().to_string_lossy().starts_with(".set-"));
    assert_eq!(sets.count(), 2);
}

#[test]
fn what_somebody_else_has_put_there_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::create(folder.path(), DAY).unwrap();
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("key.pem"), "mine").unwrap();
    let refused = authority.issue(&identity(), DAY).unwrap().write(&out).unwrap_err();
    assert!(refused.contains("key.pem") && refused.contains("not overwritten"), "{refused}");
    assert_eq!(std::fs::read(out.join("key.pem")).unwrap(), b"mine");
    assert!(!out.join("cert.pem").exists());
}

#[test]
fn a_time_is_a_number_with_a_unit_and_at_most_a_century() {
    assert_eq!(lifetime("90d"), Ok(Duration::from_secs(90 * 86_400)));
    assert_eq!(
        (lifetime("3m"), lifetime("45s")),
        (Ok(Duration::from_secs(180)), Ok(Duration::from_secs(45)))
    );
    for wrong in
        ["", "90", "d", "0s", "-1d", "1.5h", "1w", "36501d", "99999999999999999999d", "213503982334602d"]
    {
        assert!(lifetime(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_authority_in_memory_signs_for_those_who_believe_several_and_for_nobody_with_a_key_that_is_not_its_own()
{
    let [one, other] = [0, 1].map(|_| Authority::generate(DAY).unwrap());
    let both = PemSet { authorities: format!("{}{}", one.certificate, other.certificate), ..other.clone() };
    let authority = Authority::of(&both).unwrap();
    assert_eq!(authority.validity(), DAY);
    let issued = authority.issue(&identity(), DAY).unwrap();
    assert_eq!(issued.pem().authorities, both.authorities);
    assert_eq!(issued.pem().certificate.matches("BEGIN CERTIFICATE").count(), 1);
    // Who believes a root alone needs what leads from it to here.
    let below = PemSet { authorities: one.certificate.clone(), ..other.clone() };
    let issued = Authority::of(&below).unwrap().issue(&identity(), DAY).unwrap();
    assert!(issued.pem().certificate.ends_with(&other.certificate));
    let foreign = PemSet { key: one.key.clone(), ..other.clone() };
    let why = Authority::of(&foreign).unwrap_err();
    assert!(why.contains("not of one another"), "{why}");
    let leaf = authority.issue(&identity(), DAY).unwrap().pem().clone();
    assert!(Authority::of(&leaf).unwrap_err().contains("may sign no others"));
    for secret in [&one.key, &other.key] {
        let line = secret.lines().nth(1).unwrap();
        assert!(!why.contains(line) && !format!("{other:?}").contains(line));
    }
}
