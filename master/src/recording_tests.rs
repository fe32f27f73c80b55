//! What is recorded, in whatever order it is told.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const A: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);
const NOW: Duration = Duration::from_secs(9);

fn hashes(block: u32, version: u64, hashes: &[u64]) -> BlockHashes {
    let (block, version, rewind, term) = (BlockId(block), Version(version), Rewind(3), Term(1));
    BlockHashes { block, version, rewind, term, hashes: hashes.to_vec() }
}

fn recording() -> Recording {
    Recording::of(Rewind(3), NOW)
}

fn versions(those: Option<Vec<Whole>>) -> Vec<u64> {
    those.into_iter().flatten().map(|(version, ..)| version.0).collect()
}

#[test]
fn a_step_is_written_once_all_its_blocks_were_told_and_settled_once_it_is_durable() {
    let mut recording = recording();
    assert_eq!(recording.hear(A, vec![hashes(0, 10, &[1]), hashes(0, 20, &[2])], 2, NOW), None);
    assert_eq!(recording.to_write(Version(99), NOW), None);
    assert!(
        recording.is_worth_waiting(NOW, PAUSE, true) && !recording.is_worth_waiting(NOW + PAUSE, PAUSE, true)
    );
    recording.hear(B, vec![hashes(1, 10, &[7, 8])], 2, NOW);
    assert!(recording.is_worth_waiting(NOW + PAUSE, PAUSE, true), "it is whole, and has to be written");
    let given = recording.to_write(Version(99), NOW).unwrap();
    assert_eq!(given, [(Version(10), Rewind(3), vec![vec![1], vec![7, 8]])]);
    assert_eq!(recording.to_write(Version(99), NOW + PAUSE), None, "one at a time");
    recording.not_written();
    assert_eq!(versions(recording.to_write(Version(99), NOW + PAUSE)), [10]);
    assert_eq!(recording.settled(), (Rewind(3), Version(0)));
    recording.written();
    assert_eq!(recording.settled(), (Rewind(3), Version(11)));
    recording.hear(B, vec![hashes(1, 10, &[7, 8]), hashes(1, 20, &[9])], 2, NOW);
    assert_eq!(recording.to_write(Version(99), NOW + PAUSE), None, "objects are that far apart");
    assert_eq!(versions(recording.to_write(Version(20), NOW + PAUSE)), [20], "but for the last");
    recording.written();
    assert_eq!(recording.counters(), Counters { recorded: 2, given_up: 0 });
    assert!(!recording.is_worth_waiting(NOW, PAUSE, true));
}

#[test]
fn copies_that_differ_are_found_and_those_that_do_not_are_as_one() {
    let mut recording = recording();
    assert_eq!(recording.hear(A, vec![hashes(0, 10, &[1, 2]), hashes(1, 10, &[3])], 2, NOW), None);
    assert_eq!(recording.hear(B, vec![hashes(1, 10, &[3])], 2, NOW), None);
    let found = recording.hear(B, vec![hashes(0, 10, &[1, 5])], 2, NOW);
    let expected = Difference { block: BlockId(0), version: Version(10), hash: 1, pservers: [A, B] };
    assert_eq!(found, Some(expected));
}

#[test]
fn a_copy_that_differs_is_found_although_the_step_is_durable_and_names_both_pservers() {
    let mut recording = recording();
    recording.hear(A, vec![hashes(0, 10, &[1, 2]), hashes(1, 10, &[3])], 2, NOW);
    recording.hear(A, vec![hashes(0, 20, &[4, 5])], 2, NOW);
    assert_eq!(versions(recording.to_write(Version(99), NOW)), [10]);
    recording.written();
    assert_eq!(recording.settled().1, Version(11));
    assert_eq!(recording.hear(B, vec![hashes(1, 10, &[3])], 2, NOW), None, "it is the same");
    let found = recording.hear(B, vec![hashes(0, 10, &[1, 5])], 2, NOW);
    let expected = Difference { block: BlockId(0), version: Version(10), hash: 1, pservers: [A, B] };
    assert_eq!(found, Some(expected));
    let later = BlockHashes { term: Term(2), ..hashes(0, 10, &[7, 7]) };
    assert_eq!(recording.hear(B, vec![later], 2, NOW), None, "it was made again");
    assert_eq!(
        (recording.settled().1, recording.counters()),
        (Version(11), Counters { recorded: 1, given_up: 0 })
    );
}

