//! **Share**: a gradient that is on a device goes to the pservers of this machine in device memory, into areas that they share,
//! and parameters come from there. With who shares none both go in messages.

use crate::device::areas::{Area, Areas, Filled, SumOnDevice};
use crate::device::{Copied, Device, Tensors};
use crate::error::TrainError;
use crate::flat::Flat;
use crate::names::Names;
use crate::reduce::NodeSum;
use crate::session::Session;
use futures_util::future::join_all;
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{BlockId, Rewind, Routing, Step};
use shoal_runtime::host::cuda::{DeviceError, HANDLE_BYTES, MapLock};
use shoal_runtime::wire::proto;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Where the values of a block begin: a multiple, as pservers want it.
const WORDS_ALIGNMENT: usize = 16;

/// Bytes that a block whose values are in an area adds to a message.
pub(crate) const AREA_BYTES: usize = 32;

/// The incarnation of a block's primary.
pub(crate) fn primary_of(routing: &Routing, block: BlockId) -> Option<u64> {
    let route = routing.blocks.get(block.0 as usize)?;
    Some(routing.pservers.get(route.primary as usize)?.incarnation.0)
}

/// Parameters that one pull has had put into areas. An area is used again only if each of its calls that named it was answered:
/// otherwise the pserver may put something there later.
#[derive(Debug, Default)]
pub(crate) struct InAreas(BTreeMap<u64, InArea>);

/// An area of one pserver, and the blocks that the pserver has put there.
#[derive(Debug)]
struct InArea {
    address: String,
    filled: Filled,
    blocks: BTreeSet<BlockId>,
    named: Cell<u64>,
    answered: u64,
    /// `false` once some answer did not know the area.
    is_known: bool,
}

impl InAreas {
    /// Nothing is in these yet: the incarnations of pservers, their addresses and areas.
    pub(crate) fn of(areas: impl IntoIterator<Item = (u64, String, Filled)>) -> InAreas {
        let areas = areas.into_iter().map(|(pserver, address, filled)| {
            let (blocks, named) = (BTreeSet::new(), Cell::new(0));
            (pserver, InArea { address, filled, blocks, named, answered: 0, is_known: true })
        });
        InAreas(areas.collect())
    }

    /// Where in its area a pserver is to put a block.
    pub(crate) fn place(&self, pserver: u64, block: BlockId) -> Option<usize> {
        self.0.get(&pserver)?.filled.area.places.get(&block).copied()
    }

    /// The number of a pserver's area, for a call.
    pub(crate) fn name(&self, pserver: u64) -> u64 {
        self.0.get(&pserver).map_or(0, |area| {
            area.named.set(area.named.get() + 1);
            area.filled.number()
        })
    }

    /// A call that named a pserver's area is answered: whether the pserver has that area.
    pub(crate) fn answered(&mut self, pserver: u64, has_area: bool) {
        if let Some(area) = self.0.get_mut(&pserver) {
            area.answered += 1;
            area.is_known &= has_area;
        }
    }

    /// The pserver has put a block there.
    pub(crate) fn has(&mut self, pserver: u64, block: BlockId) {
        if let Some(area) = self.0.get_mut(&pserver) {
            area.blocks.insert(block);
        }
    }

    /// The parameters on the device, those that are in areas and those that came in messages; those of blocks in areas that are
    /// not to be on the device are put among those that came.
    ///
    /// # Errors
    /// The device has failed, or has no memory for them.
    pub(crate) fn settle(
        &self,
        names: &Names,
        device: &Arc<Device>,
        values: &mut Flat,
    ) -> Result<Tensors, DeviceError> {
        let tensors = device.unwritten()?;
        let is_in_area = |block: &BlockId| self.0.values().any(|area| area.blocks.contains(block));
        for (_, layout) in names.layout.iter().filter(|(block, _)| !is_in_area(block)) {
            for piece in layout.pieces.iter().filter(|piece| names.is_on_device(piece.parameter)) {
                let first = piece.first as usize;
                let came = &values[piece.parameter][first..first + piece.range.len()];
                tensors.write(piece.parameter, first, came)?;
            }
        }
        for InArea { filled, blocks, .. } in self.0.values() {
            let mut copies = Vec::new();
            for (block, place) in filled.area.places.iter().filter(|(block, _)| blocks.contains(block)) {
                for piece in names.layout.block(*block).iter().flat_map(|layout| &layout.pieces) {
                    let (first, at) = (piece.first as usize, place + 4 * piece.range.start);
                    let range = first..first + piece.range.len();
                    match names.is_on_device(piece.parameter) {
                        true => copies.push(Copied { parameter: piece.parameter, range, at }),
                        false => tensors.receive_here(
                            &mut values[piece.parameter][range],
                            &filled.area.mapped,
                            at,
                        )?,
                    }
                }
            }
            tensors.receive(copies, &filled.area.mapped)?;
        }
        // A short copy from here may be under way yet, and the program may have streams that wait for no other.
        device.synchronize()?;
        Ok(tensors)
    }

