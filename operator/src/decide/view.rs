//! What is seen of a job, and what may be done about it: plain values, without Kubernetes' types for pods.

use super::load::Loads;
use super::numbers::Choice;
use super::overdue::Overdue;
use crate::api::{Moment, ScalePlan, ScalePlanStatus, TlsMode, TrainingJob, TrainingJobStatus};
use serde_json::Value;
pub use shoal_job::Role;
use shoal_job::ends::{Account, Displacement, End, Strikes};
use shoal_job::spec::Spec;
use std::collections::BTreeMap;

/// The finalizer that lets the operator end a job's pods in order.
pub const FINALIZER: &str = "shoal.dev/drain";
/// The collector of garbage's own, on what is deleted by `kubectl delete --cascade=orphan`.
const ORPHAN_FINALIZER: &str = "orphan";

/// All that is seen of a job at one moment.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The job as it is written, with the status as it was last.
    pub job: &'a TrainingJob,
    /// Its pods.
    pub pods: &'a [PodView],
    /// Of the nodes that its pods are on, those that do not answer or are gone; none for an operator that may not see nodes.
    pub silent_nodes: Option<&'a [String]>,
    /// Roles of which a pod may also be put on a node that has not failed to start one; none for an operator that may not see nodes.
    pub elsewhere: Option<&'a [Role]>,
    /// What its master says, if it answers.
    pub master: Option<&'a MasterView>,
    /// Its plans that are not over, the oldest first.
    pub plans: &'a [ScalePlan],
    /// Who says how many trainers it is to have.
    pub choice: Choice<'a>,
    /// Whether the operator has a place for the states of jobs.
    pub has_store: bool,
    /// How a job is to speak that says nothing of it.
    pub tls: TlsMode,
    /// The time of the cluster's clocks.
    pub now: Moment,
    /// Seconds on a clock of this operator's that nobody sets.
    pub uptime: u64,
}

impl View<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        self.job.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.job.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER)
    }

    /// Whether the job is being deleted so that all that belongs to it stays: the collector of garbage takes it out of their owners.
    pub(super) fn is_orphaning(&self) -> bool {
        let has = |name: &str| self.job.metadata.finalizers.iter().flatten().any(|one| one == name);
        self.job.metadata.deletion_timestamp.is_some() && has(ORPHAN_FINALIZER)
    }

    pub(super) fn of(&self, role: Role) -> impl Iterator<Item = &PodView> {
        self.pods.iter().filter(move |pod| pod.role == role)
    }

    pub(super) fn pod(&self, role: Role, ordinal: u32) -> Option<&PodView> {
        self.of(role).find(|pod| pod.ordinal == ordinal)
    }

    /// How many of a role are ready and stay.
    pub(super) fn ready(&self, role: Role) -> u32 {
        let is_ready = |pod: &&PodView| {
            pod.is_ready && pod.deleted.is_none() && !matches!(pod.state, PodState::Ended(_))
        };
        self.of(role).filter(is_ready).count() as u32
    }
}

/// The name of a job's pod, which nothing else of the cluster has.
pub fn pod_name(role: Role, job: &str, ordinal: u32) -> String {
    match role {
        Role::Master => format!("{job}-master"),
        Role::Pserver | Role::Trainer => format!("{job}-{role}-{ordinal}"),
    }
}

/// A pod of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// What tells it from others that have had, or will have, its name.
    pub uid: String,
    /// What it is.
    pub role: Role,
    /// Which of them; 0 for the master.
    pub ordinal: u32,
    /// How it is.
    pub state: PodState,
    /// Whether it is ready.
    pub is_ready: bool,
    /// When it was made.
    pub created: Moment,
    /// That it has been told to end, if somebody has deleted it.
    pub deleted: Option<Deleted>,
    /// What who takes its place away says of that; empty where nobody does.
    pub disruption: String,
    /// The node that it is on; none before it has one.
    pub node: Option<String>,
    /// Its address.
    pub ip: Option<String>,
    /// The most memory that its container may use, in bytes.
    pub memory: Option<u64>,
}