#[test]
fn durable_steps_are_remembered_for_late_copies_within_a_bound() {
    let told = |by, recording: &mut Recording, version, count| {
        recording.hear(by, vec![hashes(0, version, &vec![version; count])], 1, NOW)
    };
    let differs = |recording: &mut Recording, version, count| {
        recording.hear(B, vec![hashes(0, version, &vec![0; count])], 1, NOW).is_some()
    };
    for (count, kept) in [(1, SETTLED_MAX as u64), (SETTLED_HASHES_MAX / 3, 3), (SETTLED_HASHES_MAX + 1, 1)] {
        let mut recording = recording();
        let last = kept + 5;
        for version in 1..=last {
            assert_eq!(told(A, &mut recording, version, count), None);
            assert!(recording.to_write(Version(version), NOW).is_some());
            recording.written();
        }
        assert!(!differs(&mut recording, last - kept, count), "{count}");
        assert!(differs(&mut recording, last - kept + 1, count), "{count}");
        assert_eq!(recording.steps.len() as u64, kept);
    }
}

#[test]
fn what_was_lost_is_given_up_once_enough_later_ones_are_whole_and_nothing_after_it_is_forgotten_before() {
    let mut recording = recording();
    recording.hear(A, vec![hashes(0, 10, &[1])], 2, NOW);
    for version in 11..11 + BEHIND_MAX as u64 {
        assert_eq!(recording.settled().1, Version(0));
        recording.hear(A, vec![hashes(0, version, &[1]), hashes(1, version, &[1])], 2, NOW);
        recording.to_write(Version(version), NOW);
        recording.written();
    }
    assert_eq!(recording.counters(), Counters { recorded: BEHIND_MAX as u64, given_up: 1 });
    assert_eq!(recording.settled().1, Version(11 + BEHIND_MAX as u64));
}

#[test]
fn of_an_earlier_history_what_is_not_made_again_is_still_written_and_nothing_else() {
    let mut recording = recording();
    recording.hear(A, vec![hashes(0, 10, &[1]), hashes(1, 10, &[1]), hashes(0, 20, &[2])], 2, NOW);
    assert_eq!(versions(recording.to_write(Version(99), NOW)), [10]);
    recording.hear(
        A,
        vec![hashes(0, 30, &[3]), hashes(1, 30, &[3]), hashes(0, 40, &[4]), hashes(1, 40, &[4])],
        2,
        NOW,
    );
    // It goes back to version 40, which is told again, while 10 is being written; 20 is lost.
    recording.begin(Rewind(8), Version(40));
    assert_eq!(recording.counters(), Counters { recorded: 0, given_up: 1 });
    // What was made in the earlier history comes late.
    assert_eq!(recording.hear(A, vec![hashes(0, 30, &[9]), hashes(0, 40, &[9])], 2, NOW), None);
    recording.written();
    assert_eq!((recording.settled().0, recording.counters().recorded), (Rewind(8), 1));
    let again = |block| BlockHashes { rewind: Rewind(8), term: Term(8), ..hashes(block, 40, &[7]) };
    recording.hear(A, vec![again(0), again(1)], 2, NOW);
    let written = recording.to_write(Version(99), NOW + PAUSE).unwrap();
    let rewinds: Vec<(u64, u64, u64)> =
        written.iter().map(|(version, rewind, blocks)| (version.0, rewind.0, blocks[0][0])).collect();
    assert_eq!(rewinds, [(30, 3, 3), (40, 8, 7)]);
    recording.written();
    assert_eq!(recording.settled(), (Rewind(8), Version(41)));
}

#[test]
fn what_was_made_again_under_a_later_term_counts_and_is_no_difference() {
    let mut recording = recording();
    let under = |term: u64, hash: u64| BlockHashes { term: Term(term), ..hashes(0, 10, &[hash]) };
    assert_eq!(recording.hear(A, vec![under(1, 5)], 1, NOW), None);
    assert_eq!(recording.hear(B, vec![under(2, 6)], 1, NOW), None);
    assert_eq!(recording.hear(A, vec![under(1, 5)], 1, NOW), None);
    assert_eq!(recording.to_write(Version(99), NOW).unwrap()[0].2, [[6]]);
}

#[test]
fn the_end_waits_for_a_master_that_knows_nothing_yet_and_not_for_ever_for_what_cannot_be_written() {
    let mut recording = recording();
    assert!(
        recording.is_worth_waiting(NOW, PAUSE, false)
            && !recording.is_worth_waiting(NOW + PAUSE, PAUSE, false)
    );
    recording.hear(A, vec![hashes(0, 10, &[1])], 1, NOW);
    for attempt in 0..3 {
        assert!(recording.to_write(Version(10), NOW + attempt * PAUSE).is_some());
        recording.not_written();
    }
    let end = NOW + WRITING_PATIENCE;
    assert!(
        recording.is_worth_waiting(end - PAUSE, PAUSE, true) && !recording.is_worth_waiting(end, PAUSE, true)
    );
    recording.end();
    assert_eq!(recording.counters(), Counters { recorded: 0, given_up: 1 });
}

