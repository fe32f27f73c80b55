//! Scale plans: one at a time, the oldest first, each carried out once. Pure.
//!
//! A plan becomes part of the job (its spec's numbers, its seats) and only then is `Scaling`; from then on the job is kept as
//! it says by the same code as always, and the plan only watches. Every plan ends: with what it asks for, with the job, or once that
//! has not come for too long; and one that was for an earlier job of the name is none of this one's.

use super::notes::Notes;
use super::observe::{Course, Observed};
use super::seats::Seats;
use super::view::{PodState, Role, pod_name};
use crate::api::{ScalePlan, ScalePlanPhase, ScalePlanStatus};
use serde_json::{Value, json};

/// The label by which a plan says whose it is, and the only value of it that people's plans have.
const SCALE_TYPE: (&str, &str) = ("scale-type", "manual");

/// What a plan asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    trainers: Option<u32>,
    pservers: Option<u32>,
    /// Ordinals of pservers that move.
    moves: Vec<u32>,
}

/// A plan that is not carried out within so many seconds is given up, so that the next one comes to its turn: what it has written
/// into the job stays there.
const PATIENCE_SECONDS: u64 = 600;

/// What becomes of a job's plans.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// By name, their status from now on.
    pub(super) statuses: Vec<(String, ScalePlanStatus)>,
    /// Numbers of trainers and pservers that the job's spec is to have, if other ones.
    pub(super) replicas: Option<(Option<u32>, Option<u32>)>,
    pub(super) notes: Notes,
}

/// Carries on the oldest plan; the others wait. Those of a job that is over end with it.
pub(super) fn take_up(seen: &Observed<'_>, seats: &mut Seats) -> Plans {
    let mut plans = Plans::default();
    let is_over = matches!(seen.course, Course::Over | Course::Ended(_));
    let mut waits_for: Option<&str> = None;
    for plan in seen.view.plans {
        let before = plan.status.clone().unwrap_or_default();
        let mut status = before.clone();
        status.job_uid = status.job_uid.or_else(|| seen.view.job.metadata.uid.clone());
        let outcome = match (is_over, is_of_another(seen, &before), waits_for) {
            (true, ..) => Err("the job is over".to_owned()),
            (_, true, _) => Err(format!(
                "it was for an earlier job of the name {}: make it again if this one is meant",
                seen.view.name()
            )),
            (.., Some(first)) => {
                status.message = format!("waits for {first}");
                Ok(())
            }
            _ => carry_on(seen, seats, plan, &mut status, &mut plans),
        };
        if let Err(why) = outcome {
            // It is the one that was carried on: nothing of it is written any more.
            plans.replicas = plans.replicas.filter(|_| waits_for.is_some());
            status.phase = ScalePlanPhase::Failed;
            status.message = why;
        }
        if status.phase.is_over() {
            status.finish_time = Some(seen.view.now);
            let is_warning = status.phase == ScalePlanPhase::Failed;
            let reason = if is_warning { "ScalePlanFailed" } else { "ScalePlanSucceeded" };
            plans.notes.event(is_warning, reason, format!("{}: {}", name(plan), status.message));
        } else {
            waits_for.get_or_insert(name(plan));
        }
        if status != before {
            plans.statuses.push((name(plan).to_owned(), status));
        }
    }
    plans
}

/// Whether a plan was seen beside an earlier job of the name. One that was made before any waits for the first.
fn is_of_another(seen: &Observed<'_>, status: &ScalePlanStatus) -> bool {
    status.job_uid.is_some() && status.job_uid != seen.view.job.metadata.uid
}

