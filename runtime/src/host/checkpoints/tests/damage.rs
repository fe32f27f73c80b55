//! Every flipped bit, every missing byte and every exchanged file of a small checkpoint is found, by who verifies and by
//! who reads, and named.

use super::*;
use crate::cluster::BlockId;
use object_store::ObjectStoreExt;
use object_store::path::Path;

const MANIFEST: &str = "checkpoint-00000004/manifest";

async fn raw(store: &InMemory, object: &str) -> Bytes {
    store.get(&Path::from(object)).await.unwrap().bytes().await.unwrap()
}

/// Writes over an object, as a disk or a person does.
async fn exchange(store: &InMemory, object: &str, content: impl Into<Bytes>) {
    store.put(&Path::from(object), content.into().into()).await.unwrap();
}

pub(super) async fn flip(store: &InMemory, object: &str, bit: usize) {
    let mut content = raw(store, object).await.to_vec();
    content[bit / 8] ^= 1 << (bit % 8);
    exchange(store, object, content).await;
}

fn objects(manifest: &CheckpointManifest) -> Vec<String> {
    let files = manifest.files.iter().map(|file| file.object());
    files.chain([manifest.checkpoint.manifest_object()]).collect()
}

/// What a restore does: the manifest that is remembered, then every block.
async fn restore(storage: &Storage, record: &ManifestRecord) -> Result<Vec<BlockCopy>, StorageError> {
    let manifest = load(storage, record).await?;
    let mut copies = Vec::new();
    for block in 0..manifest.pieces.len() as u32 {
        copies.push(
            read_piece(storage, &manifest, &layout(&manifest), &manifest.pieces_of(BlockId(block))[0])
                .await?,
        );
    }
    Ok(copies)
}

/// Asserts that verification and a restore find a fault in `object`.
async fn is_found(storage: &Storage, record: &ManifestRecord, object: &str, what: &str) {
    let report = verify(storage, record).await.unwrap();
    let at = storage.at(object);
    assert!(report.faults.iter().any(|fault| fault.file == at), "verify: {object}: {what}: {report:?}");
    let error = restore(storage, record).await.expect_err(&format!("restore: {object}: {what}"));
    assert!(error.to_string().starts_with(&format!("{at}: ")), "{object}: {what}: {error}");
    assert_eq!(error.remedy(), Remedy::GiveUp, "{object}: {what}: {error}");
}

#[tokio::test]
async fn every_flipped_bit_of_every_file_is_found_and_its_file_named() {
    let (store, storage) = memory();
    let (record, manifest) = write(&storage, 4, 5).await.unwrap();
    let mut bits = 0;
    for object in objects(&manifest) {
        for bit in 0..raw(&store, &object).await.len() * 8 {
            flip(&store, &object, bit).await;
            is_found(&storage, &record, &object, &format!("bit {bit}")).await;
            flip(&store, &object, bit).await;
            bits += 1;
        }
    }
    assert!(bits > 3000, "{bits}");
    assert_eq!(verify(&storage, &record).await.unwrap().faults, []);
    restore(&storage, &record).await.unwrap();
}

#[tokio::test]
async fn every_cut_of_every_file_and_its_absence_are_found_and_listed_as_incomplete() {
    let (store, storage) = memory();
    let (record, manifest) = write(&storage, 4, 5).await.unwrap();
    for object in objects(&manifest) {
        let whole = raw(&store, &object).await;
        for length in 0..whole.len() {
            exchange(&store, &object, whole.slice(..length)).await;
            is_found(&storage, &record, &object, &format!("cut to {length}")).await;
            assert_eq!(listed(&storage).await, [(4, false)], "{object} cut to {length}");
        }
        storage.delete(&object).await.unwrap();
        is_found(&storage, &record, &object, "deleted").await;
        assert_eq!(listed(&storage).await, [(4, false)], "{object} deleted");
        exchange(&store, &object, whole).await;
    }
    assert_eq!(listed(&storage).await, [(4, true)]);
}

#[tokio::test]
async fn bytes_after_the_end_are_found_by_who_verifies() {
    let (store, storage) = memory();
    let (record, manifest) = write(&storage, 4, 5).await.unwrap();
    for object in objects(&manifest) {
        let whole = raw(&store, &object).await;
        exchange(&store, &object, [&whole[..], b"x"].concat()).await;
        assert_eq!(verify(&storage, &record).await.unwrap().faults.len(), 1, "{object}");
        assert_eq!(listed(&storage).await, [(4, false)], "{object}");
        exchange(&store, &object, whole).await;
    }
}

