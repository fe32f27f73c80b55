//! A job's pod: what the operator gives it, under and over what the author's template says.

use super::containers::{STORE_VOLUME, TLS_VOLUME, container, environment, grace_seconds, is_store_over_tls};
use super::{Defaults, JOB_LABEL, ORDINAL_LABEL, ROLE_LABEL, certificate_name, labels, metadata};
use crate::api::{self, TlsMode, TrainingJob, bytes, typed_template};
use crate::decide::{Avoids, PodPlan, Role, pod_name};
use k8s_openapi::DeepMerge;
use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
    PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec, PreferredSchedulingTerm,
    ResourceRequirements, SeccompProfile, SecretVolumeSource, Toleration, Volume, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use serde_json::Value;
use shoal_runtime::cluster::environment::PROGRAM_VARIABLES;
use std::collections::BTreeMap;

/// How long after its node was lost a pod is given up, where the job does not say.
const NODE_LOST_SECONDS: i64 = 30;

/// Which of several containers a pod is about: the field's own annotation, by which `kubectl logs` goes, too.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// What cluster autoscalers ask for before they remove a node: pods whose owner they do not know hold it otherwise. Whoever is evicted is made
/// again, pservers within their disruption budget.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// The name of the container of a job's pod that is the role's own, whatever others stand beside it.
pub fn program_of(pod: &Pod) -> Option<&str> {
    let containers = &pod.spec.as_ref()?.containers;
    let named = |name: &str| containers.iter().map(|one| one.name.as_str()).find(|one| *one == name);
    let annotated = pod.metadata.annotations.as_ref().and_then(|all| named(all.get(DEFAULT_CONTAINER)?));
    // Pods of operators before this annotation.
    let labelled = || pod.metadata.labels.as_ref().and_then(|all| named(all.get(ROLE_LABEL)?));
    annotated.or_else(labelled).or_else(|| containers.first().map(|one| one.name.as_str()))
}

/// The pod that a plan asks for.
///
/// # Errors
/// Resources or a template that are none; a job's faults name them first.
pub fn pod(job: &TrainingJob, defaults: &Defaults, plan: &PodPlan) -> Result<Pod, String> {
    let at = format!("spec.{}.template", plan.role.name());
    let (template, resources) = match plan.role {
        Role::Master => (job.spec.master.template.as_ref(), job.spec.master.resources.as_ref()),
        Role::Pserver => (job.spec.pserver.template.as_ref(), job.spec.pserver.resources.as_ref()),
        Role::Trainer => (Some(&job.spec.trainer.template), job.spec.trainer.resources.as_ref()),
    };
    let template = typed_template(template.unwrap_or(&Value::Object(Default::default())), &at)?;
    let mut metadata = metadata(job, pod_name(plan.role, &job.name_any(), plan.ordinal));
    let theirs = template.metadata.unwrap_or_default();
    let mut annotations = theirs.annotations.unwrap_or_default();
    let ours = metadata.labels.take().unwrap_or_default();
    let role = [(ROLE_LABEL, plan.role.name().to_owned()), (ORDINAL_LABEL, plan.ordinal.to_string())];
    let role = role.into_iter().map(|(key, value)| (key.to_owned(), value));
    metadata.labels = Some(theirs.labels.unwrap_or_default().into_iter().chain(ours).chain(role).collect());
    let theirs = template.spec.unwrap_or_default();
    let program = program(&theirs, plan.role);
    annotations.insert(DEFAULT_CONTAINER.to_owned(), program.clone());
    annotations.entry(SAFE_TO_EVICT.to_owned()).or_insert_with(|| "true".to_owned());
    metadata.annotations = Some(annotations);
    let mut ours = container(job, defaults, plan);
    ours.name = program.clone();
    let mut spec = base(job, defaults, plan)?;
    spec.containers = vec![ours];
    merge(&mut spec, theirs);
    tolerations(job, &mut spec);
    avoid(&mut spec, &plan.avoids);
    let container =
        spec.containers.iter_mut().find(|one| one.name == program).ok_or("the container is lost")?;
    finish(container, job, plan);
    let stated = plan.resources.as_ref().or(resources);
    if let Some(stated) = stated {
        let typed: ResourceRequirements = serde_json::from_value(stated.clone())
            .map_err(|why| format!("spec.{}.resources: {why}", plan.role.name()))?;
        container.resources = Some(typed);
    }
    start_small(container.resources.get_or_insert_default(), plan.role);
    if let Some(memory) = plan.memory {
        at_least(container.resources.get_or_insert_default(), memory);
    }
    // One pod is one incarnation: whether it is started again, and with what, is decided in one place.
    spec.restart_policy = Some("Never".to_owned());
    spec.automount_service_account_token = Some(false);
    Ok(Pod { metadata, spec: Some(spec), status: None })
}

