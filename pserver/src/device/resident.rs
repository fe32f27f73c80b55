//! A block on a device. It must never know of steps or copies: what it is asked for is one of its newest two versions.

use super::area::Area;
use super::batch::{Addresses, PieceUpdate};
use super::engine::{Bring, Give, GradientSum, Update, Work};
use super::pool::PoolPage;
use super::tree::Tree;
use super::version::{Given, Outcome};
use super::{BUFFER_ELEMENTS, Device, DeviceError};
use crate::kernel::rules::Constants;
use bytes::Bytes;
use shoal_runtime::cluster::BlockId;
use shoal_runtime::host::cuda::Memory;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

/// A block that lives in the memory of a device, until it is dropped: parameters, rule state, and parameters again.
#[derive(Debug)]
pub struct Resident {
    device: Device,
    block: BlockId,
    memory: Arc<Memory>,
    elements: usize,
    /// Elements from the beginning of one buffer to that of the next.
    length: usize,
    slots: usize,
    /// What the two buffers of parameters have: at first one has what was placed, and the other nothing.
    versions: [Option<Outcome>; 2],
    /// Which of them has the newest.
    newest: usize,
}

impl Device {
    /// Takes a block in: its parameters and rule state, all of one length.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn place(
        &self,
        block: BlockId,
        parameters: &[f32],
        slots: &[&[f32]],
    ) -> Result<Resident, DeviceError> {
        let (elements, buffers) = (parameters.len(), 1 + slots.len());
        let length = elements.next_multiple_of(BUFFER_ELEMENTS);
        let bytes = 4 * length * buffers;
        // Behind them room for the next version of the parameters.
        let placed = self.shared.context.allocate("a block", bytes + 4 * length).and_then(|memory| {
            let mut page = self.shared.pool.page(bytes)?;
            let values: &mut [f32] = bytemuck::cast_slice_mut(page.bytes_mut());
            for (to, from) in values.chunks_exact_mut(length).zip(std::iter::once(&parameters).chain(slots)) {
                to[..elements].copy_from_slice(from);
            }
            Ok((Arc::new(memory), page))
        });
        let (memory, page) = placed.inspect_err(|why| {
            if self.shared.overflow.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(%block, %why, "it and others to come are updated by the processor");
            }
        })?;
        // After a failure nobody takes it: that is told.
        let _ = self.queue.send(Work::Upload(page, Arc::clone(&memory)));
        self.shared.blocks.fetch_add(1, Ordering::Relaxed);
        self.shared.pool.expect(4 * elements);
        let placed = Outcome::default();
        placed.made();
        let (device, slots, versions) = (self.clone(), slots.len(), [Some(placed), None]);
        Ok(Resident { device, block, memory, elements, length, slots, versions, newest: 0 })
    }
}

impl Resident {
    /// The version that was placed, if there was no update yet. It is here as `parameters`, from where it came.
    pub fn placed(&self, parameters: Bytes) -> Option<&Outcome> {
        let placed = self.versions[0].as_ref().filter(|_| self.versions[1].is_none())?;
        placed.brought(parameters);
        Some(placed)
    }

    /// Updates these pieces once. `fill` writes the block's gradient sum. The new parameters are brought at once.
    pub fn update(&mut self, pieces: Vec<PieceUpdate>, fill: impl FnOnce(&mut [f32])) -> Outcome {
        let page = self.device.shared.pool.page(self.bytes());
        let sum = page.map(|mut page| {
            fill(bytemuck::cast_slice_mut(page.bytes_mut()));
            GradientSum::Here(page)
        });
        self.queue(pieces, sum)
    }

    /// Updates these pieces once by a gradient sum that is on the device. The new parameters are brought at once, or when
    /// somebody asks.
    pub fn update_by(&mut self, pieces: Vec<PieceUpdate>, tree: Tree, is_brought: bool) -> Outcome {
        self.device.shared.gradient_bytes.fetch_add(tree.bytes(), Ordering::Relaxed);
        let page = is_brought.then(|| self.device.shared.pool.page(self.bytes())).transpose();
        self.queue(pieces, page.map(|page| GradientSum::There(tree, page)))
    }

    /// Without memory for the sum nothing is queued, and the device has failed: what is to come is never made.
    fn queue(&mut self, mut pieces: Vec<PieceUpdate>, sum: Result<GradientSum, DeviceError>) -> Outcome {
        let (outcome, next) = (Outcome::default(), 1 - self.newest);
        let sum = match sum {
            Ok(sum) => sum,
            Err(error) => {
                self.device.shared.fail(error);
                return outcome;
            }
        };
        let untouched = untouched(&pieces, self.elements);
        pieces.extend(untouched.map(|range| PieceUpdate { range, constants: Constants::KEEP }));
        let update = Update {
            block: self.block,
            memory: Arc::clone(&self.memory),
            addresses: self.addresses(),
            next_at: self.place(next),
            pieces,
            sum,
            outcome: outcome.clone(),
        };
        // After a failure nobody takes it: that is told.
        let _ = self.device.queue.send(Work::Update(update));
        self.versions[next] = Some(outcome.clone());
        self.newest = next;
        outcome
    }

    /// Bytes of its parameters.
    fn bytes(&self) -> usize {
        4 * self.elements
    }

    /// Where one of the two buffers of parameters begins, in bytes.
    fn place(&self, buffer: usize) -> usize {
        4 * self.length * buffer * (1 + self.slots)
    }

