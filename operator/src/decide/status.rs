//! The fourth stage: what is told of a job: its phase, its counts, its conditions, each with the reason. Pure.

use super::load;
use super::notes::Notes;
use super::observe::{Course, Observed, UNUSABLE, is_kept};
use super::progress;
use super::target::Target;
use super::view::{Act, Memory, PodState, Role, Unusable};
use crate::api::{Condition, Moment, Phase, PlanStatus, TrainingJobStatus, pinned};
use shoal_planner::QUOTA;

/// The word for a name of the job's that an object of somebody else has.
pub const NAME_TAKEN: &str = "NameTaken";
/// The word for a pod that the API server will not have.
pub const POD_REFUSED: &str = "PodRefused";
/// The word for a name of the job's that an object has which is on its way out.
pub const GOING: &str = "NameStillInUse";

/// What is told to who changes a job that is over.
const OVER: &str = "the job is over: of its spec only cleanPodPolicy and ttlSecondsAfterFinished still count. To train again, \
                    delete the job and apply it anew, or give it another name";

/// What the plan says is written again after so many seconds although it says the same with other figures.
const REFRESHED_SECONDS: u64 = 60;

/// The job's status from now on, and what there is to tell of the change.
pub(super) fn status(
    seen: &Observed<'_>,
    target: &Target<'_>,
    acts: &[Act],
    memory: &Memory,
) -> (TrainingJobStatus, Notes) {
    let (mut status, mut notes) = (seen.books.clone(), Notes::default());
    // The end of whom the operator deletes is of its own making.
    for act in acts {
        if let Act::DeletePod { uid, .. } = act
            && !status.counted.contains(uid)
        {
            status.counted.push(uid.clone());
        }
    }
    match &seen.course {
        Course::Deleted => return (status, notes),
        Course::Over => {
            counts(seen, &mut status);
            let seen_before = seen.view.job.status.as_ref().and_then(|status| status.observed_generation);
            if seen_before.is_some_and(|before| status.observed_generation > Some(before)) {
                notes.event(false, "JobIsOver", OVER);
            }
            return (status, notes);
        }
        Course::Invalid(fault) => {
            if status.message != *fault {
                notes.event(true, "InvalidSpec", fault.clone());
            }
            status.message = fault.clone();
            // One that trains does so by what it began with.
            if status.phase == Phase::Pending && status.admitted.is_none() {
                status.phase = Phase::Invalid;
            }
        }
        Course::Ended(outcome) => end(seen, outcome, &mut status, &mut notes),
        Course::Suspended => suspend(seen, target, &mut status, &mut notes),
        Course::Kept => keep(seen, target, &mut status, &mut notes),
    }
    counts(seen, &mut status);
    conditions(seen, target, memory, &mut status, &mut notes);
    (status, notes)
}