    /// Whether every process that has put something there is still there now that it is copied: of memory whose process ended
    /// before, CUDA does not say what is read. If so, the areas may be used again.
    pub(crate) async fn confirm(self, session: &Session, step: Step, rewind: Rewind) -> bool {
        let areas: Vec<InArea> = self.0.into_values().collect();
        let confirmed = join_all(areas.iter().map(|area| area.is_there(session, step, rewind))).await;
        let is_confirmed = confirmed.iter().all(|is_there| *is_there);
        let is_over = |area: &&InArea| is_confirmed && area.is_known && area.named.get() == area.answered;
        areas.iter().filter(is_over).for_each(|area| area.filled.over());
        is_confirmed
    }
}

impl InArea {
    async fn is_there(&self, session: &Session, step: Step, rewind: Rewind) -> bool {
        if self.blocks.is_empty() {
            return true;
        }
        let Ok(mut client) = session.routes.client(&self.address) else { return false };
        let request = proto::PullRequest {
            job: session.master.job.job.0.clone(),
            incarnation: session.incarnation().0,
            step: step.0,
            rewind: rewind.0,
            area: self.filled.number(),
            ..Default::default()
        };
        let call = async move { client.pull(request).await };
        let answered = session.master.leaders.caller.once(Duration::ZERO, call).await;
        answered.is_ok_and(|reply| reply.has_area)
    }
}

/// The values of a gradient: on the device, or here.
pub(crate) struct Values {
    names: Arc<Names>,
    there: Arc<SumOnDevice>,
    sum: Arc<NodeSum>,
}

impl Values {
    /// The values of a sum; `None`: nothing of it is on a device.
    pub(crate) fn of(names: &Arc<Names>, sum: &Arc<NodeSum>) -> Option<Values> {
        Some(Values { names: names.clone(), there: sum.there.clone()?, sum: sum.clone() })
    }

    /// Puts those blocks that have values on the device, and that some pserver of this machine lacks, into its areas.
    ///
    /// # Errors
    /// The device has failed.
    pub(crate) async fn put(
        self: &Arc<Self>,
        session: &Session,
        routing: &Routing,
        lacking: &BTreeSet<BlockId>,
    ) -> Result<(), TrainError> {
        let Some(areas) = &session.areas else { return Ok(()) };
        areas.follow(routing, Instant::now());
        for (pserver, blocks) in by_pserver(session, routing) {
            let incarnation = pserver.incarnation.0;
            if blocks.intersection(lacking).all(|block| self.there.place(incarnation, *block).is_some()) {
                continue;
            }
            // An area of the pserver's that has the gradient lacks a block: it is given up.
            self.there.is_unknown_to(incarnation);
            if let Some(filled) = find(session, areas, pserver, &blocks).await {
                let (values, bytes) = (self.clone(), filled.area.mapped.bytes());
                let fill = move || values.fill(&filled.area).map(|()| filled);
                let filled = session.processors.over(bytes, fill).await?;
                self.there.is_in(incarnation, filled);
            }
        }
        Ok(())
    }

    /// Copies all blocks of an area there.
    fn fill(&self, area: &Area) -> Result<(), DeviceError> {
        let (tensors, mut copies) = (&self.there.tensors, Vec::new());
        for (block, place) in &area.places {
            let layout = self.names.layout.block(*block);
            for piece in layout.iter().flat_map(|layout| &layout.pieces) {
                let (first, to) = (piece.first as usize, place + 4 * piece.range.start);
                let range = first..first + piece.range.len();
                if self.names.is_on_device(piece.parameter) {
                    copies.push(Copied { parameter: piece.parameter, range, at: to });
                } else {
                    tensors.send_here(&self.sum.values[piece.parameter][range], &area.mapped, to)?;
                }
            }
        }
        tensors.send(copies, &area.mapped)
    }

