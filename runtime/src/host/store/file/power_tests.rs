//! Every point at which a process dies, the power goes or the disk refuses, and every state that the disk may then be in.

use super::document::{STATE, load, swap};
use super::forgetful::{Contents, DiskFault, ForgetfulDisk};
use crate::host::store::{Revision, StoreError};
use bytes::Bytes;
use std::io::ErrorKind;

type Document = Option<(Revision, Bytes)>;

const OLD: &[u8] = b"what was there before";
const NEW: &[u8] = b"what comes after it, and is longer";

/// An empty disk, a disk with a document, and both after a process died in the middle of writing the next one.
fn beginnings() -> Vec<(Contents, Document)> {
    let empty = Contents::default();
    let model = ForgetfulDisk::of(&empty, None);
    let revision = swap(&model, None, OLD).unwrap();
    let full = model.contents();
    let old = Some((revision, Bytes::from_static(OLD)));
    let littered = |before: &Contents, expected: Option<Revision>| {
        let model = ForgetfulDisk::of(before, Some((1, DiskFault::DiesHalfway)));
        swap(&model, expected, b"litter").unwrap_err();
        model.contents()
    };
    let (dirty, dirty_full) = (littered(&empty, None), littered(&full, Some(revision)));
    vec![(empty, None), (full, old.clone()), (dirty, None), (dirty_full, old)]
}

/// Swaps on a disk with a fault at each step in turn; gives each disk, each old document and what the swap answered.
fn with_each_fault(
    fault: DiskFault,
    mut judge: impl FnMut(&Contents, &Document, Result<Revision, StoreError>),
) {
    for (before, old) in beginnings() {
        for at in 0.. {
            let model = ForgetfulDisk::of(&before, Some((at, fault)));
            let swapped = swap(&model, old.as_ref().map(|(revision, _)| *revision), NEW);
            let has_failed = model.steps() > at;
            assert_eq!(swapped.is_err(), has_failed, "{fault:?} at step {at}: {swapped:?}");
            judge(&model.contents(), &old, swapped);
            if !has_failed {
                assert!(at >= 4, "the model does not see the steps");
                break;
            }
        }
    }
}

fn found(contents: &Contents) -> Document {
    load(&ForgetfulDisk::of(contents, None)).unwrap()
}

fn new_after(old: &Document) -> Document {
    Some((Revision(old.as_ref().map_or(1, |(revision, _)| revision.0 + 1)), Bytes::from_static(NEW)))
}

#[test]
fn a_swap_that_expects_another_revision_is_a_conflict_and_changes_nothing() {
    for (before, old) in beginnings() {
        let present = old.as_ref().map(|(revision, _)| *revision);
        let others = [None, Some(Revision(1)), Some(Revision(2))];
        for expected in others.into_iter().filter(|expected| *expected != present) {
            let model = ForgetfulDisk::of(&before, None);
            let swapped = swap(&model, expected, NEW);
            assert!(matches!(swapped, Err(StoreError::Conflict(_))), "{expected:?}: {swapped:?}");
            assert_eq!(found(&model.contents()), old);
        }
    }
}

#[test]
fn death_and_power_cuts_at_every_step_leave_the_old_or_the_new_document() {
    for fault in [DiskFault::Dies, DiskFault::DiesHalfway] {
        let (mut old_ones, mut new_ones) = (0, 0);
        with_each_fault(fault, |contents, old, swapped| {
            let new = new_after(old);
            let process_died = std::iter::once(contents.clone());
            for survivor in process_died.chain(contents.after_power_cut()) {
                let found = found(&survivor);
                assert!(found == *old || found == new, "{found:?} on {survivor:?}");
                assert!(swapped.is_err() || found == new, "acknowledged and gone: {survivor:?}");
                (old_ones, new_ones) =
                    (old_ones + u32::from(found == *old), new_ones + u32::from(found == new));
            }
        });
        assert!(old_ones > 0 && new_ones > 0, "the model does not see both");
    }
}

#[test]
fn what_a_load_returned_survives_a_power_cut_though_its_writer_died() {
    with_each_fault(DiskFault::Dies, |contents, _, _| {
        let model = ForgetfulDisk::of(contents, None);
        let loaded = load(&model).unwrap();
        for survivor in model.contents().after_power_cut() {
            assert_eq!(found(&survivor), loaded);
        }
    });
}

#[test]
fn a_full_or_failing_disk_is_told_with_a_way_out_and_the_swap_can_be_made_when_it_is_mended() {
    for kind in [ErrorKind::StorageFull, ErrorKind::PermissionDenied, ErrorKind::Other] {
        with_each_fault(DiskFault::Refuses(kind), |contents, old, swapped| {
            let is_told = |what: &str| match kind {
                ErrorKind::StorageFull => what.contains("make room"),
                ErrorKind::PermissionDenied => what.contains("write there"),
                _ => what.contains("still there"),
            };
            match &swapped {
                Err(StoreError::Broken(what)) => assert!(is_told(what), "{what}"),
                other => assert!(other.is_ok(), "{other:?}"),
            }
            for survivor in contents.after_power_cut() {
                let found = found(&survivor);
                assert!(found == *old || found == new_after(old), "{found:?}");
            }
            let mended = ForgetfulDisk::of(contents, None);
            let revision = load(&mended).unwrap().map(|(revision, _)| revision);
            swap(&mended, revision, NEW).unwrap();
            assert_eq!(load(&mended).unwrap().unwrap().1, NEW);
        });
    }
}

#[test]
fn a_damaged_document_is_an_error_and_is_not_overwritten() {
    for (before, old) in beginnings() {
        let Some((revision, _)) = old else { continue };
        let inode = before.names[STATE];
        for at in 0..before.inodes[inode].written.len() {
            let mut damaged = before.clone();
            damaged.inodes[inode].written[at] ^= 4;
            let model = ForgetfulDisk::of(&damaged, None);
            for error in [load(&model).unwrap_err(), swap(&model, Some(revision), NEW).unwrap_err()] {
                assert!(matches!(&error, StoreError::Broken(what) if what.contains(STATE)), "{error}");
            }
            assert_eq!(model.contents().inodes[inode].written, damaged.inodes[inode].written);
        }
    }
}
