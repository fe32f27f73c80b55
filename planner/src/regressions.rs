//! The two faults of EDL's autoscaler that ours must not have, and other cases that were thought of.

use super::*;

const GI: i64 = 1 << 30;

/// Nodes alike, in one pool.
pub(super) fn nodes(count: usize, cpu: i64, memory: i64, gpus: i64) -> Vec<Node> {
    let mut allocatable = Resources::of_pod(cpu * 1000, memory * GI).with_device(0, gpus);
    allocatable.0[PODS] = 110;
    let node = |index| Node { name: format!("n-{index}"), allocatable, is_open: true, ..Node::default() };
    (0..count).map(node).collect()
}

/// A job whose trainers ask for so much, on no node yet.
pub(super) fn job(name: &str, cpu: i64, gpus: i64, min: u32, max: u32) -> JobView {
    let ask = |request| Ask { request, pools: Pools::Any };
    JobView {
        name: name.to_owned(),
        master: Servers { ask: ask(Resources::of_pod(0, GI / 8)), count: 1, nodes: Vec::new() },
        pservers: Servers { ask: ask(Resources::of_pod(0, GI / 4)), count: 1, nodes: Vec::new() },
        trainers: Trainers {
            ask: ask(Resources::of_pod(cpu * 1000, GI).with_device(0, gpus)),
            min,
            max,
            is_stated: true,
            ..Trainers::default()
        },
        ..JobView::default()
    }
}

pub(super) fn cluster(nodes: Vec<Node>, jobs: Vec<JobView>) -> ClusterView {
    ClusterView { devices: vec!["nvidia.com/gpu".to_owned()], nodes, waiting: Vec::new(), jobs }
}

/// Carries a plan out at once: pods are where the plan had room for them.
pub(super) fn carried_out(view: &ClusterView, settings: &Settings, now: Seconds) -> ClusterView {
    let state = planned(view, settings, now);
    let mut next = view.clone();
    for (index, job) in next.jobs.iter_mut().enumerate() {
        let outcome = outcome(&state, index, now);
        job.is_admitted = outcome.is_admitted;
        job.trainers.wanted = outcome.trainers;
        job.trainers.yielded = outcome.yielded;
        job.trainers.nodes = state.jobs[index].trainers.clone();
        job.master.nodes.extend(&state.jobs[index].served[0]);
        job.pservers.nodes.extend(&state.jobs[index].served[1]);
    }
    next
}

/// A plan that breaks nothing of what must hold of every plan.
pub(super) fn plan(view: &ClusterView, settings: &Settings, now: Seconds) -> Vec<JobPlan> {
    super::plan(view, settings, now).unwrap()
}

fn trainers(view: &ClusterView) -> Vec<u32> {
    view.jobs.iter().map(|job| job.trainers.wanted).collect()
}

/// EDL goes up to 80 and down to 77 of 80 GPUs for ever: its ceiling holds on the way down and not on the way up.
#[test]
fn all_80_gpus_are_given_once_and_for_all() {
    let settings = Settings::default();
    let mut view = cluster(nodes(10, 24, 240, 8), vec![job("a", 1, 1, 2, 100)]);
    for round in 0..10 {
        view = carried_out(&view, &settings, round * 30);
        assert_eq!(trainers(&view), [80], "round {round}");
    }
}

/// EDL gives A, with 100 of up to 400, and B, with 2 of up to 400, 69 more each.
#[test]
fn a_job_that_has_much_gives_to_one_that_has_little() {
    let settings = Settings::default();
    let mut view = cluster(nodes(24, 10, 100, 0), vec![job("a", 1, 0, 2, 400)]);
    view.jobs[0].trainers.max = 100;
    view = carried_out(&view, &settings, 0);
    assert_eq!(trainers(&view), [100]);
    view.jobs[0].trainers.max = 400;
    let mut late = job("b", 1, 0, 2, 400);
    late.since = 10;
    view.jobs.push(late);
    view = carried_out(&view, &settings, 30);
    let after = trainers(&view);
    assert_eq!(after.iter().sum::<u32>(), 232, "97 % of 240");
    assert!(after[0].abs_diff(after[1]) <= 2, "{after:?}");
    assert_eq!(trainers(&carried_out(&view, &settings, 60)), after, "and stays so");
}

