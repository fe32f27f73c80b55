//! A disk in memory that forgets what was not synced, dies, fills up and stalls, for simulations and tests. It must
//! never be kinder than a real disk.

use super::disk::Disk;
use crate::host::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What happens at a step that changes something on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Nothing of the step is done, and no later step succeeds.
    Dies,
    /// Half of what the step writes is done, and no later step succeeds.
    DiesHalfway,
    /// This one step fails, with an error of this kind.
    Refuses(ErrorKind),
}

/// The disk. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct ForgetfulDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    contents: Contents,
    steps: usize,
    fault: Option<(usize, DiskFault)>,
    stall: Duration,
    /// Counts lives of the machine: a lock of an earlier one is none.
    life: u64,
    locks: BTreeSet<String>,
}

type Names = BTreeMap<String, usize>;

/// What lies on the disk, and what of it would survive.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub(super) inodes: Vec<Inode>,
    pub(super) names: Names,
    synced_names: Names,
    /// Since the folder was synced last.
    unsynced: Vec<NameChange>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) written: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(String, usize),
    Rename(String, String, usize),
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

/// Ways in which the bytes of a file may survive: as synced, as written, cut in half, or as so many zeros.
const WAYS: usize = 4;

impl Inode {
    fn survivor(&self, way: usize) -> Inode {
        let bytes = match way {
            0 => self.synced.clone(),
            _ if self.synced == self.written => self.synced.clone(),
            1 => self.written.clone(),
            2 => self.written[..self.written.len() / 2].to_vec(),
            _ => vec![0; self.written.len()],
        };
        Inode { synced: bytes.clone(), written: bytes }
    }
}

impl Contents {
    /// What a power cut leaves, if of the unsynced names those survive, and each file in its way.
    fn survivor(&self, survives: impl Fn(usize) -> bool, mut way: impl FnMut(usize) -> usize) -> Contents {
        let mut names = self.synced_names.clone();
        let changes = self.unsynced.iter().enumerate().filter(|(at, _)| survives(*at));
        changes.for_each(|(_, change)| change.apply(&mut names));
        let inodes = self.inodes.iter().enumerate().map(|(at, inode)| inode.survivor(way(at)));
        Contents { inodes: inodes.collect(), synced_names: names.clone(), names, unsynced: Vec::new() }
    }

    /// Every state that a power cut may leave.
    #[cfg(test)]
    pub(super) fn after_power_cut(&self) -> Vec<Contents> {
        let all_names = 0..1_usize << self.unsynced.len();
        let all_ways = 0..WAYS.pow(self.inodes.len() as u32);
        let both = all_names.flat_map(|kept| all_ways.clone().map(move |ways| (kept, ways)));
        both.map(|(kept, ways)| {
            self.survivor(|at| kept >> at & 1 == 1, |at| ways / WAYS.pow(at as u32) % WAYS)
        })
        .collect()
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }
}

impl Inner {
    fn is_dead(&self) -> bool {
        let at = self.fault.filter(|(_, fault)| !matches!(fault, DiskFault::Refuses(_))).map(|(at, _)| at);
        at.is_some_and(|at| self.steps > at)
    }

    /// Counts a step that changes something; an error if it fails, with how much of it is still done.
    fn step(&mut self, size: usize) -> std::result::Result<(), (usize, Error)> {
        let step = self.steps;
        self.steps += 1;
        match self.fault {
            Some((at, DiskFault::Refuses(kind))) if step == at => Err((0, Error::new(kind, "refused"))),
            Some((at, DiskFault::DiesHalfway)) if step == at => Err((size / 2, Error::other("dead"))),
            Some((at, DiskFault::Dies | DiskFault::DiesHalfway)) if step >= at => {
                Err((0, Error::other("dead")))
            }
            _ => Ok(()),
        }
    }

    fn inode(&self, name: &str) -> Result<usize> {
        self.contents.names.get(name).copied().ok_or_else(|| Error::new(ErrorKind::NotFound, "none"))
    }
}

impl ForgetfulDisk {
    /// An empty disk.
    pub fn new() -> ForgetfulDisk {
        ForgetfulDisk::default()
    }