/// The name of the container that is the role's; in a template without any it is given its place.
fn program(theirs: &PodSpec, role: Role) -> String {
    let named = theirs.containers.iter().position(|one| one.name == role.name());
    match (named, role) {
        (Some(_), _) => role.name().to_owned(),
        (None, Role::Trainer) => theirs
            .containers
            .first()
            .map_or_else(|| api::TRAINER_CONTAINER.to_owned(), |one| one.name.clone()),
        (None, _) => role.name().to_owned(),
    }
}

/// What pods of a role are, before the author's template.
fn base(job: &TrainingJob, defaults: &Defaults, plan: &PodPlan) -> Result<PodSpec, String> {
    let volumes = secrets(job, defaults, plan.role)?;
    let class = if plan.is_elastic { defaults.elastic_class.clone() } else { None };
    Ok(PodSpec {
        affinity: (plan.role == Role::Pserver).then(|| apart(job)),
        enable_service_links: Some(false),
        priority_class_name: class.or_else(|| job.spec.priority_class_name.clone()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: Some(grace_seconds(plan.role)),
        volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
        ..PodSpec::default()
    })
}

/// The volumes with what a pod shows to others.
fn secrets(job: &TrainingJob, defaults: &Defaults, role: Role) -> Result<Vec<Volume>, String> {
    let volume = |(name, secret): (&str, String)| Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource { secret_name: Some(secret), ..SecretVolumeSource::default() }),
        ..Volume::default()
    };
    let store = is_store_over_tls(job, defaults, role).then(|| {
        let secret = job.spec.master.store_secret.as_ref().or(defaults.store_secret.as_ref()).cloned();
        secret.ok_or(
            "spec.master.storeSecret: an etcd over TLS takes a secret with ca.crt, and a client's tls.crt and tls.key",
        )
    });
    let store = store.transpose()?.map(|secret| (STORE_VOLUME, secret));
    Ok(secret_of(job, role).map(|secret| (TLS_VOLUME, secret)).into_iter().chain(store).map(volume).collect())
}

/// The secret with the certificate of a role's pods; none where they speak plaintext.
fn secret_of(job: &TrainingJob, role: Role) -> Option<String> {
    match job.tls() {
        TlsMode::Issued => Some(certificate_name(job, role.name())),
        TlsMode::Given => job.spec.tls.as_ref()?.secrets.get(role.name()).cloned(),
        TlsMode::Plaintext => None,
    }
}

/// Pservers would rather be on different nodes: one that is lost takes one of them.
fn apart(job: &TrainingJob) -> Affinity {
    let mut selected: BTreeMap<String, String> = labels(job);
    selected.retain(|key, _| key == JOB_LABEL);
    selected.insert(ROLE_LABEL.to_owned(), Role::Pserver.name().to_owned());
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector { match_labels: Some(selected), match_expressions: None }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    let wished = vec![WeightedPodAffinityTerm { pod_affinity_term: term, weight: 100 }];
    let pod_anti_affinity = PodAntiAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(wished),
        required_during_scheduling_ignored_during_execution: None,
    };
    Affinity { pod_anti_affinity: Some(pod_anti_affinity), ..Affinity::default() }
}

