//! Restores from checkpoints in memory and in paused time: sound ones and damaged ones. Places that do
//! not answer are met in the simulation (`tests/tests/checkpoints.rs`).

use super::*;
use crate::block::Placement;
use crate::block::tests::{ME, alone, async_job, declaration, job};
use crate::report::tests::{after, memory};
use crate::shard::tests::{assigned, host};
use shoal_runtime::cluster::checkpoint::Origin;
use shoal_runtime::cluster::{CheckpointId, JobSettings, Version};
use shoal_runtime::host::checkpoints::{commit, write_pieces};

/// Writes a checkpoint of a job that has just begun, a file for each block.
async fn written(storage: &Storage, job: &JobSettings) -> ManifestRecord {
    let shard = Shard::new(job.clone(), 16, ME);
    host(&shard, assigned(1, 3, [(0, alone(3)), (1, alone(3))]));
    let mut files = Vec::new();
    for (sequence, copy) in (0..).zip(shard.read_state(Version(0), &[BlockId(0), BlockId(1)]).unwrap()) {
        let origin = Origin { job: job.job.clone(), checkpoint: CheckpointId(1), writer: ME, sequence };
        files.push(write_pieces(storage, &origin, [copy.into()]).await.unwrap());
    }
    let cut = None;
    let manifest =
        CheckpointManifest::assemble(job.clone(), declaration(), CheckpointId(1), cut, files).unwrap();
    commit(storage, &manifest).await.unwrap()
}

fn from(record: ManifestRecord, term: u64) -> Placement {
    Placement { origin: Some(record), ..alone(term) }
}

/// A pserver that is to restore both blocks from `record`, and does for two seconds.
async fn restored(job: JobSettings, storage: &Storage, record: ManifestRecord) -> Shard {
    let shard = Shard::new(job, 16, ME);
    shard.assign(assigned(1, 5, [(0, from(record, 5)), (1, from(record, 5))])).unwrap();
    for_two_seconds(&shard, storage).await;
    shard
}

async fn for_two_seconds(shard: &Shard, storage: &Storage) {
    let mut random = Random::seeded(1);
    tokio::select! {
        refusal = restore(shard, storage, &mut random) => panic!("{refusal}"),
        () = after(2000) => {}
    }
}

async fn delete(storage: &Storage, sequence: u64) {
    storage.delete(&format!("{}/pserver-{ME}-{sequence}.blocks", CheckpointId(1).folder())).await.unwrap();
}

fn lacking(shard: &Shard) -> Vec<u32> {
    shard.unrestored().unwrap().iter().map(|(hosted, ..)| hosted.shape.id.0).collect()
}

#[tokio::test(start_paused = true)]
async fn a_sound_checkpoint_is_restored_and_nothing_is_said_of_damage() {
    let storage = memory();
    let record = written(&storage, &job(5, 2)).await;
    let shard = restored(job(5, 2), &storage, record).await;
    assert_eq!((lacking(&shard), shard.damage().unwrap()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_is_not_the_one_committed_is_damage_and_is_named() {
    let storage = memory();
    let record = written(&storage, &job(5, 2)).await;
    let other = ManifestRecord { crc32: record.crc32 ^ 1, ..record };
    let shard = restored(job(5, 2), &storage, other).await;
    let damage = shard.damage().unwrap();
    assert_eq!((lacking(&shard), damage.len(), damage[0].record), (vec![0, 1], 1, other));
    assert!(damage[0].file.ends_with("checkpoint-00000001/manifest"), "{damage:?}");
    assert!(damage[0].what.contains("checksum"), "{damage:?}");
}

#[tokio::test(start_paused = true)]
async fn one_missing_file_holds_a_synchronous_job_back_and_the_other_blocks_of_an_asynchronous_one_begin() {
    for (job, left) in [(job(5, 2), vec![0, 1]), (async_job(5, 2, false), vec![0])] {
        let storage = memory();
        let record = written(&storage, &job).await;
        delete(&storage, 0).await;
        let shard = restored(job, &storage, record).await;
        let damage = shard.damage().unwrap();
        assert_eq!(lacking(&shard), left);
        assert!(damage[0].file.ends_with("-0.blocks") && damage[0].what.contains("not there"), "{damage:?}");
        assert!(shard.checkpointing().trouble.is_empty(), "nothing that may pass");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_said_until_another_origin_is_given_and_then_no_more() {
    let storage = memory();
    let record = written(&storage, &job(5, 2)).await;
    delete(&storage, 0).await;
    let shard = restored(job(5, 2), &storage, record).await;
    assert_eq!(shard.damage().unwrap().len(), 1);
    shard.assign(assigned(1, 6, [(0, alone(6)), (1, alone(6))])).unwrap();
    assert_eq!(shard.damage().unwrap(), []);
    for_two_seconds(&shard, &storage).await;
    assert!(lacking(&shard).is_empty());
}
