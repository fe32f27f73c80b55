//! Tidy: the house's rules as tests over the whole tree. It must never know a crate's code, only files and text.
//!
//! The tables here say what is wanted; the files beside say how it is checked, each checker with a test in which it
//! fails. A finding reads `file:line: what is wrong and what to do`.

mod arrows;
mod code;
mod documents;
mod errors;
mod features;
mod hygiene;
mod names;
mod pure_files;
mod purity;
mod size;
mod tree;
mod waits;
mod writes;

use pure_files::{PURE, STATE_MACHINES};
use tree::Tree;
use writes::Writer;

/// The arrows of the workspace: each folder with a package, and the packages of ours that it names.
const ARROWS: &[(&str, &[&str])] = &[
    ("recordio", &[]),
    ("job", &[]),
    ("runtime", &["shoal-job"]),
    ("planner", &[]),
    ("figures", &[]),
    ("experiments", &["shoal-figures", "shoal-operator", "shoal-planner", "shoal-runtime"]),
    ("fuzz", &["shoal-job", "shoal-master", "shoal-pserver", "shoal-recordio", "shoal-runtime"]),
    ("master", &["shoal-job", "shoal-recordio", "shoal-runtime"]),
    ("pserver", &["shoal-job", "shoal-runtime"]),
    ("trainer-sdk", &["shoal-job", "shoal-recordio", "shoal-runtime"]),
    ("trainer-sdk/python", &["shoal-trainer-sdk"]),
    ("operator", &["shoal-job", "shoal-planner", "shoal-runtime"]),
    (
        "runner",
        &[
            "shoal-figures",
            "shoal-job",
            "shoal-master",
            "shoal-pserver",
            "shoal-runtime",
            "shoal-trainer-sdk",
        ],
    ),
    (
        "drill",
        &[
            "shoal-job",
            "shoal-pserver",
            "shoal-recordio",
            "shoal-runner",
            "shoal-runtime",
            "shoal-trainer-sdk",
            "shoal-ui",
        ],
    ),
    ("ui", &["shoal-runner", "shoal-runtime"]),
    (
        "cli",
        &[
            // Its tests have it with all features.
            "shoal-cli",
            "shoal-drill",
            "shoal-experiments",
            "shoal-figures",
            "shoal-job",
            "shoal-master",
            "shoal-operator",
            "shoal-pserver",
            "shoal-recordio",
            "shoal-runner",
            "shoal-runtime",
            "shoal-ui",
        ],
    ),
    (
        "tests",
        &[
            "shoal-cli",
            "shoal-job",
            "shoal-master",
            "shoal-pserver",
            "shoal-recordio",
            "shoal-runtime",
            "shoal-trainer-sdk",
        ],
    ),
    ("test-cluster", &["shoal-cli", "shoal-operator", "shoal-recordio", "shoal-runtime", "shoal-tests"]),
    (
        "studies",
        &[
            "shoal-experiments",
            "shoal-master",
            "shoal-operator",
            "shoal-recordio",
            "shoal-runtime",
            "shoal-test-cluster",
            "shoal-tests",
            "shoal-trainer-sdk",
        ],
    ),
    ("deploy/digits", &["shoal-recordio", "shoal-trainer-sdk"]),
    (
        "benches",
        &[
            "shoal-figures",
            "shoal-master",
            "shoal-planner",
            "shoal-pserver",
            "shoal-recordio",
            "shoal-runtime",
            "shoal-trainer-sdk",
        ],
    ),
];

