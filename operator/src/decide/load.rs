//! The pservers' load, as their master tells it, and how many of them there should be for it. Pure.
//!
//! A load is the processor time that a pserver has used of what its container may use, or asks for: 1 is all of it. Without a
//! word of either in the job's spec there is none. It is measured while the job trains with as many trainers as it is to have:
//! pservers that wait for trainers are idle and needed.

use super::numbers::{Numbers, pserver_bounds};
use super::view::{MasterView, Memory, Role, View, pod_name};
use crate::api::{Moment, Seat, TrainingJobSpec, TrainingJobStatus, quantity_value};
use serde_json::Value;
use shoal_planner::{HOT, Load, PserverPlan, pservers};
use std::collections::BTreeMap;

/// A sample is taken over at least so many seconds: over fewer, a report that comes late would be one.
const SAMPLE_SECONDS: u64 = 6;
/// Steps in which a load is told, in percent: the status is not written for less.
const TOLD_PERCENT: f64 = 5.0;

/// By pserver, what is known of its load.
pub(super) type Loads = BTreeMap<String, Known>;

/// What is known of a pserver's load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Known {
    /// When its processor time was looked at, and what it was.
    at: Moment,
    micros: u64,
    load: Load,
}

/// Takes in what the master says of a job's pservers.
pub(super) fn see(view: &View<'_>, books: &TrainingJobStatus, memory: &mut Memory) {
    let Some(master) = view.master else { return };
    let cores = |name: &str| cores(&view.job.spec, &books.pserver.seats, view.name(), name);
    sample(&mut memory.loads, master, is_whole(view, books), cores, view.now);
}

/// Whether the job trains with as many trainers as it is to have: only then the time counts.
fn is_whole(view: &View<'_>, books: &TrainingJobStatus) -> bool {
    let trains = view.master.is_some_and(|master| master.phase == "training");
    trains && view.ready(Role::Trainer) == books.trainer.wanted
}

/// What there is to say of the load of a job's pservers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LoadTold {
    /// Their mean, in words.
    pub(super) load: String,
    /// Those that are asked for most.
    pub(super) hot: Vec<String>,
}

/// How many pservers there should be, and what is told of their load; nothing new where the time does not count.
pub(super) fn plan(
    view: &View<'_>,
    books: &TrainingJobStatus,
    numbers: &Numbers,
    memory: &Memory,
) -> (PserverPlan, Option<LoadTold>) {
    let as_before =
        || PserverPlan { count: numbers.pservers, why: numbers.why_pservers.clone(), hot: Vec::new() };
    if !is_whole(view, books) {
        return (as_before(), None);
    }
    let loads: BTreeMap<String, Load> =
        memory.loads.iter().map(|(name, known)| (name.clone(), known.load.clone())).collect();
    let seconds = |at: Moment| u64::try_from(at.0).unwrap_or(0);
    let (bounds, changed) = (pserver_bounds(&view.job.spec), books.pserver.changed.map(seconds));
    let plan = pservers(&loads, numbers.pservers, bounds, changed, seconds(view.now));
    let told = LoadTold { load: in_words(&loads), hot: plan.hot.clone() };
    (if plan.count == numbers.pservers { as_before() } else { plan }, Some(told))
}

/// Takes samples of those that are live and stay, where this time counts.
fn sample(
    loads: &mut Loads,
    master: &MasterView,
    is_whole: bool,
    cores: impl Fn(&str) -> Option<f64>,
    now: Moment,
) {
    let staying = || master.pservers.iter().filter(|one| one.is_live && !one.is_leaving);
    loads.retain(|name, _| staying().any(|one| one.name == *name));
    for pserver in staying() {
        let Some(cores) = cores(&pserver.name).filter(|cores| *cores > 0.0) else { continue };
        let fresh = || Known { at: now, micros: pserver.processor_micros, load: Load::default() };
        let known = loads.entry(pserver.name.clone()).or_insert_with(fresh);
        let Some(micros) = pserver.processor_micros.checked_sub(known.micros) else {
            // It is another life of that name.
            *known = fresh();
            continue;
        };
        let seconds = now.since(known.at);
        if !is_whole {
            (known.at, known.micros) = (now, pserver.processor_micros);
        } else if seconds >= SAMPLE_SECONDS {
            known.load.note(micros as f64 / 1e6 / seconds as f64 / cores);
            (known.at, known.micros) = (now, pserver.processor_micros);
        }
    }
}

