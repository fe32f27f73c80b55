//! Areas: device memory of pservers on this machine, for gradients that go there and parameters that come from there.
//!
//! An area is *free*, or has one gradient or one version of the parameters. It becomes free again once every block has applied the
//! gradient: until then some pserver may read it, and a message that names it may be under way; or once the parameters are copied
//! and every call that named it is answered: until then the pserver may write there. What ends otherwise (its job has gone back,
//! it was forgotten, a call was given up) takes its areas with it: nothing is ever written over what somebody may still read,
//! nor read where somebody may still write.
//!
//! The trainer holds a lock for as long as an area is mapped, and the pserver frees the memory only once the lock is released. A mapped
//! area therefore stays valid, however long the trainer was stopped.

use super::{Device, Tensors};
use shoal_runtime::cluster::{BlockId, Routing};
use shoal_runtime::host::cuda::{AREAS_MAX, MapLock, Mapped, machine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// For how long a pserver that has shared nothing is not asked again.
const UNSHARED: Duration = Duration::from_secs(30);

/// The time after which a free area is given up: a peak needs more areas than a calm job.
const UNUSED: Duration = Duration::from_secs(600);

/// The areas of one trainer.
#[derive(Debug)]
pub(crate) struct Areas {
    pub(crate) device: Arc<Device>,
    pub(crate) machine: String,
    table: Mutex<AreaTable>,
    mapped: Arc<MappedAreas>,
}

/// The areas that are mapped, in the table or not any more: their pservers and numbers.
#[derive(Debug, Default)]
struct MappedAreas(Mutex<BTreeSet<(u64, u64)>>);

/// The entry of a mapped area, removed on drop.
#[derive(Debug)]
struct IsMapped {
    areas: Arc<MappedAreas>,
    key: (u64, u64),
}

/// The areas that pservers have shared, and which pservers may be asked for one.
#[derive(Debug, Default)]
struct AreaTable {
    areas: Vec<Arc<Area>>,
    /// Pservers that had none to share, and when they may be asked again.
    unshared: BTreeMap<u64, Instant>,
    /// A lock for each pserver, held while it is asked for an area: a pserver that knows of no locks forgets the areas that the
    /// question does not name, also one that is on its way here.
    asking: BTreeMap<u64, Arc<tokio::sync::Mutex<()>>>,
}

/// Memory that a pserver has shared.
#[derive(Debug)]
pub(crate) struct Area {
    pserver: u64,
    number: u64,
    pub(crate) mapped: Mapped,
    /// Where each block begins, in bytes.
    pub(crate) places: BTreeMap<BlockId, usize>,
    is_free: AtomicBool,
    /// The time since which it is free.
    freed: Mutex<Instant>,
    // Behind `mapped`, for these are let go of once that is unmapped, in this order.
    _lock: MapLock,
    _is_mapped: IsMapped,
}

/// An area with a gradient or parameters in it.
#[derive(Debug)]
pub(crate) struct Filled {
    areas: Arc<Areas>,
    pub(crate) area: Arc<Area>,
    /// Nobody reads or writes there any more.
    is_over: AtomicBool,
}

/// A node's sum on the device, and the areas that it is in, by the incarnation of their pservers.
#[derive(Debug)]
pub(crate) struct SumOnDevice {
    pub(crate) tensors: Tensors,
    filled: Mutex<BTreeMap<u64, Filled>>,
}

impl Areas {
    pub(crate) fn new(device: &Arc<Device>) -> Arc<Areas> {
        let (device, machine) = (Arc::clone(device), machine());
        Arc::new(Areas { device, machine, table: Mutex::default(), mapped: Arc::default() })
    }

    fn table(&self) -> MutexGuard<'_, AreaTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free area of a pserver with room for these blocks.
    pub(crate) fn take(self: &Arc<Self>, pserver: u64, blocks: &BTreeSet<BlockId>) -> Option<Filled> {
        let mut table = self.table();
        let fits = |area: &Area| blocks.iter().all(|block| area.places.contains_key(block));
        // One that lacks a block that has moved there is of no use any more.
        table
            .areas
            .retain(|area| area.pserver != pserver || !area.is_free.load(Ordering::Relaxed) || fits(area));
        let free = table
            .areas
            .iter()
            .find(|area| area.pserver == pserver && area.is_free.swap(false, Ordering::Relaxed));
        free.map(|area| self.fill(Arc::clone(area)))
    }

    /// Gives up areas that no pserver of the routing has shared, and those long unused.
    pub(crate) fn follow(&self, routing: &Routing, now: Instant) {
        let is_there = |pserver: u64| routing.pservers.iter().any(|at| at.incarnation.0 == pserver);
        let mut table = self.table();
        table.areas.retain(|area| {
            !area.is_free.load(Ordering::Relaxed) || is_there(area.pserver) && area.free_for(now) < UNUSED
        });
        table.asking.retain(|pserver, _| is_there(*pserver));
    }

    /// The lock to hold while a pserver is asked for an area.
    pub(crate) fn asking(&self, pserver: u64) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.table().asking.entry(pserver).or_default())
    }

    fn fill(self: &Arc<Self>, area: Arc<Area>) -> Filled {
        Filled { areas: Arc::clone(self), area, is_over: AtomicBool::new(false) }
    }

    /// Whether a pserver is to be asked for an area: not soon after it had none to share, nor once it has given as many as it
    /// gives.
    pub(crate) fn may_ask(&self, pserver: u64, now: Instant) -> bool {
        let is_unshared = self.table().unshared.get(&pserver).is_some_and(|until| now < *until);
        !is_unshared && self.numbers(pserver).len() < AREAS_MAX
    }

    /// The pserver has none to share.
    pub(crate) fn note_unshared(&self, pserver: u64, now: Instant) {
        let mut table = self.table();
        table.unshared.retain(|_, until| now < *until);
        table.unshared.insert(pserver, now + UNSHARED);
    }

    /// Takes in a new area, which is the caller's.
    pub(crate) fn add(self: &Arc<Self>, area: Area) -> Filled {
        let area = Arc::new(area);
        self.table().areas.push(Arc::clone(&area));
        self.fill(area)
    }

    /// The numbers of those that a pserver has shared and that are mapped.
    pub(crate) fn numbers(&self, pserver: u64) -> Vec<u64> {
        self.mapped.all().range((pserver, 0)..=(pserver, u64::MAX)).map(|(_, number)| *number).collect()
    }

    /// A free area: a pserver's number of it, the memory, and the lock that the pserver watches.
    pub(crate) fn area(
        &self,
        (pserver, number): (u64, u64),
        (mapped, lock): (Mapped, MapLock),
        places: BTreeMap<BlockId, usize>,
    ) -> Area {
        let (is_free, freed) = (AtomicBool::new(false), Mutex::new(Instant::now()));
        self.mapped.all().insert((pserver, number));
        let is_mapped = IsMapped { areas: Arc::clone(&self.mapped), key: (pserver, number) };
        Area { pserver, number, mapped, places, is_free, freed, _lock: lock, _is_mapped: is_mapped }
    }
}