    /// A block's values, for a message.
    ///
    /// # Errors
    /// The device has failed.
    pub(crate) fn gather(&self, layout: &BlockLayout) -> Result<Vec<f32>, DeviceError> {
        let mut values = Vec::with_capacity(layout.elements);
        for piece in &layout.pieces {
            let first = piece.first as usize;
            let range = first..first + piece.range.len();
            match self.there.tensors.slice(piece.parameter) {
                Some(_) => values.extend(self.there.tensors.read(piece.parameter, range)?),
                None => values.extend_from_slice(&self.sum.values[piece.parameter][range]),
            }
        }
        Ok(values)
    }
}

/// Areas that pservers of this machine are to put parameters into: one of each that has some on the device.
pub(crate) async fn areas_for_parameters(session: &Session) -> InAreas {
    let (Some(areas), routing) = (&session.areas, session.routes.present()) else {
        return InAreas::default();
    };
    areas.follow(&routing, Instant::now());
    let asked = by_pserver(session, &routing).map(|(pserver, blocks)| async move {
        let filled = find(session, areas, pserver, &blocks).await?;
        Some((pserver.incarnation.0, pserver.address.clone(), filled))
    });
    InAreas::of(join_all(asked).await.into_iter().flatten())
}

/// The blocks of each pserver that have values on the device.
fn by_pserver<'a>(
    session: &Session,
    routing: &'a Routing,
) -> impl Iterator<Item = (&'a PserverAddress, BTreeSet<BlockId>)> {
    let mut by_pserver: BTreeMap<u32, BTreeSet<BlockId>> = BTreeMap::new();
    for ((block, layout), route) in session.names.layout.iter().zip(&routing.blocks) {
        if layout.pieces.iter().any(|piece| session.names.is_on_device(piece.parameter)) {
            by_pserver.entry(route.primary).or_default().insert(block);
        }
    }
    by_pserver.into_iter().filter_map(|(at, blocks)| Some((routing.pservers.get(at as usize)?, blocks)))
}

/// An area of a pserver with room for these blocks, a new one if none is free; `None`: the pserver shares nothing.
async fn find(
    session: &Session,
    areas: &Arc<Areas>,
    pserver: &PserverAddress,
    blocks: &BTreeSet<BlockId>,
) -> Option<Filled> {
    let incarnation = pserver.incarnation.0;
    if let Some(filled) = areas.take(incarnation, blocks) {
        return Some(filled);
    }
    let asking = areas.asking(incarnation);
    let _alone = asking.lock().await;
    // One may have become free meanwhile.
    if let Some(filled) = areas.take(incarnation, blocks) {
        return Some(filled);
    }
    let now = Instant::now();
    if !areas.may_ask(incarnation, now) {
        return None;
    }
    let area = ask(session, areas, pserver, blocks).await;
    if area.is_none() {
        areas.note_unshared(incarnation, now);
    }
    area.map(|area| areas.add(area))
}

async fn ask(
    session: &Session,
    areas: &Areas,
    pserver: &PserverAddress,
    blocks: &BTreeSet<BlockId>,
) -> Option<Area> {
    let (mut places, mut bytes) = (BTreeMap::new(), 0);
    for block in blocks {
        places.insert(*block, bytes);
        let elements = session.names.layout.block(*block).map_or(0, |layout| layout.elements);
        bytes += (4 * elements).next_multiple_of(WORDS_ALIGNMENT);
    }
    let (incarnation, address) = (pserver.incarnation.0, &pserver.address);
    let lock = MapLock::hold();
    let lock =
        lock.inspect_err(|error| tracing::debug!(%error, "there is no lock to map memory under")).ok()?;
    let request = proto::ShareRequest {
        job: session.master.job.job.0.clone(),
        incarnation: session.incarnation().0,
        machine: areas.machine.clone(),
        bytes: bytes as u64,
        keeps: areas.numbers(incarnation),
        lock: lock.name().to_owned(),
    };
    let mut client = session.routes.client(address).ok()?;
    let call = async move { client.share(request).await };
    let answered = session.master.leaders.caller.once(Duration::ZERO, call).await;
    lock.hide();
    let reply = match answered {
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
    match areas.device.map(handle, reply.bytes as usize) {
        Ok(mapped) if mapped.bytes() >= bytes => {
            tracing::info!(
                address,
                bytes,
                "gradients and parameters go to and from the pserver in device memory"
            );
            Some(areas.area((incarnation, reply.area), (mapped, lock), places))
        }
        Ok(_) => None,
        Err(why) => {
            tracing::warn!(address, %why, "gradients and parameters go to and from the pserver in messages");
            None
        }
    }
}