fn carry_on(
    seen: &Observed<'_>,
    seats: &mut Seats,
    plan: &ScalePlan,
    status: &mut ScalePlanStatus,
    plans: &mut Plans,
) -> Result<(), String> {
    if seats.all().is_empty() {
        // Before that there are no pservers that could move, and the numbers are the job's own.
        status.message = "waits until the job has begun".to_owned();
        return Ok(());
    }
    if seen.is_resumed() {
        // Nobody has carried it out meanwhile.
        status.create_time = None;
    }
    let begun = *status.create_time.get_or_insert(seen.view.now);
    match status.phase {
        ScalePlanPhase::Pending => begin(seen, seats, plan, status, plans)?,
        _ => go_on(seen, seats, plan, status)?,
    }
    if !status.phase.is_over() && seen.view.now.since(begun) >= PATIENCE_SECONDS {
        return Err(format!(
            "not within {PATIENCE_SECONDS} s: {}; the job goes on to ask for it",
            status.message
        ));
    }
    Ok(())
}

fn name(plan: &ScalePlan) -> &str {
    plan.metadata.name.as_deref().unwrap_or_default()
}

/// Makes a plan part of the job: all of it, or nothing.
fn begin(
    seen: &Observed<'_>,
    seats: &mut Seats,
    plan: &ScalePlan,
    status: &mut ScalePlanStatus,
    plans: &mut Plans,
) -> Result<(), String> {
    let asked = asked(seen, seats, plan)?;
    let moves = || asked.moves.iter().zip(&plan.spec.migrate_pods);
    if let Some((_, pod)) = moves().find(|(ordinal, _)| !seats.can_be_replaced(**ordinal)) {
        return Err(format!("{}: it is leaving already", pod.name));
    }
    let job = seen.view.job;
    let is_said = |asked: Option<u32>, said: Option<u32>| asked.is_none() || asked == said;
    // Until the job itself says so; what it says later is somebody else's wish.
    let is_set =
        is_said(asked.trainers, job.asked_trainers()) && is_said(asked.pservers, job.spec.pserver.replicas);
    if !is_set {
        plans.replicas = Some((asked.trainers, asked.pservers));
    }
    status.moved_to.clear();
    for (ordinal, pod) in moves() {
        let is_new = seats.staying().any(|seat| seat.ordinal == *ordinal);
        if let Some(new) = seats.replace(*ordinal, pod.resource.as_ref().map(resources)) {
            if is_new {
                let what = format!("pserver {ordinal} moves to pserver {new}");
                plans.notes.decided(what, format!("plan {}", name(plan)));
            }
            status.moved_to.push(new);
        }
    }
    if is_set {
        status.phase = ScalePlanPhase::Scaling;
    }
    status.message = "on its way".to_owned();
    Ok(())
}

/// What a container asks for and may use, of a plan's list of quantities; whole requirements are taken as they are.
fn resources(stated: &Value) -> Value {
    if stated.get("requests").is_some() || stated.get("limits").is_some() {
        return stated.clone();
    }
    json!({ "requests": stated, "limits": stated })
}

/// What a plan asks for, if it can be had.
fn asked(seen: &Observed<'_>, seats: &Seats, plan: &ScalePlan) -> Result<Asked, String> {
    let said = plan.metadata.labels.as_ref().and_then(|labels| labels.get(SCALE_TYPE.0));
    if let Some(other) = said.filter(|said| *said != SCALE_TYPE.1) {
        return Err(format!(
            "label {}: {other:?} is no plan of a person's: give {}",
            SCALE_TYPE.0, SCALE_TYPE.1
        ));
    }
    let spec = &seen.view.job.spec;
    let mut asked = Asked::default();
    for (role, numbers) in &plan.spec.replica_resource_specs {
        let at = format!("spec.replicaResourceSpecs.{role}");
        let (slot, min, max) = match role.as_str() {
            "worker" | "trainer" => {
                (&mut asked.trainers, spec.trainer.min_replicas, spec.trainer.max_replicas)
            }
            "ps" | "pserver" => (&mut asked.pservers, spec.pserver.min_replicas, spec.pserver.max_replicas),
            _ => return Err(format!("{at}: there is no such role: give worker or trainer, ps or pserver")),
        };
        let Some(replicas) = numbers.replicas else { return Err(format!("{at}.replicas: say how many")) };
        let max = max.unwrap_or(min);
        if !(min..=max).contains(&replicas) {
            return Err(format!(
                "{at}.replicas: {replicas} is not within the job's {min} to {max}: change those first"
            ));
        }
        if slot.replace(replicas).is_some_and(|before| before != replicas) {
            return Err(format!("{at}: the same role is named twice, with other numbers"));
        }
    }
    for pod in &plan.spec.migrate_pods {
        let ordinal = ordinal(seen.view.name(), seats, &pod.name)?;
        if asked.moves.contains(&ordinal) {
            return Err(format!("spec.migratePods: {} is named twice", pod.name));
        }
        asked.moves.push(ordinal);
    }
    if asked == Asked::default() {
        return Err("spec: it asks for nothing: give replicaResourceSpecs or migratePods".to_owned());
    }
    Ok(asked)
}

