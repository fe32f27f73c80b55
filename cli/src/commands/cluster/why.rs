//! `shoal why`: why a job of a cluster is as it is: what was decided, what it waits for, how pods have ended.

use super::now;
use crate::cluster::text::{age, object, phase, status_of};
use crate::cluster::{ClusterChoice, explained};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use shoal_operator::api::{Moment, PlanStatus, PserverRoleStatus, TrainingJob, TrainingJobStatus};
use shoal_operator::manifest::JOB_LABEL;
use shoal_runner::output::{Output, print};
use std::process::ExitCode;

/// The newest warnings that are shown.
const WARNINGS_MAX: usize = 8;

/// Prints the plan, the pods and the decisions of a cluster's job.
pub(crate) async fn why(name: &str, cluster: ClusterChoice, output: Output) -> anyhow::Result<ExitCode> {
    let cluster = cluster.connect().await?;
    let job = cluster.job(name).await?;
    let of_job = ListParams::default().labels(&format!("{JOB_LABEL}={name}"));
    let pods = cluster.pods().list(&of_job).await.map_err(explained)?.items;
    let warnings = ListParams::default().fields("type=Warning");
    let events = cluster.events().list(&warnings).await.map_err(explained)?.items;
    let (waiting, warnings) = (waiting(&pods), warnings_of(&job, &pods, &events));
    match output {
        Output::Json => {
            let mut all = object(&job);
            all["waiting"] =
                waiting.into_iter().map(|(pod, why)| json!({ "pod": pod, "why": why })).collect();
            all["warnings"] =
                warnings.into_iter().map(|(at, what)| json!({ "at": at, "what": what })).collect();
            print(all)?;
        }
        Output::Text => print(text(&job, &waiting, &warnings, now()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Pods that are not ready, each with what it waits for.
fn waiting(pods: &[Pod]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        pods.iter().filter_map(|pod| Some((pod.name_any(), waits_for(pod)?))).collect();
    all.sort();
    all
}

fn waits_for(pod: &Pod) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("it is being removed".to_owned());
    }
    let status = pod.status.as_ref()?;
    let phase = status.phase.as_deref().unwrap_or("Pending");
    if matches!(phase, "Succeeded" | "Failed") {
        return None;
    }
    let container = status.container_statuses.iter().flatten().next();
    let stuck = container.and_then(|one| one.state.as_ref()?.waiting.as_ref());
    if let Some(stuck) = stuck {
        let words = [stuck.reason.as_deref(), stuck.message.as_deref()];
        return Some(words.into_iter().flatten().collect::<Vec<_>>().join(": "));
    }
    let refused =
        status.conditions.iter().flatten().find(|one| one.status == "False" && one.type_ != "Initialized")?;
    let words = [refused.reason.as_deref(), refused.message.as_deref()];
    let words = words.into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ");
    Some(if words.is_empty() { format!("not yet {}", refused.type_) } else { words })
}

/// The newest warnings of a job and of its pods, the newest first.
fn warnings_of(job: &TrainingJob, pods: &[Pod], events: &[Event]) -> Vec<(Moment, String)> {
    let mut ours: Vec<String> = pods.iter().filter_map(ResourceExt::uid).collect();
    ours.extend(job.uid());
    let mut all: Vec<(Moment, String)> = events
        .iter()
        .filter(|event| event.involved_object.uid.as_ref().is_some_and(|uid| ours.contains(uid)))
        .filter_map(|event| {
            let at = event.last_timestamp.as_ref().map(|time| time.0);
            let at = at
                .or(event.event_time.as_ref().map(|time| time.0))
                .or(event.creation_timestamp().map(|time| time.0))?;
            let about = event.involved_object.name.as_deref().unwrap_or_default();
            let reason = event.reason.as_deref().unwrap_or_default();
            let message = event.message.as_deref().unwrap_or_default().trim();
            Some((Moment::from(at), format!("{about}: {reason}: {message}")))
        })
        .collect();
    all.sort_by(|a, b| b.cmp(a));
    all.dedup_by(|older, newer| older.1 == newer.1);
    all.truncate(WARNINGS_MAX);
    all
}

fn text(
    job: &TrainingJob,
    waiting: &[(String, String)],
    warnings: &[(Moment, String)],
    now: Moment,
) -> String {
    let (name, status) = (job.name_any(), status_of(job));
    let ago = |at: Moment| format!("{} ago", age(now.since(at)));
    let mut lines = vec![format!("{name} is {}: {}", phase(job), said(&status.message))];
    let mut part = |title: &str, of: Vec<String>| {
        if !of.is_empty() {
            lines.push(format!("{title}:"));
            lines.extend(of.into_iter().map(|line| format!("  {}", line.replace('\n', "\n  "))));
        }
    };
    let conditions = status.conditions.iter().filter(|one| one.status == "True");
    part(
        "it is",
        conditions
            .map(|one| {
                format!("{} ({}) since {}", one.type_, one.reason, age(now.since(one.last_transition_time)))
            })
            .collect(),
    );
    // Of a job that is over the plan says nothing any more.
    let plan = status.plan.iter().filter(|_| !status.phase.is_over());
    part("planned", plan.flat_map(planned).collect());
    part("measured", measured(&status));
    part("waits", waiting.iter().map(|(pod, why)| format!("{pod}: {why}")).collect());
    part(
        "decided",
        status.decisions.iter().map(|one| format!("{}: {}: {}", ago(one.at), one.what, one.why)).collect(),
    );
    if let Value::Object(ends) = json!(status.ends) {
        part(
            "pods that have ended before their time",
            ends.iter().map(|(why, count)| format!("{why}: {count}")).collect(),
        );
    }
    part(
        "the last failure",
        status
            .last_failure
            .iter()
            .map(|one| format!("{}: {}, {}: {}", ago(one.at), one.pod, one.reason, one.message.trim()))
            .collect(),
    );
    part("warnings", warnings.iter().map(|(at, what)| format!("{}: {what}", ago(*at))).collect());
    lines.join("\n")
}

/// How fast a job was, and what its pservers had to do.
fn measured(status: &TrainingJobStatus) -> Vec<String> {
    let speeds = status.trainer.speeds.iter();
    let speeds = speeds.map(|one| format!("{} steps/s with {} trainers", one.steps_per_second, one.trainers));
    let PserverRoleStatus { load, hot, .. } = &status.pserver;
    let load = (!load.is_empty()).then(|| format!("pservers use {load} of their processors on average"));
    let hot = (!hot.is_empty()).then(|| format!("hot pservers: {}", hot.join(", ")));
    speeds.chain(load).chain(hot).collect()
}

/// What the plan says of a job, and what keeps it from more.
fn planned(plan: &PlanStatus) -> Vec<String> {
    let blocked =
        (!plan.blocked_by.is_empty()).then(|| format!("no more ({}): {}", plan.blocker, plan.blocked_by));
    let why = Some(plan.why.clone()).filter(|why| !why.is_empty());
    why.into_iter().chain(blocked).collect()
}

fn said(message: &str) -> &str {
    if message.is_empty() { "no operator has looked at it yet" } else { message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, status: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": name, "uid": name }, "status": status }))
            .unwrap()
    }

    #[test]
    fn a_pod_that_is_not_ready_says_what_it_waits_for() {
        let unschedulable = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes" }] });
        let image = json!({ "phase": "Pending", "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": { "waiting": { "reason": "ErrImagePull", "message": "no such" } } }] });
        let starts = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" }] });
        let ready = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        let pods = [
            pod("d", starts),
            pod("a", unschedulable),
            pod("b", image),
            pod("c", ready),
            pod("e", json!({ "phase": "Failed" })),
        ];
        let told = waiting(&pods).into_iter().map(|(pod, why)| format!("{pod} {why}")).collect::<Vec<_>>();
        assert_eq!(told, ["a Unschedulable: 0/3 nodes", "b ErrImagePull: no such", "d not yet Ready"]);
    }

    #[test]
    fn the_newest_warnings_of_the_job_and_its_pods_come_first_and_once() {
        let event = |of: &str, at: &str, message: &str| {
            serde_json::from_value(
                json!({ "metadata": { "name": at }, "involvedObject": { "uid": of, "name": of },
                "reason": "R", "message": message, "lastTimestamp": format!("2026-11-24T12:00:{at}Z") }),
            )
            .unwrap()
        };
        let events: Vec<Event> = vec![
            event("p", "01", "old"),
            event("q", "09", "not ours"),
            event("p", "05", "new"),
            event("p", "04", "new"),
        ];
        let job = TrainingJob::new("j", Default::default());
        let told: Vec<String> =
            warnings_of(&job, &[pod("p", json!({}))], &events).into_iter().map(|(_, what)| what).collect();
        assert_eq!(told, ["p: R: new", "p: R: old"]);
    }

    #[test]
    fn a_job_that_nobody_has_looked_at_says_so() {
        let job = TrainingJob::new("j", Default::default());
        assert_eq!(text(&job, &[], &[], Moment(0)), "j is Pending: no operator has looked at it yet");
    }

    #[test]
    fn decisions_ends_and_the_last_failure_are_told() {
        let mut job = TrainingJob::new("j", Default::default());
        let status = json!({
            "phase": "Running", "message": "as wanted",
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Whole", "message": "", "lastTransitionTime": "2026-11-24T12:00:00Z" }],
            "decisions": [{ "at": "2026-11-24T12:00:30Z", "what": "trainers 2 -> 4", "why": "the spec says so" }],
            "plan": { "share": "12.5%", "why": "there is room for 2 more", "blocker": "NoRoom", "blockedBy": "no node has room",
                "at": "2026-11-24T12:00:30Z" },
            "trainer": { "speeds": [{ "trainers": 2, "stepsPerSecond": 10.5 }] },
            "pserver": { "load": "40%", "hot": ["j-pserver-1"] },
            "ends": { "preempted": 2 },
            "lastFailure": { "pod": "j-trainer-1", "reason": "Error", "message": "it\nfell\n", "at": "2026-11-24T12:00:00Z" },
        });
        job.status = Some(serde_json::from_value(status).unwrap());
        let told =
            text(&job, &[("j-trainer-3".to_owned(), "Unschedulable".to_owned())], &[], Moment(1_795_521_660));
        assert_eq!(
            told,
            "j is Running: as wanted\nit is:\n  Ready (Whole) since 60s\nplanned:\n  there is room for 2 more\n  \
             no more (NoRoom): no node has room\nmeasured:\n  10.5 steps/s with 2 trainers\n  \
             pservers use 40% of their processors on average\n  hot pservers: j-pserver-1\nwaits:\n  j-trainer-3: Unschedulable\n\
             decided:\n  30s ago: trainers 2 -> 4: the spec says so\npods that have ended before their time:\n  preempted: 2\n\
             the last failure:\n  60s ago: j-trainer-1, Error: it\n  fell"
        );
    }
}
