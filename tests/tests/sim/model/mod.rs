//! The protocol as a model: traces that once broke it, and random walks. It must never touch the code that ships.
//!
//! `SHOAL_MODEL_WALKS=200000 cargo test -p shoal-tests --test sim model -- --nocapture` walks longer than by default.

mod checkpoint;
mod copies;
mod delay;
mod exclusion;
mod promotion;
mod rewind;
mod scalars;
mod trace;

use shoal_tests::model::{Rule, Rules, Walks, story, walks};

const WALKS: u64 = 10_000;

/// A whole number from the environment.
fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a whole number"))
}

#[track_caller]
fn assert_unbroken(walked: &Walks, rules: Rules) {
    if let Some((seed, violation)) = walked.broken.first() {
        let told = story(*seed, rules).unwrap_or_else(|| violation.to_string());
        panic!("{} of {} seeds are broken; {told}", walked.broken.len(), walked.walks);
    }
}

#[test]
fn random_walks_keep_the_promises_and_end() {
    let walked = walks(0..asked("SHOAL_MODEL_WALKS").unwrap_or(WALKS), Rules::all());
    println!("{walked}; met {:?}", walked.met);
    assert_unbroken(&walked, Rules::all());
    let never = walked.met.iter().find(|(_, times)| **times == 0);
    assert_eq!(never, None, "something is never met: the walks are too tame");
}

#[test]
fn a_seed_is_a_whole_story() {
    let rules = Rules::without(Rule::RestoreOncePerTerm);
    assert_eq!(story(1, rules), story(1, rules));
    let (first, second) = (walks(0..50, Rules::all()), walks(0..50, Rules::all()));
    assert_eq!((first.actions, first.met), (second.actions, second.met));
}

/// Prints how many seeds find what each rule is there for. Some rules only a trace finds: that is why there are traces.
#[test]
fn walks_miss_a_rule_that_is_broken_often() {
    let seeds = asked("SHOAL_MODEL_WALKS").unwrap_or(WALKS) / 50;
    for rule in Rule::ALL.into_iter().filter(|rule| !Rule::BELTS.contains(rule)) {
        println!("without {rule:?}: {}", walks(0..seeds, Rules::without(rule)));
    }
    let often = [
        Rule::RewindRestoresAll,
        Rule::RequiredBeforeAsked,
        Rule::AppliedMeansPublished,
        Rule::AppliedAsDecided,
        Rule::ExclusionRewinds,
    ];
    for rule in often {
        assert!(!walks(0..100, Rules::without(rule)).broken.is_empty(), "{rule:?} is not missed");
    }
}

#[test]
fn a_belt_is_not_missed() {
    let seeds = asked("SHOAL_MODEL_WALKS").unwrap_or(WALKS) / 20;
    for rule in Rule::BELTS {
        assert_unbroken(&walks(0..seeds, Rules::without(rule)), Rules::without(rule));
    }
}

/// `SHOAL_MODEL_SEED=17 SHOAL_MODEL_WITHOUT=RewindFence cargo test -p shoal-tests --test sim model::replay -- --nocapture`
/// tells what seed 17 breaks without that rule (several: with commas between), in as few actions as were found.
#[test]
fn replay() {
    let without = std::env::var("SHOAL_MODEL_WITHOUT").ok();
    let off =
        without.iter().flat_map(|names| names.split(',')).map(|name| Rule::named(name).expect("a rule"));
    let rules = off.fold(Rules::all(), Rules::nor);
    let seed = asked("SHOAL_MODEL_SEED").unwrap_or(0);
    println!("{}", story(seed, rules).unwrap_or_else(|| format!("seed {seed} breaks nothing with {rules}")));
}