/// That a pod was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// How long it was given to end, in seconds.
    pub grace_seconds: u64,
    /// Why, as far as that is said.
    pub why: Displacement,
}

/// How a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodState {
    /// It has no node: what the scheduler says of that, if anything.
    Unplaced(Option<String>),
    /// It has a node, which has not started its container: why it cannot, if so.
    Starting(Option<Unusable>),
    /// Its role's own container runs.
    Running,
    /// Its role's own container will never run again.
    Ended(Ended),
}

/// Why a container does not run: its image cannot be had, or it cannot be made as it is written. What the kubelet says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// In one word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Whether it may pass without anybody's doing, so that no job fails by it: a volume that is still attached elsewhere.
    pub may_pass: bool,
}

/// How a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How, as far as the cluster says.
    pub end: End,
    /// What its container returned, also where more is known than that.
    pub exit_code: Option<i32>,
    /// Its last words.
    pub message: String,
    /// When.
    pub at: Option<Moment>,
    /// Whether other containers of the pod run on, so that it holds its room: what meshes and log agents put beside the program.
    pub leaves_others: bool,
}

/// What a master says of its job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MasterView {
    /// `waiting`, `training`, `done` or `failed`.
    pub phase: String,
    /// Why it failed.
    pub failure: String,
    /// Whether it has heard of every block: before that the step says nothing.
    pub is_progress_known: bool,
    /// Steps made.
    pub step: u64,
    /// Steps of the whole job.
    pub steps: u64,
    /// Epochs that are over.
    pub epoch: u64,
    /// Records that count.
    pub records: u64,
    /// Records that were left out.
    pub excluded: u64,
    /// Trainers that it says there should be.
    pub trainers_wanted: u32,
    /// Pservers that it says there should be, those included that come in the place of others.
    pub pservers_wanted: u32,
    /// Pservers that it knows.
    pub pservers: Vec<MemberView>,
    /// Trainers that it knows.
    pub trainers: Vec<MemberView>,
    /// The newest durable checkpoint; 0 for none.
    pub checkpoint: u64,
    /// The version of the model in it.
    pub checkpoint_version: u64,
    /// Where checkpoints lie.
    pub checkpoint_place: String,
    /// The cause of an idle standstill: its reason in one word, and a sentence with the way out.
    pub standstill: Option<(String, String)>,
    /// The live settings that it goes by; none from a build that cannot be told others, or that knows some that this one does not.
    pub live: Option<Spec>,
}

impl MasterView {
    /// Whether it takes numbers and moves: its job is neither over nor unknown to it.
    pub(super) fn takes_commands(&self) -> bool {
        matches!(self.phase.as_str(), "waiting" | "training")
    }

    /// The live settings of a job that its master does not go by yet, by path.
    pub(super) fn live_differences(&self, job: &TrainingJob) -> Vec<&'static str> {
        self.live.as_ref().map_or_else(Vec::new, |live| job.spec.training.live_differences(live))
    }
}

/// A member as its master sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// Its name, which is its pod's.
    pub name: String,
    /// Whether it is heard of.
    pub is_live: bool,
    /// Whether it was told to leave.
    pub is_leaving: bool,
    /// Whether it has said goodbye.
    pub has_left: bool,
    /// Trainers: tasks in hand.
    pub tasks: u32,
    /// Trainers: what grows while it makes progress.
    pub work: u64,
    /// Pservers: processor time of their process.
    pub processor_micros: u64,
}

/// What the operator remembers of a job besides its status. Lost with its process, which costs a delay and nothing else.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By trainer, what it had done and since when it has done no more.
    pub(super) work: BTreeMap<String, (u64, Moment)>,
    /// What the pservers' processors had to do.
    pub(super) loads: Loads,
    /// Pods that have been told to end and do not.
    pub(super) overdue: Overdue,
    /// Ends of pods that are not in the status.
    pub(super) strikes: BTreeMap<Account, Strikes>,
    /// By uid, pods that nobody had told to end when the job was last reconciled.
    pub(super) present: BTreeMap<String, PodView>,
    /// Since when the API server has not had some pod, whatever it was each time.
    pub(super) refused_since: Option<Moment>,
    /// Why the API server would not have some pod when the job was last reconciled: in one word, and for people.
    pub blocked: Option<(&'static str, String)>,
}

