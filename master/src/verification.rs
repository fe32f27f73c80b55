//! Verification: a share of a synchronous job's microbatches is computed twice, and both computations must give the same bits.
//! Pure. Nothing here ever holds up a step or a lease.
//!
//! A **check** is of one place (step, slot) that is chosen. It begins when the place is first leased, with the node that has it.
//!
//! | what happens | what the check has then |
//! | --- | --- |
//! | a lease that has the place is given: a node's, or a second one of the place alone | one more that is *expected* |
//! | a trainer tells hashes | the first: kept. Any other computation's: compared with the first; if equal the check is settled, if not the job fails |
//! | a lease ends without them (lost, handed back, unknown to its trainer), or its trainer computes nothing for two TTLs | one expected less |
//! | the job goes back | no check is left |
//! | its step is `KEPT_STEPS` behind the front, and nothing is expected | nothing: a check that is not settled then is given up, and counted |
//!
//! A second lease is wanted while less than two are told and expected together, and the parameters that it reads are still there:
//! of the front's step and of the one before. While its step is the front it is another trainer's, if there is one. Invariants:
//! - hashes are compared only if rewind and exclusions were the same: then a step function that is one gives the same bits;
//! - a word that is repeated, or comes from an earlier master's time, counts once: computations are told apart by their leases;
//! - whatever two different hashes were told of a place that is remembered, they are found;
//! - trainers wait for nothing here, so that verification costs the second computations and nothing else. At the job's end the
//!   master waits for them, as long as any is told within two TTLs.

use shoal_runtime::cluster::verification::{HASH_BYTES, Verified, is_chosen};
use shoal_runtime::cluster::{Incarnation, LeaseId, Rewind, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Steps behind the front of which checks are remembered: what is told late is still compared.
const KEPT_STEPS: u64 = 4;
/// Steps behind the front whose parameters may still be there.
const READABLE_STEPS: u64 = 1;
/// Places that are looked at for one that another trainer may have.
const LOOKED_AT_MAX: usize = 64;

/// Checks beyond which none begins with what a trainer tells of a place that was leased to nobody here.
const CHECKS_MAX: usize = 1 << 16;

type Place = (u64, u32);

/// Two computations of one microbatch that gave different bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The step.
    pub step: Step,
    /// The slot in it.
    pub slot: u32,
    /// Which of the hashes is the first that differs.
    pub hash: usize,
    /// Who computed it, by name.
    pub trainers: [String; 2],
}

/// How many checks have ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Two computations gave the same bits.
    pub verified: u64,
    /// There was no second one in time.
    pub given_up: u64,
}

/// Which second computations are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Those of a step that every block has applied: the parameters that they read will soon be gone.
    Late,
    /// Those of the front too.
    Present,
}

/// The checks of one job.
#[derive(Debug)]
pub struct Verification {
    seed: u64,
    millionths: u32,
    patience: Duration,
    front: u64,
    rewind: Rewind,
    checks: BTreeMap<Place, Check>,
    /// Places of which a second computation is wanted.
    wanting: BTreeSet<Place>,
    /// Where something is expected of a trainer.
    expected_of: BTreeMap<Incarnation, BTreeSet<Place>>,
    /// Since when nothing was told.
    told_at: Duration,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Check {
    first: Option<Told>,
    is_settled: bool,
    expected: Vec<Expected>,
}

#[derive(Debug)]
struct Told {
    trainer: Incarnation,
    name: String,
    verified: Verified,
}

#[derive(Debug)]
struct Expected {
    trainer: Incarnation,
    lease: LeaseId,
    /// Since when its trainer has computed nothing.
    since: Duration,
}

impl Check {
    fn wants_second(&self) -> bool {
        !self.is_settled && usize::from(self.first.is_some()) + self.expected.len() < 2
    }
    fn is_of(&self, trainer: Incarnation) -> bool {
        let told = self.first.iter().map(|told| told.trainer);
        told.chain(self.expected.iter().map(|expected| expected.trainer)).any(|one| one == trainer)
    }
}

impl Verification {
    /// Of a job with this seed, of which a share of `millionths` is verified.
    pub fn new(seed: u64, millionths: u32, ttl: Duration, rewind: Rewind, now: Duration) -> Verification {
        Verification {
            seed,
            millionths,
            patience: 2 * ttl,
            front: 0,
            rewind,
            checks: BTreeMap::new(),
            wanting: BTreeSet::new(),
            expected_of: BTreeMap::new(),
            told_at: now,
            counters: Counters::default(),
        }
    }

