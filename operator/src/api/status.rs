//! What the operator says of a `TrainingJob`, and what it must not forget between two reconciles. Decides nothing.

use super::moment::Moment;
use super::phase::Phase;
use super::tls::TlsMode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// How a job is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TrainingJobStatus {
    /// The generation of the spec that this speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where it is in its life.
    pub phase: Phase,
    /// What there is to say of it, in a line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Ready, Reconciling and Stalled, as for all resources; Running, Suspended, Degraded, Succeeded and Failed.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The name that the job's processes know it by.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// What may not change, as it was when the job began.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pinned: String,
    /// How its processes speak with one another, as it was when the job began: Issued, Given or Plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsMode>,
    /// Since when it has its room: its least fits, and it may have pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Moment>,
    /// What the operator's planner says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The newest checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointStatus>,
    /// Its trainers.
    pub trainer: TrainerRoleStatus,
    /// Its pservers.
    pub pserver: PserverRoleStatus,
    /// Memory that the operator gave to roles after lack of it, by role.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub memory: BTreeMap<String, MemoryGrant>,
    /// Pods that have ended before their time, by why.
    #[serde(skip_serializing_if = "Ends::is_empty")]
    pub ends: Ends,
    /// The newest of them that was the pod's own fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// Nodes that could not start pods of the job: none of that role is put there for ten minutes (or for imageSeconds, if that is longer), as long as another node suits it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoided_nodes: Vec<AvoidedNode>,
    /// Pods that have ended, or are being removed, and were counted; until they are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<String>,
    /// What the operator decided last, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionRecord>,
    /// When its first pod was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Moment>,
    /// When it succeeded or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Moment>,
    /// How far it is with stopping, if it was asked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspending: Option<Suspending>,
}

/// How far a job is with stopping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Suspending {
    /// When it was asked to.
    pub since: Moment,
    /// The checkpoint that there was then: a newer one has all that was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Whether its pods may go.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub saved: bool,
}

/// One condition, as all resources have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
    /// Since when.
    pub last_transition_time: Moment,
    /// The generation that it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What the planner says of a job. Refreshed at most once a minute while it says the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanStatus {
    /// Its share of the cluster, as 12.5%: of the resource of which it has most.
    pub share: String,
    /// Why it has as many trainers as it has.
    pub why: String,
    /// In one word, why it has no more or is not let in: NoRoom, NoRoomForLeast, FairShare, Behind, Headroom, AtMost,
    /// NotWorthIt, Unmeasured, Settles or QuotaExceeded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub blocker: String,
    /// The same for people, with the figures.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub blocked_by: String,
    /// When this was so.
    pub at: Moment,
}

/// How fast a job was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Speed {
    /// With so many trainers.
    pub trainers: u32,
    /// Steps in a second.
    pub steps_per_second: f64,
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// Of all steps, as 37%.
    pub text: String,
    /// Steps made.
    pub step: u64,
    /// Steps of the whole job.
    pub steps: u64,
    /// Epochs that are over.
    pub epoch: u64,
    /// Records that count.
    pub records: u64,
    /// Steps in a second, over the last minute or so, as 12.5.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub steps_per_second: String,
    /// How long it takes from here on, as 1h12m.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub eta: String,
    /// When this was so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
}

/// The newest durable checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointStatus {
    /// Where checkpoints lie.
    pub place: String,
    /// Its number.
    pub number: u64,
    /// The version of the model in it.
    pub version: u64,
}

/// The trainers of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TrainerRoleStatus {
    /// As `6/4–12`: ready, of the least to the most.
    pub text: String,
    /// Pods that there are.
    pub replicas: u32,
    /// Pods that are ready.
    pub ready: u32,
    /// Pods that there should be.
    pub wanted: u32,
    /// What selects them, for autoscalers.
    pub selector: String,
    /// How fast the job was with how many trainers: what the planner goes by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speeds: Vec<Speed>,
    /// Failures since a step was made.
    #[serde(skip_serializing_if = "Failures::is_none")]
    pub failures: Failures,
    /// Those that were not let into the job, since what they declare, or their environment, is not the job's. Steps made
    /// meanwhile do not end the pause before the next.
    #[serde(skip_serializing_if = "Failures::is_none")]
    pub refusals: Failures,
}

/// The pservers of a job. Failures are counted with those of the master.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PserverRoleStatus {
    /// As `2/1–4`: ready, of the least to the most.
    pub text: String,
    /// Pods that there are.
    pub replicas: u32,
    /// Pods that are ready.
    pub ready: u32,
    /// Pods that there should be.
    pub wanted: u32,
    /// Those that there are or should be.
    pub seats: Vec<Seat>,
    /// The number of the next: none is used twice.
    pub next_ordinal: u32,
    /// When their number was last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Moment>,
    /// As `45%`: how much they use of the processors that their resources state, on average; empty until it is measured.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub load: String,
    /// Pods that use nearly all of theirs while all together do not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hot: Vec<String>,
    /// Failures since a step was made.
    #[serde(skip_serializing_if = "Failures::is_none")]
    pub failures: Failures,
}

/// One pserver that there is or should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Seat {
    /// The number in its pod's name.
    pub ordinal: u32,
    /// What its container asks for, if that is its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::template::any_object")]
    pub resources: Option<Value>,
    /// Its blocks go elsewhere, and it ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// The seat that takes its place, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<u32>,
}

/// How often pods have ended before their time, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Ends {
    /// For something of a higher priority.
    #[serde(skip_serializing_if = "is_zero")]
    pub preempted: u32,
    /// By the node or by a person who drains it.
    #[serde(skip_serializing_if = "is_zero")]
    pub evicted: u32,
    /// With its node.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_lost: u32,
    /// For want of memory.
    #[serde(skip_serializing_if = "is_zero")]
    pub out_of_memory: u32,
    /// By an error of its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub errors: u32,
    /// Because it made no progress.
    #[serde(skip_serializing_if = "is_zero")]
    pub hung: u32,
    /// Because it was not let into the job.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: u32,
}

impl Ends {
    fn is_empty(&self) -> bool {
        *self == Ends::default()
    }
}

/// Memory that a role was given after lack of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryGrant {
    /// What it had at first, in bytes.
    pub first: u64,
    /// What it has now, in bytes.
    pub now: u64,
}

/// Failures of one role since a step was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Failures {
    /// How many.
    pub count: u32,
    /// The step at the newest.
    pub step: u64,
    /// When the newest was seen.
    pub at: Moment,
}

impl Failures {
    /// Whether there was never any. Those that are forgiven stay, with a count of 0: servers of the age of 1.20 make null of an object
    /// that is applied no more, and then refuse it.
    fn is_none(&self) -> bool {
        *self == Failures::default()
    }
}

/// How a pod failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    /// Its pod.
    pub pod: String,
    /// Why, in one word.
    pub reason: String,
    /// What its container ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The end of its log, or its own last words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it was seen.
    pub at: Moment,
}

/// A node that could not start pods of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AvoidedNode {
    /// Its name.
    pub node: String,
    /// The role: master, pserver or trainer.
    pub role: String,
    /// How many pods it could not start.
    pub pods: u32,
    /// When the first was made.
    pub since: Moment,
    /// When the newest was seen.
    pub at: Moment,
    /// Why, of the newest.
    pub why: String,
}

/// Something that the operator decided, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionRecord {
    /// When.
    pub at: Moment,
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
