//! Checkpoints of tables that rest on earlier ones: which may, how long their files are needed, and who forgets what they
//! rest on.

use super::*;
use crate::document::PlacedBlock;
use crate::machine::CheckpointPolicy;
use shoal_runtime::cluster::block_copy::WHOLE;
use shoal_runtime::cluster::checkpoint::{FileRecord, WrittenFile};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{CheckpointId, DamagedCheckpoint, Parameter, PieceRef, Rule, StateName, Table};

const FULL_EVERY: u64 = 3;

fn tables() -> Declaration {
    let parameter = |name| Parameter::new(name, &[4], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let table = parameter("t").as_table(Table { buckets: 2, ..Table::default() });
    Declaration { parameters: vec![parameter("w"), table], block_elements: 0 }
}

fn with_policy(job: &mut Job) {
    job.machine.policy =
        CheckpointPolicy { full_every: FULL_EVERY, ..CheckpointPolicy::of(&at_the_end().checkpoint) };
}

/// One pserver, one trainer, 64 steps.
fn job() -> (Job, Incarnation) {
    let mut job = Job::new(settings(512, 2, 4, 1), 1, 0);
    with_policy(&mut job);
    let pserver = job.pserver("p0", 1, 0).unwrap();
    job.machine.join("a", 1, 1, tables(), None, at(0)).unwrap();
    job.settle(0);
    job.publish_everywhere(0, 0);
    (job, pserver)
}

/// The next checkpoint, durable at `version`: since which, and whose files may go.
fn checkpoint(job: &mut Job, version: u64) -> (Option<u64>, Vec<u64>) {
    job.demand_checkpoint();
    job.settle(1);
    let since = job.document().named.unwrap().since;
    job.publish_everywhere(version, 1);
    assert_eq!(job.document().named, None, "it is durable");
    (since.map(|since| since.0), removable(job))
}

fn removable(job: &mut Job) -> Vec<u64> {
    job.removable_checkpoints().into_iter().map(|checkpoint| checkpoint.0).collect()
}

fn kept(job: &Job) -> Vec<(u64, Option<u64>)> {
    let kept = job.document().checkpoints.iter();
    kept.map(|kept| (kept.record.checkpoint.0, kept.oldest.map(|oldest| oldest.0))).collect()
}

#[test]
fn every_third_is_full_and_what_others_rest_on_stays_as_long_as_they() {
    let (mut job, _) = job();
    let made: Vec<_> = (1..=7).map(|number| checkpoint(&mut job, 2 * number)).collect();
    assert_eq!(
        made,
        [
            (None, vec![]),
            (Some(1), vec![]),
            (Some(2), vec![]),
            (None, vec![]),
            (Some(4), vec![1, 2, 3]),
            (Some(5), vec![]),
            (None, vec![]),
        ]
    );
    assert_eq!(kept(&job), [(6, Some(4)), (7, None)]);
}

/// A piece of another history or of another version is no part of a checkpoint, whoever wrote it.
#[test]
fn a_checkpoint_counts_pieces_of_its_own_cut_only() {
    let (mut job, _) = job();
    job.demand_checkpoint();
    job.settle(1);
    let named = job.document().named.unwrap();
    let blocks = job.document().blocks.clone();
    let written = |name: &str, change: &dyn Fn(&mut PieceRef)| {
        let piece = |(at, block): (u32, &PlacedBlock)| {
            let name = StateName { term: block.term, version: named.version };
            let (block, rewind, slots) = (BlockId(at), block.rewind, WHOLE);
            let mut piece = PieceRef {
                block,
                rewind,
                name,
                slots,
                is_delta: false,
                file: 0,
                offset: 1000 * (u64::from(at) + 1),
                bytes: 100,
                crc32: 0,
            };
            change(&mut piece);
            piece
        };
        let file = FileRecord { checkpoint: named.checkpoint, name: name.into(), bytes: 9000, crc32: 0 };
        WrittenFile { file, pieces: (0..).zip(&blocks).map(piece).collect() }
    };
    let hear =
        |job: &mut Job, file| job.machine.hear_of_checkpoint(named.checkpoint.0, vec![file], &[], false);
    hear(&mut job, written("later", &|piece| piece.name.version.0 += 1));
    hear(&mut job, written("before", &|piece| piece.rewind.0 += 1));
    assert!(job.machine.checkpoint_to_commit().is_none());
    hear(&mut job, written("right", &|_| {}));
    let manifest = job.machine.checkpoint_to_commit().unwrap();
    assert!(manifest.files.iter().all(|file| file.name == "right"), "{:?}", manifest.files);
}

#[test]
fn one_that_is_named_ahead_is_not_followed_by_another_at_once() {
    let (mut job, _) = job();
    job.machine.policy.every_steps = 4;
    for version in 1..=30 {
        job.publish_everywhere(version, 1);
    }
    let versions: Vec<u64> = job.document().checkpoints.iter().map(|kept| kept.version.0).collect();
    assert_eq!((versions, job.document().checkpoints_named), (vec![24, 30], 5));
}

#[test]
fn the_next_master_knows_no_manifest_and_has_everything_written() {
    let (mut job, _) = job();
    assert_eq!(checkpoint(&mut job, 2).0, None);
    job.demand_checkpoint();
    job.settle(2);
    assert_eq!(job.document().named.unwrap().since, Some(CheckpointId(1)));
    job.restart("m2", 3);
    with_policy(&mut job);
    assert_eq!(job.document().named, None, "what it may rest on is forgotten");
    assert_eq!(removable(&mut job), [2]);
    job.publish_everywhere(2, 3);
    assert_eq!(checkpoint(&mut job, 4), (None, vec![]));
    assert_eq!(checkpoint(&mut job, 6).0, Some(3));
    assert_eq!(kept(&job), [(3, None), (4, Some(3))]);
}

#[test]
fn one_is_given_up_when_what_it_may_rest_on_turns_out_to_be_damaged() {
    let (mut job, pserver) = job();
    checkpoint(&mut job, 2);
    let record = job.document().newest().unwrap().record;
    job.demand_checkpoint();
    job.settle(2);
    assert!(job.document().named.unwrap().since.is_some());
    let damaged = DamagedCheckpoint { record, file: "here/manifest".into(), what: "torn".into() };
    let word = PserverWord { damaged: vec![damaged], ..job.word(pserver, 2) };
    job.report(pserver, word, 2).unwrap();
    assert_eq!(kept(&job), []);
    let named = job.document().named.map(|named| (named.checkpoint.0, named.since));
    assert!(named.is_none_or(|named| named == (3, None)), "{named:?}");
    assert_eq!(removable(&mut job), [2], "and not what somebody may want to look at");
    assert_eq!(checkpoint_after(&mut job, 6), None);
}

/// Since which the next one is made.
fn checkpoint_after(job: &mut Job, version: u64) -> Option<u64> {
    if job.document().named.is_none() {
        job.demand_checkpoint();
        job.settle(3);
    }
    let since = job.document().named.unwrap().since;
    job.publish_everywhere(version, 3);
    since.map(|since| since.0)
}

#[test]
fn a_checkpoint_needs_itself_and_what_it_rests_on() {
    let (mut job, _) = job();
    let made = (1..=3).map(|number| checkpoint(&mut job, 2 * number));
    assert_eq!(made.last(), Some((Some(2), vec![])));
    let needs = |number: u64| {
        let kept = job.document().checkpoints.iter();
        kept.filter(|kept| kept.needs(CheckpointId(number))).count()
    };
    assert_eq!([1, 2, 3, 4].map(needs), [2, 2, 1, 0]);
}

#[test]
fn a_manifest_that_would_be_too_large_rests_on_nothing() {
    let (mut job, _) = job();
    checkpoint(&mut job, 2);
    assert_eq!(job.machine.base(), Some(CheckpointId(1)));
    let (_, manifest) = job.machine.newest_manifest.as_mut().unwrap();
    let piece = manifest.pieces[0].clone();
    manifest.pieces = vec![piece; 1_000_000];
    assert_eq!(job.machine.base(), None);
    assert_eq!(checkpoint(&mut job, 4), (None, vec![]));
}

#[test]
fn a_model_without_tables_rests_on_nothing() {
    let (mut job, _, _) = training();
    for version in [2, 4] {
        assert_eq!(checkpoint(&mut job, version).0, None);
    }
    assert_eq!(kept(&job), [(1, None), (2, None)]);
}
