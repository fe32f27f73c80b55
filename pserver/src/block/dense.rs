//! The values of a dense block: parameters of the newest versions and the rule's slots.
//!
//! Buffers are shared and never written again while somebody else has them (copy on write), so that a copy costs
//! nothing until the next update. Of a block that lives on a device the published parameters are here, and its slots there: a
//! copy fetches them.

use super::evaluate::MetricTurn;
use super::reduce::DenseSum;
use super::shape::{BlockShape, Divisor, UpdateContext};
use super::state::Kept;
use crate::device::{Area, ComingSlots, Device, Given, Outcome, PieceUpdate, Resident};
use bytes::Bytes;
use shoal_runtime::cluster::{BlockCopy, Refusal, RefusalKind};
use std::collections::VecDeque;
use std::sync::Arc;

#[cfg(target_endian = "big")]
compile_error!("published buffers are sent as they lie in memory, which must be little-endian");

/// Parameters and slots.
#[derive(Debug)]
pub(super) struct Dense {
    /// The newest versions in order.
    kept: VecDeque<Published>,
    slots: Slots,
}

/// The rule's state, and with it the place where the block is updated.
#[derive(Debug)]
enum Slots {
    Here(Vec<Arc<Vec<f32>>>),
    /// With the newest parameters.
    There(Resident),
}

impl Dense {
    /// These parameters, and slots of zero.
    pub(super) fn beginning(shape: &BlockShape, parameters: Vec<f32>) -> Dense {
        let slots = (0..shape.slots).map(|_| Arc::new(vec![0.0; shape.elements])).collect();
        Dense { kept: VecDeque::from([Published::new(parameters)]), slots: Slots::Here(slots) }
    }

    /// Those that a copy carries. Refuses one that is not of this block's shape.
    pub(super) fn from_copy(shape: &BlockShape, copy: &BlockCopy) -> Result<Dense, Refusal> {
        let bytes = 4 * shape.elements;
        let buffers = copy.slots.iter().chain(&copy.earlier).chain([&copy.parameters]);
        let is_of_shape = copy.slots.len() == shape.slots && copy.segment.is_none();
        if !is_of_shape || buffers.into_iter().any(|buffer| buffer.len() != bytes) {
            let detail = format!(
                "a copy with {} slots and {} bytes of parameters came, the block has {} and {bytes}",
                copy.slots.len(),
                copy.parameters.len(),
                shape.slots
            );
            return Err(Refusal::new(RefusalKind::WrongShape, shape, detail));
        }
        let values = |bytes: &Bytes| bytemuck::pod_collect_to_vec::<u8, f32>(bytes);
        // There is nothing earlier than the initial values.
        let surplus = (copy.earlier.len() as u64).saturating_sub(copy.name.version.0) as usize;
        let earlier = copy.earlier.iter().skip(surplus);
        let kept = earlier.chain([&copy.parameters]).map(|bytes| Published::new(values(bytes)));
        let slots = copy.slots.iter().map(|slot| Arc::new(values(slot)));
        Ok(Dense { kept: kept.collect(), slots: Slots::Here(slots.collect()) })
    }

    /// From now on it is updated on a device, if that has memory for it.
    pub(super) fn place_on_device(&mut self, shape: &BlockShape, device: &Device) {
        let Slots::Here(slots) = &self.slots else { return };
        let slots: Vec<&[f32]> = slots.iter().map(|slot| slot.as_slice()).collect();
        if let Ok(resident) = device.place(shape.id, self.newest().values(), &slots) {
            let placed = self.newest().bytes().and_then(|bytes| resident.placed(bytes));
            if let (Some(newest), Some(placed)) = (self.kept.back_mut(), placed.cloned()) {
                *newest = Published::on_device(placed);
            }
            self.slots = Slots::There(resident);
        }
    }

