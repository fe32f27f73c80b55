//! The first stage: what there is. Counts in the job's books what is seen now, once each, and says which course the job is on. Pure.

use super::ends;
use super::load;
use super::nodes::{self, Verdict};
use super::notes::Notes;
use super::progress;
use super::status::POD_REFUSED;
use super::view::{Ended, Grace, Memory, PodState, PodView, Role, Unusable, View};
use crate::api::{Phase, Suspending, TrainingJobStatus, changed, faults};
use shoal_job::ends::End;

/// A pod that says that it had nothing left to do is believed for so many seconds, if its master says otherwise.
const BELIEVED_SECONDS: u64 = 30;
/// The word for a container that no node can start as it is written.
pub(super) const UNUSABLE: &str = "ImageUnusable";
/// How long a trainer with work in hand may make no progress, where the job does not say, in seconds.
const HANG_SECONDS: u64 = 600;
/// How long a checkpoint is waited for before a job is suspended without, in seconds.
const CHECKPOINT_SECONDS: u64 = 300;

/// What a job is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// It is being deleted.
    Deleted,
    /// It was over before.
    Over,
    /// It is over from now on: done, or failed, in one word and for people.
    Ended(Result<(), (&'static str, String)>),
    /// It cannot be kept as it is written: why.
    Invalid(String),
    /// It is to have no pods until it is told to go on.
    Suspended,
    /// It is to run, as soon as it is let in.
    Kept,
}

/// A job as it is seen.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) view: &'a View<'a>,
    /// Its status, with what is seen now counted in it. Later stages read it.
    pub(super) books: TrainingJobStatus,
    pub(super) course: Course,
    /// Pods that have ended and been judged, or hang: they go.
    pub(super) spent: Vec<(&'a PodView, Grace)>,
    pub(super) notes: Notes,
}

/// What there is of a job.
pub(super) fn observe<'a>(view: &'a View<'a>, memory: &mut Memory) -> Observed<'a> {
    let mut books = view.job.status.clone().unwrap_or_default();
    books.observed_generation = view.job.metadata.generation;
    books.counted.retain(|uid| view.pods.iter().any(|pod| pod.uid == *uid));
    nodes::forgive(&mut books, &view.job.spec, view.now);
    let course = course(view, &books);
    memory.overdue.see(view);
    let mut seen = Observed { view, books, course, spent: Vec::new(), notes: Notes::default() };
    match seen.course {
        Course::Invalid(_) => {}
        // Nobody asks any more how they end.
        Course::Over => seen.lose_overdue(memory),
        Course::Deleted => drop(seen.count_ends(memory)),
        Course::Ended(_) => {
            seen.see_progress();
            seen.lose_overdue(memory);
        }
        Course::Suspended => {
            seen.see_saved();
            seen.lose_overdue(memory);
        }
        Course::Kept => seen.keep_books(memory),
    }
    seen
}

/// What a job is about, as far as it does not depend on how its pods have ended.
fn course(view: &View<'_>, books: &TrainingJobStatus) -> Course {
    if view.job.metadata.deletion_timestamp.is_some() {
        return Course::Deleted;
    }
    if books.phase.is_over() {
        return Course::Over;
    }
    // Templates are read anew each time: 22 of the 26 µs that a reconcile of a waiting job takes, once a minute. With 5,000 of them a
    // memory of faults would save 0.2 % of a processor.
    let is_changed = || changed(&view.job.spec, &books.pinned).filter(|_| !books.pinned.is_empty());
    if let Some(fault) = faults(view.job, view.has_store).into_iter().next().or_else(is_changed) {
        return Course::Invalid(fault);
    }
    // No exit code says that a job is done. A master that has ended unheard is started again, and says what its document says.
    match view.master.map(|master| (master, master.phase.as_str())) {
        Some((_, "done")) => Course::Ended(Ok(())),
        Some((master, "failed")) => Course::Ended(Err(("JobFailed", master.failure.clone()))),
        _ if view.job.spec.suspend => Course::Suspended,
        _ => Course::Kept,
    }
}

impl Observed<'_> {
    /// Whether the job is kept from now on, after a time in which it was not.
    pub(super) fn is_resumed(&self) -> bool {
        let before = self.view.job.status.as_ref().map(|status| status.phase);
        self.course == Course::Kept && before.is_some_and(|phase| !is_kept(phase))
    }

    /// Counts what happens to a job that is to run.
    fn keep_books(&mut self, memory: &mut Memory) {
        let is_there = |uid: &String| self.view.pods.iter().any(|pod| pod.uid == *uid);
        let vanished: Vec<PodView> =
            memory.present.iter().filter(|(uid, _)| !is_there(uid)).map(|(_, pod)| pod.clone()).collect();
        vanished.iter().for_each(|pod| ends::count_vanished(self, memory, pod));
        if !is_kept(self.books.phase) {
            self.books.phase = Phase::Pending;
            self.notes.event(false, "Resumed", "the job goes on from its newest checkpoint");
        }
        self.books.suspending = None;
        if self.books.admitted.is_some() {
            self.see_progress();
            if let Some(master) = self.view.master.filter(|master| master.is_progress_known) {
                ends::see_progress(&mut self.books, memory, master.step);
            }
        }
        let failed = self.count_ends(memory).or_else(|| self.count_unusable(memory));
        if let Some(failed) = failed.or_else(|| self.refused_for_good(memory)) {
            self.course = Course::Ended(Err(failed));
        } else if self.books.admitted.is_some() {
            self.miss_hung(memory);
            load::see(self.view, &self.books, memory);
        }
    }

    fn see_progress(&mut self) {
        if let Some(master) = self.view.master {
            progress::see(&mut self.books, master, self.view.ready(Role::Trainer), self.view.now);
        }
    }

    /// Judges what has ended, and gives up what is on nodes that do not answer. Returns why the job fails, if one end was one too many.
    fn count_ends(&mut self, memory: &mut Memory) -> Option<(&'static str, String)> {
        let mut failed = None;
        for pod in self.view.pods {
            let ended = ends::of(pod).filter(|_| !self.books.counted.contains(&pod.uid));
            if let Some(ended) = &ended {
                if self.is_believed(pod, ended) {
                    continue;
                }
                self.books.counted.push(pod.uid.clone());
                if let Some(why) = ends::count(self, memory, pod, ended) {
                    failed.get_or_insert(why);
                    continue;
                }
            }
            if let Some(why) = memory.overdue.why(self.view, pod) {
                self.notes.decided(format!("{} is given up", pod.name), why);
                self.spent.push((pod, Grace::Force));
            } else if matches!(pod.state, PodState::Ended(_)) {
                self.spent.push((pod, Grace::Own));
            }
        }
        failed
    }

    /// Why a job fails of which the API server would not have some pod for too long. One that has made steps has had them all: it waits for
    /// whoever has changed the rules.
    fn refused_for_good(&self, memory: &mut Memory) -> Option<(&'static str, String)> {
        let refused = memory.blocked.as_ref().filter(|(word, _)| *word == POD_REFUSED);
        let has_trained = self.books.progress.as_ref().is_some_and(|progress| progress.step > 0);
        let Some((word, why)) = refused.filter(|_| !has_trained) else {
            memory.refused_since = None;
            return None;
        };
        let since = *memory.refused_since.get_or_insert(self.view.now);
        let patience = nodes::patience(&self.view.job.spec);
        (self.view.now.since(since) >= patience).then(|| (*word, format!("for {patience} s: {why}")))
    }

    /// Judges what nodes have been unable to start for too long: it is tried elsewhere. Returns why the job fails, if no node can.
    fn count_unusable(&mut self, memory: &mut Memory) -> Option<(&'static str, String)> {
        let view = self.view;
        for pod in view.pods.iter().filter(|pod| pod.deleted.is_none()) {
            let PodState::Starting(Some(Unusable { reason, message, .. })) = &pod.state else { continue };
            // Counted once, though it may be seen for a while after it was told to go, or that may have failed.
            if self.books.counted.contains(&pod.uid) {
                self.spent.push((pod, Grace::Own));
                continue;
            }
            let why = format!("{reason}: {message}");
            let is_first = ends::life(self, pod).is_first;
            match nodes::verdict(view, &self.books, pod, is_first) {
                Verdict::Wait => {}
                Verdict::Elsewhere => {
                    ends::count_unstarted(self, memory, pod, &why);
                    self.books.counted.push(pod.uid.clone());
                    self.spent.push((pod, Grace::Own));
                }
                Verdict::Nowhere => {
                    let patience = nodes::patience(&view.job.spec);
                    return Some((UNUSABLE, format!("{}: for {patience} s: {why}", pod.name)));
                }
            }
        }
        None
    }

    /// Whether a pod that says that its job is done may be right: for a time, and until its master has said otherwise.
    fn is_believed(&self, pod: &PodView, ended: &Ended) -> bool {
        let is_late = ended.at.is_none_or(|at| self.view.now >= at.plus(BELIEVED_SECONDS));
        let is_contradicted = is_late && self.view.master.is_some();
        ended.end == End::Exited(0) && pod.role == Role::Trainer && !is_contradicted
    }

    /// Whether no trainer is left but such as are believed that their job is done: its master is about to say so.
    pub(super) fn is_ending(&self) -> bool {
        let is_done = |pod: &PodView| ends::of(pod).is_some_and(|ended| self.is_believed(pod, &ended));
        self.view.ready(Role::Trainer) == 0 && self.view.of(Role::Trainer).any(is_done)
    }

    /// Gives up what is on nodes that do not answer.
    fn lose_overdue(&mut self, memory: &Memory) {
        let view = self.view;
        let overdue = view.pods.iter().filter(|pod| memory.overdue.why(view, pod).is_some());
        self.spent.extend(overdue.map(|pod| (pod, Grace::Force)));
    }

    /// Finds trainers that have work in hand and make no progress.
    fn miss_hung(&mut self, memory: &mut Memory) {
        let (view, now) = (self.view, self.view.now);
        let patience = view.job.spec.failure_policy.hang_seconds.unwrap_or(HANG_SECONDS);
        let Some(master) = view.master.filter(|_| patience > 0) else { return };
        memory.work.retain(|name, _| master.trainers.iter().any(|one| one.is_live && one.name == *name));
        for trainer in master.trainers.iter().filter(|one| one.is_live) {
            let known = memory.work.entry(trainer.name.clone()).or_insert((trainer.work, now));
            if trainer.tasks == 0 || known.0 != trainer.work || master.phase != "training" {
                *known = (trainer.work, now);
            }
            let pod = view.of(Role::Trainer).find(|pod| pod.name == trainer.name);
            let Some(pod) = pod.filter(|pod| pod.state == PodState::Running && pod.deleted.is_none()) else {
                continue;
            };
            if now.since(known.1) >= patience && now.since(pod.created) >= patience {
                *known = (trainer.work, now);
                self.books.ends.hung += 1;
                let why = format!("it has work in hand and made no progress for {patience} s");
                self.notes.event(true, "Hung", format!("{}: {why}", pod.name));
                self.notes.decided(format!("{} is started again", pod.name), why);
                self.spent.push((pod, Grace::Own));
            }
        }
    }

    /// Notes whether what the job has done is in a checkpoint made since it was asked to stop, or has been waited for long enough.
    fn see_saved(&mut self) {
        if self.view.pods.is_empty() {
            return;
        }
        let now = self.view.now;
        if self.books.phase != Phase::Suspending {
            self.books.phase = Phase::Suspending;
            self.notes.event(false, "Suspending", "a checkpoint is made, then the pods go");
        }
        let mut suspending =
            self.books.suspending.unwrap_or(Suspending { since: now, ..Suspending::default() });
        let was_saved = suspending.saved;
        self.see_progress();
        let is_saved = match self.view.master {
            Some(master) => {
                let before = *suspending.after.get_or_insert(master.checkpoint);
                // A master without a step has nothing to save.
                master.checkpoint > before || (master.is_progress_known && master.step == 0)
            }
            None => self.books.progress.is_none(),
        };
        let is_late = now.since(suspending.since) >= CHECKPOINT_SECONDS;
        suspending.saved |= is_saved || is_late;
        self.books.suspending = Some(suspending);
        if is_saved && !was_saved {
            self.notes.decided("suspended", "spec.suspend; all that was done is in a checkpoint");
        } else if is_late && !was_saved {
            let why = format!(
                "no checkpoint was made within {CHECKPOINT_SECONDS} s: steps after the newest are made again"
            );
            self.notes.event(true, "SuspendedWithoutCheckpoint", why.clone());
            self.notes.decided("suspended without a checkpoint", why);
        }
    }
}

/// Whether pods of a job in this phase are kept up.
pub(super) fn is_kept(phase: Phase) -> bool {
    matches!(phase, Phase::Pending | Phase::Invalid | Phase::Running)
}
