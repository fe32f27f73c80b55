//! An undisturbed job's leases: `master::lease` alone, called as the master calls it. No members, no plan, no wire.

use anyhow::ensure;
use shoal_master::lease::{Grant, Lacking, Leases, Progress};
use shoal_runtime::cluster::JobShape;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::{Incarnation, LeaseId, Node, Step};
use std::time::Duration;

/// In each step.
pub const MICROBATCHES_PER_TRAINER: u32 = 8;
/// How long a step takes, by the clock that the master is given.
const STEP: Duration = Duration::from_millis(10);

/// Pservers that lack nothing of what was pushed; an undisturbed job never asks them.
#[derive(Debug)]
struct Nothing;

impl Lacking for Nothing {
    fn lacking(&self, _: Step, _: Node) -> Vec<Node> {
        Vec::new()
    }
}

/// An undisturbed job: every trainer holds one task of the front step and one of the step ahead.
#[derive(Debug)]
pub struct Job {
    trainers: u32,
    leases: Leases,
    front: Step,
    now: Duration,
    held: Vec<Vec<Progress>>,
}

impl Job {
    /// Of so many trainers, who hold nothing yet.
    pub fn new(trainers: u32) -> Job {
        let slots = trainers * MICROBATCHES_PER_TRAINER;
        Job::of(trainers, JobShape::new(EpochShape::new(u64::from(slots) * 1000, 1, slots), 1 << 20))
    }

    /// Of so many trainers over this data set; a step has [`MICROBATCHES_PER_TRAINER`] for each.
    pub fn of(trainers: u32, shape: JobShape) -> Job {
        let now = Duration::ZERO;
        let leases = Leases::new(shape, u64::MAX, 1, Duration::from_secs(60), LeaseId(1), now);
        Job { trainers, leases, front: Step(0), now, held: vec![Vec::new(); trainers as usize] }
    }

    /// Leases the tasks of the first two steps.
    ///
    /// # Errors
    /// A trainer got no lease, or another share than its own.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        self.ask(&mut |_| {})?;
        self.ask(&mut |_| {})
    }

    /// So many steps of a job that has begun: in each every trainer ends one task and is leased another.
    ///
    /// # Errors
    /// As [`Job::begin`].
    pub fn steps(&mut self, steps: u32) -> anyhow::Result<()> {
        self.steps_with(steps, &mut |_| {})
    }

    /// The same, and what becomes of each lease.
    ///
    /// # Errors
    /// As [`Job::begin`].
    pub fn steps_with(&mut self, steps: u32, leased: &mut dyn FnMut(Grant)) -> anyhow::Result<()> {
        for _ in 0..steps {
            self.push();
            self.ask(leased)?;
        }
        Ok(())
    }

    /// Every trainer says that it has pushed its task of the front, which then advances.
    fn push(&mut self) {
        self.now += STEP;
        for (trainer, held) in (1..).map(Incarnation).zip(&mut self.held) {
            if let Some(first) = held.first_mut() {
                *first = Progress { microbatches: MICROBATCHES_PER_TRAINER, pushed: true, ..*first };
            }
            self.leases.progress(trainer, held, self.now);
            self.leases.forget_unknown(trainer, held, &Nothing);
            held.remove(0);
        }
        self.front = self.front.next();
        self.leases.advance(self.front, self.now);
    }

    /// Every trainer asks for one task and must get a whole share of a step.
    fn ask(&mut self, leased: &mut dyn FnMut(Grant)) -> anyhow::Result<()> {
        for (trainer, held) in (1..).map(Incarnation).zip(&mut self.held) {
            let grants = self.leases.lease(trainer, self.trainers, 1, self.now, &Nothing);
            let [grant @ Grant { lease, node, .. }] = grants[..] else {
                anyhow::bail!("trainer {trainer:?} got {} leases, not one", grants.len());
            };
            ensure!(node.width() == MICROBATCHES_PER_TRAINER, "node {node} is no fair share");
            leased(grant);
            held.push(Progress { lease, microbatches: 0, pushed: false, waits: false });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undisturbed_job_leases_every_task_once_and_each_trainer_holds_two() {
        let mut job = Job::new(10);
        job.begin().unwrap();
        job.steps(2000).unwrap();
        let counters = job.leases.counters();
        assert_eq!((counters.leased, counters.leased_again), (20_020, 0));
        assert_eq!((counters.speculative, counters.expired), (0, 0));
        assert!((1..=10).all(|trainer| job.leases.in_hand(Incarnation(trainer)) == 2));
    }
}
