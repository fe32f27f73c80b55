//! End to end with real processes, as a user starts them: `shoal`, the examples, signals and files. One test program, a module
//! for each story; what they start is built before the first of them.
//!
//! | module | what is tested |
//! | --- | --- |
//! | `elastic` | the same bits however many trainers and pservers there are, exact counts under chaos, a command line that does what it says |
//! | `ends`, `leaving`, `output` | how programs and roles end, what stands before them, and where what they print goes: shells, signals, pipes, terminals, disks |
//! | `chaos` | `shoal chaos`, and the faults that need a network or a disk of their own |
//! | `evaluation`, `exclusions`, `losses`, `tables`, `devices` | the same under evaluations, records that cannot be used or that end trainers, embedding tables, devices |
//! | `data_sets`, `numbered` | what a run says of its data, what it refuses, how any file can be named, and data without files |
//! | `predictions` | which model is told of, and places that are one prediction's |
//! | `description` | what programs say of a job before it begins |
//! | `checkpoint_commands`, `declared_names`, `export`, `warm_start` | models that are written and read |
//! | `events` | what TensorBoard is told of a run, and of one that goes on |
//! | `examples`, `fetch`, `new_program`, `program_arguments` | programs of users: ours, and what `shoal new` makes |
//! | `documents` | commands that README and docs/ show: they run, or a list says why not |
//! | `environments` | trainers whose bits depend on something else than the job's, and programs that are no functions |
//! | `replay` | steps of a past run that are played again: the same hashes, or the first that differs; records that steps were made of |
//! | `live_page` | what `--ui` serves, to programs and to a person in a browser who breaks the demo by its buttons |
//! | `packing` | what records are made of |
//! | `images` | what goes into images suffices for their programs |
//!
//! One of them: `cargo test -p shoal-tests --test processes elastic::`.
#![allow(clippy::print_stderr, reason = "tests say what they leave out")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chaos;
mod checkpoint_commands;
mod data_sets;
mod declared_names;
mod description;
mod devices;
mod documents;
mod elastic;
mod ends;
mod environments;
mod evaluation;
mod events;
mod examples;
mod exclusions;
mod export;
mod fetch;
mod images;
mod leaving;
mod live_page;
mod losses;
mod new_program;
mod numbered;
mod output;
mod packing;
mod predictions;
mod program_arguments;
mod replay;
mod tables;
mod warm_start;
