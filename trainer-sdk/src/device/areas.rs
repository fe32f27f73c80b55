//! Areas: device memory of pservers on this machine into which gradients are put.
//!
//! An area is *free*, or has one gradient. It becomes free again once every block has applied that gradient: until then some
//! pserver may read it, and a message that names it may be under way. A gradient that ends otherwise (its job has gone back, it
//! was forgotten) takes its areas with it: nothing is ever written over what somebody may still read.

use super::{Device, Tensors};
use crate::session::Session;
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{BlockId, Routing};
use shoal_runtime::host::cuda::{DeviceError, HANDLE_BYTES, Mapped, machine};
use shoal_runtime::wire::proto;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Where the values of a block begin: a multiple, as pservers want it.
const WORDS_ALIGNMENT: usize = 16;
/// For how long a pserver that has shared nothing is not asked again.
const UNSHARED: Duration = Duration::from_secs(30);

/// The areas of one trainer.
#[derive(Debug)]
pub(crate) struct Areas {
    device: Arc<Device>,
    machine: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    areas: Vec<Arc<Area>>,
    /// Pservers that had none to share, and when they may be asked again.
    unshared: BTreeMap<u64, Instant>,
}

#[derive(Debug)]
struct Area {
    pserver: u64,
    number: u64,
    mapped: Mapped,
    /// Where each block begins, in bytes.
    places: BTreeMap<BlockId, usize>,
    is_free: AtomicBool,
}

/// An area with a gradient in it.
#[derive(Debug)]
pub(crate) struct Lease {
    areas: Arc<Areas>,
    area: Arc<Area>,
    is_applied: AtomicBool,
}

/// A node's sum on the device, and the areas that it is in, by the incarnation of their pservers.
#[derive(Debug)]
pub(crate) struct There {
    pub(crate) tensors: Tensors,
    leases: Mutex<BTreeMap<u64, Lease>>,
}

/// The values of a gradient: on the device, or here.
pub(crate) struct Values<'a> {
    pub(crate) there: &'a There,
    pub(crate) here: &'a [Vec<f32>],
}

