//! The plan's invariants, held against clusters drawn at random: several kinds of nodes, jobs, pods of others, at any stage.

use super::regressions::{self, carried_out, plan};
use super::*;
use proptest::prelude::*;

const GI: i64 = 1 << 30;

fn node() -> impl Strategy<Value = Node> {
    (
        1_i64..17,
        1_i64..65,
        prop::sample::select(vec![0_i64, 0, 1, 4, 8]),
        0_u32..3,
        prop::bool::weighted(0.95),
        0_i64..6,
    )
        .prop_map(|(cpu, memory, gpus, pool, is_open, used)| {
            let mut allocatable = Resources::of_pod(cpu * 1000, memory * GI).with_device(0, gpus);
            allocatable.0[PODS] = 30;
            let used = Resources::of_pod(used * 500, used * GI);
            Node { name: String::new(), allocatable, used, pool, is_open }
        })
}

fn pools() -> impl Strategy<Value = Pools> {
    prop_oneof![
        6 => Just(Pools::Any),
        1 => prop::collection::vec(0_u32..3, 0..3).prop_map(Pools::Of),
    ]
}

fn ask(gpus: bool) -> impl Strategy<Value = Ask> {
    let gpus =
        if gpus { prop::sample::select(vec![0_i64, 0, 1, 2]) } else { prop::sample::select(vec![0_i64]) };
    (1_i64..9, 1_i64..9, gpus, pools()).prop_map(|(cpu, memory, gpus, pools)| Ask {
        request: Resources::of_pod(cpu * 500, memory * GI / 2).with_device(0, gpus),
        pools,
    })
}

fn job() -> impl Strategy<Value = JobView> {
    let curve = prop::option::weighted(0.3, (0.1_f64..10.0, 0.0_f64..2.0, 0.0_f64..0.2));
    let bounds = (1_u32..5, 0_u32..40);
    (ask(true), ask(false), bounds, -1_i32..3, 0_u64..2000, curve, 0_u32..3, prop::bool::weighted(0.9))
        .prop_map(|(ask, server, (min, more), priority, since, curve, pservers, is_stated)| {
            let speed = |(shared, fixed, each): (f64, f64, f64), n: u32| SpeedSample {
                trainers: n,
                per_second: 1.0 / (shared / f64::from(n) + fixed + each * f64::from(n)),
            };
            let speeds = curve.map_or_else(Vec::new, |curve| [1, 4, 16].map(|n| speed(curve, n)).to_vec());
            let trainers = Trainers { ask, min, max: min + more, is_stated, speeds, ..Trainers::default() };
            JobView {
                priority,
                since,
                master: Servers { ask: server.clone(), count: 1, nodes: Vec::new() },
                pservers: Servers { ask: server, count: pservers, nodes: Vec::new() },
                trainers,
                ..JobView::default()
            }
        })
}

fn waiting() -> impl Strategy<Value = WaitingPod> {
    (ask(true), -5_i32..5, 0_u64..2000).prop_map(|(ask, priority, since)| WaitingPod {
        name: "other".to_owned(),
        ask,
        priority,
        since,
    })
}

prop_compose! {
    fn clusters()(
        nodes in prop::collection::vec(node(), 0..24),
        jobs in prop::collection::vec(job(), 0..8),
        waiting in prop::collection::vec(waiting(), 0..5),
    ) -> ClusterView {
        let named = |(index, job): (usize, JobView)| JobView { name: format!("job-{index}"), ..job };
        let jobs = jobs.into_iter().enumerate().map(named).collect();
        ClusterView { devices: vec!["nvidia.com/gpu".to_owned()], nodes, waiting, jobs }
    }
}

/// A cluster some way into its life: planned once, then changed by what happens to clusters.
fn lived_in() -> impl Strategy<Value = ClusterView> {
    let changes = (any::<u64>(), prop::collection::vec(job(), 0..3), prop::collection::vec(waiting(), 0..4));
    (clusters(), changes).prop_map(|(view, (lost, jobs, waiting))| {
        let mut view = carried_out(&view, &Settings::default(), 2000);
        for (index, node) in view.nodes.iter_mut().enumerate() {
            // One node of eight closes.
            node.is_open &= (lost >> (index % 64)) & 7 != 0 || index % 8 != 0;
        }
        let count = view.jobs.len();
        let late = |(index, job): (usize, JobView)| JobView { name: format!("job-{}", count + index), ..job };
        view.jobs.extend(jobs.into_iter().enumerate().map(late));
        view.waiting = waiting;
        view
    })
}