/// Processors that a pserver may use, or else asks for, by its seat's resources or its role's; none if neither is said.
fn cores(spec: &TrainingJobSpec, seats: &[Seat], job: &str, name: &str) -> Option<f64> {
    let is_it = |seat: &&Seat| pod_name(Role::Pserver, job, seat.ordinal) == name;
    let own = seats.iter().find(is_it)?.resources.as_ref();
    let resources = own.or(spec.pserver.resources.as_ref())?;
    ["limits", "requests"].into_iter().find_map(|of| match &resources[of]["cpu"] {
        Value::String(quantity) => quantity_value(quantity),
        other => other.as_f64(),
    })
}

/// The mean of loads, in steps that are worth writing; nothing without one.
fn in_words(loads: &BTreeMap<String, Load>) -> String {
    let means: Vec<f64> = loads.values().filter_map(Load::mean).collect();
    let percent = (!means.is_empty()).then(|| 100.0 * means.iter().sum::<f64>() / means.len() as f64);
    let told = percent.map(|percent| format!("{:.0}%", (percent / TOLD_PERCENT).round() * TOLD_PERCENT));
    told.unwrap_or_default()
}

/// What people are told of pservers that have become hot.
pub(super) fn note_hot(hot: &[String], load: &str) -> String {
    format!(
        "{}: at least {:.0} % of its processors is used, {load} of those of all pservers: its blocks are asked for most",
        hot.join(", "),
        100.0 * HOT
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Act, PodState, PodView, View, decide, fixture};
    use super::*;
    use crate::api::TrainingJob;
    use crate::decide::MemberView;
    use serde_json::json;

    /// A job that is reconciled every 3 s.
    struct Reconciled {
        job: TrainingJob,
        pods: Vec<PodView>,
        memory: Memory,
        micros: BTreeMap<String, u64>,
        now: i64,
    }

    fn job(pserver: Value, pservers: u32) -> Reconciled {
        let seats: Vec<Value> = (0..pservers).map(|ordinal| json!({ "ordinal": ordinal })).collect();
        let status = json!({ "admitted": "2026-01-01T00:00:00Z",
            "pserver": { "seats": seats, "nextOrdinal": pservers, "wanted": pservers } });
        let mut job = fixture::job(json!({}), status);
        job.spec.pserver = serde_json::from_value(pserver).unwrap();
        let pod = |role, ordinal| fixture::pod(role, ordinal, PodState::Running);
        let mut pods = vec![pod(Role::Master, 0), pod(Role::Trainer, 0)];
        pods.extend((0..pservers).map(|ordinal| pod(Role::Pserver, ordinal)));
        Reconciled { job, pods, memory: Memory::default(), micros: BTreeMap::new(), now: 1_800_000_000 }
    }

    impl Reconciled {
        /// So many reconciles, while pservers use so many processors each. Returns what was made and said.
        fn reconcile(&mut self, times: u32, used: &[f64]) -> Vec<Act> {
            let mut acts = Vec::new();
            for _ in 0..times {
                self.now += 3;
                let pserver = |(ordinal, used): (usize, &f64)| {
                    let name = pod_name(Role::Pserver, "j", ordinal as u32);
                    let micros = self.micros.entry(name.clone()).or_default();
                    *micros += (3e6 * used) as u64;
                    MemberView { name, is_live: true, processor_micros: *micros, ..MemberView::default() }
                };
                let pservers = used.iter().enumerate().map(pserver).collect();
                let master = MasterView { phase: "training".to_owned(), pservers, ..MasterView::default() };
                let view = View { master: Some(&master), ..fixture::view(&self.job, &self.pods, self.now) };
                let decision = decide(&view, &mut self.memory).unwrap();
                self.job.status = Some(decision.status);
                acts.extend(decision.acts);
            }
            acts
        }

        fn wanted(&self) -> u32 {
            self.job.status.as_ref().unwrap().pserver.wanted
        }
    }

    fn said(acts: &[Act], wanted: &str) -> Vec<String> {
        let note = |act: &Act| match act {
            Act::Event { reason, note, .. } if *reason == wanted => Some(note.clone()),
            _ => None,
        };
        acts.iter().filter_map(note).collect()
    }

    #[test]
    fn pservers_that_use_all_of_their_processors_become_more_and_are_let_be_for_a_while() {
        let mut job = job(json!({ "maxReplicas": 4, "resources": { "limits": { "cpu": "500m" } } }), 1);
        job.reconcile(10, &[0.5]);
        assert_eq!(job.wanted(), 1, "five samples are 30 s");
        let acts = job.reconcile(1, &[0.5]);
        assert_eq!(job.wanted(), 2);
        let told = "pservers 1 -> 2: their load is 100 % on average, of 60 % aimed at";
        assert_eq!(said(&acts, "Scaled"), [told]);
        assert!(acts.iter().any(|act| matches!(act, Act::CreatePod(pod) if pod.role == Role::Pserver)));
        job.reconcile(30, &[0.5, 0.5]);
        assert_eq!(job.wanted(), 2, "it settles");
        job.reconcile(80, &[0.5, 0.5]);
        assert_eq!(job.wanted(), 4);
        assert_eq!(job.job.status.unwrap().pserver.load, "100%");
    }

    #[test]
    fn without_bounds_or_processors_to_go_by_their_number_stays() {
        let limits = json!({ "requests": { "cpu": 1 } });
        let stated = json!({ "maxReplicas": 4, "replicas": 2, "resources": limits });
        for (pserver, load) in [(stated, "100%"), (json!({ "maxReplicas": 4 }), "")] {
            let mut job = job(pserver, 2);
            job.reconcile(200, &[2.0, 2.0]);
            assert_eq!((job.wanted(), job.job.status.unwrap().pserver.load.as_str()), (2, load));
        }
    }

    #[test]
    fn a_hot_pserver_is_named_once() {
        let mut job = job(json!({ "minReplicas": 3, "resources": { "requests": { "cpu": "1" } } }), 3);
        let acts = job.reconcile(40, &[0.1, 0.95, 0.1]);
        let notes = said(&acts, "HotPserver");
        assert!(notes.len() == 1 && notes[0].starts_with("j-pserver-1: at least 90 %"), "{notes:?}");
        assert_eq!(job.job.status.as_ref().unwrap().pserver.hot, ["j-pserver-1"]);
        job.reconcile(40, &[0.1, 0.1, 0.1]);
        assert!(job.job.status.unwrap().pserver.hot.is_empty());
    }

    /// Who trains with fewer than it is to have says little of what its pservers have to do.
    #[test]
    fn what_pservers_do_while_trainers_are_missing_does_not_count() {
        let mut job = job(json!({ "maxReplicas": 4, "resources": { "requests": { "cpu": 1 } } }), 3);
        job.pods.retain(|pod| pod.role != Role::Trainer);
        job.reconcile(200, &[0.0, 0.0, 0.0]);
        assert_eq!((job.wanted(), job.job.status.unwrap().pserver.load.as_str()), (3, ""));
    }

    #[test]
    fn another_life_of_a_name_begins_anew() {
        let mut job = job(json!({ "maxReplicas": 4, "resources": { "requests": { "cpu": 1 } } }), 1);
        job.reconcile(9, &[1.0]);
        job.micros.clear();
        job.reconcile(9, &[1.0]);
        assert_eq!(job.wanted(), 1);
        job.reconcile(2, &[1.0]);
        assert_eq!(job.wanted(), 2);
    }
}
