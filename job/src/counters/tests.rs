//! What every counter has to have, and that nothing is lost as groups are added up.

use super::*;
use std::collections::BTreeSet;

/// A group with another value in each counter, all above `above`.
fn numbered<C: Counters>(above: u64) -> C {
    let mut next = above;
    C::default().zip(C::default(), |_, _, _| {
        next += 1;
        next
    })
}

fn check_counters<C: Counters>() {
    let (mut names, mut exports, mut families) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for counter in C::COUNTERS {
        let name = counter.name;
        assert!(counter.help.ends_with('.') && !counter.help.contains("  "), "{name} has no sentence");
        assert!(names.insert(counter.json_name()), "{name} has the name of another in JSON");
        let Some((metric, label)) = counter.metric() else { continue };
        let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(!metric.name.is_empty() && metric.name.chars().all(is_word), "{name} as {:?}", metric.name);
        let part = label.map(|(_, part)| part);
        assert!(part.is_none_or(|part| !part.is_empty()), "{name} has an empty label");
        // A family is one metric: no other has its name, and all of its counters have its unit.
        families.insert((
            metric.name.clone(),
            metric.help,
            label.map(|(label, _)| label),
            metric.is_in_micros,
        ));
        assert_eq!(metric.is_in_micros, metric.name.contains("seconds"), "{name} is shown in another unit");
        assert!(exports.insert((metric.name.clone(), part)), "{name} is shown where another is");
    }
    let [names, helps] = [0, 1].map(|at| {
        families.iter().map(|(name, help, ..)| if at == 0 { name } else { *help }).collect::<BTreeSet<_>>()
    });
    assert_eq!((names.len(), helps.len()), (families.len(), families.len()), "{families:#?}");
    assert_eq!(numbered::<C>(0).metrics().len(), families.len(), "each is shown once");
}

#[test]
fn every_counter_has_its_sentence_and_no_two_have_one_name() {
    check_counters::<TrainerCounters>();
    check_counters::<PserverCounters>();
    check_counters::<LeaseCounters>();
}

fn check_merging<C: Counters>() {
    let (one, other) = (numbered::<C>(0), numbered::<C>(100));
    for ((counter, merged), (one, other)) in
        one.merged(other).each().zip(one.values().into_iter().zip(other.values()))
    {
        let expected = match counter.kind {
            Kind::Sum | Kind::Holding => one + other,
            Kind::Peak => other,
            Kind::Bits => one | other,
        };
        assert_eq!(merged, expected, "{}", counter.name);
    }
    assert_eq!(one.merged(other).values(), other.merged(one).values());
    assert_eq!(one.merged(C::default()).values(), one.values());
    let values: BTreeSet<u64> = one.values().into_iter().collect();
    assert_eq!(values.len(), C::COUNTERS.len());
    assert_eq!(one.json().len(), C::COUNTERS.len());
}

#[test]
fn nothing_is_lost_as_members_are_added_up() {
    check_merging::<TrainerCounters>();
    check_merging::<PserverCounters>();
    check_merging::<LeaseCounters>();
}

#[test]
fn what_a_lost_member_held_is_others_and_what_it_did_stays_done() {
    let lost =
        PserverCounters { pushes: 3, rows: 5, checkpoint_memory_peak: 7, ..PserverCounters::default() };
    let here =
        PserverCounters { pushes: 1, rows: 6, checkpoint_memory_peak: 2, ..PserverCounters::default() };
    let expected =
        PserverCounters { pushes: 4, rows: 6, checkpoint_memory_peak: 7, ..PserverCounters::default() };
    assert_eq!(here.merged(lost.left_behind()), expected);
}

#[test]
fn a_set_is_a_list_in_json_and_names_that_stand_elsewhere_are_not_taken() {
    let counters = PserverCounters { levels: 0b1101, rows: 2, moved: 4, ..PserverCounters::default() };
    let json = counters.json();
    assert_eq!(json["levels"], json!([0, 2, 3]));
    assert_eq!((&json["table_rows"], &json["pushes_moved"]), (&json!(2), &json!(4)));
    assert!(!json.contains_key("rows") && !json.contains_key("moved"));
}

#[test]
fn parts_of_a_family_are_one_metric_and_what_comes_and_goes_is_no_total() {
    let counters = PserverCounters { pushes: 9, busy: 3, rows: 4, ..PserverCounters::default() };
    let metrics = counters.metrics();
    let of = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap();
    assert_eq!((&of("pushes_total").samples, of("pushes_total").is_gauge), (&vec![(None, 9)], false));
    assert_eq!((&of("rows").samples, of("rows").is_gauge), (&vec![(None, 4)], true));
    let refused = &of("pushes_refused_total").samples;
    assert_eq!(refused.len(), 6);
    assert_eq!(refused[2], (Some(("kind", "busy")), 3));
}
