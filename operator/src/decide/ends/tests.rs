//! Ends of pods: what a job makes of them, reconcile after reconcile.

use super::super::fixture::{self, pod, view};
use super::super::{Act, MasterView, MemberView, PodState, View, decide};
use super::*;
use crate::api::TrainingJob;
use serde_json::json;

/// A job that is reconciled each second: it has a master and a pserver that are ready.
struct Reconciled {
    job: TrainingJob,
    memory: Memory,
    master: Option<MasterView>,
    now: i64,
}

fn job() -> Reconciled {
    let status = json!({ "admitted": "2026-01-01T00:00:00Z", "trainer": { "wanted": 1 },
        "pserver": { "seats": [{ "ordinal": 0 }], "nextOrdinal": 1 } });
    let job = fixture::job(json!({}), status);
    let master =
        MasterView { phase: "training".to_owned(), is_progress_known: true, ..MasterView::default() };
    Reconciled { job, memory: Memory::default(), master: Some(master), now: 1_800_000_000 }
}

impl Reconciled {
    /// A reconcile of the job with one more pod that has ended so. Returns whether another trainer is made.
    fn reconcile(&mut self, role: Role, end: Option<Ended>) -> bool {
        let ended =
            end.map(|ended| PodView { uid: self.now.to_string(), ..pod(role, 0, PodState::Ended(ended)) });
        let others = [pod(Role::Master, 0, PodState::Running), pod(Role::Pserver, 0, PodState::Running)];
        let pods: Vec<PodView> = others
            .into_iter()
            .filter(|pod| ended.as_ref().is_none_or(|ended| ended.role != pod.role))
            .chain(ended.clone())
            .collect();
        let view = View { master: self.master.as_ref(), ..view(&self.job, &pods, self.now) };
        let decision = decide(&view, &mut self.memory).unwrap();
        self.job.status = Some(decision.status);
        decision.acts.iter().any(|act| matches!(act, Act::CreatePod(plan) if plan.role == Role::Trainer))
    }

    fn step(&mut self, step: u64) {
        let master = self.master.as_mut().unwrap();
        (master.step, master.steps) = (step, 1000);
    }

    fn status(&self) -> &TrainingJobStatus {
        self.job.status.as_ref().unwrap()
    }

    /// Ends so again and again, each as soon as the pauses permit, until the job fails. Returns after how many, if at all.
    fn fails_after(&mut self, role: Role, end: End) -> Option<u32> {
        (1..40).find(|_| {
            self.now += 120;
            self.reconcile(role, Some(ended(end)));
            self.status().phase.is_over()
        })
    }
}

fn ended(end: End) -> Ended {
    let exit_code = match end {
        End::Exited(code) => Some(code),
        _ => None,
    };
    Ended { end, exit_code, message: String::new(), at: Some(Moment(0)), leaves_others: false }
}

fn member(name: &str) -> MemberView {
    MemberView { name: name.to_owned(), is_live: true, ..MemberView::default() }
}

/// The table of a laptop's ends (`runner/src/upkeep.rs`), as far as both know them: as many of them end the job.
#[test]
fn as_many_ends_fail_a_job_as_on_a_laptop() {
    let exited = End::Exited;
    for (role, end, has_joined, after) in [
        (Role::Trainer, exited(0), true, Some(8)),
        (Role::Trainer, exited(1), true, Some(8)),
        (Role::Trainer, exited(139), true, Some(8)),
        (Role::Trainer, exited(2), true, Some(8)),
        (Role::Trainer, exited(2), false, Some(1)),
        (Role::Trainer, exited(126), false, Some(1)),
        (Role::Trainer, exited(127), false, Some(1)),
        (Role::Trainer, End::Unstarted, false, Some(1)),
        (Role::Trainer, End::Unstarted, true, None),
        (Role::Master, End::Unstarted, true, None),
        (Role::Trainer, exited(3), true, Some(20)),
        (Role::Trainer, exited(5), true, None),
        (Role::Trainer, exited(5), false, Some(8)),
        (Role::Trainer, exited(137), true, Some(20)),
        (Role::Trainer, exited(143), true, Some(20)),
        (Role::Trainer, End::Displaced(Displacement::Preempted), true, None),
        (Role::Trainer, End::Displaced(Displacement::Evicted), false, None),
        (Role::Trainer, End::Displaced(Displacement::NodeLost), true, None),
        (Role::Trainer, End::OutOfMemory, true, Some(8)),
        (Role::Pserver, exited(1), true, Some(20)),
        (Role::Pserver, exited(0), true, Some(20)),
        (Role::Master, exited(0), true, Some(20)),
        (Role::Master, exited(1), true, Some(20)),
    ] {
        let mut job = job();
        if has_joined {
            job.step(7);
            job.master.as_mut().unwrap().trainers.push(member("j-trainer-7"));
        }
        job.now += 1;
        job.reconcile(role, None);
        let account = |laptop| Account::of(role, laptop).and_then(Account::limit);
        let life = Life {
            role,
            part: Part::NeverJoined,
            is_first: !has_joined && role == Role::Trainer,
            was_told: false,
            was_killed: false,
            has_left: false,
            is_alone: !has_joined,
        };
        let laptop = ends::meaning(end, life);
        let laptop = if laptop == Meaning::Hopeless { Some(1) } else { account(laptop) };
        assert_eq!(laptop, after, "{role} {end} on a laptop");
        assert_eq!(job.fails_after(role, end), after, "{role} {end} {has_joined}");
    }
}

