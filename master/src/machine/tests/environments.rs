//! Environments of trainers: the first one's is the job's, whoever leads it.

use super::fixture::*;
use super::*;
use crate::document::Checks;
use crate::machine::trainers::Declared;
use shoal_runtime::cluster::{Environment, EnvironmentRule};

fn of(threads: &str) -> Environment {
    Environment([("threads".to_owned(), threads.to_owned())].into())
}

fn declared(threads: &str) -> Declared {
    Declared { declaration: declaration(), environment: of(threads) }
}

/// A job of this rule that waits for two pservers.
fn ruled(rule: EnvironmentRule) -> Job {
    let mut job = waiting(2);
    let checks = Checks { environment: rule, verify_millionths: 0, record_hashes: 0 };
    (job.machine.document.checks, job.machine.wishes.checks) = (checks, checks);
    job
}

fn join(job: &mut Job, name: &str, nonce: u64, threads: &str) -> Result<Incarnation, Refusal> {
    let joined = job.machine.join(name, nonce, 1, declared(threads), None, at(0));
    job.settle(0);
    joined.map(|(incarnation, _)| incarnation)
}

#[test]
fn another_environment_than_the_first_is_refused_by_name_and_changes_nothing() {
    let mut job = ruled(EnvironmentRule::Same);
    // Before anything is adopted, too.
    job.machine.join("a", 1, 1, declared("1"), None, at(0)).unwrap();
    assert!(job.machine.join("b", 1, 1, declared("2"), None, at(0)).is_err());
    job.settle(0);
    let before = digest(&job.machine);
    for (name, nonce) in [("b", 1), ("a", 1), ("a", 2)] {
        let refusal = join(&mut job, name, nonce, "2").unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::EnvironmentMismatch);
        for words in ["threads is \"1\" in the job and \"2\" here", "--environment warn"] {
            assert!(refusal.detail.contains(words), "{refusal}");
        }
    }
    assert_eq!(digest(&job.machine), before);
    join(&mut job, "b", 1, "1").unwrap();
    let nothing = job.machine.join("c", 1, 1, declaration(), None, at(0)).unwrap_err();
    assert!(nothing.detail.contains("and nothing here"), "{nothing}");
}

#[test]
fn the_first_environment_outlives_masters_and_terms() {
    let mut job = ruled(EnvironmentRule::Same);
    let a = join(&mut job, "a", 1, "1").unwrap();
    assert_eq!(job.document().environment, Some(of("1")));
    let written = Document::from_bytes(&job.document().to_bytes()).unwrap();
    assert_eq!(&written, job.document());
    job.restart("m2", 10);
    assert!(join(&mut job, "b", 1, "2").is_err());
    // The same life comes back with what it had.
    assert!(job.machine.join("a", 1, 1, declared("2"), Some(a), at(10)).is_err());
    assert!(job.machine.join("a", 1, 1, declared("1"), Some(a), at(10)).is_ok());
}

#[test]
fn a_document_of_an_earlier_build_takes_the_environment_of_who_comes_next() {
    let mut job = ruled(EnvironmentRule::Same);
    join(&mut job, "a", 1, "1").unwrap();
    job.machine.document.environment = None;
    job.machine.wishes.environment = None;
    join(&mut job, "b", 1, "2").unwrap();
    assert_eq!(job.document().environment, Some(of("2")));
}

#[test]
fn others_are_let_in_where_that_is_wished_and_the_difference_is_told_where_it_is_asked_for() {
    for (rule, is_told) in [(EnvironmentRule::Warn, true), (EnvironmentRule::Any, false)] {
        let mut job = ruled(rule);
        join(&mut job, "a", 1, "1").unwrap();
        join(&mut job, "b", 1, "2").unwrap();
        assert_eq!(job.document().environment, Some(of("1")), "the first one's stays the job's");
        assert_eq!(job.machine.difference(&of("2")).is_some(), is_told);
        assert_eq!(job.machine.difference(&of("1")), None);
    }
}

#[test]
fn by_default_environments_are_compared_where_bits_are_promised() {
    let job = settings(64, 2, 8, 1);
    assert_eq!(Checks::usual(&job).environment, EnvironmentRule::Same);
    let mode = Mode::Async { staleness_window: 4, scale_by_staleness: false };
    assert_eq!(Checks::usual(&JobSettings { mode, ..job }).environment, EnvironmentRule::Any);
}
