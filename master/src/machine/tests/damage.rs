//! Checkpoints that cannot be read any more: what pservers say of them, and what comes of it.

use super::*;
use crate::document::{PlacedBlock, Wanted};
use shoal_runtime::cluster::block_copy::WHOLE;
use shoal_runtime::cluster::checkpoint::{FileRecord, WrittenFile};
use shoal_runtime::cluster::{CheckpointId, DamagedCheckpoint, ManifestRecord, Mode, PieceRef, StateName};

/// A job with checkpoints 1 and 2, at steps 2 and 4, that has lost a pserver and goes back to the newest.
fn going_back() -> (Job, [Incarnation; 2]) {
    let (mut job, [p0, p1], _) = training();
    for version in [2, 4] {
        job.demand_checkpoint();
        job.settle(1);
        job.publish_everywhere(version, 1);
    }
    assert_eq!(job.document().checkpoints.iter().map(|kept| kept.version.0).collect::<Vec<_>>(), [2, 4]);
    job.lose_pserver(p1);
    let p2 = job.pserver("p2", 1, 2).unwrap();
    (job, [p0, p2])
}

fn newest(job: &Job) -> ManifestRecord {
    job.document().newest().unwrap().record
}

fn damage(record: ManifestRecord) -> PserverWord {
    let damaged = DamagedCheckpoint { record, file: "here/manifest".into(), what: "torn".into() };
    PserverWord { damaged: vec![damaged], ..PserverWord::default() }
}

fn origins(job: &Job) -> Vec<Option<u64>> {
    job.document().blocks.iter().map(|block| block.origin.map(|origin| origin.checkpoint.0)).collect()
}

#[test]
fn what_a_pserver_cannot_begin_from_is_dropped_shown_and_left_where_it_is() {
    let (mut job, [p0, _]) = going_back();
    assert_eq!(origins(&job), [Some(2); 5]);
    let rewind = job.document().rewind();
    // The others have begun: they go back all the same.
    job.publish(p0, 4, 3);
    let lacks = job.document().blocks.iter().find(|block| block.primary != p0).unwrap().primary;
    job.report(lacks, damage(newest(&job)), 3).unwrap();
    assert_eq!(origins(&job), [Some(1); 5]);
    assert!(job.document().rewind() > rewind);
    let shown = crate::status::reply(&job.machine, at(0), true).damaged;
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].file.as_str(), shown[0].what.as_str()), ("here/manifest", "torn"));
    assert_eq!(job.removable_checkpoints(), [], "somebody may want to look at it");
    job.publish_everywhere(2, 4);
    assert_eq!(job.front(), Step(2));
}

#[test]
fn whoever_says_so_late_changes_nothing() {
    let (mut job, [p0, p2]) = going_back();
    let record = newest(&job);
    job.report(p2, damage(record), 3).unwrap();
    let before = job.document().clone();
    for (pserver, record) in
        [(p2, record), (p0, record), (p0, ManifestRecord { checkpoint: CheckpointId(9), ..record })]
    {
        job.report(pserver, damage(record), 4).unwrap();
        assert_eq!(job.document(), &before);
    }
}

#[test]
fn a_job_that_has_begun_from_a_checkpoint_does_not_go_back_when_it_is_damaged_later() {
    let (mut job, [p0, _]) = going_back();
    job.publish_everywhere(5, 3);
    let rewind = job.document().rewind();
    job.report(p0, damage(newest(&job)), 4).unwrap();
    assert_eq!((job.document().rewind(), job.document().checkpoints.len()), (rewind, 1));
    assert_eq!(job.front(), Step(5));
}

#[test]
fn a_pserver_that_waits_is_heard_by_the_next_master_too() {
    let (mut job, [_, p2]) = going_back();
    job.restart("m2", 3);
    job.report(p2, damage(newest(&job)), 4).unwrap();
    assert_eq!(origins(&job), [Some(1); 5]);
}