impl Areas {
    pub(crate) fn new(device: &Arc<Device>) -> Arc<Areas> {
        Arc::new(Areas { device: Arc::clone(device), machine: machine(), known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free area of a pserver with room for these blocks.
    fn take(self: &Arc<Self>, pserver: u64, blocks: &BTreeSet<BlockId>) -> Option<Lease> {
        let mut known = self.known();
        let fits = |area: &Area| blocks.iter().all(|block| area.places.contains_key(block));
        // One that lacks a block that has moved there is of no use any more.
        known
            .areas
            .retain(|area| area.pserver != pserver || !area.is_free.load(Ordering::Relaxed) || fits(area));
        let free = known
            .areas
            .iter()
            .find(|area| area.pserver == pserver && area.is_free.swap(false, Ordering::Relaxed));
        free.map(|area| self.lease(Arc::clone(area)))
    }

    /// Gives up what no pserver of the routing has shared.
    fn follow(&self, routing: &Routing) {
        let is_there = |area: &Area| routing.pservers.iter().any(|at| at.incarnation.0 == area.pserver);
        self.known().areas.retain(|area| !area.is_free.load(Ordering::Relaxed) || is_there(area));
    }

    fn lease(self: &Arc<Self>, area: Arc<Area>) -> Lease {
        Lease { areas: Arc::clone(self), area, is_applied: AtomicBool::new(false) }
    }

    /// An area of a pserver with room for these blocks, a new one if none is free; none if it shares nothing.
    async fn find(
        self: &Arc<Self>,
        session: &Session,
        pserver: &PserverAddress,
        blocks: &BTreeSet<BlockId>,
    ) -> Option<Lease> {
        let incarnation = pserver.incarnation.0;
        if let Some(lease) = self.take(incarnation, blocks) {
            return Some(lease);
        }
        let now = Instant::now();
        if self.known().unshared.get(&incarnation).is_some_and(|until| now < *until) {
            return None;
        }
        let area = self.ask(session, pserver, blocks).await;
        let mut known = self.known();
        let Some(area) = area else {
            known.unshared.retain(|_, until| now < *until);
            known.unshared.insert(incarnation, now + UNSHARED);
            return None;
        };
        let area = Arc::new(area);
        known.areas.push(Arc::clone(&area));
        Some(self.lease(area))
    }

    async fn ask(
        &self,
        session: &Session,
        pserver: &PserverAddress,
        blocks: &BTreeSet<BlockId>,
    ) -> Option<Area> {
        let (mut places, mut bytes) = (BTreeMap::new(), 0);
        for block in blocks {
            places.insert(*block, bytes);
            let elements = session.names.layout.block(*block).map_or(0, |layout| layout.elements);
            bytes += (4 * elements).next_multiple_of(WORDS_ALIGNMENT);
        }
        let keeps = self
            .known()
            .areas
            .iter()
            .filter(|area| area.pserver == pserver.incarnation.0)
            .map(|area| area.number)
            .collect();
        let request = proto::ShareRequest {
            job: session.master.job.job.0.clone(),
            incarnation: session.incarnation().0,
            machine: self.machine.clone(),
            bytes: bytes as u64,
            keeps,
        };
        let mut client = session.routes.client(&pserver.address).ok()?;
        let call = async move { client.share(request).await };
        let address = &pserver.address;
        let reply = match session.master.leaders.caller.once(Duration::ZERO, call).await {
            Ok(reply) if reply.area > 0 => reply,
            Ok(_) => {
                tracing::debug!(address, "the pserver shares no device memory with this trainer");
                return None;
            }
            Err(fault) => {
                tracing::debug!(address, %fault, "the pserver was asked for device memory in vain");
                return None;
            }
        };
        let handle = <[u8; HANDLE_BYTES]>::try_from(&reply.handle[..]).ok()?;
        match self.device.context.map(handle, reply.bytes as usize) {
            Ok(mapped) if mapped.bytes() >= bytes => {
                tracing::info!(address, bytes, "gradients are given to the pserver in device memory");
                let (pserver, number, is_free) = (pserver.incarnation.0, reply.area, AtomicBool::new(false));
                Some(Area { pserver, number, mapped, places, is_free })
            }
            Ok(_) => None,
            Err(why) => {
                tracing::warn!(address, %why, "gradients go to the pserver by messages");
                None
            }
        }
    }
}

impl There {
    pub(crate) fn new(tensors: Tensors) -> There {
        There { tensors, leases: Mutex::default() }
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<u64, Lease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a pserver finds a block's values: an area's number, and the first byte.
    pub(crate) fn place(&self, pserver: u64, block: BlockId) -> Option<(u64, u64)> {
        let leases = self.leases();
        let area = &leases.get(&pserver)?.area;
        Some((area.number, *area.places.get(&block)? as u64))
    }

    /// The pserver does not know the area.
    pub(crate) fn is_unknown_to(&self, pserver: u64) {
        self.leases().remove(&pserver);
    }

    /// Every block has applied it: once it is dropped here, its areas are free. Not before: a push that is about to end may
    /// still name them.
    pub(crate) fn applied(&self) {
        self.leases().values().for_each(|lease| lease.is_applied.store(true, Ordering::Relaxed));
    }
}

impl Values<'_> {
    /// Puts those blocks that have values on the device, and that some pserver of this machine lacks, into its areas.
    pub(crate) async fn put(
        &self,
        session: &Session,
        routing: &Routing,
        lacking: &BTreeSet<BlockId>,
    ) -> Result<(), DeviceError> {
        let Some(areas) = &session.areas else { return Ok(()) };
        areas.follow(routing);
        let mut by_pserver: BTreeMap<u32, BTreeSet<BlockId>> = BTreeMap::new();
        for ((block, layout), route) in session.names.layout.iter().zip(&routing.blocks) {
            if layout.pieces.iter().any(|piece| areas.device.has(piece.parameter)) {
                by_pserver.entry(route.primary).or_default().insert(block);
            }
        }
        for (pserver, blocks) in by_pserver {
            let Some(pserver) = routing.pservers.get(pserver as usize) else { continue };
            let is_there = |block: &&BlockId| self.there.place(pserver.incarnation.0, **block).is_some();
            if blocks.intersection(lacking).all(|block| is_there(&block)) {
                continue;
            }
            // What it may have lacks a block: it is given up.
            self.there.is_unknown_to(pserver.incarnation.0);
            if let Some(lease) = areas.find(session, pserver, &blocks).await {
                self.fill(session, &lease.area)?;
                self.there.leases().insert(pserver.incarnation.0, lease);
            }
        }
        Ok(())
    }

    fn fill(&self, session: &Session, area: &Area) -> Result<(), DeviceError> {
        let device = &self.there.tensors.device;
        let Some(memory) = &self.there.tensors.memory else { return Ok(()) };
        let mut copies: Vec<(usize, usize, usize)> = Vec::new();
        for (block, place) in &area.places {
            let layout = session.names.layout.block(*block);
            for piece in layout.iter().flat_map(|layout| &layout.pieces) {
                let (first, to, bytes) =
                    (piece.first as usize, place + 4 * piece.range.start, 4 * piece.range.len());
                let Some((at, _)) = device.places[piece.parameter] else {
                    let values = &self.here[piece.parameter][first..first + piece.range.len()];
                    device.context.write_mapped(&area.mapped, to, bytemuck::cast_slice(values))?;
                    continue;
                };
                let from = at + 4 * first;
                match copies.last_mut() {
                    // Blocks of one parameter follow one another on both sides.
                    Some((at, there, before)) if (*at + *before, *there + *before) == (from, to) => {
                        *before += bytes;
                    }
                    _ => copies.push((from, to, bytes)),
                }
            }
        }
        device.context.send(memory, &area.mapped, copies)
    }

    /// A block's values, for a message.
    pub(crate) fn gather(&self, layout: &BlockLayout) -> Result<Vec<f32>, DeviceError> {
        let mut values = Vec::with_capacity(layout.elements);
        for piece in &layout.pieces {
            let first = piece.first as usize;
            let range = first..first + piece.range.len();
            match self.there.tensors.slice(piece.parameter) {
                Some(_) => values.extend(self.there.tensors.read(piece.parameter, range)?),
                None => values.extend_from_slice(&self.here[piece.parameter][range]),
            }
        }
        Ok(values)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_applied.load(Ordering::Relaxed) {
            self.area.is_free.store(true, Ordering::Relaxed);
        } else {
            self.areas.known().areas.retain(|area| !Arc::ptr_eq(area, &self.area));
        }
    }
}
