//! Restores from checkpoints in memory and in paused time, sound ones and damaged ones, and from files. Places that do
//! not answer are met in the simulation (`tests/tests/sim/checkpoints`).

use super::*;
use crate::block::Placement;
use crate::block::tests::{ME, alone, async_job, declaration, job};
use crate::hosting::Assignment;
use crate::report::tests::{after, memory};
use crate::shard::tests::{assigned, empty, host};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use safetensors::tensor::{Dtype, TensorView, serialize};
use shoal_runtime::cluster::block_copy::decode_rows;
use shoal_runtime::cluster::checkpoint::Origin;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{CheckpointId, Declaration, JobSettings, Parameter, Rule, Table, Version};
use shoal_runtime::host::checkpoints::{commit, write_pieces};
use shoal_runtime::host::warm_start::pin;

/// Writes a checkpoint of a job that has just begun, a file for each block.
async fn written(storage: &Storage, job: &JobSettings) -> ManifestRecord {
    written_as(storage, job, |_| {}).await
}

/// Writes a checkpoint as a faulty writer does: `alter` changes each block's copy.
async fn written_as(storage: &Storage, job: &JobSettings, alter: impl Fn(&mut BlockCopy)) -> ManifestRecord {
    let shard = empty(job.clone(), 16, ME);
    host(&shard, assigned(1, 3, [(0, alone(3)), (1, alone(3))]));
    let mut files = Vec::new();
    for (sequence, mut copy) in (0..).zip(shard.read_state(Version(0), &[BlockId(0), BlockId(1)], 0).unwrap())
    {
        alter(&mut copy);
        let origin = Origin { job: job.job.clone(), checkpoint: CheckpointId(1), writer: ME, sequence };
        files.push(write_pieces(storage, &origin, [copy.into()]).await.unwrap());
    }
    let cut = None;
    let manifest =
        CheckpointManifest::assemble(job.clone(), declaration(), CheckpointId(1), cut, files).unwrap();
    commit(storage, &manifest).await.unwrap()
}

/// Makes a file of pieces one of that format. Its checksum stays: a header has one of its own at its end.
async fn as_of_format(storage: &Storage, sequence: u64, format: u32) {
    let name = format!("{}/pserver-{ME}-{sequence}.blocks", CheckpointId(1).folder());
    let mut file = storage.read(&name, 1 << 20).await.unwrap().to_vec();
    let crc = 16 + u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize + 24;
    file[8..12].copy_from_slice(&format.to_le_bytes());
    let crc32 = crc32fast::hash(&file[..crc]);
    file[crc..crc + 4].copy_from_slice(&crc32.to_le_bytes());
    storage.delete(&name).await.unwrap();
    storage.put(&name, file.into()).await.unwrap();
}

/// Writes a checkpoint of a job that has counted to `counted`, as builds did that kept no remainders.
async fn written_without_remainders(storage: &Storage, job: &JobSettings, counted: f32) -> ManifestRecord {
    let shard = empty(job.clone(), 16, ME);
    host(&shard, assigned(1, 3, [(0, alone(3)), (1, alone(3))]));
    let mut files = Vec::new();
    for (sequence, mut copy) in (0..).zip(shard.read_state(Version(0), &[BlockId(0), BlockId(1)], 0).unwrap())
    {
        if copy.block == BlockId(1) {
            copy.parameters = counted.to_le_bytes().to_vec().into();
            copy.slots.clear();
        }
        let origin = Origin { job: job.job.clone(), checkpoint: CheckpointId(1), writer: ME, sequence };
        files.push(write_pieces(storage, &origin, [copy.into()]).await.unwrap());
        as_of_format(storage, sequence, 2).await;
    }
    let manifest =
        CheckpointManifest::assemble(job.clone(), declaration(), CheckpointId(1), None, files).unwrap();
    commit(storage, &manifest).await.unwrap()
}

fn from(record: ManifestRecord, term: u64) -> Placement {
    Placement { origin: Some(record), ..alone(term) }
}

/// A pserver that is to restore both blocks from `record`, and does for two seconds.
async fn restored(job: JobSettings, storage: &Storage, record: ManifestRecord) -> Arc<Shard> {
    let shard = empty(job, 16, ME);
    shard.assign_now(assigned(1, 5, [(0, from(record, 5)), (1, from(record, 5))])).unwrap();
    for_two_seconds(&shard, storage).await;
    shard
}

async fn for_two_seconds(shard: &Arc<Shard>, storage: &Storage) {
    let mut random = Random::seeded(1);
    tokio::select! {
        refusal = restore(shard, storage, &mut random) => panic!("{refusal}"),
        () = after(2000) => {}
    }
}

async fn delete(storage: &Storage, sequence: u64) {
    storage.delete(&format!("{}/pserver-{ME}-{sequence}.blocks", CheckpointId(1).folder())).await.unwrap();
}

