//! Simulations whose outcome can be computed by hand, and properties of all.

use super::*;
use crate::Sample;

fn run(text: &str, policy: Policy) -> Experiment {
    simulate(&Scenario::read(text).unwrap(), policy, |_| ())
}

/// Two jobs that want three of four cores; 30 seconds of work for three trainers each, pods start in a second.
const TWO: &str = "
name: two
seconds: 1000
sampleSeconds: 1
every: {gang: 1, edl: 30, shoal: 1}
startSeconds: {master: 1, pserver: 1, trainer: 1}
stopSeconds: 0
headroom: 0
nodes: [{count: 2, cpu: 2, memory: 8}]
jobs:
- name: a
  pservers: {count: 1}
  trainers: {min: 1, max: 4, static: 3, cpu: 1}
  steps: 30
  speed: {computeSeconds: 3}
- name: b
  submitSeconds: 10
  pservers: {count: 1}
  trainers: {min: 1, max: 4, static: 3, cpu: 1}
  steps: 30
  speed: {computeSeconds: 3}
";

fn times(experiment: &Experiment) -> Vec<(Option<f64>, Option<f64>)> {
    experiment.jobs.iter().map(|job| (job.started, job.ended)).collect()
}

#[test]
fn a_static_job_waits_for_all_of_its_room() {
    let all = run(TWO, Policy::Gang);
    // The first ends after the policy has looked: the second is let in a second later, and starts in another.
    assert_eq!(times(&all), [(Some(1.0), Some(31.0)), (Some(33.0), Some(63.0))]);
}

#[test]
fn our_jobs_share_the_cluster_and_lose_no_work() {
    let all = run(TWO, Policy::Shoal);
    let [first, second] = times(&all)[..] else { panic!("two jobs") };
    assert_eq!((first.0, second.0), (Some(1.0), Some(11.0)));
    // 180 trainer-seconds on four cores, less than a second of which is lost to each change.
    let end = second.1.unwrap();
    assert!((46.0..52.0).contains(&end), "{end}");
    assert!(all.summary().utilisation > 0.95, "{}", all.summary().utilisation);
}

#[test]
fn edls_rules_never_rest_where_devices_are_short() {
    let gpus = TWO
        .replace("cpu: 2, memory: 8}", "cpu: 200, memory: 800, gpu: 40}")
        .replace("static: 3, cpu: 1}", "static: 3, cpu: 1, gpu: 1}");
    let gpus = gpus.replace("max: 4", "max: 100").replace("steps: 30", "steps: 30000");
    let edl = run(&gpus, Policy::Edl);
    let note = |experiment: &Experiment, name: &str| {
        experiment.notes.iter().find(|(other, _)| other == name).unwrap().1
    };
    assert!(note(&edl, "looks without rest") > 0.0);
    // And with it the number of trainers goes up and down for ever; ours is decided once.
    let late = |experiment: &Experiment| -> Vec<u32> {
        let settled = experiment.samples.iter().filter(|sample| (200.0..900.0).contains(&sample.at_seconds));
        settled.map(|sample| sample.trainers.iter().sum()).collect()
    };
    let ours = late(&run(&gpus, Policy::Shoal));
    assert!(ours.iter().all(|trainers| *trainers == 80), "{ours:?}");
}

#[test]
fn a_lost_node_costs_a_job_its_pods_and_nothing_else() {
    let lost = format!("{TWO}failures: [{{node: node-0, fromSeconds: 5, toSeconds: 15}}]\n");
    for policy in [Policy::Gang, Policy::Edl, Policy::Shoal] {
        let all = run(&lost, policy);
        assert_eq!(all.summary().jobs_done, 2, "{policy:?}");
        let lost = all.samples.iter().find(|sample| sample.at_seconds == 6.0).unwrap();
        assert!(lost.utilisation <= 0.5, "{policy:?}: {}", lost.utilisation);
    }
}

#[test]
fn a_service_gets_what_it_asks_for_and_training_what_is_left() {
    let served = format!(
        "{TWO}serving:\n- {{name: web, cpu: 1, memory: 0.1, priority: 9, perPod: 1, min: 0, max: 3, load: [[0, 0], [20, 2], [50, 0]], everySeconds: 1}}\n"
    );
    let served = served.replace("steps: 30", "steps: 300");
    let all = run(&served, Policy::Shoal);
    let at =
        |seconds: f64| -> &Sample { all.samples.iter().find(|sample| sample.at_seconds == seconds).unwrap() };
    assert_eq!((at(19.0).serving, at(19.0).trainers.clone()), (0, vec![2, 2]));
    assert_eq!((at(25.0).serving, at(25.0).trainers.clone()), (2, vec![1, 1]));
    let regrown: u32 = at(140.0).trainers.iter().sum();
    assert_eq!(regrown, 4, "a minute after it gave");
}

