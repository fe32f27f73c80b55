//! Tests with a model of a disk that forgets: every point at which a process dies, the power goes or the disk refuses,
//! and every state the disk may then be in. It must never be kinder than a real disk.

use super::disk::Disk;
use super::document::{STATE, load, swap};
use crate::host::store::{Revision, StoreError};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;

type Names = BTreeMap<String, usize>;

#[derive(Clone, Debug, Default)]
struct Inode {
    written: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(String, usize),
    Rename(String, String, usize),
}

#[derive(Clone, Debug, Default)]
struct Contents {
    inodes: Vec<Inode>,
    names: Names,
    synced_names: Names,
    /// Since the folder was synced last.
    unsynced: Vec<NameChange>,
}

/// What happens at the step at which the disk fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing of the step is done, and no later step succeeds.
    Dies,
    /// Half of what the step writes is done, and no later step succeeds.
    DiesHalfway,
    /// This one step fails, with an error of this kind.
    Refuses(ErrorKind),
}

#[derive(Debug, Default)]
struct Model {
    contents: RefCell<Contents>,
    steps: Cell<usize>,
    fault: Option<(usize, Fault)>,
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Set(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            NameChange::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
        }
    }
}

impl Contents {
    /// Every state that a power cut may leave: any of the unsynced names, and of each file the synced bytes, what was
    /// written since, the first half of it, or as many zeros.
    fn after_power_cut(&self) -> Vec<Contents> {
        let mut all = Vec::new();
        for kept in 0..1_usize << self.unsynced.len() {
            let mut names = self.synced_names.clone();
            for (at, change) in self.unsynced.iter().enumerate() {
                if kept >> at & 1 == 1 {
                    change.apply(&mut names);
                }
            }
            for choice in 0..4_usize.pow(self.inodes.len() as u32) {
                let survivors = self.inodes.iter().enumerate().map(|(at, inode)| {
                    let bytes = match choice / 4_usize.pow(at as u32) % 4 {
                        0 => inode.synced.clone(),
                        _ if inode.synced == inode.written => inode.synced.clone(),
                        1 => inode.written.clone(),
                        2 => inode.written[..inode.written.len() / 2].to_vec(),
                        _ => vec![0; inode.written.len()],
                    };
                    Inode { synced: bytes.clone(), written: bytes }
                });
                let inodes = survivors.collect();
                let synced_names = names.clone();
                all.push(Contents { inodes, names: names.clone(), synced_names, unsynced: Vec::new() });
            }
        }
        all
    }
}

impl Model {
    fn of(contents: &Contents, fault: Option<(usize, Fault)>) -> Model {
        Model { contents: RefCell::new(contents.clone()), steps: Cell::new(0), fault }
    }
    /// Counts a step that changes something; an error if it fails, with how much of it is still done.
    fn step(&self, size: usize) -> std::result::Result<(), (usize, Error)> {
        let step = self.steps.replace(self.steps.get() + 1);
        match self.fault {
            Some((at, Fault::Refuses(kind))) if step == at => Err((0, Error::new(kind, "refused"))),
            Some((at, Fault::DiesHalfway)) if step == at => Err((size / 2, Error::other("dead"))),
            Some((at, Fault::Dies)) if step == at => Err((0, Error::other("dead"))),
            Some((at, Fault::Dies | Fault::DiesHalfway)) if step > at => Err((0, Error::other("dead"))),
            _ => Ok(()),
        }
    }
    fn inode(&self, name: &str) -> Result<usize> {
        self.contents.borrow().names.get(name).copied().ok_or_else(|| Error::new(ErrorKind::NotFound, "none"))
    }
    fn change_name(&self, change: NameChange) {
        let mut contents = self.contents.borrow_mut();
        change.apply(&mut contents.names);
        contents.unsynced.push(change);
    }
}

