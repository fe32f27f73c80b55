//! A trace is told twice: it ends well with all rules, and badly without the rule that it is about.

use shoal_tests::model::{Fault, Mode, Rule, Rules, Script, Shape};

/// Asserts both tellings: without `rule`, `fault` is among what is broken.
#[track_caller]
pub(crate) fn needs(rule: Rule, fault: Fault, trace: impl Fn(Rules) -> Script) {
    ends_well(Rules::all(), &trace);
    let broken = trace(Rules::without(rule)).finish();
    assert!(broken.iter().any(|violation| violation.fault == fault), "without {rule:?} only {broken:#?}");
}

/// Asserts that either rule does, and that without both `fault` is among what is broken.
#[track_caller]
pub(crate) fn needs_either(rules: [Rule; 2], fault: Fault, trace: impl Fn(Rules) -> Script) {
    ends_well(Rules::all(), &trace);
    rules.into_iter().for_each(|rule| ends_well(Rules::without(rule), &trace));
    let broken = trace(Rules::without(rules[0]).nor(rules[1])).finish();
    assert!(broken.iter().any(|violation| violation.fault == fault), "without {rules:?} only {broken:#?}");
}

#[track_caller]
pub(crate) fn ends_well(rules: Rules, trace: impl Fn(Rules) -> Script) {
    let told = rules.to_string();
    let broken = trace(rules).finish();
    assert!(broken.is_empty(), "with {told}: {broken:#?}");
}

/// A sync job of two blocks, block 0 on pserver 0, block 1 on pserver 1.
pub(crate) const SYNC: Shape = Shape {
    mode: Mode::Sync,
    blocks: 2,
    metric: false,
    scalars: false,
    pservers: 3,
    trainers: 2,
    masters: 1,
    followers: 0,
    units: 4,
    slots: 1,
    short: None,
    delay: 0,
};

/// An async job of one block on pserver 0.
pub(crate) const ASYNC: Shape = Shape { mode: Mode::Async, blocks: 1, ..SYNC };

/// A sync job of one block with a follower wanted, or two.
pub(crate) const ONE: Shape = Shape { blocks: 1, followers: 1, ..SYNC };
pub(crate) const ONE_TWICE: Shape = Shape { followers: 2, ..ONE };

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
/// The scalar block, where there is one beside two others.
pub(crate) const S: usize = 2;