    #[cfg(test)]
    pub(super) fn of(contents: &Contents, fault: Option<(usize, DiskFault)>) -> ForgetfulDisk {
        let inner = Inner { contents: contents.clone(), fault, ..Inner::default() };
        ForgetfulDisk { inner: Arc::new(Mutex::new(inner)) }
    }
    #[cfg(test)]
    pub(super) fn contents(&self) -> Contents {
        self.inner().contents.clone()
    }
    /// Steps so far that change something.
    pub fn steps(&self) -> usize {
        self.inner().steps
    }
    /// Orders a fault for the `number`th step from now on, from 0, in the place of one that is still to come.
    pub fn fail(&self, number: usize, fault: DiskFault) {
        let mut inner = self.inner();
        if !inner.is_dead() {
            inner.fault = Some((inner.steps + number, fault));
        }
    }
    /// Whether a fault has ended it; who waits for it then waits for ever.
    pub fn is_dead(&self) -> bool {
        self.inner().is_dead()
    }
    /// Everything takes so long from now on.
    pub fn set_stall(&self, stall: Duration) {
        self.inner().stall = stall;
    }
    /// All processes that used it are gone; the machine runs on. Faults that were ordered are over.
    pub fn processes_died(&self) {
        let mut inner = self.inner();
        inner.life += 1;
        inner.fault = None;
        inner.locks.clear();
    }
    /// The power goes and comes back: of what was not synced, names and bytes survive as it happens.
    pub fn cut_power(&self, random: &mut Random) {
        self.processes_died();
        let mut inner = self.inner();
        let names: Vec<bool> = inner.contents.unsynced.iter().map(|_| random.percent(50)).collect();
        inner.contents = inner.contents.survivor(|at| names[at], |_| random.below(WAYS as u64) as usize);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn step(&self) -> Result<MutexGuard<'_, Inner>> {
        let mut inner = self.inner();
        inner.step(0).map_err(|(_, error)| error)?;
        Ok(inner)
    }
}

impl Disk for ForgetfulDisk {
    type File = usize;
    type Lock = ForgetfulLock;

    async fn perform<T: Send + 'static>(
        &self,
        action: impl FnOnce(&ForgetfulDisk) -> T + Send + 'static,
    ) -> std::result::Result<T, String> {
        let stall = self.inner().stall;
        if !stall.is_zero() {
            tokio::time::sleep(stall).await;
        }
        let done = action(self);
        match self.is_dead() {
            false => Ok(done),
            true => std::future::pending().await,
        }
    }
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let inner = self.inner();
        Ok(inner.contents.inodes[inner.inode(name)?].written.clone())
    }
    fn create(&self, name: &str) -> Result<usize> {
        let mut inner = self.step()?;
        if let Ok(inode) = inner.inode(name) {
            inner.contents.inodes[inode].written.clear();
            return Ok(inode);
        }
        let inode = inner.contents.inodes.len();
        inner.contents.inodes.push(Inode::default());
        inner.contents.change_name(NameChange::Set(name.to_owned(), inode));
        Ok(inode)
    }
    fn write(&self, inode: &mut usize, bytes: &[u8]) -> Result<()> {
        let mut inner = self.inner();
        let stepped = inner.step(bytes.len());
        let done = stepped.as_ref().map_or_else(|(done, _)| *done, |()| bytes.len());
        inner.contents.inodes[*inode].written.extend_from_slice(&bytes[..done]);
        stepped.map_err(|(_, error)| error)
    }
    fn sync(&self, inode: &usize) -> Result<()> {
        let mut inner = self.step()?;
        let inode = &mut inner.contents.inodes[*inode];
        inode.synced = inode.written.clone();
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut inner = self.step()?;
        let inode = inner.inode(from)?;
        inner.contents.change_name(NameChange::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }
    fn sync_folder(&self) -> Result<()> {
        let contents = &mut self.step()?.contents;
        contents.synced_names = contents.names.clone();
        contents.unsynced.clear();
        // What has no name any more is gone.
        let named: BTreeSet<usize> = contents.names.values().copied().collect();
        let nameless = contents.inodes.iter_mut().enumerate().filter(|(at, _)| !named.contains(at));
        nameless.for_each(|(_, inode)| *inode = Inode::default());
        Ok(())
    }
    fn try_lock(&self, name: &str) -> Result<Option<ForgetfulLock>> {
        let mut inner = self.inner();
        let is_free = inner.locks.insert(name.to_owned());
        let life = inner.life;
        Ok(is_free.then(|| ForgetfulLock { disk: self.clone(), name: name.to_owned(), life }))
    }
    fn sign(&self, _: &mut ForgetfulLock, _: &str) -> Result<()> {
        Ok(())
    }
}

/// A lock on a [`ForgetfulDisk`].
#[derive(Debug)]
pub struct ForgetfulLock {
    disk: ForgetfulDisk,
    name: String,
    life: u64,
}

impl Drop for ForgetfulLock {
    fn drop(&mut self) {
        let mut inner = self.disk.inner();
        if inner.life == self.life {
            inner.locks.remove(&self.name);
        }
    }
}
