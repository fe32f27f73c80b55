//! Trainers that are lost, what they were lost with, and how that is leased from then on: what [`crate::suspects`] counts.

use super::verifying::{self, Asked, Given};
use super::{Machine, Placed};
use crate::dispatch;
use crate::members::State;
use crate::suspects::{Blame, Care, DEATH_TTLS, LOSSES};
use crate::trouble::Complaint;
use shoal_runtime::cluster::{Incarnation, JobShape, LeaseId, Task};
use shoal_runtime::wire::proto;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

impl Machine {
    /// Trainers that have been silent for too long are lost, and for much too long are dead.
    pub(super) fn lose_the_silent(&mut self, now: Duration) {
        let ttl = Duration::from_millis(self.document.job.lease_ttl_millis);
        for lost in self.trainers.expire(now) {
            self.lose_trainer(lost, Some(now + (DEATH_TTLS - 1) * ttl));
        }
        let superseded: Vec<_> = self.job.iter().flat_map(|job| job.suspects.due(now)).collect();
        superseded.into_iter().for_each(|lost| self.lose_trainer(lost, None));
        self.judge(now);
    }

    /// A trainer's process has ended without a word of its own, as whoever runs it says, and how.
    pub fn ends(&mut self, trainer: Incarnation, how: &str, now: Duration) {
        self.lose_trainer(trainer, None);
        self.trainers.lose(trainer);
        if let Some(job) = &mut self.job {
            job.suspects.ended(trainer, how);
        }
        self.judge(now);
    }

    /// A trainer is lost: what it had is free again, and what it was computing is counted. It is dead from `dead_from` on, or is.
    fn lose_trainer(&mut self, trainer: Incarnation, dead_from: Option<Duration>) {
        let (shape, delay) = (self.document.job.shape(), self.document.job.mode.delay());
        let is_sync = self.document.job.is_sync();
        let Some(job) = &mut self.job else { return };
        let slots = u64::from(shape.training().slots());
        let until = if is_sync { (job.dispatch.front() + delay + 1) * slots } else { u64::MAX };
        let Placed { suspects, dispatch, reports, .. } = job;
        suspects.advance(dispatch.front_place(&shape));
        // Where blocks have yet to be heard of, nobody knows what was done.
        let lacking = |places: Range<u64>| match job.is_heard && places.start < places.end {
            true => dispatch.lacking(places, &shape, reports),
            false => Vec::new(),
        };
        suspects.lose(trainer, until, &lacking, dead_from);
        let places = suspects.places(LOSSES);
        if !places.is_empty() {
            tracing::warn!(
                ?places,
                "trainers were lost while they computed these microbatches: each goes to one by itself"
            );
        }
        dispatch.mind(suspects);
        dispatch.lose(trainer, reports);
        job.verification.iter_mut().for_each(|verification| verification.lose(trainer));
    }

    /// What the dead have named is complained of.
    fn judge(&mut self, now: Duration) {
        self.job.iter_mut().for_each(|job| job.suspects.bury(now));
        let shape = self.document.job.shape();
        // Where blocks have yet to be heard of, nobody knows what was done.
        let Some(job) = self.job.as_mut().filter(|job| job.is_heard) else { return };
        let Placed { suspects, dispatch, reports, .. } = job;
        let lacking = |places| dispatch.lacking(places, &shape, reports);
        let named = suspects.judge(dispatch.front_place(&shape), &lacking);
        named.into_iter().for_each(|blame| self.blame(blame));
    }

    /// Microbatches that are suspect and not done, in words.
    pub(crate) fn suspicions(&self) -> impl Iterator<Item = proto::TroubleStatus> {
        let shape = self.document.job.shape();
        let is_sync = self.document.job.is_sync();
        let slots = u64::from(shape.training().slots());
        self.job.iter().flat_map(move |job| {
            let front = job.dispatch.front_place(&shape);
            let suspects = job.suspects.places(LOSSES).into_iter().filter(move |places| places.end > front);
            suspects.map(move |places| {
                let (_, first) = unit(is_sync, &shape, &dispatch::Refused::of(places.start, slots));
                let more = match places.end - places.start {
                    1 => String::new(),
                    count => format!(" and {} after it", count - 1),
                };
                let trainers: Vec<String> = job.suspects.lost(&places).map(str::to_owned).collect();
                let what_now = match places.clone().any(|place| job.suspects.awaits(place)) {
                    true => "and it waits until the last of them is known to be dead, not only silent",
                    false => "and it is leased by itself",
                };
                proto::TroubleStatus {
                    what: format!("{first}{more}"),
                    why: format!("trainers were lost while they computed it, without a word, {what_now}"),
                    attempts: trainers.len() as u32,
                    trainers,
                    ..Default::default()
                }
            })
        })
    }

