//! With real processes: what becomes of a record, or a program, that ends its trainers without a word. The simulation has more such
//! stories (`directed/losses.rs`).

use crate::exclusions::{MODES, RECORDS, SLOW, World, in_real_time};
use shoal_tests::processes::{closing, programs};
use std::process::Output;
use std::time::Duration;
use tokio::time::Instant;

/// A job of three trainers, so many of which a record ends without a word.
fn aborting(first: &str, others: &str, mode: &str, exclude_max: &str) -> (World, Output) {
    let world = World::new(first, others);
    let more =
        ["--mode", mode, "--epochs", "2", "--microbatch-records", "10", "--microbatches-per-step", "8"];
    let more = [&more[..], &["--exclude-max", exclude_max]].concat();
    let output = world.command("3", 2, &more).output().unwrap();
    (world, output)
}

/// The first trainer is ended by a record; it is the faster one, so that it may well have it. Those that come in its place can
/// use it.
#[test]
fn a_record_that_ends_one_trainer_without_a_word_is_used_by_another() {
    for mode in MODES {
        let (world, output) = aborting("exec \"$PICKY\" 123 abort", SLOW, mode, "0");
        let ended = closing(&output).unwrap();
        assert_eq!((&ended["records_counted"], &ended["records_wrong"]), (&(2 * RECORDS).into(), &0.into()));
        let document = in_real_time(world.document()).unwrap();
        assert!(document.troubles.is_empty() && document.exclusions.list.is_empty(), "{document:?}");
    }
}

/// It ends all of them: five are enough to name it.
#[test]
fn a_record_that_ends_every_trainer_without_a_word_is_named_and_left_out_or_ends_the_job() {
    for mode in MODES {
        let abort = "exec \"$PICKY\" 123 abort";
        let (world, output) = aborting(abort, abort, mode, "1");
        let ended = closing(&output).unwrap();
        assert_eq!((&ended["records_wrong"], &ended["records_excluded"]), (&0.into(), &1.into()), "{ended}");
        let document = in_real_time(world.document()).unwrap();
        let [excluded] = &document.exclusions.list[..] else { panic!("{:?}", document.exclusions) };
        assert_eq!(excluded.records, 123..124);
        for words in
            ["trainers were lost", "while it computed this record alone: signal 6 (SIGABRT): it aborted"]
        {
            assert!(excluded.why.contains(words), "{excluded:?}");
        }
        let (_, output) = aborting(abort, abort, mode, "0");
        let said = String::from_utf8_lossy(&output.stderr);
        for words in ["part.recordio, chunk", "at offset", "signal 6 (SIGABRT)", "--exclude-max 1"] {
            assert!(output.status.code() == Some(1) && said.contains(words), "{words}: {said}");
        }
    }
}

/// A program that ends wherever it begins, or at its first task, is no record's fault: eight ends are enough.
#[test]
fn a_program_that_always_ends_at_once_ends_the_run_in_a_short_time() {
    // They are built first.
    programs().unwrap();
    for (program, exclude_max) in [("none", "0"), ("all", "0"), ("all", "400")] {
        let begun = Instant::now();
        let abort = format!("exec \"$PICKY\" {program} abort");
        let (_, output) = aborting(&abort, &abort, "sync", exclude_max);
        let (said, long) = (String::from_utf8_lossy(&output.stderr).into_owned(), begun.elapsed());
        assert!(output.status.code() == Some(1) && said.contains("signal 6 (SIGABRT)"), "{program}: {said}");
        assert!(long < Duration::from_secs(30), "{program}: {long:?}: {said}");
    }
}
