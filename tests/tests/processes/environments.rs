//! With real processes: trainers whose environment is not the first one's. The simulation has them among everything else
//! (`refusals.rs`, `Scenario::environment`).

use crate::exclusions::{RECORDS, World};
use shoal_tests::processes::closing;
use std::process::Output;

/// A job of two trainers, of which the second has two threads where the first has one, and comes later.
fn with_two_threads(more: &[&str]) -> (World, Output) {
    let world = World::new("exec \"$PICKY\" threads 1", "sleep 1; exec \"$PICKY\" threads 2");
    let job = [
        "--epochs",
        "2",
        "--microbatch-records",
        "10",
        "--microbatches-per-step",
        "8",
        "--pace-millis",
        "60",
    ];
    let output = world.command("2", 1, &[&job[..], more].concat()).output().unwrap();
    (world, output)
}

#[test]
fn a_trainer_of_another_environment_is_not_let_in_and_the_job_ends_well_without_it() {
    let (_world, output) = with_two_threads(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let ended = closing(&output).unwrap();
    assert_eq!((&ended["records_counted"], &ended["records_wrong"]), (&(2 * RECORDS).into(), &0.into()));
    for words in [
        "trainer-1 ended with exit code 5: the master has not let it into the job",
        "threads is \"1\" in the job and \"2\" here",
        "--environment warn",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // Steps are made all the time, and yet it is not started again and again.
    let times = said.matches("has not let it into the job").count();
    assert!((1..=8).contains(&times), "{times}: {said}");
}

#[test]
fn a_trainer_of_another_environment_is_let_in_and_told_where_that_is_wished() {
    for (rule, is_told) in [("warn", true), ("any", false)] {
        let (world, output) = with_two_threads(&["--environment", rule]);
        let ended = closing(&output).unwrap();
        assert_eq!((&ended["records_counted"], &ended["records_wrong"]), (&(2 * RECORDS).into(), &0.into()));
        for log in ["master.log", "trainer-1.log"] {
            let log = std::fs::read_to_string(world.path("run/logs").join(log)).unwrap();
            let times = log.matches("threads is").count();
            assert_eq!(times, usize::from(is_told), "{rule}: {log}");
        }
    }
}

/// A job of so many trainers of one program, of whose microbatches half are computed twice.
fn verified(program: &str, trainers: &str) -> Output {
    let world = World::new(program, program);
    let more =
        ["--epochs", "3", "--microbatch-records", "10", "--microbatches-per-step", "8", "--verify", "1/2"];
    world.command(trainers, 2, &more).output().unwrap()
}

#[test]
fn a_function_that_is_computed_twice_ends_as_ever_and_says_how_often() {
    for trainers in ["1", "3"] {
        let ended = closing(&verified("exec \"$COUNT\"", trainers)).unwrap();
        assert_eq!((&ended["records_counted"], &ended["records_wrong"]), (&(3 * RECORDS).into(), &0.into()));
        let of = |name: &str| ended[name].as_u64().unwrap();
        let (verified, not) = (of("microbatches_verified"), of("microbatches_unverified"));
        assert!(verified + not <= 90 && verified > 20 && not <= verified, "{trainers}: {ended}");
    }
}

#[test]
fn a_program_that_counts_its_calls_fails_its_job_by_step_parameter_and_trainer() {
    for trainers in ["1", "2"] {
        let output = verified("exec \"$PICKY\" calls", trainers);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        for words in [
            "microbatch ",
            " of step ",
            "was computed twice, by trainer",
            "with the same environment (processor ",
            "parameter \"calls\"",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
