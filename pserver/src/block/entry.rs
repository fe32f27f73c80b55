//! One entry of a block's log: what a follower is given, and what makes its state the next one. Pure.

use super::published::bytes_of;
use super::state::Update;
use super::sum::Sum;
use crate::bucket::plan::Plan;
use bytes::Bytes;
use shoal_runtime::cluster::{Rows, StateName, Term, Version};
use shoal_runtime::wire::rows;
use std::sync::Arc;

/// One entry of a block's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The state it follows, and no other.
    pub follows: StateName,
    /// Under which term it was made.
    pub term: Term,
    /// Records (or tokens) in the sum.
    pub weight: u64,
    /// The reduced gradient, little-endian f32, or of a bucket its rows and what is done to them beside their values;
    /// empty where the weight is 0.
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

impl Entry {
    /// The name of the state that it makes.
    pub fn makes(&self) -> StateName {
        StateName { term: self.term, version: Version(self.follows.version.0 + 1) }
    }

    /// What follows a state under `term`. Settles the update's sum.
    pub fn of(update: &mut Update, follows: StateName, term: Term) -> Entry {
        update.sum.settle();
        let gradient = match &update.sum {
            _ if update.weight == 0 => Bytes::new(),
            Sum::Dense(sum) => bytes_of(Arc::new(sum.values().to_vec())),
            Sum::Rows(rows) => encode_rows(rows, &update.plan),
        };
        let Update { weight, position, staleness, factor, rate, .. } = *update;
        Entry { follows, term, weight, gradient, position, staleness, factor, rate }
    }
}

/// Bytes of the rows (u32), the rows, the plan.
fn encode_rows(sum: &Rows, plan: &Plan) -> Bytes {
    let mut bytes = vec![0; 4];
    rows::encode(sum, &mut bytes);
    let length = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    plan.encode(&mut bytes);
    bytes.into()
}

pub(super) fn decode_rows(bytes: &[u8], dimension: usize) -> Result<(Rows, Plan), String> {
    let short = || format!("{} bytes", bytes.len());
    let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
    let (sum, plan) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    let sum = rows::decode(sum, dimension)?;
    let plan = Plan::decode(plan, sum.len()).ok_or("not what happens to rows beside their values")?;
    Ok((sum, plan))
}
