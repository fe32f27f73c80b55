//! A model of a cluster with one job in it, and of what may happen there. For the properties beside it.

use super::super::*;
use super::happening::Happening;
use super::master::Master;
use crate::api::{Moment, PLANNED_TRAINERS, ScalePlan, TrainingJob};
use serde_json::json;
use shoal_job::ends::{Displacement, End};
use shoal_planner::JobPlan;
use std::collections::{BTreeMap, BTreeSet};

/// What a pod is given to end, in seconds, and how much longer one takes that is slow.
const GRACE: u64 = 30;
const SLOWNESS: i64 = 100;

/// Each pod has a node of its own.
fn node(uid: &str) -> String {
    format!("node-of-{uid}")
}

pub(super) struct World {
    pub(super) now: i64,
    pub(super) job: TrainingJob,
    pub(super) pods: BTreeMap<String, PodView>,
    /// Uids of pods whose nodes are lost.
    pub(super) lost: BTreeSet<String>,
    /// Uids of pods that take long to end although their nodes answer.
    pub(super) slow: BTreeSet<String>,
    /// By uid, when the time to end of pods is over that have been told to.
    pub(super) grace_ends: BTreeMap<String, i64>,
    /// By so many seconds the operator's clock is ahead.
    pub(super) skew: i64,
    pub(super) plans: Vec<ScalePlan>,
    pub(super) master: Master,
    pub(super) memory: Memory,
    pub(super) uids: u64,
    /// What the operator saw when it last reconciled.
    pub(super) past: Option<(TrainingJob, Vec<PodView>)>,
    /// Ordinals of pservers whose pods were ever made, and of seats that were given up.
    pub(super) given_up: BTreeSet<u32>,
    pub(super) ends: u32,
    pub(super) is_gone: bool,
    /// Uids of trainers by which the planner scales the job down.
    pub(super) scaled_down: Vec<String>,
    /// Whether the planner would let the job in now.
    pub(super) has_room: bool,
}

impl World {
    pub(super) fn new() -> World {
        let template = json!({ "spec": { "containers": [{ "name": "trainer", "image": "i" }] } });
        let spec = json!({
            "data": ["/d"], "checkpoint": { "place": "/c" },
            "pserver": { "minReplicas": 1, "maxReplicas": 3 },
            "trainer": { "minReplicas": 2, "maxReplicas": 5, "template": template },
            // Failures are not what these tests are to end by.
            "failurePolicy": { "trainerFailures": 1000, "serverFailures": 1000 },
        });
        let mut job = TrainingJob::new("j", serde_json::from_value(spec).unwrap());
        job.metadata.generation = Some(1);
        World {
            now: 1_000_000,
            job,
            pods: BTreeMap::new(),
            lost: BTreeSet::new(),
            slow: BTreeSet::new(),
            grace_ends: BTreeMap::new(),
            skew: 0,
            plans: Vec::new(),
            master: Master { wanted: (2, 1), ..Master::default() },
            memory: Memory::default(),
            uids: 0,
            past: None,
            given_up: BTreeSet::new(),
            ends: 0,
            is_gone: false,
            scaled_down: Vec::new(),
            has_room: true,
        }
    }

