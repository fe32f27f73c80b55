//! The resource `TrainingJob`: what to train on what, with how many trainers and pservers. Decides nothing.

#![allow(clippy::duplicated_attributes, reason = "columns have fields of the same names")]

use super::status::TrainingJobStatus;
use super::tls::TlsSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shoal_job::spec::Spec;

/// A training job: a master, pservers that hold the model, and trainers that come and go.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "shoal.dev",
    version = "v1alpha1",
    kind = "TrainingJob",
    doc = "A training job: a master, pservers that hold the model, and trainers that come and go.",
    namespaced,
    status = "TrainingJobStatus",
    shortname = "tj",
    category = "shoal",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.trainer.replicas",
        status_replicas_path = ".status.trainer.replicas",
        label_selector_path = ".status.trainer.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.progress.text"),
    printcolumn(name = "ETA", type_ = "string", json_path = ".status.progress.eta"),
    printcolumn(name = "Trainers", type_ = "string", json_path = ".status.trainer.text"),
    printcolumn(name = "Pservers", type_ = "string", json_path = ".status.pserver.text"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Steps/s",
        type_ = "string",
        json_path = ".status.progress.stepsPerSecond",
        priority = 1
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase", default)]
pub struct TrainingJobSpec {
    /// What the job learns from, how, and what is kept of it.
    #[serde(flatten)]
    pub training: Spec,
    /// The master, which hands out the data.
    pub master: MasterSpec,
    /// The parameter servers, which hold the model.
    pub pserver: PserverSpec,
    /// The trainers, which run your program.
    pub trainer: TrainerSpec,
    /// Priority class of the master, the pservers and the least trainers. Trainers beyond the least have the operator's
    /// class for them, which everything else may preempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "new-pods"))]
    pub priority_class_name: Option<String>,
    /// What failures the job survives.
    pub failure_policy: FailurePolicy,
    /// What becomes of pods when the job has ended: Running deletes those that still run and keeps the others, whose logs can
    /// be read then; All deletes all; None deletes none. By default Running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<CleanPodPolicy>,
    /// Delete the job itself so many seconds after its end. By default it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<u64>,
    /// Whether to stop: a checkpoint is made and all pods are deleted. Set to false, the job goes on from there. A
    /// queue that knows TrainingJobs may set it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// How the job's connections are secured. By default as the operator is set, which is by certificates that it issues.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "pinned"))]
    pub tls: Option<TlsSpec>,
}

/// The master of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MasterSpec {
    /// Where the job's state is kept, so that it outlives the master's pod: a folder on a volume, or etcd://HOST:PORT/PREFIX, or
    /// etcds:// over TLS. By default where the operator keeps the states of jobs, else the folder "state" among the checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "pinned"))]
    pub store: Option<String>,
    /// The secret with what an etcd over TLS is shown: ca.crt, and a client's tls.crt and tls.key. By default the one of that name that
    /// the operator is set to; in the job's namespace either way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "new-pods"))]
    pub store_secret: Option<String>,
    /// What its container asks for and may use, as in a pod. Without a word it asks for 100m of a processor and 128Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::template::resources", extend("x-change" = "new-pods"))]
    pub resources: Option<Value>,
    /// A pod template with what the operator's own lacks: volumes, mounts, node selector, tolerations, another image. The
    /// container is named "master".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::template::any_object", extend("x-change" = "new-pods"))]
    pub template: Option<Value>,
}

/// The parameter servers of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PserverSpec {
    /// The least that the job may have.
    #[schemars(range(min = 1, max = 10_000))]
    pub min_replicas: u32,
    /// The most that it may have; by default the least.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_replicas: Option<u32>,
    /// Exactly so many, from the least to the most; ScalePlans set it. By default the operator decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10_000))]
    pub replicas: Option<u32>,
    /// What the container of each asks for and may use, as in a pod; without a word 250m of a processor and 256Mi. A
    /// ScalePlan may give one pserver others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::template::resources", extend("x-change" = "new-pods"))]
    pub resources: Option<Value>,
    /// Where dense blocks are updated: cpu, auto, or cuda:N. By default cpu.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "new-pods"))]
    pub device: Option<String>,
    /// A pod template with what the operator's own lacks. The container is named "pserver".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::template::any_object", extend("x-change" = "new-pods"))]
    pub template: Option<Value>,
}

