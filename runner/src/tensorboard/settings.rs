//! The hyperparameters that a run is compared by: its job's settings, and what its program was given. Pure. It must never tell a
//! variable of the environment, whose value may be a secret.

use super::event::{Given, Setting};
use crate::journal::Begun;
use std::collections::BTreeMap;

/// By name: the job's, then the program's arguments as `program/NAME`.
pub(super) fn of(begun: &Begun) -> BTreeMap<String, Setting> {
    let number = |number: u64| Given::Number(number as f64);
    let gradients = begun.gradients.clone().unwrap_or_else(|| "f32".to_owned());
    let job = [
        ("mode", Given::Text(begun.mode.clone())),
        ("gradients", Given::Text(gradients)),
        ("seed", number(begun.seed)),
        ("epochs", number(begun.epochs)),
        ("records", number(begun.records)),
        ("microbatch_records", number(begun.microbatch_records.into())),
        ("microbatches_per_step", number(begun.microbatches_per_step.into())),
        ("replicas", number(begun.replicas.into())),
    ];
    let job = job.map(|(name, given)| (name.to_owned(), given));
    let program =
        arguments(&begun.program).into_iter().map(|(name, given)| (format!("program/{name}"), given));
    job.into_iter().chain(program).map(|(name, given)| (name, Setting { given: Some(given) })).collect()
}

/// Arguments that have a name: `--name value`, `--name=value`, `name=value`, and `--name` alone, which is a switch.
fn arguments(program: &[String]) -> Vec<(String, Given)> {
    let mut words = program.iter().skip(1).map(String::as_str).peekable();
    let mut named = Vec::new();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--").filter(|flag| !flag.is_empty());
        let (name, value) = match (flag.unwrap_or(word).split_once('='), flag) {
            (Some((name, value)), _) => (name, given(value)),
            (None, Some(flag)) => match words.next_if(|next| !next.starts_with("--")) {
                Some(value) => (flag, given(value)),
                None => (flag, Given::Switch(true)),
            },
            (None, None) => continue,
        };
        if !name.is_empty() {
            named.push((name.to_owned(), value));
        }
    }
    named
}

/// A number where it is one.
fn given(value: &str) -> Given {
    let number = value.parse().ok().filter(|number: &f64| number.is_finite());
    number.map_or_else(|| Given::Text(value.to_owned()), Given::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::StatusReply;

    fn told(program: &[&str]) -> BTreeMap<String, Setting> {
        let program: Vec<std::ffi::OsString> = program.iter().map(Into::into).collect();
        of(&Begun::of(&program, &StatusReply::default(), 1))
    }

    #[test]
    fn arguments_of_a_program_are_hyperparameters_by_their_names() {
        let told = told(&[
            "python",
            "train.py",
            "--learning-rate",
            "0.05",
            "--layers=3",
            "name=mlp",
            "--fast",
            "--bias",
            "-1",
        ]);
        let of = |name: &str| told.get(&format!("program/{name}")).and_then(|setting| setting.given.clone());
        assert_eq!(of("learning-rate"), Some(Given::Number(0.05)));
        assert_eq!(of("layers"), Some(Given::Number(3.0)));
        assert_eq!(of("name"), Some(Given::Text("mlp".to_owned())));
        assert_eq!((of("fast"), of("bias")), (Some(Given::Switch(true)), Some(Given::Number(-1.0))));
        let programs = told.keys().filter(|name| name.starts_with("program/"));
        assert_eq!(programs.count(), 5, "a word without a name is none: {told:?}");
    }

    #[test]
    fn the_job_s_settings_are_there_whatever_the_program_is_given() {
        let told = told(&["program", "--", "="]);
        assert_eq!(told["mode"].given, Some(Given::Text("sync".to_owned())));
        assert_eq!((told["seed"].given.clone(), told.len()), (Some(Given::Number(0.0)), 8));
    }
}
