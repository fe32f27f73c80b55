//! Every point at which a process may be killed, and kills to order.
//!
//! A process that dies loses all that was only in its memory. So wherever it dies, to others it looks as if it had died
//! right after its last effect on them: a call that it made or answered, a document that it swapped, an object that it wrote
//! or removed. These are all the points there are, each before and after, and none of them needs a line in the code that ships.

use super::host::Host;
use shoal_master::document::{Document, Mark};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Before the effect, or after it and before its author can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It does not take place.
    Before,
    /// It takes place.
    After,
}

/// A point in a process's life.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Whose.
    pub role: &'static str,
    /// What it does.
    pub what: String,
    /// Before or after.
    pub side: Side,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.side == Side::Before { "before" } else { "after" };
        write!(f, "{} {side} it {}", self.role, self.what)
    }
}

/// A kill.
#[derive(Clone, Debug)]
pub enum Order {
    /// Whoever reaches this point for the so-manieth time, from 1.
    At(Point, u64),
    /// Whoever reaches any point as the so-manieth since the kill before, from 1.
    Next(u64),
}

/// What was reached in a run, and what is still to be killed. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Points {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    reached: BTreeMap<Point, u64>,
    since_kill: u64,
    orders: VecDeque<Order>,
    kills: Vec<Point>,
}

impl Points {
    /// Kills these in turn.
    pub fn order(&self, orders: impl IntoIterator<Item = Order>) {
        self.inner().orders.extend(orders);
    }
    /// Kills nobody any more: the job is over, and nobody starts processes again.
    pub fn disarm(&self) {
        self.inner().orders.clear();
    }
    /// How often each point was reached.
    pub fn reached(&self) -> BTreeMap<Point, u64> {
        self.inner().reached.clone()
    }
    /// Where processes were killed.
    pub fn kills(&self) -> Vec<Point> {
        self.inner().kills.clone()
    }

    /// The process on `host` is at a point. One that is to die here goes no further.
    pub async fn pass(&self, host: &Host, what: impl FnOnce() -> String, side: Side) {
        let Some(role) = role_of(host) else { return };
        if self.is_killed(Point { role, what: what(), side }) {
            host.crash();
            std::future::pending::<()>().await;
        }
    }

    fn is_killed(&self, point: Point) -> bool {
        let inner = &mut *self.inner();
        let count = inner.reached.entry(point.clone()).or_default();
        *count += 1;
        inner.since_kill += 1;
        let is_due = match inner.orders.front() {
            Some(Order::At(ordered, number)) => *ordered == point && count == number,
            Some(Order::Next(number)) => inner.since_kill >= *number,
            None => false,
        };
        if is_due {
            inner.orders.pop_front();
            inner.kills.push(point);
            inner.since_kill = 0;
        }
        is_due
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Members of the job are killed; who looks at it is not.
fn role_of(host: &Host) -> Option<&'static str> {
    let is = |role: &&&str| host.name.starts_with(**role);
    match ["master", "pserver", "trainer", "rescuer"].iter().find(is).copied() {
        Some("rescuer") => Some("trainer"),
        role => role,
    }
}

/// What swaps are about.
pub const SWAPS: [&str; 12] = [
    "swaps: elected",
    "swaps: the job ends",
    "swaps: blocks are placed",
    "swaps: blocks go back",
    "swaps: copies are promoted",
    "swaps: heirs are appointed",
    "swaps: copies are admitted",
    "swaps: copies are added",
    "swaps: copies are dropped",
    "swaps: an evaluation is judged",
    "swaps: a checkpoint is kept",
    "swaps: a checkpoint is named",
];

/// What a swap is about, by what it changes.
pub fn swaps(before: Option<&Document>, after: &Document) -> &'static str {
    let Some(before) = before.filter(|before| before.master_term == after.master_term) else {
        return "swaps: elected";
    };
    if after.end.is_some() {
        return "swaps: the job ends";
    }
    let pairs = || before.blocks.iter().zip(&after.blocks);
    let in_sync = |document: &Document| {
        let copies = document.blocks.iter().flat_map(|block| &block.copies);
        copies.filter(|copy| copy.mark == Mark::InSync).count()
    };
    let copies = |document: &Document| document.blocks.iter().map(|block| block.copies.len()).sum::<usize>();
    match () {
        () if before.blocks.len() != after.blocks.len() => "swaps: blocks are placed",
        () if pairs().any(|(old, new)| old.rewind != new.rewind) => "swaps: blocks go back",
        () if pairs().any(|(old, new)| old.primary != new.primary) => "swaps: copies are promoted",
        () if pairs().any(|(old, new)| old.heir != new.heir) => "swaps: heirs are appointed",
        () if in_sync(after) > in_sync(before) => "swaps: copies are admitted",
        () if copies(after) > copies(before) => "swaps: copies are added",
        () if copies(after) < copies(before) => "swaps: copies are dropped",
        () if after.evaluations.len() > before.evaluations.len() => "swaps: an evaluation is judged",
        () if after.checkpoints != before.checkpoints => "swaps: a checkpoint is kept",
        () if after.named != before.named => "swaps: a checkpoint is named",
        () => "swaps: something else",
    }
}