/// The pserver that a plan names: by its pod, or by the end of a name, as in `JOB-edljob-ps-0`.
fn ordinal(job: &str, seats: &Seats, named: &str) -> Result<u32, String> {
    let number = |named: &str| {
        let (before, number) = named.rsplit_once('-')?;
        let role = before.rsplit_once('-').map_or(before, |(_, role)| role);
        let is_ours = before == role || before.starts_with(job);
        number.parse::<u32>().ok().filter(|_| is_ours && matches!(role, "ps" | "pserver"))
    };
    // Its own history is gone through as well: one that has been replaced by this very plan is still there.
    let there = seats.all().iter().filter(|seat| !seat.leaving).map(|seat| seat.ordinal);
    number(named).filter(|number| there.clone().any(|one| one == *number)).ok_or_else(|| {
        let names: Vec<String> = there.map(|ordinal| pod_name(Role::Pserver, job, ordinal)).collect();
        format!("spec.migratePods: {named:?} is no pserver of {job}: there are {}", names.join(", "))
    })
}

/// Whether the job is as the plan says by now.
fn go_on(
    seen: &Observed<'_>,
    seats: &Seats,
    plan: &ScalePlan,
    status: &mut ScalePlanStatus,
) -> Result<(), String> {
    let mut missing = Vec::new();
    let job = seen.view.job;
    for (role, numbers) in &plan.spec.replica_resource_specs {
        let is_trainer = matches!(role.as_str(), "worker" | "trainer");
        let now = if is_trainer { job.asked_trainers() } else { job.spec.pserver.replicas };
        let Some(wanted) = numbers.replicas else { continue };
        if now != Some(wanted) {
            let now = now.map_or_else(|| "the operator's choice".to_owned(), |now| now.to_string());
            return Err(format!("spec.{role}: the job was changed to {now} before there were {wanted}"));
        }
        let kind = if is_trainer { Role::Trainer } else { Role::Pserver };
        let pods = seen.view.of(kind).count() as u32;
        let ready = seen.view.of(kind).filter(|pod| pod.is_ready && pod.deleted.is_none()).count() as u32;
        if ready != wanted || pods != wanted {
            missing.push(format!("{ready} of {wanted} {}s are ready, of {pods}", kind.name()));
        }
    }
    for new in &status.moved_to {
        let pod = seen.view.pod(Role::Pserver, *new);
        let is_ready = pod.is_some_and(|pod| pod.is_ready && pod.state == PodState::Running);
        let seats = seats.all();
        if let Some(old) = seats.iter().find(|seat| seat.replaced_by == Some(*new)) {
            missing.push(format!("pserver {} still has what moves to pserver {new}", old.ordinal));
        } else if !is_ready && seats.iter().any(|seat| seat.ordinal == *new) {
            missing.push(format!("pserver {new} is not ready"));
        }
    }
    if missing.is_empty() {
        status.phase = ScalePlanPhase::Succeeded;
        status.message = "done".to_owned();
    } else {
        status.message = missing.join("; ");
    }
    Ok(())
}
