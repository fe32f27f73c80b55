//! What the command line says, and what follows for each set.

use super::changes::Changes;
use super::results::Mode;
use super::sets::{Place, Set};
use anyhow::ensure;
use clap::{Parser, ValueEnum};
use std::path::{Path, PathBuf};

/// Records, epochs, seeds and changes of `--quick`.
const QUICK: (u64, u32, u64, u32) = (6_000, 4, 1, 2);
/// Changes of an elastic job unless stated.
const CHANGES: u32 = 6;
/// Seeds of asynchronous jobs unless stated.
const SEEDS: u64 = 3;
/// The first seed; the others follow it.
const FIRST_SEED: u64 = 7;

/// Trains with 2 trainers, with 4, and with 2 to 4 of them that come and go, and draws the accuracy on held-out records over
/// the epochs
#[derive(Debug, Parser)]
#[command(
    name = "curves",
    after_help = "Example:\n  python3 trainer-sdk/examples/fetch.py mnist data/mnist\n  python3 trainer-sdk/examples/fetch.py fashion-mnist data/fashion-mnist\n  cargo run --release -p shoal-benches --bin curves -- --data mnist=data/mnist --data fashion-mnist=data/fashion-mnist\n\nExits 1 if the synchronous curves of a set are not equal bit for bit, 2 if a job did not end well."
)]
pub(crate) struct Arguments {
    /// A data set and the folder of its files: mnist or fashion-mnist (as fetch.py writes them), or cifar-10 (the binary
    /// version). LeNet-5 is trained on mnist, a residual network on the others. May be given for more than one
    #[arg(long, value_name = "SET=DIR")]
    pub(crate) data: Vec<Place>,
    /// Train on the first N records of every set; by default 60000 of mnist, 20000 of the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records: Option<u64>,
    /// Passes over the data, each of which ends with an evaluation; by default 6
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) epochs: Option<u32>,
    /// Seeds of the asynchronous jobs, from 7 on; by default 3. Synchronous jobs take the first: their curves are equal or
    /// not whatever the seed
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) seeds: Option<u64>,
    /// How often the number of trainers of an elastic job changes; by default 6
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) changes: Option<u32>,
    /// Modes that are trained in
    #[arg(long, value_delimiter = ',', default_value = "sync,async")]
    pub(crate) modes: Vec<Mode>,
    /// 6000 records, 4 epochs, one seed, 2 changes, unless stated: a few minutes, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// The folder of `shoal`, and in its folder `examples` of mnist and resnet; by default they are built, in this build's
    /// profile
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,
    /// The longest that one job may take, in seconds
    #[arg(long, default_value_t = 1800)]
    pub(crate) seconds_max: u64,
    /// Where the page with figure and table is written
    #[arg(long, value_name = "FILE", default_value = "curves.html")]
    pub(crate) html: PathBuf,
    /// Where the figure alone is written
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Train nothing: print and draw what earlier runs printed with -o json. May be given more than once; curves of the same
    /// set are put together
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) from: Vec<PathBuf>,
    /// How the result is printed; progress goes to standard error
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Output {
    /// A table
    Text,
    /// One object on one line
    Json,
}

/// What is done with one set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) set: Set,
    pub(crate) folder: PathBuf,
    pub(crate) records: u64,
    pub(crate) epochs: u32,
    pub(crate) seeds: u64,
    pub(crate) modes: Vec<Mode>,
    pub(crate) changes: Changes,
    pub(crate) seconds_max: u64,
}

impl Arguments {
    /// One for each set.
    pub(crate) fn plans(&self) -> anyhow::Result<Vec<Plan>> {
        let way_out = Set::Mnist.way_out(Path::new("data/mnist"));
        ensure!(
            !self.data.is_empty(),
            "no data set is given: name one as --data mnist=data/mnist; {way_out}"
        );
        let mut plans: Vec<Plan> = Vec::new();
        for Place { set, folder } in &self.data {
            ensure!(plans.iter().all(|plan| plan.set != *set), "--data {set}=… is given twice");
            let (records, epochs) = set.records_and_epochs();
            let usual = if self.quick { QUICK } else { (records, epochs, SEEDS, CHANGES) };
            plans.push(Plan {
                set: *set,
                folder: folder.clone(),
                records: self.records.unwrap_or(usual.0),
                epochs: self.epochs.unwrap_or(usual.1),
                seeds: self.seeds.unwrap_or(usual.2),
                modes: self.modes.clone(),
                changes: Changes::evenly(self.changes.unwrap_or(usual.3)),
                seconds_max: self.seconds_max,
            });
        }
        Ok(plans)
    }
}

impl Plan {
    /// In the order in which they are trained.
    pub(crate) fn modes_and_seeds(&self) -> Vec<(Mode, u64)> {
        let seeds = |mode: &Mode| if *mode == Mode::Sync { 1 } else { self.seeds };
        let of_mode =
            |mode: &Mode| (0..seeds(mode)).map(|seed| (*mode, FIRST_SEED + seed)).collect::<Vec<_>>();
        self.modes.iter().flat_map(of_mode).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(words: &[&str]) -> anyhow::Result<Vec<Plan>> {
        Arguments::try_parse_from([&["curves"], words].concat())?.plans()
    }

    #[test]
    fn every_set_has_its_own_plan_and_flags_win() {
        let two = ["--data", "mnist=a", "--data", "cifar-10=b", "--epochs", "9"];
        let plans = plans(&two).unwrap();
        assert_eq!(plans.iter().map(|plan| plan.records).collect::<Vec<_>>(), [60_000, 20_000]);
        assert!(plans.iter().all(|plan| plan.epochs == 9 && plan.seeds == 3));
    }

    #[test]
    fn quick_is_small_unless_stated() {
        let quick = &plans(&["--data", "mnist=a", "--quick", "--records", "500"]).unwrap()[0];
        assert_eq!((quick.records, quick.epochs, quick.seeds), (500, 4, 1));
    }

    #[test]
    fn no_set_a_set_twice_and_a_set_that_is_none_are_refused() {
        let none = plans(&[]).unwrap_err().to_string();
        assert!(none.contains("--data") && none.contains("fetch.py"), "{none}");
        assert!(
            plans(&["--data", "mnist=a", "--data", "mnist=b"]).unwrap_err().to_string().contains("twice")
        );
        assert!(plans(&["--data", "svhn=a"]).is_err());
    }

    #[test]
    fn synchronous_jobs_have_one_seed() {
        let plan = &plans(&["--data", "mnist=a", "--seeds", "2"]).unwrap()[0];
        assert_eq!(plan.modes_and_seeds(), [(Mode::Sync, 7), (Mode::Async, 7), (Mode::Async, 8)]);
    }
}