const NOW: Seconds = 2030;

fn free(view: &ClusterView, node: usize) -> Resources {
    let mut free = view.nodes[node].allocatable;
    free.take(&view.nodes[node].used);
    for job in &view.jobs {
        let parts = [(&job.master.ask, &job.master.nodes), (&job.pservers.ask, &job.pservers.nodes)];
        for (ask, nodes) in parts.into_iter().chain([(&job.trainers.ask, &job.trainers.nodes)]) {
            nodes.iter().filter(|one| **one == node).for_each(|_| free.take(&ask.request));
        }
    }
    free
}

proptest! {
    /// Never over capacity: what a node has free is not negative, unless it owed as much before.
    #[test]
    fn no_node_is_given_more_than_it_has(view in lived_in()) {
        let after = carried_out(&view, &Settings::default(), NOW);
        for node in 0..view.nodes.len() {
            let (before, now) = (free(&view, node), free(&after, node));
            for kind in 0..KINDS {
                prop_assert!(now.0[kind] >= before.0[kind].min(0), "node {node}, kind {kind}: {now:?} after {before:?}");
            }
        }
    }

    /// Room that is free after a plan is room that the plan counted as free.
    #[test]
    fn a_plan_keeps_its_books(view in lived_in()) {
        let settings = Settings::default();
        let state = planned(&view, &settings, NOW);
        let after = carried_out(&view, &settings, NOW);
        for node in 0..view.nodes.len() {
            // What is kept for pods of others is not in the cluster yet.
            let (kept, mut free) = (state.room.free(node), free(&after, node));
            free.take(kept);
            prop_assert!(free.0.iter().all(|amount| *amount >= 0), "node {node}: {free:?}");
            if view.waiting.is_empty() {
                prop_assert_eq!(free, Resources::default());
            }
        }
    }

    #[test]
    fn nobody_is_below_its_least_or_above_its_most(view in lived_in()) {
        for (job, made) in view.jobs.iter().zip(plan(&view, &Settings::default(), NOW)) {
            let bounds = job.trainers.min..=job.trainers.max;
            let is_within = if made.is_admitted { bounds.contains(&made.trainers) } else { made.trainers == 0 };
            prop_assert!(is_within, "{} trainers of {:?}", made.trainers, bounds);
            prop_assert!(made.is_admitted || !job.is_admitted, "who is in stays in");
            prop_assert!(made.is_admitted || made.blocker.is_some(), "who waits is told for what");
            prop_assert!(made.trainers == job.trainers.max || made.blocker.is_some() || made.lacks.is_some());
        }
    }

    /// A job that waits cannot be let in by taking whatever is beyond the least of the others. Pods are alike: which of several
    /// arrangements of pods of several sizes is found is a matter of luck (they are packed greedily).
    #[test]
    fn nobody_gets_more_than_its_least_while_the_least_of_another_would_fit(view in lived_in()) {
        let mut view = view;
        let alike = Ask { request: Resources::of_pod(2000, 2 * GI), pools: Pools::Any };
        for job in &mut view.jobs {
            (job.master.ask, job.pservers.ask, job.trainers.ask) = (alike.clone(), alike.clone(), alike.clone());
        }
        // Without pods that wait, which may have priority, and nobody that is not overtaken.
        view.waiting.clear();
        let settings = Settings { overtaken_seconds: u64::MAX, ..Settings::default() };
        let after = carried_out(&view, &settings, NOW);
        for (index, job) in after.jobs.iter().enumerate().filter(|(_, job)| !job.is_admitted) {
            // The same cluster with the least of everybody who is in, and this job alone.
            let mut bare = after.clone();
            for other in &mut bare.jobs {
                other.trainers.nodes.truncate(other.trainers.min as usize);
                other.trainers.wanted = other.trainers.wanted.min(other.trainers.min);
                other.trainers.max = other.trainers.min;
            }
            let name = job.name.clone();
            bare.jobs.retain(|other| other.is_admitted || other.name == name);
            let place = bare.jobs.iter().position(|other| other.name == name).unwrap();
            prop_assert!(!plan(&bare, &settings, NOW)[place].is_admitted, "job {index} would fit");
        }
    }

    /// Max-min fairness: nobody can be given one more by taking it from one that would still have as much.
    #[test]
    fn nobody_has_more_than_its_share_while_another_could_have_it(view in lived_in()) {
        // Who gave to pods of others does not grow for a while, and is no measure.
        let mut view = view;
        view.waiting.clear();
        // What a node owes would count against the headroom of the others.
        for node in 0..view.nodes.len() {
            let owed = Resources::default().most(&Resources(free(&view, node).0.map(|amount| -amount)));
            view.nodes[node].used.take(&owed);
        }
        let settings = Settings { headroom: 0.0, regrow_seconds: 0, ..Settings::default() };
        let mut state = planned(&view, &settings, NOW);
        for poor in 0..state.jobs.len() {
            let made = &state.jobs[poor];
            if !made.is_admitted || made.lacks.is_some() || made.trainers.len() as u32 >= made.most {
                continue;
            }
            let ask = &view.jobs[poor].trainers.ask;
            prop_assert!(state.room.first_fit(ask).is_none(), "{poor} is not given what is free");
            let then = state.share(poor, made.trainers.len() + 1);
            for rich in 0..state.jobs.len() {
                let priority = (view.jobs[rich].priority, view.jobs[poor].priority);
                for node in state.jobs[rich].trainers.clone() {
                    if !state.pop(rich, node) {
                        continue;
                    }
                    let left = state.share(rich, state.jobs[rich].trainers.len());
                    let is_unfair = priority.0 < priority.1 || (priority.0 == priority.1 && left >= then && rich != poor);
                    let fits = state.room.first_fit(ask).is_some();
                    state.push(rich, node);
                    prop_assert!(!(is_unfair && fits), "{poor} could have one of {rich}'s: {left} left, {then} then");
                }
            }
        }
    }

    /// No flapping: the same cluster, planned again after the plan was carried out, keeps its plan.
    #[test]
    fn what_was_carried_out_is_planned_again(view in lived_in(), later in 0_u64..1000) {
        // Waiting long changes who goes first, and nothing else may.
        let settings = Settings { regrow_seconds: 0, overtaken_seconds: u64::MAX, ..Settings::default() };
        let mut now = carried_out(&view, &settings, NOW);
        // Pods of others have been placed where room was made for them, or never will be.
        now.waiting.clear();
        for job in &mut now.jobs {
            job.trainers.is_stated = true;
        }
        let wanted = |view: &ClusterView| -> Vec<(bool, u32)> {
            view.jobs.iter().map(|job| (job.is_admitted, job.trainers.wanted)).collect()
        };
        let mut let_in = view.jobs.len() + 1;
        for round in 0..4 + let_in as u64 {
            let next = carried_out(&now, &settings, NOW + later * round);
            // Pods sit otherwise after a plan than before it, so that one more job may fit: that happens once to each.
            let is_news = (0..now.jobs.len()).any(|job| next.jobs[job].is_admitted && !now.jobs[job].is_admitted);
            if is_news || round == 0 {
                let_in = let_in.checked_sub(1).expect("who is in stays in");
            } else {
                prop_assert_eq!(wanted(&next), wanted(&now), "round {}", round);
            }
            now = next;
        }
    }

    /// With jobs alike, all of which are in, another node makes nobody smaller.
    #[test]
    fn more_room_makes_no_share_smaller(
        jobs in prop::collection::vec((1_u32..4, 0_u32..40), 1..8),
        count in 1_usize..12, cpu in 4_i64..33, each in 1_i64..4,
    ) {
        let nodes = regressions::nodes(count + 1, cpu, 512, 0);
        let job = |(index, (min, more)): (usize, (u32, u32))| {
            regressions::job(&format!("job-{index}"), each, 0, min, min + more)
        };
        let view = regressions::cluster(nodes, jobs.into_iter().enumerate().map(job).collect());
        let mut less = view.clone();
        less.nodes.pop();
        let settings = Settings::default();
        let (less, more) = (plan(&less, &settings, 0), plan(&view, &settings, 0));
        prop_assume!(less.iter().all(|job| job.is_admitted));
        for (less, more) in less.iter().zip(&more) {
            prop_assert!(more.trainers >= less.trainers, "{} of {}", more.trainers, less.trainers);
        }
    }

    /// Whatever is seen, planning ends and does not panic.
    #[test]
    fn no_view_breaks_it(view in lived_in(), now in any::<u64>(), yielded in any::<u64>(), huge in 0..1_i64 << 55) {
        let mut view = view;
        for job in &mut view.jobs {
            job.trainers.yielded = Some(yielded);
            job.trainers.ask.request.0[MEMORY] = huge;
        }
        plan(&view, &Settings::default(), now);
    }
}