/// EDL counts free GPUs of the whole cluster: six single ones on six nodes are no room for pods that want two.
#[test]
fn devices_are_counted_node_by_node() {
    let mut view = cluster(nodes(6, 16, 64, 3), vec![job("a", 1, 2, 1, 20)]);
    view = carried_out(&view, &Settings::default(), 0);
    assert_eq!(trainers(&view), [6]);
    let blocker = plan(&view, &Settings::default(), 30).remove(0).blocker.unwrap();
    assert_eq!(
        blocker.to_string(),
        "no node has room for one more: it asks for cpu 1, memory 1.0Gi, nvidia.com/gpu 2, nodes have at most cpu 15, \
         memory 63.0Gi, nvidia.com/gpu 1 free"
    );
}

#[test]
fn a_pod_that_waits_is_given_room_in_one_round_and_the_job_grows_again_later() {
    let settings = Settings::default();
    let mut view = cluster(nodes(4, 8, 64, 0), vec![job("a", 1, 0, 2, 100), job("b", 1, 0, 2, 100)]);
    view = carried_out(&view, &settings, 0);
    assert_eq!(trainers(&view).iter().sum::<u32>(), 31);
    let ask = Ask { request: Resources::of_pod(4000, GI), pools: Pools::Any };
    view.waiting = (0..3)
        .map(|index| WaitingPod { name: format!("nginx-{index}"), ask: ask.clone(), priority: 0, since: 10 })
        .collect();
    view = carried_out(&view, &settings, 10);
    assert_eq!(trainers(&view).iter().sum::<u32>(), 19, "31 of 32 less 12");
    let after = trainers(&view);
    assert!(after[0].abs_diff(after[1]) <= 4, "{after:?}");
    // The pods of others have ended.
    view.waiting.clear();
    let early = plan(&view, &settings, 40);
    assert!(early.iter().all(|job| job.blocker == Some(Blocker::Settles(30))), "{early:?}");
    view = carried_out(&view, &settings, 70);
    assert_eq!(trainers(&view).iter().sum::<u32>(), 31);
}

#[test]
fn a_job_gets_all_of_its_least_or_waits_and_says_for_what() {
    let settings = Settings::default();
    let mut view = cluster(nodes(2, 8, 64, 0), vec![job("a", 1, 0, 12, 12), job("b", 1, 0, 8, 16)]);
    view.jobs[1].since = 5;
    view = carried_out(&view, &settings, 5);
    assert_eq!(trainers(&view), [12, 0]);
    let told = plan(&view, &settings, 10).remove(1).blocker.unwrap().to_string();
    assert_eq!(
        told,
        "it waits for room for its least: 8 of its trainers, each asking for cpu 1, memory 1.0Gi, have no room together; nodes \
         have at most cpu 4, memory 60.0Gi free, even without trainers that others may give up"
    );
}

#[test]
fn who_has_waited_long_is_not_overtaken() {
    let settings = Settings::default();
    let mut view = cluster(nodes(2, 8, 64, 0), vec![job("runs", 1, 0, 10, 10), job("big", 1, 0, 14, 14)]);
    view = carried_out(&view, &settings, 0);
    let mut small = job("small", 1, 0, 2, 2);
    small.since = 100;
    view.jobs.push(small);
    assert!(plan(&view, &settings, 100)[2].is_admitted, "at first it goes ahead");
    let late = plan(&view, &settings, 1800).remove(2);
    assert_eq!(late.blocker, Some(Blocker::Behind("big".to_owned())));
    // Who never fits holds nobody up.
    view.jobs[1].trainers.min = 17;
    view.jobs[1].trainers.max = 17;
    assert!(plan(&view, &settings, 1800)[2].is_admitted);
}

