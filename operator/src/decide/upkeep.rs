//! Keeping a job's pods up: what has ended is counted and cleared, what hangs is cleared, what is missing is made. Pure.

use super::ends;
use super::view::{Act, Command, Decision, Ended, Grace, Memory, PodPlan, PodState, PodView, Role, View};
use super::{is_kept, planned, progress, remember, seats, trainers};
use crate::api::{DecisionRecord, Phase, ScalePlanStatus, TrainingJobStatus};
use shoal_job::ends::End;

/// Who was given a time to end, and lets it pass by so many seconds, is on a node that does not answer.
const OVERDUE_SECONDS: u64 = 15;
/// A pod that says that it had nothing left to do is believed for so many seconds, if its master says otherwise.
const BELIEVED_SECONDS: u64 = 30;
/// How often a job is looked at, in seconds, by what there is to expect.
const LOOK_CLOSELY: u64 = 1;
const LOOK: u64 = 3;
const LOOK_RARELY: u64 = 300;

/// A decision in the making.
#[derive(Debug)]
pub(super) struct Upkeep<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) status: TrainingJobStatus,
    pub(super) plans: Vec<(String, ScalePlanStatus)>,
    pub(super) acts: Vec<Act>,
    /// Why the job will not go on, if it was found out here.
    pub(super) failed: Option<(&'static str, String)>,
}

