//! The state of one block: a pure function of its state before and one update. Copies of a block that have applied the same
//! updates have the same bits.
//!
//! It must never know of roles, copies or messages.

use super::dense::{ComingCopy, Dense, Published};
use super::evaluate::MetricTurn;
use super::reduce::{DenseSum, Sum};
use super::shape::{BlockShape, Divisor, UpdateContext};
use crate::bucket::Bucket;
use crate::bucket::arena::Slot;
use crate::bucket::beginning::GivenRows;
use crate::bucket::plan::Plan;
use crate::device::{Area, Device, Given};
use bytes::Bytes;
use shoal_runtime::cluster::block_copy::SegmentRow;
use shoal_runtime::cluster::{
    BlockCopy, CheckpointId, Ledger, Precision, Refusal, RefusalKind, Rewind, Rows, StateName, Term, Version,
};
use shoal_runtime::wire::rows;
use std::ops::Range;

/// One update: what makes a state the next one, and an entry of the log that followers are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The state that it follows, and no other.
    pub follows: StateName,
    /// Under which term it was made.
    pub term: Term,
    /// Records (or tokens) in the sum. Of weight 0 the rule does not run, but a metric may begin at zero.
    pub weight: u64,
    /// The reduced gradient; empty where the weight is 0.
    pub sum: Sum,
    /// Of a bucket: what the update does to its rows beside their values.
    pub plan: Plan,
    /// Asynchronous jobs: the position that it applies.
    pub position: Option<u64>,
    /// Asynchronous jobs: updates between the version that the gradient was computed from and this one.
    pub staleness: u64,
    /// What trained parameters' mean gradients are multiplied with, as it was decided over all blocks.
    pub factor: f32,
    /// What learning rates are multiplied with, as evaluations were judged.
    pub rate: f32,
}

impl Update {
    /// An update by a sum of so many records, with no factor.
    pub fn new(follows: StateName, term: Term, weight: u64, sum: Sum) -> Update {
        let (plan, position, staleness, factor, rate) = (Plan::default(), None, 0, 1.0, 1.0);
        Update { follows, term, weight, sum, plan, position, staleness, factor, rate }
    }

    /// The name of the state that it makes.
    pub fn makes(&self) -> StateName {
        StateName { term: self.term, version: Version(self.follows.version.0 + 1) }
    }

    /// Bytes that its gradient has in a message.
    pub fn bytes(&self) -> usize {
        match &self.sum {
            _ if self.weight == 0 => 0,
            Sum::Dense(sum) => 4 * sum.elements(),
            Sum::Rows(sum) => 4 + rows::encoded_bytes(sum.len(), sum.dimension()) + self.plan.bytes(),
        }
    }

    /// Its gradient for a message: little-endian f32, which are shared and not copied where the sum is
    /// [frozen](Sum::freeze); of a bucket `bytes of the rows (u32) | rows | plan`; nothing where the weight is 0.
    pub fn encode_gradient(&self) -> Bytes {
        match &self.sum {
            _ if self.weight == 0 => Bytes::new(),
            Sum::Dense(sum) => sum.bytes(),
            Sum::Rows(sum) => {
                let mut bytes = Vec::with_capacity(self.bytes());
                let length = rows::encoded_bytes(sum.len(), sum.dimension()) as u32;
                bytes.extend_from_slice(&length.to_le_bytes());
                rows::encode(sum, &mut bytes);
                self.plan.encode(&mut bytes);
                bytes.into()
            }
        }
    }

    /// The sum and the plan of a gradient that [`encode_gradient`](Self::encode_gradient) has written, of an update of that weight.
    ///
    /// # Errors
    /// It is not what values, or rows of such a bucket, are written as.
    pub fn decode_gradient(shape: &BlockShape, weight: u64, gradient: Bytes) -> Result<(Sum, Plan), Refusal> {
        match &shape.bucket {
            bucket if weight == 0 => Ok((Sum::nothing(bucket.is_some()), Plan::default())),
            None if !gradient.len().is_multiple_of(4) => {
                Err(wrong_shape(shape, format!("an entry with {} bytes came", gradient.len())))
            }
            Some(bucket) => {
                let (rows, plan) = decode_rows(&gradient, bucket.dimension)
                    .map_err(|what| wrong_shape(shape, format!("an entry: {what}")))?;
                Ok((Sum::Rows(rows), plan))
            }
            None => Ok((Sum::Dense(DenseSum::unread(gradient, Precision::F32)), Plan::default())),
        }
    }
}

fn decode_rows(bytes: &[u8], dimension: usize) -> Result<(Rows, Plan), String> {
    let short = || format!("{} bytes", bytes.len());
    let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
    let (sum, plan) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    let sum = rows::decode(sum, dimension)?;
    let plan = Plan::decode(plan, sum.len()).ok_or("not what happens to rows beside their values")?;
    Ok((sum, plan))
}

