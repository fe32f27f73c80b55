//! What is wrong with a scenario, each by its place and with the way out. Pure.

use super::scenario::{JobGroup, Scenario, Service};

/// More pods than this at a time are no scenario but a mistake.
const PODS_MAX: u64 = 5_000_000;

/// Everything that cannot be simulated.
pub(super) fn faults(scenario: &Scenario) -> Vec<String> {
    let mut faults = Faults::default();
    whole(scenario, &mut faults);
    for (index, job) in scenario.jobs.iter().enumerate() {
        of_job(job, &format!("jobs[{index}]"), &mut faults);
    }
    for (index, service) in scenario.serving.iter().enumerate() {
        of_service(service, &format!("serving[{index}]"), &mut faults);
    }
    for (index, failure) in scenario.failures.iter().enumerate() {
        let known = failure.node.rsplit_once('-').is_some_and(|(name, number)| {
            let group = scenario.nodes.iter().find(|group| group.name == name);
            number.parse::<u32>().is_ok_and(|number| group.is_some_and(|group| number < group.count))
        });
        let what = "name a node: the name of its group, a dash, its number from 0";
        faults.check(known, &format!("failures[{index}].node"), what);
        let is_later = failure.to_seconds > failure.from_seconds;
        faults.check(is_later, &format!("failures[{index}].toSeconds"), "give more than fromSeconds");
    }
    faults.0
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn check(&mut self, is_right: bool, at: &str, what: &str) {
        if !is_right {
            self.0.push(format!("{at}: {what}"));
        }
    }
}

fn is_positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

fn is_natural(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

fn whole(scenario: &Scenario, faults: &mut Faults) {
    faults.check(is_positive(scenario.seconds), "seconds", "give how long it lasts at most, more than 0");
    let samples = scenario.seconds / scenario.sample_seconds;
    faults.check((0.0..=1e6).contains(&samples), "sampleSeconds", "give more than a millionth of seconds");
    let is_known = ["cpu", "memory", "gpu"].contains(&scenario.resource.as_str());
    faults.check(is_known, "resource", "give cpu, memory or gpu");
    faults.check((0.0..1.0).contains(&scenario.headroom), "headroom", "give a share from 0 to below 1");
    faults.check(is_natural(scenario.stop_seconds), "stopSeconds", "give 0 or more");
    let every = &scenario.every;
    for (name, every) in [("gang", every.gang), ("edl", every.edl), ("shoal", every.shoal)] {
        let is_right = every.is_finite() && every >= 0.1;
        faults.check(is_right, &format!("every.{name}"), "give 0.1 seconds or more");
    }
    let nodes: u64 = scenario.nodes.iter().map(|group| u64::from(group.count)).sum();
    faults.check(nodes > 0, "nodes", "give at least one");
    faults.check(nodes <= 1_000_000, "nodes", "give at most a million");
    for (index, group) in scenario.nodes.iter().enumerate() {
        let at = |field: &str| format!("nodes[{index}].{field}");
        let is_share = (0.0..1.0).contains(&group.lost_per_hour);
        faults.check(is_share, &at("lostPerHour"), "give a share from 0 to below 1");
        let is_span = [0.0, 1.0].iter().all(|place| is_positive(group.away_seconds.at(*place)));
        faults.check(is_span, &at("awaySeconds"), "give more than 0");
    }
    let most = |job: &JobGroup| job.trainers.max.max(job.trainers.fixed.unwrap_or(0));
    let pods = scenario.jobs.iter().map(|job| u64::from(job.count) * u64::from(most(job)));
    faults.check(pods.sum::<u64>() <= PODS_MAX, "jobs", "give at most five million trainers");
}

fn of_job(job: &JobGroup, at: &str, faults: &mut Faults) {
    let at = |field: &str| format!("{at}.{field}");
    let trainers = &job.trainers;
    let is_ordered = trainers.min >= 1 && trainers.min <= trainers.max;
    faults.check(is_ordered, &at("trainers"), "give 1 <= min <= max");
    faults.check(trainers.fixed.is_none_or(|fixed| fixed >= 1), &at("trainers.static"), "give 1 or more");
    faults.check(is_positive(job.steps), &at("steps"), "give more than 0");
    faults.check(is_natural(job.submit_seconds), &at("submitSeconds"), "give 0 or more");
    faults.check(is_natural(job.every_seconds), &at("everySeconds"), "give 0 or more");
    faults.check(is_natural(job.checkpoint_seconds), &at("checkpointSeconds"), "give 0 or more");
    let speed = &job.speed;
    let parts = [speed.compute_seconds, speed.fixed_seconds, speed.model_mb];
    let is_some = parts.iter().all(|part| is_natural(*part)) && parts.iter().any(|part| *part > 0.0);
    let is_right = is_some && is_positive(speed.pserver_mbps);
    faults.check(is_right, &at("speed"), "give seconds of 0 or more, not all 0");
}

fn of_service(service: &Service, at: &str, faults: &mut Faults) {
    let at = |field: &str| format!("{at}.{field}");
    faults.check(is_positive(service.per_pod), &at("perPod"), "give more than 0");
    let is_bounded = service.min <= service.max && service.max <= 1_000_000;
    faults.check(is_bounded, &at("max"), "give min or more, a million at most");
    let is_rare = service.every_seconds.is_finite() && service.every_seconds >= 1.0;
    faults.check(is_rare, &at("everySeconds"), "give 1 or more");
    let is_ordered = service.load.windows(2).all(|pair| pair[0].0 < pair[1].0);
    faults.check(is_ordered, &at("load"), "give later and later seconds");
}