/// Who writes files in a way of its own.
const WRITERS: &[Writer] = &[
    Writer { prefix: "runtime/src/host/files/", reason: "the one way" },
    Writer {
        prefix: "runtime/src/host/store/file/disk.rs",
        reason: "the master's own store, with a journal and a lock of its own",
    },
    Writer {
        prefix: "runtime/src/host/authority/",
        reason: "keys are never replaced but by a set that is whole",
    },
    Writer { prefix: "runtime/src/host/cuda/fake/", reason: "a library that tests compile" },
    Writer {
        prefix: "runtime/src/host/cuda/map_lock.rs",
        reason: "a lock, whose name is gone once both have it open",
    },
    Writer { prefix: "trainer-sdk/src/inspection.rs", reason: "a line for each microbatch, appended to" },
    Writer { prefix: "trainer-sdk/src/push_log.rs", reason: "a log for tests, appended to" },
    Writer { prefix: "runner/src/claim.rs", reason: "a lock, with the number of who holds it" },
    Writer { prefix: "runner/src/journal.rs", reason: "a log, appended to" },
    Writer {
        prefix: "runner/src/tensorboard/mod.rs",
        reason: "a log, new for each life of a run, appended to",
    },
    Writer { prefix: "runner/src/process.rs", reason: "logs, appended to and cut" },
    Writer { prefix: "runner/src/progress.rs", reason: "a log, appended to" },
    Writer { prefix: "runner/src/latest.rs", reason: "a link takes a link's place" },
    Writer { prefix: "runner/src/hosts/", reason: "mount points and a disk of the run's own" },
    Writer {
        prefix: "cli/src/doctor/probe/disk.rs",
        reason: "a file in a folder of its own, renamed to see whether that works, and gone",
    },
    Writer { prefix: "cli/src/commands/new/", reason: "a new program's files, none of which may be there" },
];

#[test]
fn arrows_point_from_the_command_to_the_roles_to_the_libraries() {
    tree::assert_none(arrows::check(&Tree::read(), ARROWS));
}

#[test]
fn pure_files_know_no_world() {
    tree::assert_none(purity::check(&Tree::read(), PURE));
}

#[test]
fn files_are_written_in_one_way() {
    tree::assert_none(writes::check(&Tree::read(), WRITERS));
}

#[test]
fn every_source_file_says_what_it_is_for() {
    tree::assert_none(code::check_openings(&Tree::read()));
}

#[test]
fn no_module_is_named_after_a_drawer() {
    tree::assert_none(code::check_names(&Tree::read()));
}

#[test]
fn no_error_says_its_source_twice() {
    tree::assert_none(errors::check(&Tree::read()));
}

#[test]
fn every_wait_is_on_the_page_of_waits() {
    tree::assert_none(waits::check(&Tree::read()));
}

#[test]
fn files_and_functions_stay_small() {
    tree::assert_none(size::check(&Tree::read(), STATE_MACHINES));
}

#[test]
fn every_document_is_reachable_and_every_link_arrives() {
    tree::assert_none(documents::check(&Tree::read()));
}

#[test]
fn the_glossary_defines_the_words_of_the_design() {
    tree::assert_none(documents::check_glossary(&Tree::read(), documents::TERMS));
}

#[test]
fn no_file_names_one_machine_or_a_registry() {
    tree::assert_none(hygiene::check(&Tree::read()));
}

#[test]
fn what_documents_and_scripts_name_exists() {
    tree::assert_none(names::check(&Tree::read()));
}

#[test]
fn every_fuzz_target_is_a_program() {
    tree::assert_none(names::check_fuzz_targets(&Tree::read()));
}

/// Selections of packages that people build one after another: none of them must build anew what another has built.
const BUILT_ALIKE: &[&[&str]] = &[
    // Tests, all or some, and the programs that they start.
    &[
        "--workspace --edges=normal,dev,no-proc-macro",
        "-p=shoal-tests --edges=normal,dev,no-proc-macro",
        "-p=shoal-test-cluster --edges=normal,dev,no-proc-macro",
        "-p=shoal-cli -p=shoal-master -p=shoal-operator -p=shoal-pserver -p=shoal-tests -p=shoal-trainer-sdk \
         --edges=normal,dev,no-proc-macro",
    ],
    // Optimised: the command, alone and with the Python module, the simulation, the benches, what most images are of.
    &[
        "--edges=normal,no-proc-macro",
        "-p=shoal-cli -p=shoal-trainer-sdk -p=shoal-python --edges=normal,no-proc-macro",
        "-p=shoal-tests --edges=normal,no-proc-macro",
        "-p=shoal-benches --edges=normal,no-proc-macro",
        "-p=shoal-master --edges=normal,no-proc-macro",
        "-p=shoal-pserver --edges=normal,no-proc-macro",
        "-p=shoal-digits --edges=normal,no-proc-macro",
    ],
];

#[test]
fn packages_that_are_built_one_after_another_share_what_they_depend_on() {
    for selections in BUILT_ALIKE {
        features::assert_alike(selections);
    }
}