/// The newest versions of a block's values, rule state, and how it is named.
#[derive(Debug)]
pub struct State {
    name: StateName,
    values: Values,
    ledger: Ledger,
}

/// What is kept of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its bytes.
    Here(Bytes),
    /// A device brings it.
    Coming,
    /// Nothing any more.
    Gone,
}

#[derive(Debug)]
enum Values {
    Dense(Dense),
    Bucket(Box<Bucket>),
}

impl State {
    /// The block before the first update, restored under `term`: a dense one at these parameters and with slots of zero, a
    /// bucket without rows.
    pub fn beginning(shape: &BlockShape, parameters: Vec<f32>, term: Term) -> State {
        let values = match &shape.bucket {
            Some(bucket) => Values::Bucket(Box::new(Bucket::new(bucket))),
            None => Values::Dense(Dense::beginning(shape, parameters)),
        };
        let name = StateName { term, version: Version(0) };
        State { name, values, ledger: Ledger::default() }
    }

    /// The same of a bucket that begins at these rows.
    pub fn beginning_at(shape: &BlockShape, rows: &GivenRows, term: Term) -> State {
        let mut state = State::beginning(shape, Vec::new(), term);
        if let (Values::Bucket(bucket), Some(of)) = (&mut state.values, &shape.bucket) {
            **bucket = Bucket::beginning(of, rows);
        }
        state
    }

    /// The state that a copy carries, of a bucket what its first segment has of it. Refuses one that is not of this block's
    /// shape.
    pub fn from_copy(shape: &BlockShape, copy: &BlockCopy) -> Result<State, Refusal> {
        let values = match &shape.bucket {
            None => Values::Dense(Dense::from_copy(shape, copy)?),
            Some(bucket) => {
                let begun = Bucket::begin(bucket, copy);
                Values::Bucket(Box::new(begun.map_err(|what| wrong_shape(shape, what))?))
            }
        };
        Ok(State { name: copy.name, values, ledger: copy.ledger.clone() })
    }

    /// Takes in the segment of a copy that comes next. One of another state changes nothing.
    pub fn fill(&mut self, shape: &BlockShape, copy: &BlockCopy) -> Result<(), Refusal> {
        let (Values::Bucket(bucket), Some(of)) = (&mut self.values, &shape.bucket) else { return Ok(()) };
        let is_next = copy.segment.as_ref().is_some_and(|segment| segment.slots.start == bucket.filled());
        if copy.name == self.name && is_next {
            bucket.fill(of, copy).map_err(|what| wrong_shape(shape, what))?;
        }
        Ok(())
    }

