//! **Share**: a gradient that is on a device goes to the pservers of this machine in device memory, into areas that they share.
//! Who shares none is sent its values in messages.

use crate::device::Copied;
use crate::device::areas::{Area, Areas, Filled, There};
use crate::session::Session;
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{BlockId, Routing};
use shoal_runtime::host::cuda::{DeviceError, HANDLE_BYTES};
use shoal_runtime::wire::proto;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Where the values of a block begin: a multiple, as pservers want it.
const WORDS_ALIGNMENT: usize = 16;

/// The values of a gradient: on the device, or here.
pub(crate) struct Values<'a> {
    pub(crate) there: &'a There,
    pub(crate) here: &'a [Vec<f32>],
}

impl Values<'_> {
    /// Puts those blocks that have values on the device, and that some pserver of this machine lacks, into its areas.
    ///
    /// # Errors
    /// The device has failed.
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
            if layout.pieces.iter().any(|piece| session.names.is_on_device(piece.parameter)) {
                by_pserver.entry(route.primary).or_default().insert(block);
            }
        }
        for (pserver, blocks) in by_pserver {
            let Some(pserver) = routing.pservers.get(pserver as usize) else { continue };
            let incarnation = pserver.incarnation.0;
            if blocks.intersection(lacking).all(|block| self.there.place(incarnation, *block).is_some()) {
                continue;
            }
            // What it may have lacks a block: it is given up.
            self.there.is_unknown_to(incarnation);
            if let Some(filled) = find(session, areas, pserver, &blocks).await {
                self.fill(session, &filled.area)?;
                self.there.is_in(incarnation, filled);
            }
        }
        Ok(())
    }

    /// Copies all blocks of an area there.
    fn fill(&self, session: &Session, area: &Area) -> Result<(), DeviceError> {
        let (tensors, mut copies) = (&self.there.tensors, Vec::new());
        for (block, place) in &area.places {
            let layout = session.names.layout.block(*block);
            for piece in layout.iter().flat_map(|layout| &layout.pieces) {
                let (first, to) = (piece.first as usize, place + 4 * piece.range.start);
                let range = first..first + piece.range.len();
                if session.names.is_on_device(piece.parameter) {
                    copies.push(Copied { parameter: piece.parameter, range, to });
                } else {
                    tensors.send_here(&self.here[piece.parameter][range], &area.mapped, to)?;
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
                None => values.extend_from_slice(&self.here[piece.parameter][range]),
            }
        }
        Ok(values)
    }
}

/// An area of a pserver with room for these blocks, a new one if none is free; none if it shares nothing.
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
    let request = proto::ShareRequest {
        job: session.master.job.job.0.clone(),
        incarnation: session.incarnation().0,
        machine: areas.machine.clone(),
        bytes: bytes as u64,
        keeps: areas.numbers(incarnation),
    };
    let mut client = session.routes.client(address).ok()?;
    let call = async move { client.share(request).await };
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
    match areas.device.map(handle, reply.bytes as usize) {
        Ok(mapped) if mapped.bytes() >= bytes => {
            tracing::info!(address, bytes, "gradients are given to the pserver in device memory");
            Some(Area::new(incarnation, reply.area, mapped, places))
        }
        Ok(_) => None,
        Err(why) => {
            tracing::warn!(address, %why, "gradients go to the pserver in messages");
            None
        }
    }
}