impl<'a> Upkeep<'a> {
    pub(super) fn new(view: &'a View<'a>) -> Upkeep<'a> {
        let mut status = view.job.status.clone().unwrap_or_default();
        status.observed_generation = view.job.metadata.generation;
        Upkeep { view, status, plans: Vec::new(), acts: Vec::new(), failed: None }
    }

    pub(super) fn finish(mut self) -> Decision {
        self.status.counted.retain(|uid| self.view.pods.iter().any(|pod| pod.uid == *uid));
        let again_after = match self.status.phase {
            Phase::Suspended | Phase::Succeeded | Phase::Failed if self.view.pods.is_empty() => {
                self.expiry().unwrap_or(LOOK_RARELY)
            }
            Phase::Running => LOOK,
            _ => LOOK_CLOSELY,
        };
        Decision { status: self.status, plans: self.plans, acts: self.acts, again_after }
    }

    /// In how many seconds the job itself is to be deleted, if ever.
    fn expiry(&self) -> Option<u64> {
        let after = self.view.job.spec.ttl_seconds_after_finished?;
        Some(self.status.completion_time?.plus(after).since(self.view.now).clamp(1, LOOK_RARELY))
    }

    pub(super) fn decided(&mut self, what: String, why: impl Into<String>) {
        remember(&mut self.status, DecisionRecord { at: self.view.now, what, why: why.into() });
    }

    pub(super) fn event(&mut self, is_warning: bool, reason: &'static str, note: impl Into<String>) {
        self.acts.push(Act::Event { is_warning, reason, note: note.into() });
    }

    pub(super) fn delete(&mut self, pod: &PodView, grace: Grace) {
        // Who has been deleted once is given no second time to end, unless none at all.
        if pod.deleted.is_none() || grace == Grace::Force {
            // Its end is of the operator's own making.
            if !self.status.counted.contains(&pod.uid) {
                self.status.counted.push(pod.uid.clone());
            }
            self.acts.push(Act::DeletePod { name: pod.name.clone(), uid: pod.uid.clone(), grace });
        }
    }

    pub(super) fn fail(&mut self, reason: &'static str, message: String) {
        self.failed.get_or_insert((reason, message));
    }

    /// A job that was suspended goes on.
    pub(super) fn resume(&mut self) {
        if !is_kept(self.status.phase) {
            self.status.phase = Phase::Pending;
            self.event(false, "Resumed", "the job goes on from its newest checkpoint");
        }
        self.status.suspending = None;
    }

    /// Everything that a job that is to run needs.
    pub(super) fn keep(&mut self, memory: &mut Memory) {
        if !planned::is_admitted(self) {
            // What an earlier job of this name has left goes its way.
            self.clear(memory);
            return;
        }
        if self.status.pinned.is_empty() {
            self.status.pinned = crate::api::pinned(&self.view.job.spec).to_string();
            self.status.start_time = Some(self.view.now);
        }
        if let Some(master) = self.view.master.filter(|master| master.is_progress_known) {
            ends::see_progress(&mut self.status, memory, master.step);
        }
        if let Some(master) = self.view.master {
            progress::see(&mut self.status, master, self.view.ready(Role::Trainer), self.view.now);
        }
        self.acts.push(Act::MakeSurroundings);
        self.clear(memory);
        if self.failed.is_some() {
            return;
        }
        self.clear_hung(memory);
        self.keep_master(memory);
        seats::keep(self, memory);
        trainers::keep(self, memory);
        self.tell_master();
    }

    /// Counts and removes what has ended, and what is on nodes that do not answer.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        for pod in self.view.pods {
            let ended = ends::of(pod).filter(|_| !self.status.counted.contains(&pod.uid));
            if let Some(ended) = &ended {
                if self.is_believed(pod, ended) {
                    continue;
                }
                self.status.counted.push(pod.uid.clone());
                if let Some((reason, message)) = ends::count(self, memory, pod, ended) {
                    self.fail(reason, message);
                    continue;
                }
            }
            self.remove_ended(pod);
        }
    }

    /// Whether a pod that says that its job is done may be right: for a time, and until its master has said otherwise.
    fn is_believed(&self, pod: &PodView, ended: &Ended) -> bool {
        let is_late = ended.at.is_none_or(|at| self.view.now >= at.plus(BELIEVED_SECONDS));
        let is_contradicted = is_late && self.view.master.is_some();
        ended.end == End::Exited(0) && pod.role == Role::Trainer && !is_contradicted
    }

    /// Removes what is on nodes that do not answer.
    pub(super) fn clear_overdue(&mut self) {
        let is_overdue = |pod: &&PodView| self.is_overdue(pod);
        for pod in self.view.pods.iter().filter(is_overdue).collect::<Vec<_>>() {
            self.delete(pod, Grace::Force);
        }
    }

    fn is_overdue(&self, pod: &PodView) -> bool {
        pod.deleted.is_some_and(|deleted| self.view.now >= deleted.grace_ends.plus(OVERDUE_SECONDS))
    }

    fn remove_ended(&mut self, pod: &PodView) {
        if self.is_overdue(pod) {
            self.decided(format!("{} is given up", pod.name), "its node does not answer");
            self.delete(pod, Grace::Force);
            return;
        }
        if matches!(pod.state, PodState::Ended(_)) {
            self.delete(pod, Grace::Own);
        }
    }

    /// Removes trainers that have work in hand and make no progress.
    fn clear_hung(&mut self, memory: &mut Memory) {
        const HANG_SECONDS: u64 = 600;
        let patience = self.view.job.spec.failure_policy.hang_seconds.unwrap_or(HANG_SECONDS);
        let Some(master) = self.view.master.filter(|_| patience > 0) else { return };
        let now = self.view.now;
        memory.work.retain(|name, _| master.trainers.iter().any(|one| one.is_live && one.name == *name));
        for trainer in master.trainers.iter().filter(|one| one.is_live) {
            let known = memory.work.entry(trainer.name.clone()).or_insert((trainer.work, now));
            if trainer.tasks == 0 || known.0 != trainer.work || master.phase != "training" {
                *known = (trainer.work, now);
            }
            let pod = self.view.of(Role::Trainer).find(|pod| pod.name == trainer.name);
            let Some(pod) = pod.filter(|pod| pod.state == PodState::Running && pod.deleted.is_none()) else {
                continue;
            };
            if now.since(known.1) >= patience && now.since(pod.created) >= patience {
                *known = (trainer.work, now);
                self.status.ends.hung += 1;
                let why = format!("it has work in hand and made no progress for {patience} s");
                self.event(true, "Hung", format!("{}: {why}", pod.name));
                self.decided(format!("{} is started again", pod.name), why);
                self.delete(pod, Grace::Own);
            }
        }
    }

    fn keep_master(&mut self, memory: &Memory) {
        let may_start = ends::may_start(&self.status, memory, Role::Master, self.view.now);
        if self.view.pod(Role::Master, 0).is_none() && may_start {
            self.create(Role::Master, 0, false, None);
        }
    }

    pub(super) fn create(
        &mut self,
        role: Role,
        ordinal: u32,
        is_elastic: bool,
        resources: Option<serde_json::Value>,
    ) {
        let memory = self.status.memory.get(role.name()).map(|grant| grant.now);
        let (pservers, trainers) = (self.view.target.pservers, self.view.target.trainers);
        self.acts.push(Act::CreatePod(PodPlan {
            role,
            ordinal,
            is_elastic,
            resources,
            memory,
            pservers,
            trainers,
        }));
    }

    /// Whether pservers and trainers may be made: the master has a node. They start while it does, and ask for it until it
    /// answers; before, they could hold the very room that it waits for.
    pub(super) fn has_placed_master(&self) -> bool {
        let master = self.view.pod(Role::Master, 0).filter(|master| master.deleted.is_none());
        master.is_some_and(|master| matches!(master.state, PodState::Starting(None) | PodState::Running))
    }

    fn tell_master(&mut self) {
        let Some(master) =
            self.view.master.filter(|master| matches!(master.phase.as_str(), "waiting" | "training"))
        else {
            return;
        };
        let trainers = self.status.trainer.wanted;
        let pservers = seats::number_to_tell(self, master);
        if master.trainers_wanted != trainers || pservers.is_some() {
            self.acts.push(Act::Tell(Command::Scale { trainers, pservers }));
        }
        seats::drain(self, master);
    }
}