#[test]
fn a_checkpoint_that_is_demanded_before_anything_is_known_is_named_as_soon_as_it_can_be() {
    let mut job = waiting(2);
    job.demand_checkpoint();
    let pservers = [job.pserver("p0", 1, 0).unwrap(), job.pserver("p1", 1, 0).unwrap()];
    job.trainer("a", 1, 0).unwrap();
    assert_eq!(job.document().named, None);
    pservers.iter().for_each(|pserver| job.publish(*pserver, 0, 1));
    assert_eq!(job.document().named.map(|named| named.version), Some(Version(2)));
}

/// A job on two pservers, whose checkpoint is written but for its manifest, which storage is about to take.
fn committing(mode: Mode) -> (Job, CheckpointManifest) {
    let mut job = Job::new(JobSettings { mode, ..settings(64, 2, 8, 2) }, 2, 0);
    for name in ["p0", "p1"] {
        job.pserver(name, 1, 0).unwrap();
    }
    job.trainer("a", 1, 0).unwrap();
    job.publish_everywhere(0, 0);
    job.demand_checkpoint();
    let named = job.machine.decide(at(1)).unwrap();
    let version = named.named.unwrap().version;
    job.machine.adopt(named, at(1));
    let words: Vec<_> = job.pservers.live().map(|(who, _)| (who, job.word(who, version.0))).collect();
    words.into_iter().for_each(|(who, word)| job.hear(who, word, 1).unwrap());
    assert!(write_pieces(&mut job.machine));
    let manifest = job.machine.checkpoint_to_commit().unwrap();
    (job, manifest)
}

#[test]
fn a_manifest_that_was_given_out_before_the_job_went_back_does_not_count_in_either_mode() {
    let asynchronous = Mode::Async { staleness_window: 4, scale_by_staleness: false };
    for mode in [Mode::SYNC, asynchronous] {
        let (mut job, manifest) = committing(mode);
        // Storage takes its time; meanwhile a pserver is started again, and what it led goes back.
        job.machine.register("p1", "p1:7000", 2, 1, None, at(2)).unwrap();
        while let Some(next) = job.machine.decide(at(2)) {
            job.machine.adopt(next, at(2));
        }
        assert_eq!(job.document().rewinds, 1);
        let record = ManifestRecord { checkpoint: manifest.checkpoint, bytes: 1, crc32: 1 };
        job.machine.committed(record, &manifest, at(3));
        while let Some(next) = job.machine.decide(at(3)) {
            job.machine.adopt(next, at(3));
        }
        assert_eq!(job.document().checkpoints, [], "{mode:?}");
        assert_eq!(job.removable_checkpoints(), [manifest.checkpoint], "{mode:?}");
        assert!(job.document().named.is_none_or(|named| named.checkpoint > manifest.checkpoint));
    }
}

/// Whatever else was decided before it became durable, and is being written while it does: the next document has it. If what is being
/// written is that the job goes back, it never counts.
#[test]
fn a_manifest_that_is_durable_while_a_document_is_being_written_counts_with_the_next_or_never() {
    for goes_back in [false, true] {
        let (mut job, manifest) = committing(Mode::SYNC);
        match goes_back {
            true => drop(job.machine.register("p1", "p1:7000", 2, 1, None, at(2)).unwrap()),
            false => drop(job.machine.scale(Wanted { trainers: 7, ..job.wanted() })),
        }
        let being_written = job.machine.decide(at(2)).unwrap();
        let record = ManifestRecord { checkpoint: manifest.checkpoint, bytes: 1, crc32: 1 };
        job.machine.committed(record, &manifest, at(3));
        job.machine.adopt(being_written, at(4));
        while let Some(next) = job.machine.decide(at(4)) {
            job.machine.adopt(next, at(4));
        }
        let kept: Vec<_> = job.document().checkpoints.iter().map(|kept| kept.record).collect();
        let named = job.document().named.map(|named| named.checkpoint);
        match goes_back {
            false => assert_eq!((kept, named), (vec![record], None)),
            true => {
                assert!(
                    kept.is_empty() && named.is_none_or(|named| named > manifest.checkpoint),
                    "{named:?}"
                );
                assert_eq!(job.removable_checkpoints(), [manifest.checkpoint]);
            }
        }
    }
}