/// The job will not go on.
fn end(
    seen: &Observed<'_>,
    outcome: &Result<(), (&'static str, String)>,
    status: &mut TrainingJobStatus,
    notes: &mut Notes,
) {
    status.completion_time = Some(seen.view.now);
    match outcome {
        Ok(()) => {
            status.phase = Phase::Succeeded;
            status.message = "done".to_owned();
            progress::complete(status);
            notes.event(false, "Succeeded", "the job is done");
        }
        Err((reason, why)) => {
            status.phase = Phase::Failed;
            status.message = format!("{reason}: {why}");
            notes.event(true, reason, why.clone());
        }
    }
}

fn suspend(seen: &Observed<'_>, target: &Target<'_>, status: &mut TrainingJobStatus, notes: &mut Notes) {
    if !seen.view.pods.is_empty() {
        status.message = "a checkpoint is made, then the pods go".to_owned();
        return;
    }
    if status.phase != Phase::Suspended {
        notes.event(false, "Suspended", "all pods are gone");
    }
    status.phase = Phase::Suspended;
    (status.suspending, status.admitted, status.plan) = (None, None, None);
    status.trainer.wanted = target.trainers;
    target.seats.keep_in(status);
    status.message = "spec.suspend is set: set it to false to go on".to_owned();
}

fn keep(seen: &Observed<'_>, target: &Target<'_>, status: &mut TrainingJobStatus, notes: &mut Notes) {
    let now = seen.view.now;
    admit(seen, target, status, notes);
    target.seats.keep_in(status);
    if !target.is_admitted {
        return;
    }
    if status.pinned.is_empty() {
        status.pinned = pinned(&seen.view.job.spec).to_string();
        status.start_time = Some(now);
        status.tls = Some(seen.view.job.spec.stated_tls().unwrap_or(seen.view.tls));
    } else if status.tls.is_none() {
        // It began under an operator that did not note it: as it began it stays.
        status.tls = seen.view.job.recorded_tls();
    }
    status.trainer.wanted = target.trainers;
    status.pserver.wanted = target.pservers;
    if target.are_pservers_others {
        status.pserver.changed = Some(now);
    }
    if let Some(told) = &target.load {
        status.pserver.load = told.load.clone();
        if status.pserver.hot != told.hot && !told.hot.is_empty() {
            notes.event(true, "HotPserver", load::note_hot(&told.hot, &told.load));
        }
        status.pserver.hot = told.hot.clone();
    }
}

/// Notes that the job is let in, and what the plan for all jobs says of it.
fn admit(seen: &Observed<'_>, target: &Target<'_>, status: &mut TrainingJobStatus, notes: &mut Notes) {
    let (now, numbers) = (seen.view.now, &target.numbers);
    if target.is_admitted && status.admitted.is_none() {
        status.admitted = Some(now);
        // Without a plan nobody has to be let in.
        if let Some(plan) = &numbers.plan {
            let made = seen.view.job.metadata.creation_timestamp.as_ref();
            let waited = made.map(|made| now.since(made.0.into()));
            let waited = waited.map_or_else(String::new, |seconds| format!("after {seconds} s: "));
            notes.event(false, "Admitted", format!("{waited}{}", plan.why));
        }
    }
    let Some(plan) = &numbers.plan else { return };
    let before = status.plan.as_ref();
    let is_same = before.is_some_and(|before| {
        let is_recent = before.blocker == plan.blocker && now.since(before.at) < REFRESHED_SECONDS;
        // What says nothing new is not written: each job that waits would be, at every reconcile.
        is_recent || *before == PlanStatus { at: before.at, ..plan.clone() }
    });
    let is_changed = target.is_admitted && seen.books.trainer.wanted != numbers.trainers;
    if is_same && !is_changed {
        return;
    }
    let is_news = before.is_none_or(|before| before.blocker != plan.blocker);
    if is_news && !target.is_admitted && !plan.blocked_by.is_empty() {
        notes.event(false, "Waits", plan.blocked_by.clone());
    }
    status.plan = Some(PlanStatus { at: now, ..plan.clone() });
}

/// Conditions as they follow from all else, and of a job that is kept the phase.
fn conditions(
    seen: &Observed<'_>,
    target: &Target<'_>,
    memory: &Memory,
    status: &mut TrainingJobStatus,
    notes: &mut Notes,
) {
    let set = Setter { now: seen.view.now, generation: seen.view.job.metadata.generation };
    if let Course::Invalid(fault) = &seen.course {
        return set.all(status, None, Some(("InvalidSpec".to_owned(), fault.clone())), None);
    }
    let refused = memory.blocked.clone().filter(|_| is_kept(status.phase));
    // Room that a quota keeps, and a name that is about to be free, are waited for; anything else that is refused somebody has to mend.
    let (passing, refused) = match refused {
        Some((QUOTA | GOING, why)) => (Some(why), None),
        other => (None, other),
    };
    let stuck = stuck(seen).or(refused).map(|(reason, why)| (reason.to_owned(), why));
    let waits = || not_let_in(target, status).or(passing).or_else(|| waits_for(seen, target, status));
    let waits = is_kept(status.phase).then(waits).flatten();
    // Of a job that lacks members that is the cause, and it is told already.
    let standing =
        if waits.is_none() && is_kept(status.phase) { standing(seen, status, notes) } else { None };
    let stuck = stuck.or(standing);
    if is_kept(status.phase) {
        let is_running = can_train(seen, status);
        if is_running && status.phase != Phase::Running {
            notes.event(false, "Running", "master, pservers and trainers are ready");
        }
        status.phase = if is_running { Phase::Running } else { Phase::Pending };
        let stuck = stuck.as_ref().map(|(reason, why)| format!("{reason}: {why}"));
        status.message =
            stuck.or_else(|| waits.clone()).unwrap_or_else(|| "as many as wanted are ready".to_owned());
    }
    let excluded = seen.view.master.map_or(0, |master| master.excluded);
    let degraded = (excluded > 0).then(|| format!("{excluded} records were left out: see `shoal status`"));
    set.all(status, waits, stuck, degraded);
}

/// What a job waits for that is not let in.
fn not_let_in(target: &Target<'_>, status: &TrainingJobStatus) -> Option<String> {
    let now = target.numbers.waits_for.as_ref().filter(|_| !target.is_admitted)?;
    let noted = status.plan.as_ref().map(|plan| plan.blocked_by.clone()).filter(|said| !said.is_empty());
    Some(noted.unwrap_or_else(|| now.clone()))
}

/// Whether the job has one of each. At first it waits for its least number of trainers.
fn can_train(seen: &Observed<'_>, status: &TrainingJobStatus) -> bool {
    let spec = &seen.view.job.spec;
    let was_running = status.phase == Phase::Running;
    let (trainers, pservers) =
        if was_running { (1, 1) } else { (spec.trainer.min_replicas, spec.pserver.min_replicas) };
    let is_master_ready = seen.view.pod(Role::Master, 0).is_some_and(|master| master.is_ready);
    let is_ending = was_running && seen.is_ending();
    is_master_ready && (is_ending || (status.trainer.ready >= trainers && status.pserver.ready >= pservers))
}

fn counts(seen: &Observed<'_>, status: &mut TrainingJobStatus) {
    let count = |role: Role| {
        let there = seen.view.of(role).filter(|pod| !matches!(pod.state, PodState::Ended(_)));
        (there.count() as u32, seen.view.ready(role))
    };
    let spec = &seen.view.job.spec;
    let text = |ready: u32, min: u32, max: Option<u32>| match max.filter(|max| *max != min) {
        Some(max) => format!("{ready}/{min}–{max}"),
        None => format!("{ready}/{min}"),
    };
    let (trainer, pserver) = (count(Role::Trainer), count(Role::Pserver));
    let name = seen.view.name();
    (status.trainer.replicas, status.trainer.ready) = trainer;
    status.trainer.text = text(trainer.1, spec.trainer.min_replicas, spec.trainer.max_replicas);
    status.trainer.selector = format!("shoal.dev/job={name},shoal.dev/role=trainer");
    (status.pserver.replicas, status.pserver.ready) = pserver;
    status.pserver.text = text(pserver.1, spec.pserver.min_replicas, spec.pserver.max_replicas);
}

/// What somebody has to mend, if something: reason and message.
fn stuck(seen: &Observed<'_>) -> Option<(&'static str, String)> {
    seen.view.pods.iter().find_map(|pod| match &pod.state {
        PodState::Starting(Some(Unusable { reason, message, may_pass: false })) => {
            Some((UNUSABLE, format!("{}: {reason}: {message}", pod.name)))
        }
        _ => None,
    })
}

/// Returns the master's cause of a standstill of a job that has all its members, with one event for each reason. While the reason stays
/// the message stays, so that its seconds cause no write of the status.
fn standing(seen: &Observed<'_>, status: &TrainingJobStatus, notes: &mut Notes) -> Option<(String, String)> {
    let (reason, why) = seen.view.master?.standstill.clone()?;
    let known = status.conditions.iter().find(|one| one.type_ == "Stalled" && one.status == "True");
    if let Some(known) = known.filter(|known| known.reason == reason) {
        return Some((reason, known.message.clone()));
    }
    notes.event(true, "StandsStill", format!("{reason}: {why}"));
    Some((reason, why))
}

/// What a job that is kept up waits for, if it is not as it should be.
fn waits_for(seen: &Observed<'_>, target: &Target<'_>, status: &TrainingJobStatus) -> Option<String> {
    let view = seen.view;
    let unschedulable = view.pods.iter().find_map(|pod| match &pod.state {
        PodState::Unplaced(Some(why)) => Some(format!("{} waits for room: {why}", pod.name)),
        _ => None,
    });
    let held_up = || {
        view.pods.iter().find_map(|pod| match &pod.state {
            PodState::Starting(Some(Unusable { reason, message, .. })) => {
                let node = pod.node.as_deref().unwrap_or("its node");
                Some(format!("{} does not start on {node}: {reason}: {message}", pod.name))
            }
            _ => None,
        })
    };
    let fewer = || fewer_than_asked_for(seen, status);
    let unschedulable =
        unschedulable.or_else(held_up).or_else(|| target.numbers.lacks.clone()).or_else(fewer);
    if unschedulable.is_some() {
        return unschedulable;
    }
    if view.pod(Role::Master, 0).is_none_or(|master| !master.is_ready) {
        return Some("the master is not ready".to_owned());
    }
    let differences = view.master.map(|master| master.live_differences(view.job)).unwrap_or_default();
    if let Some(path) = differences.first() {
        return Some(format!("the master does not go by spec.{path} as it is now: it is told"));
    }
    if status.phase == Phase::Running && seen.is_ending() {
        return Some("its trainers are done: the master is about to say that the job is".to_owned());
    }
    let missing = [
        ("pservers", status.pserver.ready, status.pserver.wanted),
        ("trainers", status.trainer.ready, status.trainer.wanted),
    ];
    missing.into_iter().find(|(_, ready, wanted)| ready != wanted).map(|(what, ready, wanted)| {
        let pause = status.last_failure.as_ref().filter(|_| ready < wanted);
        let after =
            pause.map_or_else(String::new, |failure| format!("; {} ended: {}", failure.pod, failure.reason));
        format!("{ready} of {wanted} {what} are ready{after}")
    })
}

/// Why a job has fewer trainers than its spec says in so many words.
fn fewer_than_asked_for(seen: &Observed<'_>, status: &TrainingJobStatus) -> Option<String> {
    let (trainer, wanted) = (&seen.view.job.spec.trainer, status.trainer.wanted);
    let most = trainer.max_replicas.unwrap_or(trainer.min_replicas);
    let asked = seen.view.job.asked_trainers()?.min(most);
    let plan = status.plan.as_ref().filter(|plan| wanted < asked && !plan.blocked_by.is_empty())?;
    Some(format!("{wanted} of {asked} trainers: {}", plan.blocked_by))
}

/// Sets conditions, keeping the time of those that do not change.
struct Setter {
    now: Moment,
    generation: Option<i64>,
}

impl Setter {
    /// All conditions, from the phase and from what is waited for, has to be mended, or is missing for good.
    fn all(
        &self,
        status: &mut TrainingJobStatus,
        waits: Option<String>,
        stuck: Option<(String, String)>,
        degraded: Option<String>,
    ) {
        let (phase, message) = (status.phase, status.message.clone());
        let word = format!("{phase:?}");
        let failed =
            (phase == Phase::Failed).then(|| message.split(':').next().unwrap_or("Failed").to_owned());
        let is_steady = waits.is_none() && stuck.is_none();
        let is_ready = matches!(phase, Phase::Running | Phase::Succeeded) && is_steady;
        let is_changing = (is_kept(phase) && waits.is_some()) || phase == Phase::Suspending;
        let stalled = stuck.or(failed.clone().map(|reason| (reason, message.clone())));
        let (why_stalled, stalled_message) = stalled.clone().unwrap_or_default();
        let reason = |is: bool, yes: &str, no: &str| if is { yes.to_owned() } else { no.to_owned() };
        let mut set = |type_: &str, is: bool, reason: String, message: String| {
            self.set(status, type_, is, reason, message);
        };
        set("Ready", is_ready, word.clone(), message.clone());
        let waits = waits.unwrap_or_default();
        set("Reconciling", is_changing, reason(is_changing, "Waiting", "AsWanted"), waits);
        set("Stalled", stalled.is_some(), reason(stalled.is_some(), &why_stalled, "Able"), stalled_message);
        set("Running", phase == Phase::Running, word.clone(), String::new());
        set("Suspended", phase == Phase::Suspended, word.clone(), String::new());
        let is_degraded = degraded.is_some();
        set(
            "Degraded",
            is_degraded,
            reason(is_degraded, "RecordsExcluded", "Whole"),
            degraded.unwrap_or_default(),
        );
        set("Succeeded", phase == Phase::Succeeded, word.clone(), String::new());
        set(
            "Failed",
            failed.is_some(),
            failed.clone().unwrap_or(word),
            failed.map_or_else(String::new, |_| message),
        );
    }

    fn set(&self, status: &mut TrainingJobStatus, type_: &str, is: bool, reason: String, message: String) {
        let is = if is { "True" } else { "False" };
        let before = status.conditions.iter().position(|one| one.type_ == type_);
        let since = before.map(|at| &status.conditions[at]).filter(|one| one.status == is);
        let condition = Condition {
            type_: type_.to_owned(),
            status: is.to_owned(),
            reason,
            message,
            last_transition_time: since.map_or(self.now, |one| one.last_transition_time),
            observed_generation: self.generation,
        };
        match before {
            Some(at) => status.conditions[at] = condition,
            None => status.conditions.push(condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, Ended, MasterView, PodView, View, decide, fixture};
    use super::*;
    use crate::api::TrainingJob;
    use serde_json::json;
    use shoal_job::ends::End;
    use shoal_planner::{Blocker, JobPlan};

    /// Reconciled each second, of which one pod was refused each time; whether it has made a step says `step`.
    fn refused_for(seconds: i64, step: u64) -> TrainingJobStatus {
        let progress = json!({ "step": step, "text": "", "steps": 9, "epoch": 0, "records": 0 });
        let status = json!({ "admitted": "2026-01-01T00:00:00Z", "progress": progress });
        let mut job = fixture::job(json!({}), status);
        let mut memory = Memory::default();
        for second in 0..=seconds {
            memory.blocked = Some((POD_REFUSED, "Pod j-trainer-0: no".to_owned()));
            let view = fixture::view(&job, &[], 1_800_000_000 + second);
            job.status = Some(decide(&view, &mut memory).unwrap().status);
        }
        job.status.unwrap()
    }

    #[test]
    fn a_job_that_has_never_trained_fails_of_a_pod_that_is_refused_for_long_and_one_that_has_waits() {
        assert_eq!(refused_for(599, 0).phase, Phase::Pending);
        let failed = refused_for(600, 0);
        assert_eq!(failed.phase, Phase::Failed);
        assert_eq!(failed.message, "PodRefused: for 600 s: Pod j-trainer-0: no");
        let waits = refused_for(3600, 1);
        assert_eq!(
            (waits.phase, waits.message.as_str()),
            (Phase::Pending, "PodRefused: Pod j-trainer-0: no")
        );
    }

    #[test]
    fn a_job_whose_trainers_are_done_is_not_pending_until_its_master_says_so() {
        let ended = |code: i32| {
            let (exit_code, message) = (Some(code), String::new());
            PodState::Ended(Ended {
                end: End::Exited(code),
                exit_code,
                message,
                at: None,
                leaves_others: false,
            })
        };
        let told = |was: &str, state: PodState, master: PodState| {
            let job = fixture::job(json!({}), json!({ "admitted": "2026-01-01T00:00:00Z", "phase": was }));
            let pods = [
                fixture::pod(Role::Master, 0, master),
                fixture::pod(Role::Pserver, 0, PodState::Running),
                fixture::pod(Role::Trainer, 0, state),
            ];
            let view = fixture::view(&job, &pods, 1_800_000_000);
            let decided = |view: &View<'_>| decide(view, &mut Memory::default()).unwrap().status;
            let training = MasterView { phase: "training".to_owned(), ..MasterView::default() };
            let contradicted = decided(&View { master: Some(&training), ..view });
            assert_eq!(contradicted.phase, Phase::Pending, "its master says otherwise");
            let status = decided(&view);
            (status.phase, status.message)
        };
        let waiting = told("Pending", ended(0), PodState::Running);
        assert_eq!((waiting.0, waiting.1.as_str()), (Phase::Pending, "0 of 1 trainers are ready"));
        let (phase, message) = told("Running", ended(0), PodState::Running);
        assert_eq!(phase, Phase::Running, "{message}");
        assert_eq!(message, "its trainers are done: the master is about to say that the job is");
        assert_eq!(told("Running", ended(137), PodState::Running).0, Phase::Pending);
        assert_eq!(told("Running", ended(0), PodState::Starting(None)).0, Phase::Pending);
    }

    #[test]
    fn who_changes_a_job_that_is_over_is_told_once_that_it_counts_for_nothing() {
        let mut job = fixture::job(json!({}), json!({ "phase": "Succeeded", "observedGeneration": 1 }));
        let told = [1, 2, 2].map(|generation| {
            job.metadata.generation = Some(generation);
            let decision = decide(&fixture::view(&job, &[], 1_800_000_000), &mut Memory::default()).unwrap();
            job.status = Some(decision.status);
            decision.acts.iter().any(|act| matches!(act, Act::Event { note, .. } if note == OVER))
        });
        assert_eq!(told, [false, true, false]);
    }

    #[test]
    fn a_job_that_stands_still_with_all_of_its_members_is_stalled_for_its_masters_reason_and_told_of_once() {
        let mut job =
            fixture::job(json!({}), json!({ "admitted": "2026-01-01T00:00:00Z", "phase": "Running" }));
        let running = |role| PodView { is_ready: true, ..fixture::pod(role, 0, PodState::Running) };
        let pods = [running(Role::Master), running(Role::Pserver), running(Role::Trainer)];
        let standing = |reason: &str, seconds: u64| MasterView {
            phase: "training".to_owned(),
            standstill: Some((reason.to_owned(), format!("for {seconds} s"))),
            trainers_wanted: 1,
            pservers_wanted: 1,
            ..MasterView::default()
        };
        let told = |master: &MasterView, job: &mut TrainingJob| {
            let view = View { master: Some(master), ..fixture::view(job, &pods, 1_800_000_000) };
            let decision = decide(&view, &mut Memory::default()).unwrap();
            job.status = Some(decision.status.clone());
            let is_told = |act: &Act| matches!(act, Act::Event { reason: "StandsStill", .. });
            let stalled = decision.status.conditions.into_iter().find(|one| one.type_ == "Stalled").unwrap();
            (
                stalled.status,
                stalled.reason,
                stalled.message,
                decision.acts.iter().filter(|act| is_told(act)).count(),
            )
        };
        let of = |status: &str, reason: &str, message: &str, events| {
            (status.to_owned(), reason.to_owned(), message.to_owned(), events)
        };
        assert_eq!(told(&standing("CopyBehind", 16), &mut job), of("True", "CopyBehind", "for 16 s", 1));
        assert_eq!(told(&standing("CopyBehind", 17), &mut job), of("True", "CopyBehind", "for 16 s", 0));
        assert_eq!(told(&standing("Storage", 18), &mut job), of("True", "Storage", "for 18 s", 1));
        let going = MasterView { standstill: None, ..standing("", 0) };
        assert_eq!(told(&going, &mut job), of("False", "Able", "", 0));
    }

    #[test]
    fn a_pod_that_vanishes_is_counted_once_and_told_of() {
        let job = fixture::job(json!({}), json!({ "admitted": "2026-01-01T00:00:00Z" }));
        let mut memory = Memory::default();
        let trainer = fixture::pod(Role::Trainer, 0, PodState::Running);
        let pods: [&[PodView]; 3] = [std::slice::from_ref(&trainer), &[], &[]];
        let ends = pods.map(|pods| {
            let decision = decide(&fixture::view(&job, pods, 1_800_000_000), &mut memory).unwrap();
            let is_told =
                |act: &Act| matches!(act, Act::Event { note, .. } if note.contains("deleted by force"));
            (decision.status.ends.evicted, decision.acts.iter().filter(|act| is_told(act)).count())
        });
        assert_eq!(
            ends,
            [(0, 0), (1, 1), (0, 0)],
            "of a status that was not written, nothing is counted twice"
        );
    }

    #[test]
    fn a_job_that_cannot_begin_as_it_is_written_says_so_where_jobs_are_listed_until_it_is_mended() {
        let mut job = fixture::job(json!({}), json!({}));
        let decided = |job: &TrainingJob| {
            let view = View { choice: Choice::NotYet, ..fixture::view(job, &[], 1_800_000_000) };
            decide(&view, &mut Memory::default()).unwrap()
        };
        let place = std::mem::take(&mut job.spec.training.checkpoint.place);
        job.status = Some(decided(&job).status);
        let said = job.status.clone().unwrap();
        assert!(said.phase == Phase::Invalid && said.message.starts_with("spec.checkpoint.place"));
        assert_eq!(said.conditions.iter().find(|one| one.type_ == "Stalled").unwrap().reason, "InvalidSpec");
        job.spec.training.checkpoint.place = place;
        let mended = decided(&job);
        assert_eq!(mended.status.phase, Phase::Pending);
        let events = mended.acts.iter().filter(|act| matches!(act, Act::Event { .. })).count();
        assert_eq!(events, 0, "it has not gone on from anything");
        job.spec.training.checkpoint.place.clear();
        job.status.as_mut().unwrap().phase = Phase::Running;
        job.status.as_mut().unwrap().admitted = Some(Moment(1));
        assert_eq!(decided(&job).status.phase, Phase::Running, "one that trains goes on to");
    }

    #[test]
    fn a_job_that_waits_has_another_status_only_if_there_is_something_new_to_say() {
        let mut job = fixture::job(json!({}), json!({}));
        let reconciled = |job: &TrainingJob, seconds: u64, figures: &str| {
            let blocker = Some(Blocker::Behind(figures.to_owned()));
            let plan = JobPlan { blocker, ..JobPlan::default() };
            let now = 1_800_000_000 + i64::try_from(seconds).unwrap();
            let view = View { choice: Choice::Plan(&plan, &[]), ..fixture::view(job, &[], now) };
            decide(&view, &mut Memory::default()).unwrap().status
        };
        let first = reconciled(&job, 0, "a");
        job.status = Some(first.clone());
        assert_eq!(reconciled(&job, 3600, "a"), first, "nobody writes it again");
        assert_eq!(reconciled(&job, REFRESHED_SECONDS - 1, "b"), first, "other figures wait");
        let refreshed = reconciled(&job, REFRESHED_SECONDS, "b").plan.unwrap();
        assert!(refreshed.blocked_by.contains("behind b") && refreshed.at == Moment(1_800_000_060));
    }
}