#[tokio::test]
async fn verification_names_every_fault_with_its_offset() {
    let (store, storage) = memory();
    let copies = [sample::copy(0, 5), sample::copy(1, 5)];
    let written = write_pieces(&storage, &sample::origin(4, 0), copies).await.unwrap();
    let manifest = sample::manifest(4, &[written]);
    let record = commit(&storage, &manifest).await.unwrap();
    let (object, file) = (manifest.files[0].object(), &manifest.files[0]);
    let trailer = trailer_range(file).start;
    let places = [0, manifest.pieces[0].offset + 8, manifest.pieces[1].offset, trailer];
    for place in places {
        flip(&store, &object, place as usize * 8).await;
    }
    let report = verify(&storage, &record).await.unwrap();
    assert_eq!(report.faults.iter().map(|fault| fault.offset).collect::<Vec<_>>(), places, "{report:?}");
    assert_eq!(report.pieces, 0);
    assert_eq!(report.faults[1].to_string().split(": ").nth(1), Some(&*format!("at offset {}", places[1])));
}

#[tokio::test]
async fn a_file_of_an_older_checkpoint_under_the_new_name_is_found() {
    let (store, storage) = memory();
    let (_, older) = write(&storage, 3, 5).await.unwrap();
    // The same state of the same blocks, so that nothing but the header tells them apart.
    let (record, newer) = write(&storage, 4, 5).await.unwrap();
    let (from, to) = (&objects(&older)[0], &objects(&newer)[0]);
    assert_eq!(raw(&store, from).await.len(), raw(&store, to).await.len());
    exchange(&store, to, raw(&store, from).await).await;
    is_found(&storage, &record, to, "the older file").await;
    let text = restore(&storage, &record).await.unwrap_err().to_string();
    assert!(text.contains("of checkpoint 3, not 4"), "{text}");
}

#[tokio::test]
async fn two_files_of_one_checkpoint_exchanged_are_found() {
    let (store, storage) = memory();
    let (record, manifest) = write(&storage, 4, 5).await.unwrap();
    let [first, second, _] = &objects(&manifest)[..] else { panic!() };
    let (a, b) = (raw(&store, first).await, raw(&store, second).await);
    exchange(&store, first, b).await;
    exchange(&store, second, a).await;
    is_found(&storage, &record, first, "exchanged").await;
    let text = restore(&storage, &record).await.unwrap_err().to_string();
    assert!(text.contains("it was written as pserver-1.3-1.blocks"), "{text}");
}

#[tokio::test]
async fn the_same_file_of_another_job_is_found() {
    let (store, storage) = memory();
    let (record, manifest) = write(&storage, 4, 5).await.unwrap();
    let (other_store, other) = memory();
    let mut origin = sample::origin(4, 0);
    origin.job.0 = "digits-2".into();
    write_pieces(&other, &origin, [sample::copy(0, 5)]).await.unwrap();
    let object = &objects(&manifest)[0];
    exchange(&store, object, raw(&other_store, object).await).await;
    is_found(&storage, &record, object, "of another job").await;
}

#[tokio::test]
async fn an_older_manifest_under_the_new_name_is_found_with_and_without_a_record() {
    let (store, storage) = memory();
    write(&storage, 3, 5).await.unwrap();
    let (record, _) = write(&storage, 4, 6).await.unwrap();
    exchange(&store, MANIFEST, raw(&store, "checkpoint-00000003/manifest").await).await;
    is_found(&storage, &record, MANIFEST, "the older manifest").await;
    let error = load_unrecorded(&storage, CheckpointId(4)).await.unwrap_err();
    assert!(error.to_string().contains("manifest of checkpoint 3"), "{error}");
    assert_eq!(listed(&storage).await, [(3, true), (4, false)]);
}

#[tokio::test]
async fn a_whole_older_checkpoint_under_the_new_name_is_found() {
    let (store, storage) = memory();
    let (_, older) = write(&storage, 3, 5).await.unwrap();
    let (record, newer) = write(&storage, 4, 6).await.unwrap();
    for (from, to) in objects(&older).iter().zip(objects(&newer)) {
        exchange(&store, &to, raw(&store, from).await).await;
    }
    is_found(&storage, &record, MANIFEST, "the older checkpoint").await;
}