    /// What is to blame is complained of by all who were lost with it.
    fn blame(&mut self, blame: Blame) {
        let Blame { place, record, trainers, why } = blame;
        let shape = self.document.job.shape();
        let slots = u64::from(shape.training().slots());
        let place = dispatch::Refused::of(place, slots);
        let (unit, microbatch) = unit(self.document.job.is_sync(), &shape, &place);
        let records = record.map(|record| record..record + 1);
        let what = records.as_ref().map_or(microbatch, |records| self.plan.manifest().describe(records));
        tracing::error!(%what, why, ?trainers, "trainers are lost with this");
        let complaint = |trainer| {
            let (records, what, why) = (records.clone(), what.clone(), why.clone());
            Complaint { trainer, unit, records, what, why }
        };
        self.complaints.extend(trainers.into_iter().map(complaint));
        self.is_changed = true;
    }

    /// A trainer announces what it is about to compute of a task that it does with care: that is progress.
    pub fn hear_announcement(
        &mut self,
        trainer: Incarnation,
        lease: LeaseId,
        record: Option<u64>,
        now: Duration,
    ) {
        if let (Some(job), Some(heard)) = (&mut self.job, self.heard_trainers.get_mut(&trainer)) {
            heard.active = now;
            job.suspects.announces(trainer, lease, record);
            job.dispatch.attend(trainer, lease, now);
        }
    }

    /// Leases up to `want` tasks to a live trainer; a suspect one by itself.
    pub(super) fn tasks(&mut self, trainer: Incarnation, want: u32, now: Duration) -> Vec<Task> {
        let live = self.trainers.live_count() as u32;
        let Some(member) = self.trainers.get(trainer) else { return Vec::new() };
        let name = member.name.clone();
        // One that hangs is not waited for.
        let (trainers, patience) = (&self.trainers, self.patience());
        // Who lives speaks that often.
        let silent = now.saturating_sub(Duration::from_millis(self.document.job.lease_ttl_millis) / 4);
        let is_able = |who| self.heard_trainers.get(&who).is_some_and(|heard| heard.is_able(now, patience));
        let others = |lost: &BTreeSet<&str>| {
            trainers.live().any(|(who, member)| !lost.contains(member.name.as_str()) && is_able(who))
        };
        let Some(job) = self.job.as_mut().filter(|job| job.is_heard && !job.suspects.is_occupied(trainer))
        else {
            return Vec::new();
        };
        let Placed { suspects, dispatch, reports, verification, .. } = job;
        let may = |place| suspects.may_have(&name, place, silent, &others);
        let alone = if want > 0 { dispatch.lease_alone(trainer, live, now, &may, reports) } else { None };
        let (shape, asked) = (self.plan.shape(), Asked { trainer, live, want, now });
        let grants = match (alone, verification) {
            (Some(grant), Some(verification)) => vec![verifying::given(verification, grant, &shape, &asked)],
            (Some(grant), None) => vec![(grant, Vec::new(), false)],
            (None, Some(verification)) => {
                verifying::lease(dispatch, verification, &shape, suspects, &asked, reports)
            }
            (None, None) => {
                let grants = dispatch.lease(trainer, live, want, now, reports);
                grants.into_iter().map(|grant| (grant, Vec::new(), false)).collect()
            }
        };
        let rewind = job.routing.rewind();
        let task = |(grant, verified, is_second): Given| {
            let places = grant.places(&shape);
            let care = alone.map_or(Care::None, |_| suspects.care(places.start));
            suspects.given(trainer, &name, grant.lease(), places, care, now);
            let is_careful = care == Care::Careful;
            Task { is_careful, verified, is_second, ..grant.task(&mut self.plan, rewind) }
        };
        grants.into_iter().map(task).collect()
    }

    /// A trainer's word was refused. If that is because its name was taken, it lives all the same.
    pub(super) fn hear_refused(&mut self, trainer: Incarnation) {
        let is_superseded =
            self.trainers.get(trainer).is_some_and(|member| member.state == State::Superseded);
        if let Some(job) = self.job.as_mut().filter(|_| is_superseded) {
            job.suspects.speaks(trainer);
            job.dispatch.mind(&job.suspects);
        }
    }
}

/// The step or the position of a microbatch, and its words.
pub(super) fn unit(is_sync: bool, shape: &JobShape, place: &dispatch::Refused) -> (u64, String) {
    if !is_sync {
        return (place.position, format!("the microbatch at position {}", place.position));
    }
    let (_, microbatch) = shape.microbatch(place.step, place.slot);
    (place.step.0, format!("microbatch {microbatch} of step {}", place.step))
}