    /// Chooses such a share from now on.
    pub fn choose(&mut self, millionths: u32) {
        self.millionths = millionths;
    }

    /// How many have ended so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The slots of a step, among these, whose hashes are to be told.
    pub fn chosen(&self, step: Step, slots: Range<u32>) -> Vec<u32> {
        slots.filter(|slot| is_chosen(self.seed, step, *slot, self.millionths)).collect()
    }

    /// These slots of a step, which were chosen, are leased.
    pub fn given(&mut self, trainer: Incarnation, lease: LeaseId, step: Step, slots: &[u32], now: Duration) {
        for place in slots.iter().map(|slot| (step.0, *slot)) {
            let check = self.checks.entry(place).or_default();
            check.expected.push(Expected { trainer, lease, since: now });
            self.expected_of.entry(trainer).or_default().insert(place);
            self.look_at(place);
        }
    }

    /// A place that a trainer should compute once more, which it `may`; the lowest first.
    pub fn wanted(
        &self,
        trainer: Incarnation,
        is_alone: bool,
        when: When,
        may: &dyn Fn(Step, u32) -> bool,
    ) -> Option<(Step, u32)> {
        let end = match when {
            When::Late => (self.front, 0),
            When::Present => (self.front + 1, 0),
        };
        let wanted = self.wanting.range(..end).take(LOOKED_AT_MAX);
        let is_anybodys = |place: &&Place| {
            let is_late = is_alone || place.0 < self.front;
            is_late || self.checks.get(place).is_some_and(|check| !check.is_of(trainer))
        };
        let mut places = wanted.filter(is_anybodys).map(|(step, slot)| (Step(*step), *slot));
        places.find(|(step, slot)| may(*step, *slot))
    }

    /// A trainer speaks: it has these leases, `has_computed` since it spoke last, and tells these hashes. Returns what differs.
    pub fn hear(
        &mut self,
        (trainer, name): (Incarnation, &str),
        has_lease: &dyn Fn(LeaseId) -> bool,
        has_computed: bool,
        told: &[Verified],
        now: Duration,
    ) -> Option<Difference> {
        let differs =
            told.iter().filter_map(|verified| self.tell(trainer, name, verified, now)).collect::<Vec<_>>();
        let patience = self.patience;
        self.expect(trainer, |expected| {
            if has_computed {
                expected.since = now;
            }
            has_lease(expected.lease) && now < expected.since + patience
        });
        differs.into_iter().next()
    }

    /// A trainer is gone.
    pub fn lose(&mut self, trainer: Incarnation) {
        self.expect(trainer, |_| false);
    }

    /// Every block has applied all steps below `front`.
    pub fn advance(&mut self, front: Step, now: Duration) {
        if front.0 > self.front {
            (self.front, self.told_at) = (front.0, now);
            let readable = front.0.saturating_sub(READABLE_STEPS);
            self.wanting = self.wanting.split_off(&(readable, 0));
            self.forget();
        }
    }

    /// The job has gone back to `front`: what was computed is worth nothing, nor is what is told of it.
    pub fn go_back(&mut self, front: Step, rewind: Rewind, now: Duration) {
        (self.front, self.rewind, self.told_at) = (front.0, rewind, now);
        self.checks.clear();
        self.wanting.clear();
        self.expected_of.clear();
    }

