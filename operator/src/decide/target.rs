//! The second stage: what there should be. Follows from what there is, and from what was planned for the job among all jobs. Pure.

use super::load::{self, LoadTold};
use super::notes::Notes;
use super::numbers::{Numbers, numbers};
use super::observe::{Course, Observed};
use super::plans::{self, Plans};
use super::seats::Seats;
use super::view::{Grace, Memory, PodState, PodView, Role};
use crate::api::CleanPodPolicy;

/// Pservers and masters that nobody needs any more are given so many seconds: their blocks go nowhere.
const SERVERS_GRACE: Grace = Grace::Seconds(1);
/// Trainers of a job that is over are given so many seconds to hear of it and end by themselves.
const LAST_WORDS_SECONDS: u64 = 10;

/// What becomes of the service, the disruption budget and the network policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// They are as they should be.
    Made,
    /// There are none.
    Deleted,
    /// Nobody looks after them now.
    Left,
}

/// What there should be of a job.
#[derive(Debug)]
pub(super) struct Target<'a> {
    /// What its spec or the plan for all jobs says.
    pub(super) numbers: Numbers,
    /// Whether it may have pods.
    pub(super) is_admitted: bool,
    /// Trainers that it is to have.
    pub(super) trainers: u32,
    /// Pservers that it is to have.
    pub(super) pservers: u32,
    /// Whether that is another number than before.
    pub(super) are_pservers_others: bool,
    pub(super) seats: Seats,
    /// Pods that go.
    pub(super) going: Vec<(&'a PodView, Grace)>,
    pub(super) surroundings: Surroundings,
    /// What is told of the pservers' load.
    pub(super) load: Option<LoadTold>,
    pub(super) plans: Plans,
    /// Whether the job itself is to be deleted: its time after its end is over.
    pub(super) is_job_deleted: bool,
    pub(super) notes: Notes,
}

/// What there should be of a job.
pub(super) fn target<'a>(seen: &Observed<'a>, memory: &Memory) -> Target<'a> {
    let books = &seen.books;
    let numbers = numbers(seen.view.job, Some(books), seen.view.choice);
    let mut target = Target {
        is_admitted: books.admitted.is_some(),
        trainers: books.trainer.wanted,
        pservers: books.pserver.wanted,
        are_pservers_others: false,
        seats: Seats::of(books),
        going: Vec::new(),
        surroundings: Surroundings::Left,
        load: None,
        plans: Plans::default(),
        is_job_deleted: false,
        notes: Notes::default(),
        numbers,
    };
    match seen.course {
        Course::Invalid(_) => {}
        Course::Deleted => target.delete(seen),
        Course::Over | Course::Ended(_) => {
            target.plans = plans::take_up(seen, &mut target.seats);
            target.release(seen);
        }
        Course::Suspended => target.suspend(seen),
        Course::Kept => target.keep(seen, memory),
    }
    target
}

impl<'a> Target<'a> {
    fn leave(&mut self, seen: &Observed<'a>, is_meant: impl Fn(&PodView) -> bool) {
        for pod in seen.view.pods.iter().filter(|pod| is_meant(pod)) {
            let grace = if pod.role == Role::Trainer { Grace::Own } else { SERVERS_GRACE };
            self.going.push((pod, grace));
        }
    }

    /// The job is being deleted: its trainers end first, then the rest, then it goes.
    fn delete(&mut self, seen: &Observed<'a>) {
        if seen.view.is_orphaning() {
            let said = "its pods stay and run on, and nobody keeps them: as --cascade=orphan says";
            self.notes.event(true, "Orphaned", said);
            return;
        }
        let has_trainers = seen.view.of(Role::Trainer).next().is_some();
        self.leave(seen, |pod| pod.role == Role::Trainer || !has_trainers);
        if seen.view.pods.is_empty() && seen.view.has_finalizer() {
            self.surroundings = Surroundings::Deleted;
        }
    }