    pub(super) fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Reconcile { acts } => self.reconcile(acts),
            Happening::ReconcileThePast => self.reconcile_the_past(),
            Happening::Pass { seconds } => self.pass(seconds),
            Happening::Fail { which, end } => self.fail(which, end),
            Happening::Evict { which } | Happening::EvictSlowly { which } | Happening::LoseNode { which } => {
                let Some(name) = self.running(which) else { return };
                let uid = self.pods[&name].uid.clone();
                match happening {
                    Happening::LoseNode { .. } => drop(self.lost.insert(uid)),
                    Happening::EvictSlowly { .. } => drop(self.slow.insert(uid)),
                    _ => {}
                }
                self.ends += u32::from(self.pods[&name].deleted.is_none());
                self.tell_to_end(&name);
            }
            Happening::TakeOver { ahead } => (self.skew, self.memory) = (ahead, Memory::default()),
            Happening::Scale { trainers, pservers } => {
                self.job.spec.trainer.replicas = Some(trainers.min(5));
                self.job.spec.pserver.replicas = Some(pservers);
            }
            Happening::Plan { pservers } => self.plan(json!({ "ps": { "replicas": pservers } }), json!([])),
            Happening::Move => {
                let name =
                    self.pods.values().find(|pod| pod.role == Role::Pserver).map(|pod| pod.name.clone());
                self.plan(json!({}), json!([{ "name": name.unwrap_or_default() }]));
            }
            Happening::Edit { copies, steps } => {
                self.job.spec.training.copies = copies;
                self.job.spec.training.checkpoint.every_steps = steps;
            }
            Happening::Suspend { is_on } => self.job.spec.suspend = is_on,
            Happening::ScaleDown { which } => {
                let trainers: Vec<&PodView> =
                    self.pods.values().filter(|pod| pod.role == Role::Trainer).collect();
                let uid = trainers.get(which % trainers.len().max(1)).map(|pod| pod.uid.clone());
                self.scaled_down.extend(uid);
            }
            Happening::Admit { is_on } => self.has_room = is_on,
        }
    }

    fn tell_to_end(&mut self, name: &str) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.deleted.is_none()) else { return };
        pod.deleted = Some(Deleted { grace_seconds: GRACE, why: Displacement::Evicted });
        self.grace_ends.insert(pod.uid.clone(), self.now + GRACE as i64);
    }

    fn plan(&mut self, numbers: serde_json::Value, moves: serde_json::Value) {
        let spec = json!({ "ownerJob": "j", "replicaResourceSpecs": numbers, "migratePods": moves });
        let plan = ScalePlan::new(&format!("p{}", self.plans.len()), serde_json::from_value(spec).unwrap());
        self.plans.push(plan);
    }

    fn running(&self, which: usize) -> Option<String> {
        let running: Vec<&PodView> =
            self.pods.values().filter(|pod| pod.state == PodState::Running).collect();
        Some(running.get(which % running.len().max(1))?.name.clone())
    }

    fn fail(&mut self, which: usize, end: End) {
        let Some(name) = self.running(which) else { return };
        let pod = self.pods.get_mut(&name).unwrap();
        if self.lost.contains(&pod.uid) {
            return;
        }
        // One that is being deleted was counted then, or is no loss.
        self.ends += u32::from(pod.deleted.is_none());
        pod.is_ready = false;
        pod.state = PodState::Ended(Ended {
            end,
            exit_code: Some(1),
            message: String::new(),
            at: None,
            leaves_others: pod.ordinal % 3 == 1,
        });
        self.master.pservers.remove(&name);
    }

    /// Pods go on with what they are about.
    fn pass(&mut self, seconds: u64) {
        self.now += seconds as i64;
        let now = Moment(self.now);
        let live = self.master.pservers.values().filter(|is_leaving| !**is_leaving).count();
        for pod in self.pods.values_mut().filter(|pod| !self.lost.contains(&pod.uid)) {
            let is_left = self.master.pservers.get(&pod.name) == Some(&true) && live > 0;
            match (&pod.state, pod.deleted) {
                (PodState::Running, _) if is_left => {
                    pod.is_ready = false;
                    pod.state = PodState::Ended(Ended {
                        end: End::Exited(0),
                        exit_code: Some(0),
                        message: String::new(),
                        at: Some(now),
                        leaves_others: pod.ordinal % 3 == 1,
                    });
                    self.master.pservers.remove(&pod.name);
                }
                (PodState::Unplaced(_), None) => pod.state = PodState::Starting(None),
                (PodState::Starting(_), None) => {
                    pod.state = PodState::Running;
                    pod.is_ready = true;
                    if pod.role == Role::Pserver {
                        self.master.pservers.insert(pod.name.clone(), false);
                    }
                }
                _ => {}
            }
        }
        let (lost, slow) = (self.lost.clone(), self.slow.clone());
        let is_over = |pod: &PodView| {
            self.grace_ends.get(&pod.uid).is_some_and(|ends| {
                let is_slow = slow.contains(&pod.uid) && now.0 < ends + SLOWNESS;
                let has_ended = !matches!(pod.state, PodState::Running);
                let may_end = !lost.contains(&pod.uid) && !is_slow;
                may_end && (has_ended || now.0 >= *ends || pod.role == Role::Trainer)
            })
        };
        self.pods.retain(|_, pod| !is_over(pod));
        let names: BTreeSet<String> = self.pods.keys().cloned().collect();
        self.master.pservers.retain(|name, _| names.contains(name));
        for name in self.master.replaced.clone() {
            // Another has come: the one that is replaced may leave.
            if live as u32 > self.master.wanted.1 && self.master.pservers.contains_key(&name) {
                self.master.pservers.insert(name.clone(), true);
            }
        }
        if self.pods.contains_key("j-master") && live > 0 {
            self.master.step += seconds;
        }
    }

    fn master_view(&self) -> Option<MasterView> {
        self.pods.get("j-master").filter(|pod| pod.is_ready && !self.lost.contains(&pod.uid))?;
        Some(self.master.view())
    }

    pub(super) fn reconcile(&mut self, acts_done: usize) {
        let (job, pods) = (self.job.clone(), self.pods.values().cloned().collect::<Vec<_>>());
        self.past = Some((job.clone(), pods.clone()));
        self.decide_on(&job, &pods, acts_done);
    }

    /// What a cache shows may be older than what is: then pods are refused by their uid. But the shell goes by the status
    /// that it has written itself, and adds the pods that it has made and not seen yet (`cluster/unseen.rs`).
    fn reconcile_the_past(&mut self) {
        let Some((mut job, mut pods)) = self.past.clone() else { return };
        job.status = self.job.status.clone();
        pods.retain(|seen| self.pods.get(&seen.name).is_none_or(|pod| pod.uid == seen.uid));
        let unseen = |pod: &&PodView| pods.iter().all(|seen| seen.name != pod.name);
        let made: Vec<PodView> = self.pods.values().filter(unseen).cloned().collect();
        pods.extend(made.into_iter().map(|pod| PodView {
            state: PodState::Unplaced(None),
            is_ready: false,
            ..pod
        }));
        self.decide_on(&job, &pods, usize::MAX);
    }

    fn decide_on(&mut self, job: &TrainingJob, pods: &[PodView], acts_done: usize) {
        if self.is_gone {
            return;
        }
        let spec = &job.spec.trainer;
        let plan = JobPlan {
            is_admitted: self.has_room,
            trainers: job.asked_trainers().unwrap_or(spec.min_replicas),
            ..JobPlan::default()
        };
        let plans: Vec<ScalePlan> = self
            .plans
            .iter()
            .filter(|plan| !plan.status.as_ref().is_some_and(|status| status.phase.is_over()))
            .cloned()
            .collect();
        let master = self.master_view();
        let silent: Vec<String> = self.lost.iter().map(|uid| node(uid)).collect();
        let view = View {
            job,
            pods,
            silent_nodes: Some(&silent),
            elsewhere: Some(&Role::ALL),
            master: master.as_ref(),
            plans: &plans,
            choice: Choice::Plan(&plan, &self.scaled_down),
            has_store: false,
            tls: crate::api::TlsMode::Issued,
            now: Moment(self.now + self.skew),
            uptime: u64::try_from(self.now).unwrap(),
        };
        let decision = decide(&view, &mut self.memory).unwrap();
        let was_in = job.status.as_ref().is_some_and(|status| status.admitted.is_some());
        if !was_in && !self.has_room {
            let makes = decision.acts.iter().any(|act| matches!(act, Act::CreatePod(_)));
            assert!(!makes, "a job that was not let in gets pods");
        }
        let is_placed = |pod: &PodView| matches!(pod.state, PodState::Starting(_) | PodState::Running);
        let is_beside = |act: &Act| matches!(act, Act::CreatePod(plan) if plan.role != Role::Master);
        if !pods.iter().any(|pod| pod.role == Role::Master && is_placed(pod)) {
            assert!(!decision.acts.iter().any(is_beside), "a pod is made before its master has a node");
        }
        if was_in && !job.spec.suspend {
            assert!(decision.status.admitted.is_some(), "who was let in stays in");
        }
        assert!((1..=300).contains(&decision.again_after));
        self.keep_status(decision.status);
        for (name, status) in decision.plans {
            let plan =
                self.plans.iter_mut().find(|plan| plan.metadata.name.as_deref() == Some(&name)).unwrap();
            plan.status = Some(status);
        }
        for act in decision.acts.into_iter().take(acts_done) {
            self.act(act);
        }
    }

    fn keep_status(&mut self, status: TrainingJobStatus) {
        let seats = |status: &TrainingJobStatus| -> BTreeSet<u32> {
            status.pserver.seats.iter().map(|seat| seat.ordinal).collect()
        };
        let before = self.job.status.take().unwrap_or_default();
        let (was, is) = (seats(&before), seats(&status));
        assert_eq!(is.len(), status.pserver.seats.len(), "an ordinal has one seat");
        assert!(
            is.iter()
                .all(|ordinal| *ordinal < status.pserver.next_ordinal && !self.given_up.contains(ordinal))
        );
        for ordinal in was.difference(&is) {
            let name = pod_name(Role::Pserver, "j", *ordinal);
            assert!(!self.pods.contains_key(&name), "seat {ordinal} was given up while its pod is there");
            self.given_up.insert(*ordinal);
        }
        self.job.status = Some(status);
    }

    fn make(&mut self, plan: &PodPlan) {
        let name = pod_name(plan.role, "j", plan.ordinal);
        assert!(!self.is_settled(), "a pod is made for a job that is to have none: {name}");
        self.uids += 1;
        let uid = format!("u{}", self.uids);
        let pod = PodView {
            name: name.clone(),
            node: Some(node(&uid)),
            uid,
            role: plan.role,
            ordinal: plan.ordinal,
            state: PodState::Unplaced(None),
            is_ready: false,
            created: Moment(self.now),
            deleted: None,
            disruption: String::new(),
            ip: None,
            memory: Some(plan.memory.unwrap_or(1 << 20)),
        };
        self.pods.entry(name).or_insert(pod);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::CreatePod(plan) => self.make(&plan),
            Act::DeletePod { name, uid, grace } => {
                if self.pods.get(&name).is_none_or(|pod| pod.uid != uid) {
                    return;
                }
                match grace {
                    Grace::Force => {
                        let is_late = self.grace_ends.get(&uid).is_some_and(|ends| self.now > *ends);
                        assert!(is_late, "{name} was forced early");
                        assert!(self.lost.contains(&uid), "{name} was forced on a node that answers");
                        self.pods.remove(&name);
                    }
                    Grace::Own | Grace::Seconds(_) => self.tell_to_end(&name),
                }
            }
            Act::SetReplicas { trainers, pservers } => {
                if trainers.is_some() {
                    self.job.metadata.annotations = None;
                    self.job.spec.trainer.replicas = trainers;
                }
                self.job.spec.pserver.replicas = pservers.or(self.job.spec.pserver.replicas);
            }
            Act::WritePlanned(planned) => {
                self.job.spec.trainer.replicas = planned.or(self.job.spec.trainer.replicas);
                let annotation = planned.map(|planned| (PLANNED_TRAINERS.to_owned(), planned.to_string()));
                self.job.metadata.annotations = annotation.map(|annotation| [annotation].into());
            }
            Act::Tell(command) => self.master.hear(command),
            Act::AddFinalizer => self.job.metadata.finalizers = Some(vec![FINALIZER.to_owned()]),
            Act::RemoveFinalizer => {
                assert!(self.pods.is_empty(), "the job goes while pods are there");
                self.is_gone = true;
            }
            // What is beside pods this model has not.
            Act::MakeSurroundings | Act::IssueCertificates | Act::DeleteSurroundings => {}
            Act::DeleteJob | Act::Event { .. } => {}
        }
    }

    /// Whether the job is to have no pods.
    fn is_settled(&self) -> bool {
        let phase = self.job.status.clone().unwrap_or_default().phase;
        phase.is_over() || phase == Phase::Suspended || self.job.metadata.deletion_timestamp.is_some()
    }

    /// Nothing happens any more but time, and reconciles.
    pub(super) fn rest(&mut self) {
        self.has_room = true;
        for _ in 0..120 {
            self.reconcile(usize::MAX);
            self.pass(5);
        }
    }

    pub(super) fn running_of(&self, role: Role) -> usize {
        self.pods.values().filter(|pod| pod.role == role && pod.state == PodState::Running).count()
    }
}
