//! One bit is flipped, or the end is cut off, at every byte of a small checkpoint; an older file lies in the place of a
//! newer. Everybody is lost, and the job goes back to the checkpoint before, and says so.

use super::*;
use bytes::Bytes;
use shoal_runtime::host::store::Store;
use shoal_tests::sim::run::in_paused_time;
use std::collections::BTreeMap;

/// What a job leaves behind that was killed once it had two checkpoints.
struct Left {
    document: Bytes,
    objects: BTreeMap<String, Bytes>,
    /// The folders of the newest checkpoint and of the one before.
    newest: String,
    before: String,
}

fn two_checkpoints() -> Left {
    in_paused_time(async {
        let (place, store) = (Place::new(), MemoryStore::new());
        let (world, observer) = begin(scenario(), store.another(), &place);
        let newest = loop {
            let status = observer.status().await.unwrap_or_default();
            if status.checkpoint >= 2 && status.phase == "training" {
                break status.checkpoint;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        world.crash_all();
        let (_, document) = store.load().await.unwrap().unwrap();
        let folder = |number: u64| format!("checkpoint-{number:08}/");
        Left { document, objects: place.objects().await, newest: folder(newest), before: folder(newest - 1) }
    })
}

/// Goes on over what was left, changed. Returns the last status.
fn go_on(left: &Left, objects: BTreeMap<String, Bytes>, story: &str) -> proto::StatusReply {
    in_paused_time(async {
        let (place, store) = (Place::holding(objects), MemoryStore::new());
        store.swap(None, left.document.clone()).await.unwrap();
        let scenario = Scenario { pservers: 2, trainers: 1, ..scenario() };
        let (mut world, observer) = begin(scenario, store, &place);
        world.start_pserver("pserver-3");
        finished(world, &observer, story).await
    })
}

/// The job says that `file` is damaged, and that alone.
fn says_so(left: &Left, status: &proto::StatusReply, file: &str, story: &str) {
    let damaged: Vec<(String, &str)> = (status.damaged.iter())
        .map(|found| (format!("checkpoint-{:08}/", found.record.unwrap().checkpoint), found.file.as_str()))
        .collect();
    assert_eq!(damaged, [(left.newest.clone(), format!("memory/{file}").as_str())], "{story}");
}

/// Positions that are tried: all of a manifest, of a file's first and last bytes, and some between; with
/// `SHOAL_EVERY_BYTE=1` all.
fn positions(name: &str, bytes: usize) -> Vec<usize> {
    let stride = if std::env::var_os("SHOAL_EVERY_BYTE").is_some() { 1 } else { 37 };
    let is_tried =
        |at: &usize| name.ends_with("manifest") || *at < 70 || *at + 40 >= bytes || at.is_multiple_of(stride);
    (0..bytes).filter(is_tried).collect()
}

fn each_file(left: &Left, mut damage: impl FnMut(&str, &Bytes)) {
    let mut files = 0;
    for (name, content) in left.objects.iter().filter(|(name, _)| name.starts_with(&left.newest)) {
        damage(name, content);
        files += 1;
    }
    assert!(files >= 4, "three pservers and a manifest: {:?}", left.objects.keys());
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_the_checkpoint_before_is_used() {
    let left = two_checkpoints();
    each_file(&left, |name, content| {
        for at in positions(name, content.len()) {
            let mut bytes = content.to_vec();
            bytes[at] ^= 1 << (at % 8);
            let mut objects = left.objects.clone();
            objects.insert(name.to_owned(), bytes.into());
            let story = format!("bit {} of byte {at} of {name}", at % 8);
            says_so(&left, &go_on(&left, objects, &story), name, &story);
        }
    });
}

#[test]
fn a_file_cut_off_anywhere_or_gone_is_found_and_the_checkpoint_before_is_used() {
    let left = two_checkpoints();
    each_file(&left, |name, content| {
        for at in positions(name, content.len()) {
            let mut objects = left.objects.clone();
            objects.insert(name.to_owned(), content.slice(..at));
            let story = format!("{name} cut off at {at}");
            says_so(&left, &go_on(&left, objects, &story), name, &story);
        }
        let mut objects = left.objects.clone();
        objects.remove(name);
        let story = format!("{name} gone");
        says_so(&left, &go_on(&left, objects, &story), name, &story);
    });
}

#[test]
fn an_older_file_in_the_place_of_a_newer_is_found() {
    let left = two_checkpoints();
    let older: Vec<(&String, &Bytes)> =
        left.objects.iter().filter(|(name, _)| name.starts_with(&left.before)).collect();
    let newer: Vec<&String> = left.objects.keys().filter(|name| name.starts_with(&left.newest)).collect();
    let file = |name: &String| name.rsplit('/').next().unwrap().to_owned();
    let mut swapped = 0;
    for (old, content) in older {
        // Under the very same name where there is one, so that nothing but the content differs.
        for name in newer.iter().filter(|name| file(name) == file(old)) {
            let mut objects = left.objects.clone();
            objects.insert((*name).clone(), content.clone());
            let story = format!("{old} under the name of {name}");
            says_so(&left, &go_on(&left, objects, &story), name, &story);
            swapped += 1;
        }
    }
    assert!(swapped >= 4, "a manifest and three files");
}

#[test]
fn with_both_checkpoints_damaged_the_job_begins_at_its_initial_values() {
    let left = two_checkpoints();
    let objects: BTreeMap<String, Bytes> =
        left.objects.iter().map(|(name, content)| (name.clone(), content.slice(1..))).collect();
    let status = go_on(&left, objects, "all of it");
    assert_eq!(status.damaged.len(), 2, "{:?}", status.damaged);
}

#[test]
fn a_place_that_does_not_answer_is_waited_for_and_nothing_is_taken_for_damaged() {
    let left = two_checkpoints();
    in_paused_time(async {
        let (place, store) = (Place::holding(left.objects.clone()), MemoryStore::new());
        store.swap(None, left.document.clone()).await.unwrap();
        place.set_silent(true);
        let (world, observer) = begin(scenario(), store, &place);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let status = observer.status().await.unwrap();
        assert_eq!((status.phase.as_str(), status.damaged.len()), ("training", 0));
        let found = status.checkpoint;
        place.set_silent(false);
        let status = finished(world, &observer, "after a silence").await;
        assert!(status.damaged.is_empty() && status.checkpoint > found, "{status:?}");
    });
}