impl MappedAreas {
    fn all(&self) -> MutexGuard<'_, BTreeSet<(u64, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IsMapped {
    fn drop(&mut self) {
        self.areas.all().remove(&self.key);
    }
}

impl Area {
    fn freed(&self) -> MutexGuard<'_, Instant> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.freed())
    }
}

impl SumOnDevice {
    pub(crate) fn new(tensors: Tensors) -> SumOnDevice {
        SumOnDevice { tensors, filled: Mutex::default() }
    }

    fn filled(&self) -> MutexGuard<'_, BTreeMap<u64, Filled>> {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a pserver finds a block's values: an area's number, and the first byte.
    pub(crate) fn place(&self, pserver: u64, block: BlockId) -> Option<(u64, u64)> {
        let filled = self.filled();
        let area = &filled.get(&pserver)?.area;
        Some((area.number, *area.places.get(&block)? as u64))
    }

    /// Notes that the sum is in this area of a pserver.
    pub(crate) fn is_in(&self, pserver: u64, filled: Filled) {
        self.filled().insert(pserver, filled);
    }

    /// Gives up the pserver's area, which the pserver does not know.
    pub(crate) fn is_unknown_to(&self, pserver: u64) {
        self.filled().remove(&pserver);
    }

    /// Every block has applied it: once it is dropped here, its areas are free. Not before: a push that is about to end may
    /// still name them.
    pub(crate) fn applied(&self) {
        self.filled().values().for_each(|filled| filled.over());
    }
}

impl Filled {
    /// Nobody reads or writes there any more: once it is dropped here, the area is free.
    pub(crate) fn over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The number by which the pserver knows the area.
    pub(crate) fn number(&self) -> u64 {
        self.area.number
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        if self.is_over.load(Ordering::Relaxed) {
            *self.area.freed() = Instant::now();
            self.area.is_free.store(true, Ordering::Relaxed);
        } else {
            self.areas.table().areas.retain(|area| !Arc::ptr_eq(area, &self.area));
        }
    }
}