fn lacking(shard: &Arc<Shard>) -> Vec<u32> {
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
async fn a_counter_of_a_checkpoint_from_before_remainders_goes_on_from_its_value() {
    let (storage, counted) = (memory(), 536_870_912.0);
    let record = written_without_remainders(&storage, &job(5, 2), counted).await;
    let shard = restored(job(5, 2), &storage, record).await;
    assert_eq!((lacking(&shard), shard.damage().unwrap()), (vec![], vec![]));
    let loss = &shard.read_state(Version(0), &[BlockId(1)], 0).unwrap()[0];
    assert_eq!(
        (&loss.parameters[..], &loss.slots[..]),
        (&counted.to_le_bytes()[..], &[vec![0; 4].into()][..])
    );
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

/// The pserver ended, the next read the same, and the checkpoint was never dropped.
#[tokio::test(start_paused = true)]
async fn a_piece_that_is_whole_and_cannot_be_taken_is_damage_and_is_named() {
    let storage = memory();
    let cut = |copy: &mut BlockCopy| {
        let bytes = if copy.block == BlockId(0) { copy.parameters.len() - 4 } else { copy.parameters.len() };
        copy.parameters.truncate(bytes);
    };
    let record = written_as(&storage, &job(5, 2), cut).await;
    let shard = restored(job(5, 2), &storage, record).await;
    let damage = shard.damage().unwrap();
    assert_eq!((lacking(&shard), damage.len(), damage[0].record), (vec![0, 1], 1, record));
    assert!(damage[0].file.ends_with("-0.blocks"), "{damage:?}");
    assert!(damage[0].what.contains("20 bytes of parameters came"), "{damage:?}");
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
        assert_eq!(shard.waits().report(), [], "nothing that may pass");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_said_until_another_origin_is_given_and_then_no_more() {
    let storage = memory();
    let record = written(&storage, &job(5, 2)).await;
    delete(&storage, 0).await;
    let shard = restored(job(5, 2), &storage, record).await;
    assert_eq!(shard.damage().unwrap().len(), 1);
    shard.assign_now(assigned(1, 6, [(0, alone(6)), (1, alone(6))])).unwrap();
    assert_eq!(shard.damage().unwrap(), []);
    for_two_seconds(&shard, &storage).await;
    assert!(lacking(&shard).is_empty());
}

/// A store of which every answer takes a tenth of a second: one block after the other would take seven of them.
#[tokio::test(start_paused = true)]
async fn blocks_of_a_checkpoint_are_read_several_at_a_time() {
    let here = Arc::new(InMemory::new());
    let slow = ThrottleConfig { wait_get_per_call: Duration::from_millis(100), ..ThrottleConfig::default() };
    let far = Storage::over(Arc::new(ThrottledStore::new(Arc::clone(&here), slow)), "far");
    let zeros = Parameter::new("w", &[70 * 64], Rule::ADAM, Schedule::constant(0.1), Initial::Zeros);
    let declaration = Declaration { parameters: vec![zeros], block_elements: 64 };
    let all = |origin, term| {
        let placement = Placement { origin, ..alone(term) };
        let blocks = (0..70).map(move |block| (block, placement.clone()));
        Assignment { declaration: declaration.clone(), ..assigned(1, term, blocks) }
    };
    let job = job(5, 2);
    let shard = empty(job.clone(), 16, ME);
    host(&shard, all(None, 3));
    let blocks: Vec<BlockId> = (0..70).map(BlockId).collect();
    let copies = shard.read_state(Version(0), &blocks, 0).unwrap().into_iter().map(Into::into);
    let origin = Origin { job: job.job.clone(), checkpoint: CheckpointId(1), writer: ME, sequence: 0 };
    let storage = Storage::over(here, "here");
    let files = vec![write_pieces(&storage, &origin, copies.collect::<Vec<_>>()).await.unwrap()];
    let manifest =
        CheckpointManifest::assemble(job.clone(), declaration.clone(), CheckpointId(1), None, files).unwrap();
    let record = commit(&storage, &manifest).await.unwrap();
    let shard = empty(job, 16, ME);
    shard.assign_now(all(Some(record), 5)).unwrap();
    for_two_seconds(&shard, &far).await;
    assert_eq!(lacking(&shard), Vec::<u32>::new());
}

/// The job of all tests, beginning at a file of these tensors.
async fn beginning_at(folder: &tempfile::TempDir, tensors: &[(&str, &[f32])]) -> JobSettings {
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let all: Vec<Vec<u8>> = tensors.iter().map(|(_, values)| bytes(values)).collect();
    let views = tensors.iter().zip(&all).map(|((name, values), bytes)| {
        (*name, TensorView::new(Dtype::F32, vec![values.len()], bytes).unwrap())
    });
    std::fs::write(folder.path().join("m"), serialize(views, None).unwrap()).unwrap();
    let place = folder.path().display().to_string();
    JobSettings { warm_start: Some(pin(&place, "m").await.unwrap()), ..job(5, 2) }
}

/// A pserver that is to begin both blocks, and tries for two seconds.
async fn begun(job: JobSettings) -> Arc<Shard> {
    let shard = empty(job, 16, ME);
    shard.assign_now(assigned(1, 3, [(0, alone(3)), (1, alone(3))])).unwrap();
    for_two_seconds(&shard, &memory()).await;
    shard
}

#[tokio::test(start_paused = true)]
async fn parameters_begin_at_the_file_and_what_it_lacks_at_its_initial_values() {
    let folder = tempfile::tempdir().unwrap();
    // A metric of this name counts another job.
    let tensors: [(&str, &[f32]); 3] = [("heavy", &[3.5, -1.25]), ("loss", &[9.0]), ("strange", &[1.0; 9])];
    let job = beginning_at(&folder, &tensors).await;
    let cold = begun(JobSettings { warm_start: None, ..job.clone() }).await;
    let warm = begun(job).await;
    let parameters = |shard: &Arc<Shard>, block| {
        let copies = shard.read_state(Version(0), &[BlockId(block)], 0).unwrap();
        (bytemuck::pod_collect_to_vec::<u8, f32>(&copies[0].parameters), copies[0].slots.clone())
    };
    let ((cold, cold_slots), (warm_values, warm_slots)) = (parameters(&cold, 0), parameters(&warm, 0));
    assert_eq!(warm_values, [cold[0], cold[1], 3.5, -1.25, cold[4], cold[5]]);
    assert_eq!(cold_slots, warm_slots, "slots begin at zero");
    assert_eq!(parameters(&warm, 1).0, [0.0]);
    assert_eq!(warm.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn a_parameter_of_several_blocks_begins_at_the_file_on_one_and_on_three_pservers() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..200).map(|element| element as f32 - 0.5).collect();
    let job = beginning_at(&folder, &[("before", &[7.0; 3]), ("w", &values)]).await;
    let zeros = Parameter::new("w", &[200], Rule::ADAM, Schedule::constant(0.1), Initial::Zeros);
    let declaration = Declaration { parameters: vec![zeros], block_elements: 64 };
    for pservers in [1, 3] {
        let mut found = vec![0.0; 200];
        for pserver in 0..pservers {
            let shard = empty(job.clone(), 16, ME);
            let own = (0..4).filter(|block| block % pservers == pserver).map(|block| (block, alone(3)));
            shard.assign_now(Assignment { declaration: declaration.clone(), ..assigned(1, 3, own) }).unwrap();
            for_two_seconds(&shard, &memory()).await;
            for block in (0..4).filter(|block| block % pservers == pserver) {
                let copy = shard.read_state(Version(0), &[BlockId(block)], 0).unwrap().remove(0);
                let values = bytemuck::pod_collect_to_vec::<u8, f32>(&copy.parameters);
                found[64 * block as usize..][..values.len()].copy_from_slice(&values);
            }
        }
        assert_eq!(found, values, "{pservers} pservers");
    }
}

/// A table of 8 buckets, and a job that begins it at a file of rows with these keys: 0.0 and 1.0, 2.0 and 3.0, and so on.
async fn beginning_at_rows(folder: &tempfile::TempDir, keys: &[u64]) -> (Declaration, JobSettings) {
    let values: Vec<f32> = (0..2 * keys.len()).map(|value| value as f32).collect();
    let keys_bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    let views = [
        ("t.keys", TensorView::new(Dtype::U64, vec![keys.len()], &keys_bytes).unwrap()),
        ("t", TensorView::new(Dtype::F32, vec![keys.len(), 2], bytemuck::cast_slice(&values)).unwrap()),
    ];
    std::fs::write(folder.path().join("m"), serialize(views, None).unwrap()).unwrap();
    let warm_start = Some(pin(&folder.path().display().to_string(), "m").await.unwrap());
    let rule = Rule::Adagrad { epsilon: 1e-3 };
    let row = Parameter::new("t", &[2], rule, Schedule::constant(0.1), Initial::Zeros);
    let table = row.as_table(Table { buckets: 8, ..Table::default() });
    let declaration = Declaration { parameters: vec![table], block_elements: 0 };
    (declaration, JobSettings { warm_start, ..job(8, 2) })
}

#[tokio::test(start_paused = true)]
async fn rows_out_of_order_fail_the_job_and_no_bucket_begins() {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<u64> = (0..50).chain([3]).collect();
    let (declaration, job) = beginning_at_rows(&folder, &keys).await;
    let shard = empty(job, 16, ME);
    let all = (0..8).map(|block| (block, alone(3)));
    shard.assign_now(Assignment { declaration, ..assigned(1, 3, all) }).unwrap();
    for_two_seconds(&shard, &memory()).await;
    let failure = shard.failure().unwrap();
    assert!(failure.contains("key 3 of row 50 does not follow the one before"), "{failure}");
    assert_eq!(lacking(&shard), (0..8).collect::<Vec<u32>>());
}

#[tokio::test(start_paused = true)]
async fn buckets_begin_at_the_rows_of_the_file_on_one_and_on_three_pservers() {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<u64> = (0..50).map(|key| key * key).collect();
    let values: Vec<f32> = (0..100).map(|value| value as f32).collect();
    let (declaration, job) = beginning_at_rows(&folder, &keys).await;
    for pservers in [1, 3] {
        let mut found = Vec::new();
        for pserver in 0..pservers {
            let shard = empty(job.clone(), 16, ME);
            let own = (0..8).filter(|block| block % pservers == pserver).map(|block| (block, alone(3)));
            shard.assign_now(Assignment { declaration: declaration.clone(), ..assigned(1, 3, own) }).unwrap();
            for_two_seconds(&shard, &memory()).await;
            assert_eq!(shard.failure(), None);
            for block in (0..8).filter(|block| block % pservers == pserver) {
                let copy = shard.read_state(Version(0), &[BlockId(block)], 0).unwrap().remove(0);
                for row in decode_rows(&copy.parameters, 4).unwrap() {
                    let values: Vec<f32> = row.values.iter().map(|word| f32::from_le_bytes(*word)).collect();
                    found.push((row.key, row.last, row.occurrences, values));
                }
            }
        }
        found.sort_by_key(|row| row.0);
        let expected = keys.iter().zip(values.chunks(2));
        let expected = expected.map(|(key, row)| (*key, 0, 1, vec![row[0], row[1], 0.0, 0.0]));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{pservers} pservers");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_does_not_fit_fails_the_job_and_no_block_begins() {
    let folder = tempfile::tempdir().unwrap();
    let shape = begun(beginning_at(&folder, &[("heavy", &[1.0; 3])]).await).await;
    let why = shape.failure().unwrap();
    assert!(
        why.contains("--warm-start") && why.contains("/m: parameter \"heavy\"") && why.contains("[3]"),
        "{why}"
    );
    assert_eq!(lacking(&shape), [0, 1]);
    let nothing = begun(beginning_at(&folder, &[("strange", &[1.0; 3])]).await).await;
    let why = nothing.failure().unwrap();
    assert!(why.contains("none of the declared parameters") && why.contains("strange"), "{why}");
    assert_eq!(lacking(&nothing), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_gone_or_another_fails_the_job_and_no_block_begins() {
    let folder = tempfile::tempdir().unwrap();
    let pinned = beginning_at(&folder, &[("heavy", &[1.0; 2])]).await;
    beginning_at(&folder, &[("plain", &[1.0; 2])]).await;
    let other = begun(pinned.clone()).await;
    assert!(other.failure().unwrap().contains("another file"), "{:?}", other.failure());
    std::fs::remove_file(folder.path().join("m")).unwrap();
    let gone = begun(pinned).await;
    assert!(gone.failure().unwrap().contains("nothing is there"), "{:?}", gone.failure());
    assert_eq!((lacking(&other), lacking(&gone)), (vec![0, 1], vec![0, 1]));
}

/// Dropping it would cost the job a sound checkpoint.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_another_format_ends_the_pserver_and_is_not_reported_as_damaged() {
    let storage = memory();
    let record = written(&storage, &job(5, 2)).await;
    let object = CheckpointId(1).manifest_object();
    let mut content = storage.read(&object, record.bytes).await.unwrap().to_vec();
    content[8..12].copy_from_slice(&3u32.to_le_bytes());
    let other = ManifestRecord { crc32: crc32fast::hash(&content), ..record };
    storage.delete(&object).await.unwrap();
    storage.put(&object, content.into()).await.unwrap();
    let shard = empty(job(5, 2), 16, ME);
    shard.assign_now(assigned(1, 5, [(0, from(other, 5)), (1, from(other, 5))])).unwrap();
    let mut random = Random::seeded(1);
    let refusal =
        tokio::time::timeout(Duration::from_secs(1), restore(&shard, &storage, &mut random)).await.unwrap();
    assert_eq!(refusal.kind, RefusalKind::OtherVersion);
    assert!(refusal.to_string().contains("manifest: a checkpoint's manifest of format 3"), "{refusal}");
    assert_eq!((lacking(&shard), shard.damage().unwrap(), shard.failure()), (vec![0, 1], vec![], None));
}
