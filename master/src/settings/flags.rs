//! A job's arguments as the flags that give them again: how a supervisor hands its master what it was asked for.
//!
//! Every argument is named once below, so that none that is added later can be forgotten.

use super::{JobArguments, ModeArgument};
use shoal_runtime::cluster::{EnvironmentRule, Precision};
use std::ffi::OsString;

impl JobArguments {
    /// The flags of `shoal master` that say the same.
    pub fn flags(&self) -> Vec<OsString> {
        let JobArguments {
            data,
            eval_data,
            eval_steps,
            eval_epochs,
            predict,
            untrained,
            epochs,
            seed,
            microbatch_records,
            microbatches_per_step,
            shuffle_run,
            lease_ttl_millis,
            mode,
            staleness_window,
            scale_by_staleness,
            delay,
            gradients,
            replicas,
            exclude_max,
            environment,
            verify,
            checkpoint_steps,
            checkpoint_seconds,
            checkpoints,
            warm_start,
            keep_last,
            checkpoint_full_every,
        } = self;
        let mode = match mode {
            ModeArgument::Sync => "sync",
            ModeArgument::Async => "async",
        };
        let number = |number: &dyn std::fmt::Display| Some(number.to_string());
        let flags = [
            ("--eval-steps", eval_steps.map(|steps| steps.to_string())),
            ("--eval-epochs", eval_epochs.map(|epochs| epochs.to_string())),
            ("--predict", predict.clone()),
            ("--epochs", number(epochs)),
            ("--seed", number(seed)),
            ("--microbatch-records", number(microbatch_records)),
            ("--microbatches-per-step", number(microbatches_per_step)),
            ("--shuffle-run", number(shuffle_run)),
            ("--lease-ttl-millis", number(lease_ttl_millis)),
            ("--mode", Some(mode.to_owned())),
            ("--staleness-window", staleness_window.map(|window| window.to_string())),
            ("--delay", number(delay)),
            ("--gradients", Some(Precision::from(*gradients).name().to_owned())),
            ("--replicas", number(replicas)),
            ("--exclude-max", number(exclude_max)),
            ("--environment", environment.map(|rule| EnvironmentRule::from(rule).name().to_owned())),
            ("--verify", number(verify)),
            ("--checkpoint-steps", number(checkpoint_steps)),
            ("--checkpoint-seconds", number(checkpoint_seconds)),
            ("--checkpoints", checkpoints.clone()),
            ("--warm-start", warm_start.clone()),
            ("--keep-last", number(keep_last)),
            ("--checkpoint-full-every", number(checkpoint_full_every)),
        ];
        // A flag for each name, in one word: whatever the name holds, it is taken as it was given.
        let named = |flag, names: &[String]| -> Vec<String> {
            names.iter().map(|name| format!("{flag}={name}")).collect()
        };
        let names = [named("--data", data), named("--eval-data", eval_data)].concat();
        let values = flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        let switches = [(scale_by_staleness, "--scale-by-staleness"), (untrained, "--untrained")];
        let switches = switches.into_iter().filter(|(is_on, _)| **is_on).map(|(_, flag)| flag.to_owned());
        names.into_iter().chain(values.flatten()).chain(switches).map(OsString::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        job: JobArguments,
    }

    #[test]
    fn flags_say_again_whatever_was_said() {
        let said = [
            "--data=a*.recordio,b",
            "--data=-c,d",
            "--eval-data=c",
            "--eval-steps=7",
            "--predict=out",
            "--untrained",
            "--epochs=3",
            "--seed=11",
            "--microbatch-records=5",
            "--microbatches-per-step=6",
            "--shuffle-run=4",
            "--lease-ttl-millis=900",
            "--mode=async",
            "--staleness-window=9",
            "--scale-by-staleness",
            "--delay=2",
            "--gradients=bf16",
            "--replicas=1",
            "--exclude-max=8",
            "--environment=warn",
            "--verify=0.25",
            "--checkpoint-steps=12",
            "--checkpoint-seconds=13",
            "--checkpoints=place",
            "--warm-start=w/file.safetensors",
            "--keep-last=5",
            "--checkpoint-full-every=3",
        ];
        let parse = |flags: Vec<OsString>| {
            Command::try_parse_from(std::iter::once("shoal".into()).chain(flags)).unwrap().job
        };
        let first = parse(said.map(OsString::from).to_vec());
        let again = format!("{:?}", parse(first.flags()));
        assert_eq!(again, format!("{first:?}"));
        let plain = parse(vec!["--data=a".into()]);
        assert_eq!(format!("{:?}", parse(plain.flags())), format!("{plain:?}"));
        // Each of them was another than the default, or this test would not see it left out.
        let pairs = |job: &JobArguments| -> Vec<OsString> {
            job.flags().into_iter().filter(|word| !word.to_string_lossy().contains("data=")).collect()
        };
        let (first, plain) = (pairs(&first), pairs(&plain));
        let told = plain.iter().step_by(2).zip(first.chunks(2));
        assert!(told.count() > 10);
        for pair in plain.chunks(2).filter(|pair| pair[0] != "--eval-epochs") {
            assert!(!first.chunks(2).any(|ours| ours == pair), "{pair:?}");
        }
    }
}
