//! Settings: what is said of each in one place holds wherever it is said.

use super::*;
use clap::{Args, Command};
use proptest::prelude::*;
use serde_json::json;

fn spec(words: &str) -> Spec {
    Spec::from_words(words.split_whitespace().map(|word| format!("--{word}"))).unwrap()
}

fn first_fault(words: &str) -> String {
    spec(words).faults(Naming::Flags).into_iter().next().unwrap_or_default()
}

#[test]
fn a_comment_says_the_default_that_counts() {
    let command = Spec::augment_args(Command::new("job"));
    let checkpoint = CheckpointSpec::defaults().into_iter();
    let all = Spec::defaults().into_iter().chain(checkpoint).collect::<Vec<_>>();
    assert!(all.len() > 10);
    for (field, default) in all {
        let is_it = |id: &str| {
            id == field || id.rsplit_once('.').is_some_and(|(_, name)| naming_snake(name) == field)
        };
        let argument = command.get_arguments().find(|one| is_it(one.get_id().as_str())).expect(field);
        let help = argument.get_long_help().or(argument.get_help()).unwrap().to_string();
        let word = default
            .as_str()
            .map_or_else(|| default.to_string().trim_end_matches(".0").to_owned(), str::to_owned);
        assert!(help.contains(&format!("By default {word}")), "{field}: {help}, and it is {word}");
    }
}

fn naming_snake(camel: &str) -> String {
    camel.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain(c.to_lowercase())).collect()
}