#[test]
fn a_checkpoint_that_is_demanded_is_named_again_when_it_has_to_be_abandoned() {
    let (mut job, [p0, _], _) = training();
    job.demand_checkpoint();
    job.settle(1);
    let first = job.document().named.unwrap().checkpoint;
    let passed = PserverWord { checkpoint: first.0, passed: vec![BlockId(0)], ..job.word(p0, 0) };
    job.report(p0, passed, 2).unwrap();
    let named = job.document().named.unwrap();
    assert_eq!((named.checkpoint.0, named.version), (first.0 + 1, Version(2)));
}

/// A file of the checkpoint under way, with the pieces of some blocks.
fn file(job: &Job, name: &str, is_in: impl Fn(u32) -> bool) -> PserverWord {
    let named = job.document().named.unwrap();
    let piece = |(at, block): (u32, &PlacedBlock)| PieceRef {
        block: BlockId(at),
        rewind: block.rewind,
        name: StateName { term: block.term, version: named.version },
        slots: WHOLE,
        is_delta: false,
        file: 0,
        offset: 1000 * (u64::from(at) + 1),
        bytes: 100,
        crc32: 0,
    };
    let pieces = (0..).zip(&job.document().blocks).filter(|(at, _)| is_in(*at)).map(piece).collect();
    let file = FileRecord { checkpoint: named.checkpoint, name: name.into(), bytes: 9000, crc32: 0 };
    let (checkpoint, written) = (named.checkpoint.0, vec![WrittenFile { file, pieces }]);
    PserverWord { checkpoint, written, ..PserverWord::default() }
}

/// A block with another primary has passed each version before: that primary says so of a piece that the one before has written.
#[test]
fn a_block_that_has_passed_a_checkpoint_abandons_it_only_where_it_lacks_its_piece() {
    let (mut job, [p0, p1], _) = training();
    job.demand_checkpoint();
    job.settle(1);
    let first = job.document().named.unwrap();
    let passes = |blocks: &[u32]| PserverWord {
        checkpoint: first.checkpoint.0,
        has_passed: true,
        passed: blocks.iter().copied().map(BlockId).collect(),
        ..PserverWord::default()
    };
    let all_but_the_last = file(&job, "pserver-1.1-1.blocks", |block| block < 4);
    job.report(p0, all_but_the_last, 2).unwrap();
    job.report(p1, passes(&[0, 3]), 3).unwrap();
    assert_eq!(job.document().named, Some(first));
    // The piece comes with the very word that it is passed.
    let last = PserverWord {
        written: file(&job, "pserver-1.2-1.blocks", |block| block == 4).written,
        ..passes(&[4])
    };
    job.hear(p1, last, 4).unwrap();
    assert!(job.machine.checkpoint_to_commit().is_some());

    let (mut job, [p0, p1], _) = training();
    job.demand_checkpoint();
    job.settle(1);
    let all_but_the_last = file(&job, "pserver-1.1-1.blocks", |block| block < 4);
    job.report(p0, all_but_the_last, 2).unwrap();
    job.report(p1, passes(&[3, 4]), 3).unwrap();
    assert_eq!(job.document().named.unwrap().checkpoint.0, first.checkpoint.0 + 1, "block 4 has no piece");
}

#[test]
fn a_pserver_of_an_older_build_does_not_say_which_block_has_passed_a_checkpoint_and_it_is_abandoned() {
    let (mut job, [p0, _], _) = training();
    job.demand_checkpoint();
    job.settle(1);
    let first = job.document().named.unwrap().checkpoint.0;
    job.report(p0, PserverWord { checkpoint: first, has_passed: true, ..PserverWord::default() }, 2).unwrap();
    assert_eq!(job.document().named.unwrap().checkpoint.0, first + 1);
}