#[test]
fn priority_is_served_first_and_takes_nobodys_least() {
    let settings = Settings::default();
    let mut view = cluster(nodes(4, 8, 64, 0), vec![job("low", 1, 0, 4, 100)]);
    view = carried_out(&view, &settings, 0);
    let mut high = job("high", 1, 0, 2, 20);
    (high.priority, high.since) = (10, 1);
    view.jobs.push(high);
    view = carried_out(&view, &settings, 30);
    assert_eq!(trainers(&view), [11, 20]);
    view.jobs[1].trainers.max = 100;
    view = carried_out(&view, &settings, 60);
    assert_eq!(trainers(&view), [4, 27]);
}

#[test]
fn a_job_stops_where_trainers_are_not_worth_their_room() {
    let settings = Settings::default();
    let mut view = cluster(nodes(10, 10, 100, 0), vec![job("a", 1, 0, 1, 100)]);
    let speed = |n: u32| SpeedSample { trainers: n, per_second: 1.0 / (4.0 / f64::from(n) + 1.0) };
    view.jobs[0].trainers.speeds = vec![speed(1), speed(16)];
    view = carried_out(&view, &settings, 0);
    let first = trainers(&view)[0];
    assert!((14..=18).contains(&first), "{first}");
    // Measured a little otherwise, it keeps what it has.
    view.jobs[0].trainers.speeds = vec![speed(1), SpeedSample { trainers: 16, per_second: 0.78 }];
    assert_eq!(plan(&view, &settings, 30)[0].trainers, first);
    let blocker = plan(&view, &settings, 30).remove(0).blocker.unwrap();
    assert_eq!(blocker.word(), "NotWorthIt");
}

#[test]
fn a_job_that_states_nothing_grows_as_it_is_measured() {
    let settings = Settings::default();
    let mut view = cluster(nodes(10, 10, 100, 0), vec![job("a", 1, 0, 1, 100)]);
    view.jobs[0].trainers.is_stated = false;
    view = carried_out(&view, &settings, 0);
    let mut seen = vec![trainers(&view)[0]];
    for round in 1..6 {
        assert_eq!(
            plan(&view, &settings, round * 30)[0].blocker,
            Some(Blocker::Unmeasured(seen[seen.len() - 1]))
        );
        let now = trainers(&view)[0];
        view.jobs[0].trainers.speeds.push(SpeedSample { trainers: now, per_second: f64::from(now) });
        view = carried_out(&view, &settings, round * 30);
        seen.push(trainers(&view)[0]);
    }
    assert_eq!(seen, [1, 2, 4, 8, 16, 32]);
}

#[test]
fn more_than_there_are_nodes_is_asked_for_only_where_nodes_may_come() {
    let settings = Settings::default();
    let mut view = cluster(nodes(1, 8, 64, 0), vec![job("a", 1, 0, 12, 20)]);
    assert!(!plan(&view, &settings, 0)[0].is_admitted);
    view.jobs[0].allows_new_nodes = true;
    let planned = plan(&view, &settings, 0).remove(0);
    assert_eq!((planned.is_admitted, planned.trainers), (true, 20));
}

#[test]
fn a_lost_pserver_comes_back_at_the_cost_of_trainers() {
    let settings = Settings::default();
    let mut view = cluster(nodes(2, 8, 64, 0), vec![job("a", 1, 0, 2, 100)]);
    view.jobs[0].pservers.ask.request = Resources::of_pod(4000, GI);
    view = carried_out(&view, &settings, 0);
    assert_eq!(trainers(&view), [11]);
    view.jobs[0].pservers.nodes.clear();
    view.nodes[0].is_open = false;
    view.jobs[0].trainers.nodes.retain(|node| *node == 1);
    view.jobs[0].master.nodes.retain(|node| *node == 1);
    view = carried_out(&view, &settings, 30);
    assert_eq!((view.jobs[0].pservers.nodes.len(), trainers(&view)), (1, vec![3]));
}