/// A decision that is none: what it breaks of what must hold. Nothing of it is done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a decision that would break what must hold: {0}: this is a fault of the operator's: nothing is done"
)]
pub struct Broken(pub(super) String);

/// What is to be done, after the status is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The job's status from now on.
    pub status: TrainingJobStatus,
    /// By name, the status of plans from now on.
    pub plans: Vec<(String, ScalePlanStatus)>,
    /// What is to be done then, in this order.
    pub acts: Vec<Act>,
    /// Look again after so many seconds, even if nothing is heard.
    pub again_after: u64,
}

/// One thing that is to be done. Repeated, it changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Be asked before the job goes.
    AddFinalizer,
    /// Let the job go.
    RemoveFinalizer,
    /// Delete the job.
    DeleteJob,
    /// Make the service, the disruption budget and the network policy, or see that they are as they should be.
    MakeSurroundings,
    /// Issue the certificates of the job's roles that are due.
    IssueCertificates,
    /// Delete the service, the disruption budget and the network policy.
    DeleteSurroundings,
    /// Make a pod.
    CreatePod(PodPlan),
    /// Delete a pod: this one, and none that has its name later.
    DeletePod {
        /// Its name.
        name: String,
        /// Which of that name.
        uid: String,
        /// How long it may take to end.
        grace: Grace,
    },
    /// Write these numbers into the job's spec.
    SetReplicas {
        /// Trainers.
        trainers: Option<u32>,
        /// Pservers.
        pservers: Option<u32>,
    },
    /// Write the operator's own number of trainers into the job's spec, for autoscalers to begin with; none: it is somebody else's now.
    WritePlanned(Option<u32>),
    /// Tell the master.
    Tell(Command),
    /// Tell people.
    Event {
        /// Whether it is bad news.
        is_warning: bool,
        /// In one word.
        reason: &'static str,
        /// For people.
        note: String,
    },
}

/// How long a pod may take to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// As long as it was made with.
    Own,
    /// So many seconds.
    Seconds(u32),
    /// None: its node does not answer. Whatever still runs there is fenced by its incarnation.
    Force,
}

/// What is told to a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// How many of whom there should be.
    Scale {
        /// Trainers.
        trainers: u32,
        /// Pservers, where their number is another.
        pservers: Option<u32>,
    },
    /// By which live settings the job goes on. Apart from numbers, which a master that does not know some setting is to hear all the same.
    GoBy {
        /// As a document.
        spec: String,
    },
    /// That a pserver is to be left.
    Drain {
        /// Its name.
        pserver: String,
        /// Whether another takes its place.
        is_replaced: bool,
    },
    /// To make a checkpoint now.
    Checkpoint,
}

/// A pod to make.
#[derive(Clone, Debug, PartialEq)]
pub struct PodPlan {
    /// What it is.
    pub role: Role,
    /// Which of them.
    pub ordinal: u32,
    /// Whether anything may preempt it: a trainer beyond the least.
    pub is_elastic: bool,
    /// What its container asks for, if not what its role's does.
    pub resources: Option<Value>,
    /// The least memory that its container is given, in bytes.
    pub memory: Option<u64>,
    /// Pservers to begin with, for a master.
    pub pservers: u32,
    /// Trainers to begin with, for a master.
    pub trainers: u32,
    /// Nodes that it is not to be put on.
    pub avoids: Avoids,
}

/// Nodes that a pod is not to be put on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Avoids {
    /// Their names.
    pub nodes: Vec<String>,
    /// Whether it would rather wait than be put there. That is for who knows that there are others.
    pub is_strict: bool,
}