impl Disk for Model {
    type File = usize;

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
    fn read(&self, name: &str) -> Result<Vec<u8>> {
        Ok(self.contents.borrow().inodes[self.inode(name)?].written.clone())
    }
    fn create(&self, name: &str) -> Result<usize> {
        self.step(0).map_err(|(_, error)| error)?;
        if let Ok(inode) = self.inode(name) {
            self.contents.borrow_mut().inodes[inode].written.clear();
            return Ok(inode);
        }
        let inode = self.contents.borrow().inodes.len();
        self.contents.borrow_mut().inodes.push(Inode::default());
        self.change_name(NameChange::Set(name.to_owned(), inode));
        Ok(inode)
    }
    fn write(&self, inode: &mut usize, bytes: &[u8]) -> Result<()> {
        let stepped = self.step(bytes.len());
        let done = stepped.as_ref().map_or_else(|(done, _)| *done, |()| bytes.len());
        self.contents.borrow_mut().inodes[*inode].written.extend_from_slice(&bytes[..done]);
        stepped.map_err(|(_, error)| error)
    }
    fn sync(&self, inode: &usize) -> Result<()> {
        self.step(0).map_err(|(_, error)| error)?;
        let inode = &mut self.contents.borrow_mut().inodes[*inode];
        inode.synced = inode.written.clone();
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.step(0).map_err(|(_, error)| error)?;
        let inode = self.inode(from)?;
        self.change_name(NameChange::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }
    fn sync_folder(&self) -> Result<()> {
        self.step(0).map_err(|(_, error)| error)?;
        let contents = &mut *self.contents.borrow_mut();
        contents.synced_names = contents.names.clone();
        contents.unsynced.clear();
        Ok(())
    }
}

type Document = Option<(Revision, Bytes)>;

const OLD: &[u8] = b"what was there before";
const NEW: &[u8] = b"what comes after it, and is longer";

/// An empty disk, a disk with a document, and both after a process died in the middle of writing the next one.
fn beginnings() -> Vec<(Contents, Document)> {
    let empty = Contents::default();
    let model = Model::of(&empty, None);
    let revision = swap(&model, None, OLD).unwrap();
    let full = model.contents.into_inner();
    let old = Some((revision, Bytes::from_static(OLD)));
    let littered = |before: &Contents, expected: Option<Revision>| {
        let model = Model::of(before, Some((1, Fault::DiesHalfway)));
        swap(&model, expected, b"litter").unwrap_err();
        model.contents.into_inner()
    };
    let (dirty, dirty_full) = (littered(&empty, None), littered(&full, Some(revision)));
    vec![(empty, None), (full, old.clone()), (dirty, None), (dirty_full, old)]
}

/// Swaps on a disk with a fault at each step in turn; gives each disk, each old document and what the swap answered.
fn with_each_fault(
    fault: Fault,
    mut judge: impl FnMut(&Contents, &Document, std::result::Result<Revision, StoreError>),
) {
    for (before, old) in beginnings() {
        for at in 0.. {
            let model = Model::of(&before, Some((at, fault)));
            let swapped = swap(&model, old.as_ref().map(|(revision, _)| *revision), NEW);
            let has_failed = model.steps.get() > at;
            assert_eq!(swapped.is_err(), has_failed, "{fault:?} at step {at}: {swapped:?}");
            judge(&model.contents.into_inner(), &old, swapped);
            if !has_failed {
                assert!(at >= 4, "the model does not see the steps");
                break;
            }
        }
    }
}

fn found(contents: &Contents) -> Document {
    load(&Model::of(contents, None)).unwrap()
}

fn new_after(old: &Document) -> Document {
    Some((Revision(old.as_ref().map_or(1, |(revision, _)| revision.0 + 1)), Bytes::from_static(NEW)))
}

#[test]
fn death_and_power_cuts_at_every_step_leave_the_old_or_the_new_document() {
    for fault in [Fault::Dies, Fault::DiesHalfway] {
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
    with_each_fault(Fault::Dies, |contents, _, _| {
        let model = Model::of(contents, None);
        let loaded = load(&model).unwrap();
        for survivor in model.contents.borrow().after_power_cut() {
            assert_eq!(found(&survivor), loaded);
        }
    });
}

#[test]
fn a_full_or_failing_disk_is_told_with_a_way_out_and_the_swap_can_be_made_when_it_is_mended() {
    for kind in [ErrorKind::StorageFull, ErrorKind::PermissionDenied, ErrorKind::Other] {
        with_each_fault(Fault::Refuses(kind), |contents, old, swapped| {
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
            let mended = Model::of(contents, None);
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
            let model = Model::of(&damaged, None);
            for error in [load(&model).unwrap_err(), swap(&model, Some(revision), NEW).unwrap_err()] {
                assert!(matches!(&error, StoreError::Broken(what) if what.contains(STATE)), "{error}");
            }
            assert_eq!(model.contents.borrow().inodes[inode].written, damaged.inodes[inode].written);
        }
    }
}