    /// Takes in rows of a bucket's slots of which newer pieces of a checkpoint say nothing.
    pub(super) fn fill_beneath(
        &mut self,
        shape: &BlockShape,
        slots: &Range<Slot>,
        rows: &[SegmentRow<'_>],
    ) -> Result<(), Refusal> {
        let (Values::Bucket(bucket), Some(of)) = (&mut self.values, &shape.bucket) else { return Ok(()) };
        bucket.fill_beneath(of, slots, rows).map_err(|what| wrong_shape(shape, what))
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

    /// Updates whose parameters are here: a device may still be at work on the newest.
    pub fn ready(&self) -> Version {
        match &self.values {
            Values::Dense(dense) => Version(self.name.version.0 - dense.coming() as u64),
            Values::Bucket(_) => self.name.version,
        }
    }

    /// From now on a device updates it, if it can and has memory.
    pub(super) fn place_on_device(&mut self, shape: &BlockShape, device: &Device) {
        if let Values::Dense(dense) = &mut self.values
            && shape.is_for_devices()
        {
            dense.place_on_device(shape, device);
        }
    }

    /// Whether a device updates it.
    pub(super) fn is_on_device(&self) -> bool {
        matches!(&self.values, Values::Dense(dense) if dense.is_there())
    }

    /// Rows of a bucket that the update of that number evicts at most, if its sum has so many; of a dense block none.
    pub(super) fn evicts_at_most(&self, shape: &BlockShape, update: u64, rows: usize) -> usize {
        match (&self.values, &shape.bucket) {
            (Values::Bucket(bucket), Some(of)) => bucket.evicts_at_most(of, update, rows),
            _ => 0,
        }
    }

    /// Rows of a bucket and the bytes of their memory; of a dense block none.
    pub fn rows(&self) -> (u64, u64) {
        match &self.values {
            Values::Bucket(bucket) => (bucket.rows().len() as u64, bucket.rows().bytes() as u64),
            Values::Dense(_) => (0, 0),
        }
    }

    /// Of a bucket that is being filled: the first slot whose row is not here.
    pub fn filled(&self) -> Option<Slot> {
        match &self.values {
            Values::Bucket(bucket) if !bucket.is_whole() => Some(bucket.filled()),
            Values::Bucket(_) | Values::Dense(_) => None,
        }
    }

    /// The parameters of a dense block at `version`, if they are kept.
    pub fn parameters(&self, version: Version) -> Option<&Published> {
        let back = self.name.version.0.checked_sub(version.0)?;
        match &self.values {
            Values::Dense(dense) => dense.parameters(back as usize),
            Values::Bucket(_) => None,
        }
    }

    /// What is read of it at `version`: all parameters, or the rows of these keys.
    pub fn read(&self, shape: &BlockShape, version: Version, keys: &[u64]) -> Kept {
        let Some(back) = self.name.version.0.checked_sub(version.0) else { return Kept::Gone };
        match (&self.values, &shape.bucket) {
            (Values::Bucket(bucket), Some(of)) if back <= bucket.earlier() as u64 => {
                let mut bytes = Vec::new();
                bucket.read(of, back as usize, keys, &mut bytes);
                Kept::Here(bytes.into())
            }
            (Values::Bucket(_), _) => Kept::Gone,
            (Values::Dense(dense), _) => dense.read(back as usize),
        }
    }

    /// The rows of a bucket, if they are those of `version`.
    pub(super) fn rows_at(&self, version: Version) -> Option<&Bucket> {
        match &self.values {
            Values::Bucket(bucket) if version == self.name.version => Some(bucket),
            Values::Bucket(_) | Values::Dense(_) => None,
        }
    }

    /// Whether what is read of it at `version` is here, or is kept no more; what a device has left where it is, is asked of that.
    pub(super) fn is_here(&self, version: Version) -> bool {
        let back = self.name.version.0.checked_sub(version.0);
        match (&self.values, back) {
            (Values::Dense(dense), Some(back)) => dense.read(back as usize) != Kept::Coming,
            (Values::Bucket(_), _) | (_, None) => true,
        }
    }

    /// Whether a device makes the parameters of `version`, and may put them into an area of it.
    pub(super) fn may_give(&self, version: Version) -> bool {
        self.parameters(version).is_some_and(|kept| kept.outcome().is_some())
    }

    /// Copies the parameters of a dense block at `version` to an area of its device, from byte `to` on; false if they do not go
    /// there.
    pub fn give(&self, version: Version, area: &Area, to: u64, given: &mut Given) -> bool {
        let back = self.name.version.0.checked_sub(version.0);
        match (&self.values, back) {
            (Values::Dense(dense), Some(back)) => dense.give(back as usize, area, to, given),
            _ => false,
        }
    }

    /// A copy of it with at most `earlier` versions before the newest, sharing its buffers; of a bucket the segment from
    /// slot `from` on. None while a device has yet to give what is to be in it.
    pub fn copy(&self, shape: &BlockShape, of: CopyOf) -> Option<BlockCopy> {
        let copy = self.head(shape, of);
        let earlier = usize::try_from(of.earlier).unwrap_or(usize::MAX);
        match (&self.values, &shape.bucket) {
            (Values::Bucket(bucket), Some(shape)) => {
                Some(bucket.segment(shape, copy, of.from, of.segment_bytes, earlier))
            }
            (Values::Dense(dense), _) => dense.copy_into(copy, earlier),
            (Values::Bucket(_), None) => Some(copy),
        }
    }

    /// Asks a device for a copy, without waiting. `None` if no device updates the block.
    pub(super) fn ask_for_copy(&self, shape: &BlockShape, of: CopyOf) -> Option<ComingCopy> {
        let Values::Dense(dense) = &self.values else { return None };
        dense.ask_for_copy(self.head(shape, of), usize::try_from(of.earlier).unwrap_or(usize::MAX))
    }

    /// What all copies of it have in common.
    fn head(&self, shape: &BlockShape, of: CopyOf) -> BlockCopy {
        BlockCopy {
            block: shape.id,
            rewind: of.rewind,
            name: self.name,
            published: of.published,
            parameters: Bytes::new(),
            earlier: Vec::new(),
            slots: Vec::new(),
            ledger: self.ledger.clone(),
            segment: None,
        }
    }

    /// From now on a bucket's present version, or what changed since the piece of a checkpoint, can be given out by segments,
    /// whatever updates do. Answers what their copies have in common; none of a dense block. Later pieces may rest on it as that
    /// of the checkpoint `base`, if there is one.
    pub fn begin_giving(
        &mut self,
        shape: &BlockShape,
        of: CopyOf,
        base: Option<CheckpointId>,
        since: Option<CheckpointId>,
    ) -> Option<BlockCopy> {
        let head = self.head(shape, of);
        let Values::Bucket(bucket) = &mut self.values else { return None };
        bucket.begin_giving(base, since, usize::try_from(of.earlier).unwrap_or(usize::MAX));
        Some(head)
    }

    /// Nothing more of it is given out.
    pub fn end_giving(&mut self) {
        if let Values::Bucket(bucket) = &mut self.values {
            bucket.end_giving();
        }
    }

    /// Bytes of the rows that were saved for it.
    pub fn saved_bytes(&self) -> usize {
        match &self.values {
            Values::Bucket(bucket) => bucket.saved_bytes(),
            Values::Dense(_) => 0,
        }
    }

    /// Its next segment, as a copy that is otherwise as `head`; none where nothing is given.
    pub fn give_segment(
        &mut self,
        shape: &BlockShape,
        head: &BlockCopy,
        bytes_max: usize,
    ) -> Option<BlockCopy> {
        let (Values::Bucket(bucket), Some(shape)) = (&mut self.values, &shape.bucket) else { return None };
        bucket.give_segment(shape, head, bytes_max)
    }

    /// What an update does to a bucket's rows beside their values.
    pub fn plan(&self, shape: &BlockShape, context: UpdateContext, update: &Update) -> Plan {
        match (&self.values, &shape.bucket, &update.sum) {
            (Values::Bucket(bucket), Some(of), Sum::Rows(rows)) if update.weight > 0 => {
                bucket.plan(of, rows, &shape.row_pass(context, divisor(update)))
            }
            _ => Plan::default(),
        }
    }

    /// Whether an update that came from elsewhere can follow this state.
    ///
    /// # Errors
    /// Its sum is not of this block's shape, or what it says of a bucket's rows cannot be.
    pub fn check(&self, shape: &BlockShape, update: &Update) -> Result<(), Refusal> {
        let checked = match (&self.values, &shape.bucket, &update.sum) {
            (Values::Bucket(bucket), Some(of), Sum::Rows(rows)) => bucket.check(of, rows, &update.plan),
            (Values::Dense(_), None, Sum::Dense(sum))
                if sum.elements() == if update.weight == 0 { 0 } else { shape.elements } =>
            {
                Ok(())
            }
            _ => Err(format!("{} bytes came", update.bytes())),
        };
        checked.map_err(|what| wrong_shape(shape, format!("an entry: {what}")))
    }

    /// Makes the next version: the rule runs once. Returns the bytes that had to be copied because somebody still has the buffers.
    pub fn apply(&mut self, shape: &BlockShape, context: UpdateContext, update: Update) -> u64 {
        debug_assert!(update.follows == self.name, "an update follows one state and no other");
        let (mut copied, made) = (0, update.makes());
        let divisor = divisor(&update);
        let is_idle = if shape.is_metric { context.turn == MetricTurn::Idle } else { update.weight == 0 };
        match (&mut self.values, update.sum, &shape.bucket) {
            (Values::Dense(dense), _, _) if is_idle => dense.rest(),
            (Values::Bucket(bucket), Sum::Rows(rows), Some(of)) if !is_idle => {
                bucket.apply(of, rows, &update.plan, shape.row_pass(context, divisor));
            }
            (Values::Bucket(bucket), ..) => bucket.rest(),
            (Values::Dense(dense), Sum::Dense(sum), _) => {
                copied = dense.apply(shape, context, divisor, sum);
            }
            (Values::Dense(_), Sum::Rows(_), _) => {
                unreachable!("a dense block is given no rows: its shape has checked what came")
            }
        }
        if let Some(position) = update.position {
            self.ledger.insert(position);
        }
        self.name = made;
        copied
    }

    /// Lets go of versions that nobody may ask for any more: those before the published one and before the `earlier`
    /// ones that come before the newest.
    pub fn release(&mut self, published: Version, earlier: u64) {
        let lowest = published.0.min(self.name.version.0.saturating_sub(earlier));
        let kept = (self.name.version.0 - lowest) as usize;
        match &mut self.values {
            Values::Dense(dense) => dense.release(kept),
            Values::Bucket(bucket) => bucket.release(kept),
        }
    }
}

/// What a copy of a state is to have.
#[derive(Clone, Copy, Debug)]
pub struct CopyOf {
    /// The history that it belongs to.
    pub rewind: Rewind,
    /// What is published.
    pub published: Version,
    /// Versions before the newest, at most.
    pub earlier: u64,
    /// Of a bucket: the first slot.
    pub from: Slot,
    /// Of a bucket: about so many bytes.
    pub segment_bytes: usize,
}

fn divisor(update: &Update) -> Divisor {
    Divisor { weight: update.weight, factor: update.factor }
}

pub(super) fn wrong_shape(shape: &BlockShape, what: String) -> Refusal {
    Refusal::new(RefusalKind::WrongShape, shape, what)
}