#[test]
fn a_trainer_that_is_done_is_believed_until_its_master_says_otherwise() {
    let mut job = job();
    let at = |job: &Reconciled| Some(Moment(job.now));
    let master = job.master.take();
    let done = Ended { at: at(&job), ..ended(End::Exited(0)) };
    job.now += 3600;
    job.reconcile(Role::Trainer, Some(done.clone()));
    assert_eq!(job.status().ends.errors, 0, "nobody has contradicted it");
    job.master = master;
    job.reconcile(Role::Trainer, Some(Ended { at: at(&job), ..done.clone() }));
    assert_eq!(job.status().ends.errors, 0, "its master may hear of it in a moment");
    job.reconcile(Role::Trainer, Some(done));
    assert_eq!((job.status().ends.errors, job.status().trainer.failures.count), (1, 1));
    let told = job.status().last_failure.clone().unwrap();
    assert_eq!((told.reason.as_str(), told.exit_code), ("Error", Some(0)));
}

/// A probe's kill, or anything else that ends a master with 0, is no end of its job.
#[test]
fn no_exit_code_of_a_master_makes_a_job_succeed() {
    let mut job = job();
    job.master = None;
    job.reconcile(Role::Master, Some(ended(End::Exited(0))));
    assert!(!job.status().phase.is_over());
    job.master = Some(MasterView { phase: "done".to_owned(), ..MasterView::default() });
    job.reconcile(Role::Master, None);
    assert_eq!(job.status().phase, crate::api::Phase::Succeeded);
}

/// A device plugin that admits nothing, a policy that lets nobody through: pods are made ever more slowly, whatever class they end in.
#[test]
fn no_end_makes_pods_in_a_storm() {
    for end in [
        End::Exited(3),
        End::Exited(143),
        End::Exited(0),
        End::Displaced(Displacement::Evicted),
        End::Displaced(Displacement::Preempted),
    ] {
        let (mut job, mut made) = (job(), 0);
        job.master.as_mut().unwrap().trainers.push(member("j-trainer-7"));
        let mut runs = false;
        for _ in 0..300 {
            job.now += 1;
            let ended = runs.then(|| ended(end));
            let makes = job.reconcile(Role::Trainer, ended);
            made += u32::from(makes);
            runs = makes;
        }
        assert!((2..14).contains(&made), "{end}: {made} pods in 300 s");
    }
}

#[test]
fn who_is_not_let_into_a_job_that_has_trainers_comes_again_ever_more_slowly() {
    let mut job = job();
    job.master.as_mut().unwrap().trainers.push(member("j-trainer-7"));
    let message = "environment mismatch: this trainer: threads is \"1\" in the job and \"2\" here".to_owned();
    for second in 0..100 {
        job.now += 61;
        // Steps made meanwhile are no reason to try at once.
        job.step(10 + second);
        let refused = Ended { message: message.clone(), ..ended(End::Exited(5)) };
        job.reconcile(Role::Trainer, Some(refused));
    }
    let status = job.status().clone();
    assert_eq!(
        (status.trainer.refusals.count, status.trainer.failures.count, status.ends.refused),
        (100, 0, 100)
    );
    let told = status.last_failure.unwrap();
    assert_eq!((told.reason.as_str(), told.exit_code), ("Refused", Some(5)));
    assert!(told.message.contains("threads is"), "{}", told.message);
    job.now += 59;
    assert!(!job.reconcile(Role::Trainer, None));
    job.now += 1;
    assert!(job.reconcile(Role::Trainer, None));
}

#[test]
fn a_job_into_which_nobody_is_let_fails_with_the_reason() {
    let mut job = job();
    assert_eq!(job.fails_after(Role::Trainer, End::Exited(5)), Some(8));
    let said = job.status().message.clone();
    assert!(said.starts_with("Refused: ") && said.contains("exit code 5") && said.contains("8th"), "{said}");
}

/// A server of the age of 1.20 makes null of an object that is no longer applied, and refuses every status after it.
#[test]
fn failures_that_are_forgiven_stay_in_the_status_with_none_of_them() {
    let mut job = job();
    job.reconcile(Role::Trainer, Some(ended(End::Exited(1))));
    assert_eq!(job.status().trainer.failures.count, 1);
    job.step(1);
    job.reconcile(Role::Trainer, None);
    assert_eq!(json!(job.status())["trainer"]["failures"]["count"], 0);
    assert_eq!(json!(TrainingJobStatus::default())["trainer"].get("failures"), None);
}