#[test]
fn the_same_seed_gives_the_same_series() {
    let drawn = TWO
        .replace("trainer: 1}", "trainer: [1, 9]}")
        .replace("- name: b", "- name: b\n  drawn: true\n  count: 5");
    for policy in [Policy::Gang, Policy::Edl, Policy::Shoal] {
        assert_eq!(run(&drawn, policy), run(&drawn, policy));
        let other = run(&format!("{drawn}seed: 3\n"), policy);
        assert_ne!(run(&drawn, policy).jobs, other.jobs, "{policy:?}");
    }
}

/// In every scenario that is kept, ours keeps jobs waiting for no longer than EDL's rules, at no less use.
#[test]
fn ours_waits_no_longer_than_edls_rules_in_all_scenarios_at_no_less_use() {
    for text in [
        include_str!("../../../benches/scenarios/paddlecloud-1.yaml"),
        include_str!("../../../benches/scenarios/paddlecloud-2.yaml"),
        include_str!("../../../benches/scenarios/elasticdl-1.yaml"),
        include_str!("../../../benches/scenarios/elasticdl-2.yaml"),
        include_str!("../../../benches/scenarios/edl-133.yaml"),
        include_str!("../../../benches/scenarios/dlrover-growth.yaml"),
    ] {
        let scenario = Scenario::read(text).unwrap();
        let [edl, ours] =
            [Policy::Edl, Policy::Shoal].map(|policy| simulate(&scenario, policy, |_| ()).summary());
        let name = &scenario.name;
        assert!(ours.mean_pending_seconds <= edl.mean_pending_seconds, "{name}: {ours:?} for {edl:?}");
        assert!(ours.utilisation >= edl.utilisation - 0.001, "{name}: {ours:?} for {edl:?}");
    }
    assert!(Scenario::read(include_str!("../../../benches/scenarios/day-10k.yaml")).is_ok());
}

/// Ten hours of a job on spot nodes, static and elastic, with copies and without: nodes that were lost, steps made again, and when it ended.
fn on_spot_nodes(policy: Policy, copies: bool) -> (f64, f64, Option<f64>) {
    let ran = run(
        &format!(
            "name: spot\nseconds: 36000\nstopSeconds: 1\nseed: 3\nresource: cpu\n\
         nodes: [{{name: spot, count: 40, cpu: 8, lostPerHour: 0.2, awaySeconds: 60}}]\n\
         jobs: [{{name: j, copies: {copies}, checkpointSeconds: 600, pservers: {{count: 8, cpu: 4}}, \
         trainers: {{min: 4, max: 16, static: 16, cpu: 8}}, steps: 20000, speed: {{computeSeconds: 16}}}}]\n"
        ),
        policy,
    );
    let note = |name: &str| ran.notes.iter().find(|(said, _)| said == name).map_or(0.0, |(_, value)| *value);
    (note("nodes lost"), note("steps made again"), ran.jobs[0].ended)
}

#[test]
fn spot_nodes_go_at_the_rate_that_is_stated_and_a_job_makes_again_what_it_cannot_go_on_without() {
    let (lost, again, static_end) = on_spot_nodes(Policy::Gang, true);
    // 40 nodes that live 4.5 hours on average: 2 in each hundred of their hours are spent away.
    let hours = static_end.unwrap_or(36_000.0) / 3600.0;
    let expected = 40.0 * hours / 4.48;
    assert!((lost - expected).abs() < 3.0 * expected.sqrt(), "{lost} of {expected} expected");
    assert!(again > 100.0, "{again}");
    let (_, again_without, _) = on_spot_nodes(Policy::Shoal, false);
    let (_, none_again, elastic_end) = on_spot_nodes(Policy::Shoal, true);
    assert!(again_without > 100.0 && none_again == 0.0, "{again_without}, {none_again}");
    assert!(elastic_end.is_some() && (static_end.is_none() || elastic_end < static_end));
}