    /// Where the parameters of a version are, if they still are.
    fn place_of(&self, outcome: &Outcome) -> Option<usize> {
        let is_its = |version: &Option<Outcome>| version.as_ref().is_some_and(|version| version.is(outcome));
        self.versions.iter().position(is_its).map(|buffer| self.place(buffer))
    }

    /// Asks for the parameters of one of the newest two versions, and the device tells when they are here; false of an older one.
    pub fn bring(&self, outcome: &Outcome) -> bool {
        let Some(at) = self.place_of(outcome) else { return false };
        if outcome.is_first_to_ask() {
            let (block, memory, outcome) = (self.block, Arc::clone(&self.memory), outcome.clone());
            let bring = Bring { block, memory, at, bytes: self.bytes(), outcome };
            let _ = self.device.queue.send(Work::Bring(bring));
        }
        true
    }

    /// Copies the parameters of one of the newest two versions to an area, from its byte `to` on; false if they do not go there.
    /// Once `given` says so they are there.
    pub fn give(&self, outcome: &Outcome, area: &Area, to: u64, given: &mut Given) -> bool {
        let place = self.place_of(outcome).filter(|_| outcome.is_made());
        let Some((at, words)) = place.zip(area.place(to, self.elements)) else { return false };
        let give = Give {
            from: Arc::clone(&self.memory),
            at,
            to: area.memory(),
            to_at: words,
            elements: self.elements,
            done: given.ask(),
        };
        self.device.shared.parameter_bytes.fetch_add(self.bytes() as u64, Ordering::Relaxed);
        let _ = self.device.queue.send(Work::Give(give));
        true
    }

    /// The parameters of one of the newest two versions. Waits for them.
    ///
    /// # Errors
    /// The device has failed, or has them no more.
    pub fn fetch(&self, outcome: &Outcome) -> Result<Bytes, DeviceError> {
        match (outcome.bytes(), self.place_of(outcome)) {
            (Some(bytes), _) => Ok(bytes.clone()),
            (None, Some(at)) => Ok(Bytes::copy_from_slice(self.copy_out(at, self.bytes())?.bytes())),
            (None, None) => Err(self.device.lost()),
        }
    }

    /// Asks for the rule state as it is after all updates so far, and the device tells when it is here.
    pub fn bring_slots(&self) -> ComingSlots {
        let (elements, length, count) = (self.elements, self.length, self.slots);
        let outcome = Outcome::default();
        if count > 0 {
            let (at, bytes, outcome) = (4 * length, 4 * length * count, outcome.clone());
            let bring = Bring { block: self.block, memory: Arc::clone(&self.memory), at, bytes, outcome };
            // A failed device takes nothing from its queue; its failure is reported elsewhere.
            let _ = self.device.queue.send(Work::Bring(bring));
        }
        ComingSlots { outcome, elements, length, count }
    }

    /// The rule state as it is after all updates so far, little-endian f32. Waits for them.
    ///
    /// # Errors
    /// The device has failed.
    pub fn slots(&self) -> Result<Vec<Bytes>, DeviceError> {
        let bytes = 4 * self.length * self.slots;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let page = self.copy_out(4 * self.length, bytes)?;
        Ok(slots_of(page.bytes(), (self.elements, self.length, self.slots)))
    }

    fn copy_out(&self, at: usize, bytes: usize) -> Result<PoolPage, DeviceError> {
        let (answer, answered) = channel();
        let _ = self.device.queue.send(Work::Fetch(Arc::clone(&self.memory), at, bytes, answer));
        answered.recv().map_err(|_| self.device.lost())
    }

    fn addresses(&self) -> Addresses {
        let [parameters, next] =
            [self.newest, 1 - self.newest].map(|buffer| self.memory.address() + self.place(buffer) as u64);
        let slot = |at: usize| self.memory.address() + (4 * self.length * (1 + at)) as u64;
        let slots = std::array::from_fn(|at| if at < self.slots { slot(at) } else { 0 });
        Addresses { parameters, next, slots }
    }
}

/// Rule state that is on its way from a device.
#[derive(Clone, Debug)]
pub struct ComingSlots {
    outcome: Outcome,
    elements: usize,
    /// Elements from the beginning of one slot to that of the next.
    length: usize,
    count: usize,
}

impl ComingSlots {
    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        4 * self.elements * self.count
    }

    /// Returns each slot as little-endian f32; `None` until all have arrived.
    pub fn here(&self) -> Option<Vec<Bytes>> {
        let layout = (self.elements, self.length, self.count);
        if self.count == 0 { Some(Vec::new()) } else { Some(slots_of(self.outcome.bytes()?, layout)) }
    }
}

/// Copies `count` slots of `elements` elements, `length` apart: a long-lived slice would keep pinned memory.
fn slots_of(bytes: &[u8], (elements, length, count): (usize, usize, usize)) -> Vec<Bytes> {
    (0..count).map(|at| Bytes::copy_from_slice(&bytes[4 * length * at..][..4 * elements])).collect()
}

/// What lies between pieces, which are in order, and after them.
fn untouched(pieces: &[PieceUpdate], elements: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let begins = pieces.iter().map(|piece| piece.range.start).chain([elements]);
    let ends = [0].into_iter().chain(pieces.iter().map(|piece| piece.range.end));
    let between: Vec<Range<usize>> = ends.zip(begins).map(|(end, begin)| end..begin).collect();
    between.into_iter().filter(|range| !range.is_empty())
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.device.shared.blocks.fetch_sub(1, Ordering::Relaxed);
        self.device.shared.pool.expect_no_more(4 * self.elements);
    }
}