impl Default for PserverSpec {
    fn default() -> PserverSpec {
        PserverSpec {
            min_replicas: 1,
            max_replicas: None,
            replicas: None,
            resources: None,
            device: None,
            template: None,
        }
    }
}

/// The annotation with the number of trainers that the operator itself has written into `spec.trainer.replicas`. Autoscalers begin with that
/// number, and the API server has no scale of a job without one.
pub const PLANNED_TRAINERS: &str = "shoal.dev/planned-trainers";

impl TrainingJob {
    /// The number of trainers that the operator has written into the spec; none where it has not.
    pub fn planned_trainers(&self) -> Option<u32> {
        self.metadata.annotations.as_ref()?.get(PLANNED_TRAINERS)?.parse().ok()
    }

    /// How many trainers somebody asks for; none where the operator decides. Its own number is nobody's wish.
    pub fn asked_trainers(&self) -> Option<u32> {
        self.spec.trainer.replicas.filter(|asked| Some(*asked) != self.planned_trainers())
    }
}

/// The trainers of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TrainerSpec {
    /// The least with which the job runs: it waits for room until so many fit.
    #[schemars(range(min = 1, max = 10_000))]
    pub min_replicas: u32,
    /// The most that it may have; by default the least.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_replicas: Option<u32>,
    /// So many, from the least to the most, as soon as there is room: what `kubectl scale`, an autoscaler or a ScalePlan sets.
    /// By default the operator decides, by the room that there is and by what more trainers bring, and writes its own number here
    /// (the annotation shoal.dev/planned-trainers says so) until somebody else writes another.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10_000))]
    pub replicas: Option<u32>,
    /// What the container of each asks for and may use, as in a pod; instead of the template's. Without a word it asks for
    /// 250m of a processor and 256Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::template::resources", extend("x-change" = "new-pods"))]
    pub resources: Option<Value>,
    /// Whether to ask for trainers that fit no present node, because something brings nodes: a cluster autoscaler. By default
    /// no pod is made that has no room.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_node_scale_up: bool,
    /// The pod template: its first container, or the one named trainer, is your program, with its image, command, arguments
    /// and environment.
    #[schemars(schema_with = "super::template::any_object", extend("x-change" = "new-pods"))]
    pub template: Value,
}

impl Default for TrainerSpec {
    fn default() -> TrainerSpec {
        let template = Value::Object(serde_json::Map::new());
        TrainerSpec {
            min_replicas: 1,
            max_replicas: None,
            replicas: None,
            resources: None,
            allow_node_scale_up: false,
            template,
        }
    }
}

/// What failures a job survives. Preemption, eviction and lost nodes never count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailurePolicy {
    /// Trainers that may end with an error, without a step made in between. By default 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trainer_failures: Option<u32>,
    /// The same for pservers and the master together. By default 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_failures: Option<u32>,
    /// A container that was killed for want of memory comes back with twice as much, up to this, such as 64Gi. By default
    /// four times what it had at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<String>,
    /// How long an image may be unusable, on whatever node, before a job fails of which no pod with it has run yet. By default 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_seconds: Option<u64>,
    /// How long a trainer with work in hand may make no progress before it is started again. By default 600; 0 for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang_seconds: Option<u64>,
    /// How long after its node was lost a pod is given up. By default 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "new-pods"))]
    pub node_lost_seconds: Option<i64>,
}

/// What becomes of pods when the job has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanPodPolicy {
    /// Those that still run are deleted.
    #[default]
    Running,
    /// All are deleted.
    All,
    /// None is deleted.
    None,
}
