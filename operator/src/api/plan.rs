//! The resource `ScalePlan`: other numbers of trainers and pservers, or other machines for some, once. Decides nothing.

#![allow(clippy::duplicated_attributes, reason = "columns have fields of the same names")]

use super::moment::Moment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A change to a running job, carried out once.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "shoal.dev",
    version = "v1alpha1",
    kind = "ScalePlan",
    doc = "A change to a running job, carried out once.",
    namespaced,
    status = "ScalePlanStatus",
    shortname = "sp",
    category = "shoal",
    derive = "PartialEq",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.ownerJob"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalePlanSpec {
    /// The job in the same namespace.
    pub owner_job: String,
    /// Numbers by role: worker or trainer, ps or pserver.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub replica_resource_specs: BTreeMap<String, ReplicaResourceSpec>,
    /// Pservers that move to new pods, while training goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000))]
    pub migrate_pods: Vec<MigratePod>,
}

/// How many of one role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaResourceSpec {
    /// So many, from the least to the most that the job states.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10_000))]
    pub replicas: Option<u32>,
}

/// A pserver that moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MigratePod {
    /// Its pod's name; the end of it, as in ps-0, is enough.
    pub name: String,
    /// What the new one's container asks for: cpu, memory and the like. By default what the old one had.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::template::any_object")]
    pub resource: Option<Value>,
}

/// How a plan stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalePlanStatus {
    /// Whether it is still to be carried out.
    pub phase: ScalePlanPhase,
    /// What it waits for, or why it cannot be carried out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The uid of the job that it is for, from when there was one: what is called so later is another job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_uid: Option<String>,
    /// When the operator took it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_time: Option<Moment>,
    /// When it was done, or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Moment>,
    /// The numbers of the pservers that come in the place of those that move, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved_to: Vec<u32>,
}

/// Whether a plan is still to be carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScalePlanPhase {
    /// The operator has not taken it up.
    #[default]
    Pending,
    /// It is being carried out.
    Scaling,
    /// The job is as it says.
    Succeeded,
    /// It cannot be carried out.
    Failed,
}

impl ScalePlanPhase {
    /// Whether nothing will change it.
    pub fn is_over(self) -> bool {
        matches!(self, ScalePlanPhase::Succeeded | ScalePlanPhase::Failed)
    }
}