/// The predecessor had all of version 10; a follower reports its hashes of it only now.
#[test]
fn a_new_master_counts_nothing_that_its_predecessor_has_settled() {
    for is_told in [false, true] {
        let mut recording = recording();
        recording.hear(B, vec![hashes(0, 10, &[1])], 2, NOW);
        if is_told {
            recording.settled_before((Rewind(2), Version(99)));
            recording.settled_before((Rewind(3), Version(11)));
            recording.settled_before((Rewind(3), Version(5)));
            assert_eq!(recording.settled(), (Rewind(3), Version(11)));
        }
        assert_eq!(recording.is_worth_waiting(NOW, PAUSE, true), !is_told);
        recording.hear(B, vec![hashes(1, 10, &[1])], 2, NOW);
        assert_eq!(recording.to_write(Version(10), NOW).is_none(), is_told);
        recording.not_written();
        for version in 11..11 + BEHIND_MAX as u64 {
            recording.hear(A, vec![hashes(0, version, &[1]), hashes(1, version, &[1])], 2, NOW);
        }
        let mut lost = self::recording();
        lost.settled_before((Rewind(3), Version(if is_told { 11 } else { 0 })));
        lost.hear(B, vec![hashes(0, 10, &[1])], 2, NOW);
        for version in 11..11 + BEHIND_MAX as u64 {
            lost.hear(A, vec![hashes(0, version, &[1]), hashes(1, version, &[1])], 2, NOW);
        }
        assert_eq!(lost.counters().given_up, u64::from(!is_told));
    }
}

#[test]
fn the_end_does_not_wait_for_ever_for_a_write_that_neither_succeeds_nor_fails() {
    let mut recording = recording();
    let is_waited_for = |recording: &Recording, now| recording.is_worth_waiting(now, PAUSE, true);
    recording.hear(A, vec![hashes(0, 10, &[1])], 1, NOW);
    let given = NOW + 9 * PAUSE;
    assert!(recording.to_write(Version(10), given).is_some());
    let end = given + WRITING_PATIENCE;
    assert!(is_waited_for(&recording, end - PAUSE) && !is_waited_for(&recording, end));
    // It succeeds after all: the next one has as long.
    recording.written();
    recording.hear(A, vec![hashes(0, 11, &[1])], 1, end);
    assert!(recording.to_write(Version(11), end).is_some());
    assert!(is_waited_for(&recording, end + WRITING_PATIENCE - PAUSE));
}

#[test]
fn what_cannot_be_written_costs_no_more_memory_than_is_said() {
    let mut recording = recording();
    let many = vec![7; HASHES_MAX / 4 + 1];
    for version in 1..=5 {
        recording.hear(A, vec![hashes(0, version, &many)], 1, NOW);
    }
    assert_eq!(recording.counters(), Counters { recorded: 0, given_up: 2 });
    assert_eq!(versions(recording.to_write(Version(99), NOW)), [3, 4, 5]);
}

proptest! {
    /// Whatever is told in whatever order and how often, and however writing fares: each step is written whole, nothing is settled that
    /// is neither durable nor given up, and in the end all that was told wholly is durable.
    #[test]
    fn nothing_is_forgotten_that_is_not_durable(
        told in proptest::collection::vec((1u64..40, 0u32..3, any::<bool>()), 0..300),
        fares in proptest::collection::vec(0u8..4, 300)
    ) {
        let (mut recording, mut durable, mut given): (_, BTreeSet<u64>, _) = (recording(), BTreeSet::new(), Vec::new());
        let mut heard: BTreeSet<(u64, u32)> = BTreeSet::new();
        let is_whole = |heard: &BTreeSet<(u64, u32)>, version| (0..3).all(|block| heard.contains(&(version, block)));
        for (at, ((version, block, is_a), fare)) in told.into_iter().zip(fares).enumerate() {
            let now = NOW + PAUSE * at as u32;
            let is_open = Version(version) >= recording.settled().1;
            prop_assert_eq!(recording.hear(if is_a { A } else { B }, vec![hashes(block, version, &[version])], 3, now), None);
            heard.extend(is_open.then_some((version, block)));
            match fare {
                0 => given = versions(recording.to_write(Version(99), now)).into_iter().chain(given).collect(),
                1 => {
                    recording.written();
                    for version in given.drain(..) {
                        prop_assert!(is_whole(&heard, version) && durable.insert(version), "{}", version);
                    }
                }
                2 => {
                    recording.not_written();
                    given.clear();
                }
                _ => {}
            }
            let below = recording.settled().1.0;
            let unsettled: Vec<u64> = heard.iter().map(|(version, _)| *version).filter(|version| *version < below && !durable.contains(version)).collect();
            let given_up: BTreeSet<u64> = unsettled.into_iter().collect();
            prop_assert!(given_up.len() as u64 <= recording.counters().given_up);
        }
        recording.not_written();
        let last = versions(recording.to_write(Version(99), NOW + PAUSE * 1000));
        recording.written();
        durable.extend(last);
        let lost = (1..40).filter(|version| is_whole(&heard, *version) && !durable.contains(version));
        prop_assert!(lost.count() as u64 <= recording.counters().given_up);
        prop_assert_eq!(recording.counters().recorded, durable.len() as u64);
    }
}
