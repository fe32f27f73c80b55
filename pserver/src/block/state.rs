//! The state of one block: a pure function of its state before and one log entry. Copies of a block that have applied
//! the same entries have the same bits.
//!
//! Buffers are shared and never written again while somebody else has them (copy on write), so that a copy of the
//! state costs nothing until the next update. It must never know of roles, copies or messages.

use super::published::{Published, bytes_of};
use super::shape::{BlockShape, Divisor, Pace};
use super::verdicts::Turn;
use bytes::Bytes;
use shoal_runtime::cluster::{BlockCopy, Ledger, Refusal, RefusalKind, Rewind, StateName, Term, Version};
use std::collections::VecDeque;
use std::sync::Arc;

/// One update, as it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Records (or tokens) in the sum. Of weight 0 the rule does not run, but a metric may begin at zero.
    pub weight: u64,
    /// The reduced gradient: one value for each element of the block; empty where the weight is 0.
    pub sum: Vec<f32>,
    /// Asynchronous jobs: the position that it applies.
    pub position: Option<u64>,
    /// Asynchronous jobs: updates between the version that the gradient was computed from and this one.
    pub staleness: u64,
    /// What trained parameters' mean gradients are multiplied with, as it was decided over all blocks.
    pub factor: f32,
    /// What learning rates are multiplied with, as evaluations were judged.
    pub rate: f32,
}

/// One entry of a block's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The state it follows, and no other.
    pub follows: StateName,
    /// Under which term it was made.
    pub term: Term,
    /// Records (or tokens) in the sum.
    pub weight: u64,
    /// The reduced gradient, little-endian f32; empty where the weight is 0.
    pub gradient: Bytes,
    /// Asynchronous jobs: the position that it applies.
    pub position: Option<u64>,
    /// Asynchronous jobs: see [`Update`].
    pub staleness: u64,
    /// See [`Update`].
    pub factor: f32,
    /// See [`Update`].
    pub rate: f32,
}

/// Parameters of the newest versions, rule state, and how it is named.
#[derive(Clone, Debug)]
pub struct State {
    name: StateName,
    /// The newest versions in order; the last is `name.version`.
    kept: VecDeque<Published>,
    slots: Vec<Arc<Vec<f32>>>,
    ledger: Ledger,
}

impl Entry {
    /// The name of the state that it makes.
    pub fn makes(&self) -> StateName {
        StateName { term: self.term, version: Version(self.follows.version.0 + 1) }
    }
}

impl State {
    /// The block before the first update, at these parameters and with slots of zero, restored under `term`.
    pub fn beginning(shape: &BlockShape, parameters: Vec<f32>, term: Term) -> State {
        let parameters = Published::new(parameters);
        let slots = (0..shape.slots).map(|_| Arc::new(vec![0.0; shape.elements])).collect();
        let name = StateName { term, version: Version(0) };
        State { name, kept: VecDeque::from([parameters]), slots, ledger: Ledger::default() }
    }

    /// The state that a copy carries. Refuses one that is not of this block's shape.
    pub fn from_copy(shape: &BlockShape, copy: &BlockCopy) -> Result<State, Refusal> {
        let bytes = 4 * shape.elements;
        let buffers = copy.slots.iter().chain(&copy.earlier).chain([&copy.parameters]);
        if copy.slots.len() != shape.slots || buffers.into_iter().any(|buffer| buffer.len() != bytes) {
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
        Ok(State {
            name: copy.name,
            kept: kept.collect(),
            slots: copy.slots.iter().map(|slot| Arc::new(values(slot))).collect(),
            ledger: copy.ledger.clone(),
        })
    }

    /// The same state, as the beginning of a term.
    pub fn under(mut self, term: Term) -> State {
        self.name.term = term;
        self
    }

    /// How it is named.
    pub fn name(&self) -> StateName {
        self.name
    }
    /// Updates applied.
    pub fn version(&self) -> Version {
        self.name.version
    }

    /// The positions applied.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The parameters at `version`, if they are kept.
    pub fn parameters(&self, version: Version) -> Option<&Published> {
        let back = self.name.version.0.checked_sub(version.0)?;
        let at = (self.kept.len() as u64).checked_sub(back + 1)?;
        self.kept.get(at as usize)
    }

    /// A copy of it with at most `earlier` versions before the newest, sharing its buffers.
    pub fn copy(&self, shape: &BlockShape, rewind: Rewind, published: Version, earlier: u64) -> BlockCopy {
        let before = self.kept.len() - 1;
        let skipped = before.saturating_sub(earlier as usize);
        BlockCopy {
            block: shape.id,
            rewind,
            name: self.name,
            published,
            parameters: self.newest().bytes(),
            earlier: self.kept.range(skipped..before).map(Published::bytes).collect(),
            slots: self.slots.iter().map(|slot| bytes_of(Arc::clone(slot))).collect(),
            ledger: self.ledger.clone(),
        }
    }

    /// Makes the next version under `term`: the rule runs once. Returns the bytes that had to be copied because
    /// somebody still has the buffers.
    pub fn apply(&mut self, shape: &BlockShape, term: Term, pace: Pace, update: Update) -> u64 {
        let mut copied = 0;
        let is_idle = if shape.is_metric { pace.turn == Turn::Idle } else { update.weight == 0 };
        let next = if is_idle {
            self.newest().clone()
        } else {
            let mut slots: Vec<&mut [f32]> = Vec::with_capacity(self.slots.len());
            for slot in &mut self.slots {
                copied += if Arc::strong_count(slot) > 1 { 4 * slot.len() as u64 } else { 0 };
                slots.push(Arc::make_mut(slot).as_mut_slice());
            }
            let mut values = update.sum;
            // A metric's, of no record.
            values.resize(shape.elements, 0.0);
            let zeros = if pace.turn == Turn::First { vec![0.0; shape.elements] } else { Vec::new() };
            let newest = self.kept.back().map_or(&[][..], Published::values);
            let newest = if pace.turn == Turn::First { &zeros } else { newest };
            let divisor = Divisor { weight: update.weight, factor: update.factor };
            shape.update(pace, newest, &mut values, &mut slots, divisor);
            Published::new(values)
        };
        if let Some(position) = update.position {
            self.ledger.insert(position);
        }
        self.kept.push_back(next);
        self.name = StateName { term, version: Version(self.name.version.0 + 1) };
        copied
    }

    /// Lets go of versions that nobody may ask for any more: those before the published one and before the `earlier`
    /// ones that come before the newest.
    pub fn release(&mut self, published: Version, earlier: u64) {
        let lowest = published.0.min(self.name.version.0.saturating_sub(earlier));
        while self.kept.len() as u64 > self.name.version.0 - lowest + 1 {
            self.kept.pop_front();
        }
    }

    fn newest(&self) -> &Published {
        // Never empty: every constructor puts one in, `release` keeps the newest.
        &self.kept[self.kept.len() - 1]
    }
}