    /// Whether a device updates it.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.slots, Slots::There(_))
    }

    /// How many of the newest versions are still to come.
    pub(super) fn coming(&self) -> usize {
        self.kept.iter().rev().take_while(|kept| !kept.is_made()).count()
    }

    /// Versions before the newest.
    pub(super) fn earlier(&self) -> usize {
        self.kept.len() - 1
    }

    /// The parameters of a version so many before the newest, if they are kept.
    pub(super) fn parameters(&self, back: usize) -> Option<&Published> {
        self.kept.get((self.kept.len() - 1).checked_sub(back)?)
    }

    /// Puts them into a copy, with at most so many versions before the newest, sharing the buffers. None while some of it is
    /// still to come from a device, or if that has failed.
    pub(super) fn copy_into(&self, mut copy: BlockCopy, earlier: usize) -> Option<BlockCopy> {
        let skipped = self.earlier().saturating_sub(earlier);
        copy.earlier =
            self.kept.range(skipped..self.earlier()).map(|kept| self.fetch(kept)).collect::<Option<_>>()?;
        copy.parameters = self.fetch(self.newest())?;
        copy.slots = match &self.slots {
            Slots::Here(slots) => slots.iter().map(|slot| bytes_of(Arc::clone(slot))).collect(),
            Slots::There(resident) => resident.slots().ok()?,
        };
        Some(copy)
    }

    /// Asks a device for a copy of a block that it updates, without waiting. `None` if the processor updates it, or some of it is gone.
    pub(super) fn ask_for_copy(&self, head: BlockCopy, earlier: usize) -> Option<ComingCopy> {
        let Slots::There(resident) = &self.slots else { return None };
        let kept: Vec<Published> =
            self.kept.range(self.earlier().saturating_sub(earlier)..).cloned().collect();
        let is_coming = |kept: &Published| {
            kept.bytes().is_some() || kept.outcome().is_some_and(|outcome| resident.bring(outcome))
        };
        kept.iter().all(is_coming).then(|| ComingCopy { head, kept, slots: resident.bring_slots() })
    }

    /// The bytes of a version that is kept. Waits for a device that has left them where they are; none while it has yet to make
    /// them, or if it has failed.
    fn fetch(&self, kept: &Published) -> Option<Bytes> {
        match (kept.bytes(), kept.outcome().filter(|outcome| outcome.is_made()), &self.slots) {
            (Some(bytes), ..) => Some(bytes),
            (None, Some(outcome), Slots::There(resident)) => resident.fetch(outcome).ok(),
            (None, ..) => None,
        }
    }

    /// The bytes of the version so many before the newest. Those that a device has left where they are it is asked for: they are
    /// here once it says that it has done something.
    pub(super) fn read(&self, back: usize) -> Kept {
        let Some(kept) = self.parameters(back) else { return Kept::Gone };
        match (kept.bytes(), kept.outcome(), &self.slots) {
            (Some(bytes), ..) => Kept::Here(bytes),
            (None, Some(outcome), Slots::There(resident)) if resident.bring(outcome) => Kept::Coming,
            // Two updates have followed, so that its step is done everywhere.
            (None, ..) => Kept::Gone,
        }
    }

    /// Copies the version so many before the newest to an area of its device, from byte `to` on; false if it does not go there.
    pub(super) fn give(&self, back: usize, area: &Area, to: u64, given: &mut Given) -> bool {
        let outcome = self.parameters(back).and_then(Published::outcome);
        match (&self.slots, outcome) {
            (Slots::There(resident), Some(outcome)) => resident.give(outcome, area, to, given),
            _ => false,
        }
    }

    /// The next version: the rule runs once over a gradient sum. Returns the bytes that had to be copied because
    /// somebody still has the buffers.
    pub(super) fn apply(
        &mut self,
        shape: &BlockShape,
        context: UpdateContext,
        divisor: Divisor,
        mut sum: DenseSum,
    ) -> u64 {
        let slots = match &mut self.slots {
            Slots::Here(slots) => slots,
            Slots::There(resident) => {
                let pieces = shape.passes(context, divisor);
                let pieces = pieces.filter_map(|(range, rule, pass)| PieceUpdate::new(range, rule, pass?));
                let outcome = match sum.on_device() {
                    Some(tree) => resident.update_by(pieces.collect(), tree.clone(), context.brings),
                    None => resident.update(pieces.collect(), |page| sum.read_to(page)),
                };
                self.kept.push_back(Published::on_device(outcome));
                return 0;
            }
        };
        let mut copied = 0;
        let mut borrowed: Vec<&mut [f32]> = Vec::with_capacity(slots.len());
        for slot in slots {
            copied += if Arc::strong_count(slot) > 1 { 4 * slot.len() as u64 } else { 0 };
            borrowed.push(Arc::make_mut(slot).as_mut_slice());
        }
        if sum.is_empty() {
            // A metric's, of no record.
            sum = vec![0.0; shape.elements].into();
        }
        let zeros = if context.turn == MetricTurn::First { vec![0.0; shape.elements] } else { Vec::new() };
        let newest = self.kept.back().map_or(&[][..], Published::values);
        let newest = if context.turn == MetricTurn::First { &zeros } else { newest };
        self.kept.push_back(Published::new(shape.update(context, newest, sum, &mut borrowed, divisor)));
        copied
    }

    /// The next version, which is as this one.
    pub(super) fn rest(&mut self) {
        self.kept.push_back(self.newest().clone());
    }

    /// Lets go of versions but the newest and so many before it.
    pub(super) fn release(&mut self, earlier: usize) {
        self.kept.drain(..self.earlier().saturating_sub(earlier));
    }

    fn newest(&self) -> &Published {
        // Never empty: every constructor puts one in, `release` keeps the newest.
        &self.kept[self.kept.len() - 1]
    }
}

