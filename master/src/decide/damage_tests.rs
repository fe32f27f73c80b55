//! Decisions about checkpoints that turned out to be damaged.

use super::tests::World;
use super::*;
use shoal_runtime::cluster::{CheckpointId, ManifestRecord, Rewind, RewindCause};

fn record(number: u64) -> ManifestRecord {
    ManifestRecord { checkpoint: CheckpointId(number), bytes: 10, crc32: number as u32 }
}

/// Four blocks on two pservers, all of them to begin from checkpoint 2 of the two that are kept.
fn begun_from_two(is_sync: bool) -> World {
    let mut world = World::new(is_sync, 4, 2, 0);
    world.rest();
    let kept = |number| KeptCheckpoint {
        record: record(number),
        version: Version(number),
        rewind: Rewind(1),
        oldest: None,
    };
    world.document.checkpoints = vec![kept(1), kept(2)];
    world.document.blocks.iter_mut().for_each(|block| block.origin = Some(record(2)));
    world
}

/// The primaries of `blocks` say that checkpoint `number` is damaged.
fn say(world: &mut World, number: u64, blocks: &[u32]) {
    let checkpoint =
        DamagedCheckpoint { record: record(number), file: format!("file-{number}"), what: "torn".into() };
    let term = |block: &u32| (BlockId(*block), world.document.blocks[*block as usize].term);
    let blocks = blocks.iter().map(term).collect();
    world.damages.push(Damage { checkpoint, blocks });
}

fn origins(world: &World) -> Vec<Option<u64>> {
    world.document.blocks.iter().map(|block| block.origin.map(|origin| origin.checkpoint.0)).collect()
}

#[test]
fn a_synchronous_job_begins_anew_as_a_whole_from_the_checkpoint_before_and_then_from_the_initial_values() {
    let mut world = begun_from_two(true);
    let (before, rewinds) = (world.document.clone(), world.document.rewinds);
    say(&mut world, 2, &[3]);
    world.settle();
    assert_eq!(origins(&world), [Some(1); 4]);
    let after = &world.document;
    assert!(after.blocks.iter().zip(&before.blocks).all(|(after, before)| after.rewind > before.rewind));
    assert_eq!((after.checkpoints.len(), after.rewinds), (1, rewinds + 1));
    assert_eq!(after.rewind_causes.get(&RewindCause::CheckpointDamaged), Some(&1));
    assert_eq!(after.rewind_causes.values().sum::<u64>(), after.rewinds, "each has its cause");
    assert_eq!((after.damaged[0].record, after.damaged[0].file.as_str()), (record(2), "file-2"));
    say(&mut world, 1, &[0]);
    world.settle();
    assert_eq!(origins(&world), [None; 4]);
    assert_eq!((world.document.checkpoints.len(), world.document.damaged.len()), (0, 2));
}

#[test]
fn in_an_asynchronous_job_only_the_blocks_concerned_begin_anew() {
    let mut world = begun_from_two(false);
    let before = world.document.clone();
    say(&mut world, 2, &[1]);
    world.settle();
    assert_eq!(origins(&world), [Some(2), Some(1), Some(2), Some(2)]);
    for at in [0, 2, 3] {
        assert_eq!(world.document.blocks[at], before.blocks[at], "block {at} has begun already");
    }
    // Another one finds its piece damaged later, when the checkpoint is listed no more.
    say(&mut world, 2, &[3]);
    world.settle();
    assert_eq!(origins(&world), [Some(2), Some(1), Some(2), Some(1)]);
    assert_eq!(world.document.damaged.len(), 1, "it is named once");
}

#[test]
fn a_late_word_about_another_term_or_about_a_checkpoint_that_is_gone_changes_nothing() {
    for is_sync in [true, false] {
        let mut world = begun_from_two(is_sync);
        say(&mut world, 2, &[1]);
        let late = world.damages.clone();
        world.settle();
        let before = world.document.clone();
        world.damages = late;
        say(&mut world, 7, &[0]);
        assert_eq!(world.settle(), 0);
        assert_eq!(world.document, before);
    }
}

#[test]
fn a_damaged_checkpoint_that_no_block_waits_for_is_dropped_and_nobody_goes_back() {
    let mut world = begun_from_two(true);
    let before = world.document.clone();
    say(&mut world, 1, &[]);
    world.settle();
    assert_eq!(world.document.blocks, before.blocks);
    assert_eq!((world.document.rewinds, world.document.checkpoints.len()), (before.rewinds, 1));
}

#[test]
fn blocks_that_cannot_be_read_wait_for_no_pserver_that_is_still_to_come() {
    let mut world = begun_from_two(true);
    world.wishes.wanted.pservers = 3;
    say(&mut world, 2, &[0]);
    world.settle();
    assert_eq!(origins(&world), [Some(1); 4]);
}