#[test]
fn every_flag_belongs_to_a_field_of_the_schema_and_every_field_has_a_flag() {
    let mut fields = Vec::new();
    schema::walk(&schema::SCHEMA, "", &mut |path, field| {
        if field["properties"].is_null() {
            fields.push(path.to_owned());
        }
    });
    assert!(fields.len() > 20);
    for field in fields {
        assert!(Naming::Flags.of(&field).starts_with("--"), "{field}");
    }
    let command = Spec::augment_args(Command::new("job"));
    for argument in command.get_arguments() {
        assert!(
            argument.get_env().is_some_and(|env| env.to_string_lossy().starts_with("SHOAL_")),
            "{argument}"
        );
    }
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_who_said_it() {
    let said = spec("data=d epochs=0");
    assert!(said.faults(Naming::Flags)[0].starts_with("--epochs 0 trains nothing: give --eval-data"));
    assert!(said.faults(Naming::Fields)[0].starts_with("spec.epochs: 0 trains nothing: give spec.evalData"));
}

#[test]
fn bounds_are_those_of_the_fields() {
    let bound = |word: &str| Spec::from_words([format!("--{word}")]).unwrap_err();
    for (words, said) in [
        ("epochs=1000001", "--epochs: 1000001 is above 1000000"),
        ("microbatch-records=0", "--microbatch-records: 0 is below 1"),
        ("microbatches-per-step=16777217", "--microbatches-per-step: 16777217 is above 16777216"),
        ("delay=5", "--delay: 5 is above 4"),
        ("replicas=9", "--replicas: 9 is above 8"),
        ("verify=1.5", "--verify: 1.5 is above 1"),
        ("keep-last=0", "--keep-last: 0 is below 1"),
        ("seed=18446744073709551615", "--seed: 18446744073709551615 is above 9223372036854775807"),
        ("data=records:0", "--data: records:0: no record in it"),
        ("verify=nan", "invalid value 'nan'"),
        ("mode=synch", "invalid value 'synch'"),
        ("epoch=3", "unexpected argument '--epoch'"),
    ] {
        let why = bound(words);
        assert!(why.starts_with(said), "{words}: {why}");
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    for (words, said) in [
        ("", "--data: name the RecordIO files to train on"),
        ("eval-data=e", "--data: name what to train on; to evaluate without training, give --epochs 0"),
        ("data=d predict=p eval-data=e untrained", "--eval-data: name the records to predict by --data"),
        ("eval-data=e predict=p untrained", "--eval-data: name the records to predict by --data"),
        ("predict=p untrained", "--data: name the records to predict"),
        ("data=d eval-steps=3", "--eval-steps goes with --eval-data"),
        ("data=d predict=p", "--warm-start: name the model"),
        ("data=d eval-data=e epochs=0", "--warm-start: name the model"),
        ("data=d predict=p untrained warm-start=m", "--untrained: --warm-start names a model"),
        ("data=d untrained", "--untrained goes with --predict or --epochs 0"),
        ("data=d mode=async delay=1", "--delay: asynchronous jobs have none"),
        ("data=d mode=async verify=0.5", "--verify: in an asynchronous job"),
        ("data=d staleness-window=3", "--staleness-window: synchronous jobs know no staleness"),
        ("data=d scale-by-staleness", "--scale-by-staleness: synchronous jobs know no staleness"),
    ] {
        let why = first_fault(words);
        assert!(why.starts_with(said), "{words}: {why}");
    }
    for words in [
        "data=d",
        "data=d eval-data=e eval-steps=3",
        "data=d predict=p untrained",
        "eval-data=e epochs=0 warm-start=m",
        "data=d mode=async staleness-window=3 scale-by-staleness",
        "data=d delay=4 verify=1 gradients=bf16",
    ] {
        assert_eq!(first_fault(words), "", "{words}");
    }
}

#[test]
fn what_is_stated_goes_before_what_was_there() {
    let base =
        spec("data=d epochs=3 eval-data=e eval-epochs=2 checkpoint-steps=5 checkpoints=/c warm-start=m");
    assert_eq!(Spec::default().over(&base), base);
    let over = spec("epochs=4 eval-steps=7 keep-last=9 untrained").over(&base);
    assert_eq!(
        over,
        spec(
            "data=d epochs=4 eval-data=e eval-steps=7 checkpoint-steps=5 checkpoints=/c keep-last=9 untrained"
        )
    );
    assert_eq!(spec("data=f").over(&base).data, ["f"], "names replace names");
}

#[test]
fn a_document_that_asks_for_what_this_build_does_not_know_is_refused() {
    for (text, said) in [
        ("{\"epochs\":3,\"warmth\":1}", "warmth: there is no such field"),
        ("{\"checkpoint\":{\"keep\":1}}", "checkpoint.keep: there is no such field"),
        ("{\"epochs\":-1}", "epochs: -1 is below 0"),
        ("{\"mode\":\"Sync\"}", "mode: \"Sync\" is none of sync, async"),
        ("[]", "no JSON object"),
        ("{", "no JSON: "),
    ] {
        let why = Document::parse(text).unwrap_err();
        assert!(why.starts_with(said), "{text}: {why}");
    }
}

#[test]
fn what_is_pinned_is_what_the_bits_and_the_places_follow_from() {
    let pinned: Vec<String> = fields::<Spec>()
        .into_iter()
        .filter(|field| field.change == Change::Pinned)
        .map(|field| field.path)
        .collect();
    for field in ["data", "seed", "mode", "checkpoint.place", "warmStart"] {
        assert!(pinned.iter().any(|one| one == field), "{field}");
    }
    for field in ["copies", "excludeMax", "environment", "verify", "checkpoint.everySteps"] {
        assert!(!pinned.iter().any(|one| one == field), "{field}");
    }
}

#[test]
fn live_settings_are_replaced_as_a_whole_and_pinned_ones_are_held() {
    let began = spec("data=d epochs=3 checkpoints=/c replicas=1 verify=0.5 checkpoint-steps=5 keep-last=3");
    assert_eq!(began.live(), spec("replicas=1 verify=0.5 checkpoint-steps=5 keep-last=3"));
    let edited = spec("data=d epochs=3 checkpoints=/c exclude-max=7 checkpoint-steps=9");
    // What is taken out of a spec goes back to its default.
    assert_eq!(began.with_live(&edited.live()), Ok(edited.clone()));
    assert_eq!(began.with_live(&edited), Ok(edited.clone()));
    assert_eq!(
        began.live_differences(&edited),
        ["checkpoint.everySteps", "checkpoint.keepLast", "copies", "excludeMax", "verify"]
    );
    assert_eq!(
        began.with_live(&spec("epochs=4 replicas=2")),
        Err("epochs: may not change once the job has begun".to_owned())
    );
    assert_eq!(
        began.with_live(&spec("checkpoints=/d")),
        Err("checkpoint.place: may not change once the job has begun".to_owned())
    );
}

proptest! {
    /// Whatever names hold, and however long they are.
    #[test]
    fn a_document_is_read_as_it_was_written(
        names in proptest::collection::vec("\\PC*", 0..4), repeated in 1usize..3000, seed in 0..i64::MAX as u64, parts in 0..=1024u32
    ) {
        // A share that JSON has exactly.
        let verify = f64::from(parts) / 1024.0;
        let data = names.iter().map(|name| name.repeat(repeated)).collect();
        let spec = Spec { data, seed: Some(seed), verify: Some(verify), untrained: true, ..Spec::default() };
        let parts = Document(spec.clone()).parts();
        prop_assert!(parts.iter().all(|part| part.len() <= 64 << 10));
        prop_assert_eq!(Document::parse(&parts.concat()), Ok(Document(spec.clone())));
        prop_assert_eq!(spec.over(&Spec::default()), spec.clone());
        prop_assert_eq!(spec.with_live(&spec.live()), Ok(spec.clone()));
        prop_assert_eq!(json!(Spec::default()), json!({ "checkpoint": {} }));
    }
}

#[test]
fn a_share_is_a_number_or_a_quotient() {
    assert_eq!([spec("verify=0.05").verify, spec("verify=1/20").verify], [Some(0.05); 2]);
    for wrong in ["", "1/", "/2", "1/0", "half", "1/2/3"] {
        assert!(share(wrong).is_err(), "{wrong}");
    }
}