/// One speed that was measured wrongly must not empty a job.
#[test]
fn a_job_gives_up_half_of_its_trainers_at_most_for_not_being_worth_their_room() {
    let settings = Settings::default();
    let mut view = cluster(nodes(10, 10, 100, 0), vec![job("a", 1, 0, 1, 100)]);
    view = carried_out(&view, &settings, 0);
    assert_eq!(trainers(&view), [97]);
    view.jobs[0].trainers.speeds = [1, 97].map(|trainers| SpeedSample { trainers, per_second: 1.0 }).to_vec();
    view = carried_out(&view, &settings, 30);
    assert_eq!(trainers(&view), [49]);
    view = carried_out(&view, &settings, 60);
    assert_eq!(trainers(&view), [25]);
}

/// A job that is in, with trainers of so many cores on those nodes, the least of them first.
fn running(name: &str, cpu: i64, least: u32, on: &[usize]) -> JobView {
    let mut job = job(name, cpu, 0, least, on.len() as u32);
    job.is_admitted = true;
    (job.master.nodes, job.pservers.nodes) = (vec![on[0]], vec![on[0]]);
    (job.trainers.nodes, job.trainers.wanted) = (on.to_vec(), on.len() as u32);
    job
}

fn pod(cpu: i64, since: Seconds) -> WaitingPod {
    let ask = Ask { request: Resources::of_pod(cpu * 1000, GI), pools: Pools::Any };
    WaitingPod { name: "nginx".to_owned(), ask, priority: 0, since }
}

#[test]
fn of_several_that_make_room_together_none_goes_in_vain() {
    let settings = Settings { headroom: 0.0, ..Settings::default() };
    // On the first node two of one core and two of three: the small ones are asked first, and one of them is not needed.
    let mut view = cluster(nodes(2, 8, 64, 0), vec![running("small", 1, 1, &[1, 0, 0])]);
    view.jobs.push(JobView { priority: 1, ..running("big", 3, 1, &[1, 0, 0]) });
    view.nodes[1].used = Resources::of_pod(4000, 0);
    view.waiting = vec![pod(4, 100)];
    let planned = plan(&view, &settings, 100);
    assert_eq!(planned.iter().map(|job| job.trainers).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn who_is_not_let_in_after_all_takes_nothing_from_anybody() {
    let settings = Settings { headroom: 0.0, ..Settings::default() };
    // Eight cores could be given up, but of the second node only three.
    let mut view = cluster(nodes(2, 6, 64, 0), vec![running("a", 1, 1, &[0, 0, 0, 0, 0, 0, 1, 1, 1])]);
    view.nodes[1].used = Resources::of_pod(3000, 0);
    view.jobs.push(job("late", 4, 0, 2, 2));
    // What it gave it would not be given back for now.
    view.jobs[0].trainers.yielded = Some(100);
    let planned = plan(&view, &settings, 100);
    assert_eq!((planned[0].trainers, planned[1].is_admitted), (9, false));
}

#[test]
fn room_is_kept_for_a_pod_that_has_just_come_and_not_for_one_that_something_else_holds_up() {
    let settings = Settings { headroom: 0.0, ..Settings::default() };
    let mut view = cluster(nodes(1, 8, 64, 0), vec![running("a", 1, 1, &[0, 0, 0, 0])]);
    view.jobs[0].trainers.max = 8;
    view.waiting = vec![pod(4, 1000)];
    assert_eq!(plan(&view, &settings, 1000)[0].trainers, 4);
    assert_eq!(plan(&view, &settings, 1000 + settings.unplaced_seconds)[0].trainers, 8);
}
