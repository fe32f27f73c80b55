//! A job's settings as a master is given them: each by its flag or its variable, or all of them by one document (`--spec`). With a
//! document no flag and no variable of a setting counts: what started this master has put them together.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use shoal_job::spec::{self, Naming, Spec};

/// The flag of the document, as an argument.
const SPEC: &str = "spec";

/// What was stated of a job.
#[derive(Clone, Debug)]
pub struct StatedJob {
    /// Its settings.
    pub(super) spec: Spec,
    /// How they were said.
    pub(super) naming: Naming,
}

impl Args for StatedJob {
    fn augment_args(command: Command) -> Command {
        Spec::augment_args(command).arg(
            Arg::new(SPEC)
                .long(SPEC)
                .env("SHOAL_SPEC")
                .value_name("JSON")
                .num_args(1..)
                .action(ArgAction::Append)
                .help(
                    "All settings of the job as one JSON document, with the names that a TrainingJob has, in place of the flags \
                     and variables for each; several words are put together. Supervisors give it",
                ),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        StatedJob::augment_args(command)
    }
}

impl FromArgMatches for StatedJob {
    fn from_arg_matches(matches: &ArgMatches) -> Result<StatedJob, Error> {
        let Some(parts) = matches.get_many::<String>(SPEC) else {
            return Ok(StatedJob { spec: Spec::from_arg_matches(matches)?, naming: Naming::Flags });
        };
        for argument in Spec::augment_args(Command::new("job")).get_arguments() {
            let id = argument.get_id().as_str();
            if matches.value_source(id) == Some(ValueSource::CommandLine) {
                let why = format!(
                    "--{} cannot be used with --{SPEC}: write it into that\n",
                    argument.get_long().unwrap_or(id)
                );
                return Err(Error::raw(clap::error::ErrorKind::ArgumentConflict, why));
            }
        }
        let text: String = parts.map(String::as_str).collect();
        let read = spec::Document::parse(&text).map_err(|why| {
            Error::raw(clap::error::ErrorKind::ValueValidation, format!("--{SPEC}: {why}\n"))
        })?;
        Ok(StatedJob { spec: read.0, naming: Naming::Fields })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = StatedJob::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::MasterSettings;
    use clap::Parser;

    #[derive(Parser)]
    struct Master {
        #[command(flatten)]
        settings: MasterSettings,
    }

    fn spec(words: &[&str]) -> Result<Spec, String> {
        let words = std::iter::once("shoal-master").chain(words.iter().copied());
        let settings = Master::try_parse_from(words).map_err(|why| why.to_string())?.settings;
        settings.spec().cloned().map_err(|why| why.to_string())
    }

    /// As operators and supervisors of the version before said it.
    #[test]
    fn a_master_takes_the_flags_of_the_last_version() {
        let line = "--listen 127.0.0.1:0 --store s --checkpoints place --pservers 2 --trainers 3 --linger-seconds 60 \
            --data=a*.recordio,b --data=-c,d --eval-data=c --eval-steps 7 --epochs 3 --seed 11 --mode sync \
            --microbatch-records 5 --microbatches-per-step 6 --shuffle-run 4 --lease-ttl-millis 900 --delay 2 \
            --gradients bf16 --replicas 1 --exclude-max 8 --environment warn --verify 0.25 --warm-start w/file.safetensors \
            --checkpoint-steps 12 --checkpoint-seconds 13 --keep-last 5 --checkpoint-full-every 3";
        let words: Vec<&str> = line.split_whitespace().collect();
        let document = r#"{"checkpoint":{"everySeconds":13,"everySteps":12,"fullEvery":3,"keepLast":5,"place":"place"},
            "copies":1,"data":["a*.recordio,b","-c,d"],"delay":2,"environment":"warn","epochs":3,"evalData":["c"],"evalSteps":7,
            "excludeMax":8,"gradients":"bf16","leaseTtlMillis":900,"microbatchRecords":5,"microbatchesPerStep":6,"mode":"sync",
            "seed":11,"shuffleRun":4,"verify":0.25,"warmStart":"w/file.safetensors"}"#;
        let by_flags = spec(&words).unwrap();
        assert_eq!(Ok(by_flags), spec(&["--spec", document]));
        assert!(
            spec(&["--data", "d", "--mode", "async", "--staleness-window", "9", "--scale-by-staleness"])
                .is_ok()
        );
        assert!(spec(&["--data", "d", "--predict", "p", "--untrained"]).is_ok());
    }

    #[test]
    fn a_document_comes_in_parts_and_with_no_other_word() {
        let said = spec(&["--spec", "{\"data\":[\"d\"],", "\"epochs\":3}", "--store", "s"]).unwrap();
        assert_eq!((said.epochs(), said.data.as_slice()), (3, &["d".to_owned()][..]));
        let both = spec(&["--spec", "{\"data\":[\"d\"]}", "--epochs", "4"]).unwrap_err();
        assert!(both.contains("--epochs cannot be used with --spec"), "{both}");
        let unknown = spec(&["--spec", "{\"epoch\":3}"]).unwrap_err();
        assert!(unknown.contains("--spec: epoch: there is no such field"), "{unknown}");
        assert_eq!(spec(&["--spec", "{}"]), Err("spec.data: name the RecordIO files to train on".to_owned()));
    }
}