    /// Whether some check may still be settled, so that the job should not end yet.
    pub fn is_worth_waiting(&self, now: Duration) -> bool {
        let readable = self.front.saturating_sub(READABLE_STEPS);
        let is_open =
            |check: &Check| !check.is_settled && (check.wants_second() || !check.expected.is_empty());
        now < self.told_at + self.patience
            && self.checks.range((readable, 0)..).any(|(_, check)| is_open(check))
    }

    fn tell(
        &mut self,
        trainer: Incarnation,
        name: &str,
        verified: &Verified,
        now: Duration,
    ) -> Option<Difference> {
        let place = (verified.step.0, verified.slot);
        let is_known = self.checks.contains_key(&place)
            || (verified.step.0.saturating_add(KEPT_STEPS) >= self.front
                && self.checks.len() < CHECKS_MAX
                && is_chosen(self.seed, verified.step, verified.slot, self.millionths));
        if verified.rewind != self.rewind || !is_known {
            return None;
        }
        self.told_at = now;
        let check = self.checks.entry(place).or_default();
        check.expected.retain(|expected| expected.lease != verified.lease);
        let first = check.first.take_if(|first| first.verified.exclusions < verified.exclusions);
        check.is_settled &= first.is_none();
        let difference = match &check.first {
            None => {
                let (name, verified) = (name.to_owned(), verified.clone());
                check.first = Some(Told { trainer, name, verified });
                None
            }
            Some(first)
                if first.verified.lease == verified.lease
                    || first.verified.exclusions > verified.exclusions =>
            {
                None
            }
            Some(first) => {
                let hash = first_difference(&first.verified.hashes, &verified.hashes);
                self.counters.verified += u64::from(hash.is_none() && !check.is_settled);
                check.is_settled |= hash.is_none();
                let trainers = [first.name.clone(), name.to_owned()];
                hash.map(|hash| Difference { step: verified.step, slot: verified.slot, hash, trainers })
            }
        };
        self.look_at(place);
        difference
    }

    /// Keeps of what is expected of a trainer what `is_kept`.
    fn expect(&mut self, trainer: Incarnation, mut is_kept: impl FnMut(&mut Expected) -> bool) {
        for place in self.expected_of.remove(&trainer).unwrap_or_default() {
            let Some(check) = self.checks.get_mut(&place) else { continue };
            check.expected.retain_mut(|expected| expected.trainer != trainer || is_kept(expected));
            if check.expected.iter().any(|expected| expected.trainer == trainer) {
                self.expected_of.entry(trainer).or_default().insert(place);
            }
            self.look_at(place);
        }
        self.forget();
    }

    /// Notes whether a second computation is wanted of a place.
    fn look_at(&mut self, place: Place) {
        let is_readable = place.0.saturating_add(READABLE_STEPS) >= self.front;
        let is_wanting = is_readable && self.checks.get(&place).is_some_and(Check::wants_second);
        match is_wanting {
            true => self.wanting.insert(place),
            false => self.wanting.remove(&place),
        };
    }

    /// Forgets checks that are far behind the front, and of which nothing is expected any more.
    fn forget(&mut self) {
        let kept = self.front.saturating_sub(KEPT_STEPS);
        let over: Vec<Place> = self
            .checks
            .range(..(kept, 0))
            .filter(|(_, check)| check.expected.is_empty())
            .map(|(place, _)| *place)
            .collect();
        for place in over {
            let is_settled = self.checks.remove(&place).is_some_and(|check| check.is_settled);
            self.counters.given_up += u64::from(!is_settled);
        }
    }
}

/// Which hash is the first that differs.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let (ours, theirs) = (one.chunks(HASH_BYTES), other.chunks(HASH_BYTES));
    let differs = ours.zip(theirs).position(|(one, other)| one != other);
    differs.or_else(|| (one.len() != other.len()).then_some(one.len().min(other.len()) / HASH_BYTES))
}

#[cfg(test)]
#[path = "verification_tests.rs"]
mod tests;