/// A copy whose values are on their way from a device.
#[derive(Clone, Debug)]
pub(super) struct ComingCopy {
    /// The copy without its values.
    head: BlockCopy,
    /// The newest version, and before it those that are to be in it.
    kept: Vec<Published>,
    slots: ComingSlots,
}

impl ComingCopy {
    /// Bytes that the copy will have.
    pub(super) fn bytes(&self, elements: usize) -> usize {
        4 * elements * self.kept.len() + self.slots.bytes()
    }

    /// The copy, once all of it is here.
    pub(super) fn here(&self) -> Option<BlockCopy> {
        let mut earlier = self.kept.iter().map(Published::bytes).collect::<Option<Vec<_>>>()?;
        let slots = self.slots.here()?;
        let parameters = earlier.pop()?;
        Some(BlockCopy { parameters, earlier, slots, ..self.head.clone() })
    }
}

/// The parameters of a block at one version, shared by everyone who sends them and never written again. They are in host memory, or
/// where a device makes them and perhaps leaves them.
#[derive(Clone, Debug)]
pub struct Published(Content);

#[derive(Clone, Debug)]
enum Content {
    Here(Bytes),
    There(Outcome),
}

struct Owner(Arc<Vec<f32>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// A shared buffer as little-endian bytes, without a copy.
pub(super) fn bytes_of(values: Arc<Vec<f32>>) -> Bytes {
    Bytes::from_owner(Owner(values))
}

impl Published {
    /// Publishes a buffer without copying it.
    pub fn new(values: Vec<f32>) -> Published {
        Published(Content::Here(bytes_of(Arc::new(values))))
    }
    /// The version that an update on a device makes.
    pub(super) fn on_device(outcome: Outcome) -> Published {
        Published(Content::There(outcome))
    }
    fn content(&self) -> Option<&Bytes> {
        match &self.0 {
            Content::Here(bytes) => Some(bytes),
            Content::There(outcome) => outcome.bytes(),
        }
    }
    /// Whether it is made: here, or on a device.
    pub fn is_made(&self) -> bool {
        match &self.0 {
            Content::Here(_) => true,
            Content::There(outcome) => outcome.is_made(),
        }
    }
    /// The update on a device that makes it, if one does.
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        match &self.0 {
            Content::Here(_) => None,
            Content::There(outcome) => Some(outcome),
        }
    }
    /// The values; of one that is not here none.
    pub fn values(&self) -> &[f32] {
        self.content().map_or(&[], |bytes| bytemuck::cast_slice(bytes))
    }
    /// The same as little-endian bytes, if it is here; clones share the buffer.
    pub fn bytes(&self) -> Option<Bytes> {
        self.content().cloned()
    }
}
