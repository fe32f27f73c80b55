//! A job of a simulation: its pods, how far it is, how fast it goes.

use super::scenario::{JobGroup, Scenario, Speed};
use shoal_planner::{Resources, SpeedSample};
use shoal_runtime::host::random::Random;

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) submit: f64,
    pub(super) priority: i32,
    pub(super) least: u32,
    pub(super) most: u32,
    /// Trainers where jobs are static.
    pub(super) fixed: u32,
    pub(super) is_stated: bool,
    pub(super) pservers_wanted: u32,
    pub(super) master: Resources,
    pub(super) pserver: Resources,
    pub(super) trainer: Resources,
    pub(super) steps: f64,
    checkpoint_seconds: f64,
    pub(super) has_copies: bool,
    speed: Speed,

    pub(super) is_submitted: bool,
    pub(super) is_admitted: bool,
    pub(super) is_done: bool,
    /// Trainers that it is to have.
    pub(super) wanted: u32,
    /// Its pods that are there and are to stay: master, pservers, trainers, in the order in which they were made.
    pub(super) masters: Vec<usize>,
    pub(super) pservers: Vec<usize>,
    pub(super) trainers: Vec<usize>,
    /// Of these, how many run.
    pub(super) running: [u32; 3],
    pub(super) started: Option<f64>,
    pub(super) ended: Option<f64>,

    steps_done: f64,
    /// Since when it has run without going back: its checkpoints are so many seconds apart from then on.
    begun: f64,
    rate: f64,
    since: f64,
    /// Counts changes of its speed: an end that was foreseen before the last is none.
    pub(super) generation: u32,
    /// What a planner could have measured.
    pub(super) speeds: Vec<SpeedSample>,
    pub(super) yielded: Option<u64>,
}

/// The jobs of a scenario, by submission.
pub(super) fn jobs(scenario: &Scenario, random: &mut Random) -> Vec<Job> {
    let mut all: Vec<Job> = Vec::new();
    for group in &scenario.jobs {
        all.extend((0..group.count).map(|index| Job::new(group, index, random)));
    }
    all.sort_by(|a, b| a.submit.total_cmp(&b.submit));
    all
}

fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

impl Job {
    fn new(group: &JobGroup, index: u32, random: &mut Random) -> Job {
        let trainers = &group.trainers;
        let (mut size, mut work) = (1.0, 1.0);
        let mut submit = group.submit_seconds + f64::from(index) * group.every_seconds;
        if group.drawn {
            size = libm::exp2(2.0 * unit(random) - 1.0);
            work = libm::exp2(4.0 * unit(random) - 2.0);
            submit = group.submit_seconds + unit(random) * group.every_seconds * f64::from(group.count);
        }
        let sized = |count: u32| ((f64::from(count) * size).round() as u32).max(1);
        let most = sized(trainers.max).max(trainers.min);
        let name = if group.count == 1 { group.name.clone() } else { format!("{}-{index}", group.name) };
        Job {
            name,
            submit,
            priority: group.priority,
            least: trainers.min,
            most,
            fixed: trainers.fixed.map_or(most, sized),
            is_stated: trainers.stated,
            pservers_wanted: group.pservers.count,
            master: super::cluster::resources(&group.master),
            pserver: super::cluster::resources(&group.pservers.amounts),
            trainer: super::cluster::resources(&trainers.amounts),
            steps: group.steps * work,
            checkpoint_seconds: group.checkpoint_seconds,
            has_copies: group.copies,
            speed: group.speed.clone(),
            is_submitted: false,
            is_admitted: false,
            is_done: false,
            wanted: 0,
            masters: Vec::new(),
            pservers: Vec::new(),
            trainers: Vec::new(),
            running: [0; 3],
            started: None,
            ended: None,
            steps_done: 0.0,
            begun: 0.0,
            rate: 0.0,
            since: 0.0,
            generation: 0,
            speeds: Vec::new(),
            yielded: None,
        }
    }

    /// Its pods that are to stay.
    pub(super) fn pods(&self) -> impl Iterator<Item = usize> {
        [&self.masters, &self.pservers, &self.trainers].into_iter().flatten().copied()
    }

    /// Whether it is there.
    pub(super) fn is_live(&self) -> bool {
        self.is_submitted && !self.is_done
    }

    /// Goes on to now, and from here at the speed of what runs. Returns when it will end, if nothing changes.
    pub(super) fn advance(&mut self, now: f64, trainers_needed: u32) -> Option<f64> {
        self.steps_done += self.rate * (now - self.since);
        let [masters, pservers, trainers] = self.running;
        let runs = masters > 0 && pservers >= self.pservers_wanted && trainers >= trainers_needed.max(1);
        if runs && self.started.is_none() {
            self.started = Some(now);
        }
        if runs && self.rate <= 0.0 {
            self.begun = now;
        }
        let rate = if runs { self.speed.per_second(trainers, self.pservers_wanted) } else { 0.0 };
        (self.rate, self.since) = (rate, now);
        self.generation += 1;
        (rate > 0.0).then(|| now + (self.steps - self.steps_done).max(0.0) / rate)
    }

    /// Goes back to its last checkpoint. Returns how many steps are made again.
    pub(super) fn go_back(&mut self, now: f64) -> f64 {
        if self.checkpoint_seconds <= 0.0 || self.rate <= 0.0 {
            return 0.0;
        }
        self.steps_done += self.rate * (now - self.since);
        self.since = now;
        let lost = (self.rate * ((now - self.begun) % self.checkpoint_seconds)).min(self.steps_done);
        self.steps_done -= lost;
        self.begun = now;
        lost
    }

    /// Takes note of its speed with as many trainers as it has, once it has been so for a while.
    pub(super) fn measure(&mut self, now: f64) {
        let trainers = self.running[2];
        let is_known = self.speeds.iter().any(|speed| speed.trainers == trainers);
        if self.rate > 0.0 && !is_known && now - self.since >= MEASURED_SECONDS {
            self.speeds.push(SpeedSample { trainers, per_second: self.rate });
        }
    }
}

/// A speed is measured over so many seconds, as the operator does.
const MEASURED_SECONDS: f64 = 30.0;