/// Keeps a pod from nodes, beside whatever its author's template says of them.
fn avoid(spec: &mut PodSpec, avoids: &Avoids) {
    if avoids.nodes.is_empty() {
        return;
    }
    let other_than = |node: &String| NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec![node.clone()]),
    };
    let fields: Vec<NodeSelectorRequirement> = avoids.nodes.iter().map(other_than).collect();
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let NodeAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    } = affinity;
    if !avoids.is_strict {
        let preference = NodeSelectorTerm { match_fields: Some(fields), match_expressions: None };
        preferred.get_or_insert_default().push(PreferredSchedulingTerm { preference, weight: 100 });
        return;
    }
    // One of the terms must hold: each has to say it.
    let terms = &mut required
        .get_or_insert_with(|| NodeSelector { node_selector_terms: Vec::new() })
        .node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    terms
        .iter_mut()
        .for_each(|term| term.match_fields.get_or_insert_default().extend(fields.iter().cloned()));
}

/// The author's template over ours. What is a whole of its own is taken whole, not mixed.
fn merge(ours: &mut PodSpec, mut theirs: PodSpec) {
    if theirs.affinity.is_some() {
        ours.affinity = None;
    }
    for theirs in &mut theirs.containers {
        let Some(ours) = ours.containers.iter_mut().find(|ours| ours.name == theirs.name) else { continue };
        if theirs.command.is_some() {
            ours.command = None;
        }
        if theirs.args.is_some() {
            ours.args = None;
        }
        for (theirs, ours) in [
            (&theirs.readiness_probe, &mut ours.readiness_probe),
            (&theirs.liveness_probe, &mut ours.liveness_probe),
            (&theirs.startup_probe, &mut ours.startup_probe),
        ] {
            if theirs.is_some() {
                *ours = None;
            }
        }
    }
    ours.merge_from(theirs);
}

/// What the protocol rests on is ours, whatever the template says.
fn finish(container: &mut Container, job: &TrainingJob, plan: &PodPlan) {
    let ours = environment(job, plan);
    let theirs = container.env.take().unwrap_or_default();
    let is_theirs = |name: &str| ours.iter().all(|one| one.name != name);
    let theirs: Vec<_> = theirs.into_iter().filter(|one| is_theirs(&one.name)).collect();
    let says = |name: &str| theirs.iter().any(|one| one.name == name) || container.env_from.is_some();
    let unsaid = PROGRAM_VARIABLES.into_iter().filter(|(name, _)| plan.role == Role::Trainer && !says(name));
    let unsaid = unsaid.map(|(name, value)| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    });
    container.env = Some(ours.iter().cloned().chain(unsaid).chain(theirs.iter().cloned()).collect());
}

/// What a job says nothing of it asks for a little of: whoever asks for nothing is put anywhere, is the first to go, and is
/// refused where a quota counts requests.
fn start_small(resources: &mut ResourceRequirements, role: Role) {
    let small = match role {
        Role::Master => [("cpu", "100m"), ("memory", "128Mi")],
        Role::Pserver | Role::Trainer => [("cpu", "250m"), ("memory", "256Mi")],
    };
    for (name, amount) in small {
        // A limit alone is a request, too.
        if resources.limits.as_ref().is_none_or(|limits| !limits.contains_key(name)) {
            let requests = resources.requests.get_or_insert_default();
            requests.entry(name.to_owned()).or_insert_with(|| Quantity(amount.to_owned()));
        }
    }
}

/// Requests and limits of at least so much memory.
fn at_least(resources: &mut ResourceRequirements, memory: u64) {
    for list in [&mut resources.requests, &mut resources.limits] {
        let list = list.get_or_insert_default();
        if list.get("memory").and_then(|stated| bytes(&stated.0)).is_none_or(|stated| stated < memory) {
            list.insert("memory".to_owned(), Quantity(memory.to_string()));
        }
    }
}

/// For how long pods stay bound to a node that does not answer.
fn tolerations(job: &TrainingJob, spec: &mut PodSpec) {
    let seconds = job.spec.failure_policy.node_lost_seconds.unwrap_or(NODE_LOST_SECONDS);
    let stated = spec.tolerations.get_or_insert_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if stated.iter().any(|one| one.key.as_deref().is_none_or(|theirs| theirs == key)) {
            continue;
        }
        stated.push(Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some("NoExecute".to_owned()),
            toleration_seconds: Some(seconds),
            value: None,
        });
    }
}