    /// The job is over: what its policy says of its pods.
    fn release(&mut self, seen: &Observed<'a>) {
        let view = seen.view;
        let policy = view.job.spec.clean_pod_policy.unwrap_or_default();
        let since = match seen.course {
            Course::Ended(_) => 0,
            _ => seen.books.completion_time.map_or(u64::MAX, |over| view.now.since(over)),
        };
        let may_speak = |pod: &PodView| pod.role == Role::Trainer && !matches!(pod.state, PodState::Ended(_));
        let may_speak = view.pods.iter().any(may_speak) && since < LAST_WORDS_SECONDS;
        let has_ended = |pod: &PodView| matches!(&pod.state, PodState::Ended(ended) if !ended.leaves_others);
        if policy != CleanPodPolicy::None && !may_speak {
            self.leave(seen, |pod| policy == CleanPodPolicy::All || !has_ended(pod));
        }
        if policy == CleanPodPolicy::None || view.pods.iter().all(has_ended) {
            self.surroundings = Surroundings::Deleted;
        }
        let after = view.job.spec.ttl_seconds_after_finished;
        self.is_job_deleted = after.is_some_and(|seconds| since >= seconds);
    }

    /// The job is to stop: a checkpoint first, then all pods go.
    fn suspend(&mut self, seen: &Observed<'a>) {
        if seen.view.pods.is_empty() {
            self.is_admitted = false;
            self.trainers = 0;
            self.seats.give_up_leaving();
            self.surroundings = Surroundings::Deleted;
        } else if seen.books.suspending.is_some_and(|suspending| suspending.saved) {
            self.leave(seen, |_| true);
        }
    }

    /// The job is to run, as soon as it is let in.
    fn keep(&mut self, seen: &Observed<'a>, memory: &Memory) {
        self.is_admitted |= self.numbers.waits_for.is_none();
        self.plans = plans::take_up(seen, &mut self.seats);
        if !self.is_admitted {
            return;
        }
        self.surroundings = Surroundings::Made;
        self.keep_pservers(seen, memory);
        self.keep_trainers(seen);
    }

    fn keep_pservers(&mut self, seen: &Observed<'a>, memory: &Memory) {
        let view = seen.view;
        self.seats.give_up(view);
        let has_seat = |pod: &&PodView| self.seats.all().iter().any(|seat| seat.ordinal == pod.ordinal);
        let orphans: Vec<_> = view.of(Role::Pserver).filter(|pod| !has_seat(pod)).collect();
        self.going.extend(orphans.into_iter().map(|pod| (pod, Grace::Own)));
        for (old, new) in self.seats.replace_deleted(view) {
            self.notes
                .decided(format!("pserver {old} is replaced by pserver {new}"), "its pod is being deleted");
        }
        let (plan, load) = load::plan(view, &seen.books, &self.numbers, memory);
        self.load = load;
        let before = self.seats.keep(plan.count);
        self.pservers = plan.count;
        if before != plan.count && before > 0 {
            let what = format!("pservers {before} -> {}", plan.count);
            self.notes.event(false, "Scaled", format!("{what}: {}", plan.why));
            self.notes.decided(what, plan.why);
            self.are_pservers_others = true;
        }
        // Who is to leave and never came to its master has nothing that could go elsewhere.
        let Some(master) = view.master.filter(|master| master.takes_commands()) else { return };
        for seat in self.seats.leaving() {
            let Some(pod) = view.pod(Role::Pserver, seat.ordinal) else { continue };
            let is_known = master.pservers.iter().any(|one| one.is_live && one.name == pod.name);
            if !is_known && matches!(pod.state, PodState::Unplaced(_) | PodState::Starting(_)) {
                self.going.push((pod, Grace::Own));
            }
        }
    }

    /// Those go that the plan names, for others need their nodes; then who is going already; then the highest ordinals.
    fn keep_trainers(&mut self, seen: &Observed<'a>) {
        let (wanted, before) = (self.numbers.trainers, seen.books.trainer.wanted);
        if before != wanted && before > 0 && wanted > 0 {
            let (what, why) = (format!("trainers {before} -> {wanted}"), self.numbers.why_trainers.clone());
            self.notes.event(false, "Scaled", format!("{what}: {why}"));
            self.notes.decided(what, why);
        }
        self.trainers = wanted;
        let scaled_down = &self.numbers.scaled_down;
        let (named, mut others): (Vec<&PodView>, Vec<&PodView>) =
            seen.view.of(Role::Trainer).partition(|pod| scaled_down.contains(&pod.uid));
        // Whom others have told to end is the first of the surplus: to end another instead would be one too many. It has its ordinal until
        // it is gone.
        others.sort_by_key(|pod| (pod.deleted.is_some(), pod.ordinal));
        let surplus = others.split_off(others.len().min(wanted as usize));
        self.going.extend(named.into_iter().chain(surplus).map(|pod| (pod, Grace::Own)));
    }
}