#[tokio::test]
async fn a_checkpoint_of_the_same_number_from_another_history_is_found_by_its_record() {
    let (_, storage) = memory();
    let (record, _) = write(&storage, 4, 5).await.unwrap();
    remove(&storage, CheckpointId(4)).await.unwrap();
    let (other, _) = write(&storage, 4, 6).await.unwrap();
    assert_eq!(other.bytes, record.bytes);
    restore(&storage, &other).await.unwrap();
    is_found(&storage, &record, MANIFEST, "another history").await;
}

#[tokio::test]
async fn a_strangers_manifest_with_absurd_lengths_costs_no_memory() {
    let (store, storage) = memory();
    let (record, mut manifest) = write(&storage, 4, 5).await.unwrap();
    for (change, at) in [
        ((|m: &mut CheckpointManifest| m.files[0].bytes = u64::MAX) as fn(&mut _), "blocks"),
        (|m| (m.files[0].bytes, m.pieces[0].bytes) = (1 << 60, 64 << 20), "blocks"),
        (|m| (m.files[0].bytes, m.pieces[0].offset) = (1 << 60, 1 << 59), "blocks"),
        (|m| m.settings.job.0 = "j".repeat(1 << 20), "manifest"),
        (|m| m.declaration.parameters[0].shape = vec![1 << 40], "manifest"),
    ] {
        let before = manifest.clone();
        change(&mut manifest);
        let content = encode_manifest(&manifest).unwrap();
        let record = record_of(CheckpointId(4), &content);
        exchange(&store, MANIFEST, content).await;
        assert!(!verify(&storage, &record).await.unwrap().faults.is_empty());
        assert!(restore(&storage, &record).await.unwrap_err().to_string().contains(at));
        manifest = before;
    }
    // A record is believed no further than a manifest can be large.
    let huge = ManifestRecord { bytes: u64::MAX, ..record };
    assert!(load(&storage, &huge).await.is_err());
    exchange(&store, MANIFEST, vec![0; MANIFEST_BYTES_MAX as usize + 1]).await;
    assert!(load_unrecorded(&storage, CheckpointId(4)).await.unwrap_err().to_string().contains("at most"));
}

/// The bytes of an object as a build of another format would have begun it.
fn of_format(content: &[u8], format: u32, header: usize) -> Vec<u8> {
    let mut content = content.to_vec();
    content[8..12].copy_from_slice(&format.to_le_bytes());
    let checksum = crc32fast::hash(&content[..header - 4]);
    content[header - 4..header].copy_from_slice(&checksum.to_le_bytes());
    content
}

#[tokio::test]
async fn another_format_is_no_damage_and_is_refused_by_file_and_both_formats() {
    for format in [0u32, 4] {
        let (store, storage) = memory();
        let (record, manifest) = write(&storage, 4, 5).await.unwrap();
        let pieces = manifest.files[0].object();
        let header = header_range(&manifest).end as usize;
        exchange(&store, &pieces, of_format(&raw(&store, &pieces).await, format, header)).await;
        let in_pieces = restore(&storage, &record).await.unwrap_err();
        let mut content = raw(&store, MANIFEST).await.to_vec();
        content[8..12].copy_from_slice(&format.to_le_bytes());
        exchange(&store, MANIFEST, content.clone()).await;
        let in_manifest = restore(&storage, &record_of(CheckpointId(4), &content)).await.unwrap_err();
        for (error, object, newest) in [(in_pieces, pieces.as_str(), 3), (in_manifest, MANIFEST, 2)] {
            assert!(matches!(error, StorageError::OtherFormat { .. }), "{error}");
            let said = error.to_string();
            let words = [
                &storage.at(object),
                &format!("of format {format}"),
                &format!("reads formats 1 to {newest}"),
                "docs/versions.md",
            ];
            assert!(words.iter().all(|word| said.contains(*word)), "{said}");
        }
        let listed = list(&storage).await.unwrap();
        assert!(
            matches!(&listed[0].completeness, Completeness::Incomplete(why) if why.contains("of format")),
            "{listed:?}"
        );
        assert!(
            verify(&storage, &record_of(CheckpointId(4), &content)).await.unwrap().faults[0]
                .what
                .contains("of format")
        );
    }
}
