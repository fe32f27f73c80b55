//! A scenario from a seed: each seed draws its own mix of sizes and faults (swarm testing, Groce et al. 2012), so that
//! rare combinations come up without every run being equally bad.

use super::data_set::DataSetShape;
use super::evaluated::Evaluations;
use super::faults::{self, Edit, Fault, When};
use super::network::Depth;
use super::program::Program;
use super::tables::Tables;
use super::weather::Weather;
use shoal_job::spec::{self, CheckpointSpec, Spec};
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::verification::WHOLE_SHARE;
use shoal_runtime::cluster::{EnvironmentRule, Mode, Precision};
use shoal_runtime::host::random::Random;
use shoal_trainer_sdk::{Decisions, LossScale, NonFinite};
use std::time::Duration;

/// All that a run is made of.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How calls are carried.
    pub depth: Depth,
    /// What it was drawn from, and what everything in the run is drawn from.
    pub seed: u64,
    /// The records.
    pub data: DataSetShape,
    /// Passes over them.
    pub epochs: u64,
    /// Records in a microbatch.
    pub microbatch_records: u32,
    /// Microbatches in a step.
    pub microbatches_per_step: u32,
    /// How updates follow one another.
    pub mode: Mode,
    /// How precise gradients of dense parameters are on their way.
    pub gradients: Precision,
    /// Records that stay together in the shuffle.
    pub shuffle_run: u32,
    /// Elements of a block.
    pub block_elements: u64,
    /// What is decided over all blocks.
    pub decisions: Option<Decisions>,
    /// What is evaluated.
    pub evaluations: Option<Evaluations>,
    /// The program's tables.
    pub tables: Option<Tables>,
    /// Nodes a block holds beyond the lowest missing slot.
    pub window: usize,
    /// Lease time to live.
    pub ttl: Duration,
    /// Pservers.
    pub pservers: u32,
    /// Copies of each block beside its primary.
    pub replicas: u32,
    /// A record that programs cannot use. Only one: a microbatch of nothing else would be the program's fault.
    pub poison: Option<Poison>,
    /// Records that may be left out.
    pub exclude_max: u64,
    /// Whether trainers may have environments of their own. Where they may, every third has one.
    pub environment: EnvironmentRule,
    /// Of so many of a million microbatches two computations are compared.
    pub verify_millionths: u32,
    /// After every so many steps hashes of all blocks are recorded; 0 for none.
    pub record_hashes: u64,
    /// Steps between two checkpoints; 0 for none but the last.
    pub checkpoint_steps: u64,
    /// Bytes that pieces of checkpoints may hold on a pserver while they wait to be written.
    pub checkpoint_memory: u64,
    /// Trainers at the beginning.
    pub trainers: u32,
    /// What a microbatch takes, for each trainer in turn.
    pub paces: Vec<Duration>,
    /// The trainer, by the order of coming, whose step function never returns, if there is one. It still speaks.
    pub stuck: Option<usize>,
    /// How long one attempt of a trainer's call may take.
    pub attempt: Duration,
    /// The network until healing.
    pub weather: Weather,
    /// How much faster or slower than others' a host's clock may run, in percent.
    pub drift_percent: u64,
    /// Whether the master keeps its document on a disk, or in a store that others run.
    pub has_disk: bool,
    /// What happens when, in order.
    pub faults: Vec<(When, Fault)>,
    /// When the network heals and everybody still alive goes on.
    pub healing: When,
    /// How long the job may take, with all that happens to it, until what has not happened yet does.
    pub patience: Duration,
}

/// A record that programs cannot use.
#[derive(Clone, Copy, Debug)]
pub struct Poison {
    /// Its index.
    pub record: u64,
    /// Whether every third trainer can use it.
    pub spares: bool,
}

/// Steps of a whole job: enough for versions to matter, few enough for a thousand runs.
const STEPS_MAX: u64 = 36;

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

impl Scenario {
    /// The scenario of a seed.
    pub fn drawn(seed: u64) -> Scenario {
        let mut random = Random::seeded(key(&[seed, 0x5CE4]));
        let pick = |random: &mut Random, of: &[u64]| of[random.below(of.len() as u64) as usize];
        let mut scenario = Scenario::quiet(seed);
        scenario.pservers = 1 + random.below(4) as u32;
        scenario.replicas = random.below(3) as u32;
        scenario.checkpoint_steps = pick(&mut random, &[0, 1, 2, 5]);
        scenario.trainers = 1 + random.below(6) as u32;
        scenario.microbatches_per_step = 1 + random.below(16) as u32;
        scenario.microbatch_records = 1 + random.below(5) as u32;
        scenario.shuffle_run = 1 + random.below(5) as u32;
        scenario.epochs = 1 + random.below(3);
        let records = 20 + random.below(181);
        let per_step = u64::from(scenario.microbatches_per_step * scenario.microbatch_records);
        scenario.data.records = records.min(per_step * STEPS_MAX / scenario.epochs).max(4);
        scenario.data.files = 1 + random.below(3);
        scenario.data.chunk_bytes = pick(&mut random, &[1, 40, 200, 1000, 1 << 20]);
        scenario.data.is_numbered = key(&[seed, 0xDA7A]).is_multiple_of(4);
        scenario.block_elements = pick(&mut random, &[7, 16, 40, 0]);
        scenario.window = pick(&mut random, &[1, 2, 64]) as usize;
        scenario.ttl = Duration::from_millis(pick(&mut random, &[1000, 2000, 5000]));
        scenario.attempt = Duration::from_millis(pick(&mut random, &[300, 1000, 10_000]));
        let slowest = pick(&mut random, &[0, 3, 30, 200]);
        scenario.paces = (0..8).map(|_| Duration::from_millis(random.below(slowest + 1))).collect();
        scenario.stuck = random.percent(15).then(|| random.below(3) as usize);
        scenario.weather = weather(&mut random, scenario.ttl);
        if key(&[seed, 0x5708]).is_multiple_of(8) {
            scenario.weather = scenario.weather.storm();
        }
        scenario.has_disk = key(&[seed, 0xF11E]).is_multiple_of(2);
        scenario.drift_percent = [0, 0, 1, 25][(key(&[seed, 0xD21F7]) % 4) as usize];
        scenario.patience = scenario.ttl * pick(&mut random, &[5, 20, 60]) as u32;
        (scenario.faults, scenario.healing) = faults::drawn(&scenario, &mut random);
        let mut random = Random::seeded(key(&[seed, 0xDE1A]));
        scenario.mode = Mode::Sync { delay: pick(&mut random, &[0, 0, 1, 2]) as u32 };
        if key(&[seed, 0xBF16]).is_multiple_of(3) {
            scenario.gradients = Precision::Bf16;
        }
        scenario.decisions = decisions(&mut random);
        scenario.evaluations = Evaluations::drawn(seed, per_step);
        scenario.tables = Tables::drawn(seed);
        scenario.poison = poison(seed, scenario.data.records);
        scenario.exclude_max = u64::from(scenario.poison.is_some());
        let rules = [EnvironmentRule::Same, EnvironmentRule::Warn, EnvironmentRule::Any];
        scenario.verify_millionths = [0, 0, 200_000, 1_000_000][(key(&[seed, 0x7E21F]) % 4) as usize];
        scenario.record_hashes = [0, 0, 1, 3][(key(&[seed, 0x4A54]) % 4) as usize];
        scenario.environment = rules[(key(&[seed, 0xE27]) % 3) as usize];
        scenario
    }

    /// The job's settings, as far as its masters go by them.
    pub fn spec(&self) -> Spec {
        let (mode, delay) = match self.mode {
            Mode::Sync { delay } => (spec::Mode::Sync, Some(delay)),
            Mode::Async { .. } => (spec::Mode::Async, None),
        };
        let checkpoint = CheckpointSpec {
            every_steps: Some(self.checkpoint_steps),
            every_seconds: Some(0),
            ..CheckpointSpec::default()
        };
        let environment = Some(match self.environment {
            EnvironmentRule::Same => spec::EnvironmentRule::Same,
            EnvironmentRule::Warn => spec::EnvironmentRule::Warn,
            EnvironmentRule::Any => spec::EnvironmentRule::Any,
        });
        Spec {
            data: vec![String::from("sim.recordio")],
            mode: Some(mode),
            delay,
            copies: Some(self.replicas),
            exclude_max: Some(self.exclude_max),
            environment,
            verify: Some(f64::from(self.verify_millionths) / f64::from(WHOLE_SHARE)),
            record_hashes: Some(self.record_hashes),
            checkpoint,
            ..Spec::default()
        }
    }

    /// The job's settings as somebody edits them. No two computations of an asynchronous job can be compared.
    pub fn edited(&self, edit: Edit) -> Spec {
        let Edit { replicas, verify_millionths, checkpoint_steps } = edit;
        let is_sync = matches!(self.mode, Mode::Sync { .. });
        let verify_millionths = if is_sync { verify_millionths } else { 0 };
        Scenario { replicas, verify_millionths, checkpoint_steps, ..self.clone() }.spec()
    }

    /// The training program.
    pub fn program(&self) -> Program {
        Program {
            block_elements: self.block_elements,
            decisions: self.decisions,
            evaluates: self.evaluations.is_some(),
            tables: self.tables,
            target: self.evaluations.and_then(|evaluations| evaluations.target),
            is_odd: false,
        }
    }

    /// The training program of the trainer that came as `number`th.
    pub fn program_of(&self, number: usize) -> Program {
        let is_odd = self.environment != EnvironmentRule::Same && number % 3 == 1;
        Program { is_odd, ..self.program() }
    }

    /// Records that are evaluated, beyond those that are trained on.
    pub fn evaluated_records(&self) -> u64 {
        self.evaluations.map_or(0, |evaluations| evaluations.records)
    }

    /// The scenario of a seed in an asynchronous job: the same draws, and a window and a scale of its own.
    pub fn drawn_async(seed: u64) -> Scenario {
        let mut random = Random::seeded(key(&[seed, 0xA51C]));
        let staleness_window = [1, 2, 5, 16, 64][random.below(5) as usize];
        let mode = Mode::Async { staleness_window, scale_by_staleness: random.percent(50) };
        let drawn = Scenario::drawn(seed);
        let tables = drawn.tables.map(|tables| tables.without_age());
        Scenario { mode, decisions: None, tables, verify_millionths: 0, record_hashes: 0, ..drawn }
    }

    /// The scenario of a seed: even ones are synchronous jobs, odd ones asynchronous.
    pub fn drawn_both(seed: u64) -> Scenario {
        if seed.is_multiple_of(2) { Scenario::drawn(seed) } else { Scenario::drawn_async(seed) }
    }

    /// One trainer, one pserver, no faults: what every scenario's result must be equal to.
    pub fn quiet(seed: u64) -> Scenario {
        Scenario {
            depth: Depth::Machine,
            seed,
            data: DataSetShape { seed, records: 60, files: 1, chunk_bytes: 200, is_numbered: false },
            epochs: 1,
            microbatch_records: 3,
            microbatches_per_step: 4,
            mode: Mode::SYNC,
            gradients: Precision::F32,
            shuffle_run: 1,
            block_elements: 16,
            decisions: None,
            evaluations: None,
            tables: None,
            window: 64,
            ttl: Duration::from_secs(2),
            pservers: 1,
            replicas: 0,
            poison: None,
            exclude_max: 0,
            environment: EnvironmentRule::Same,
            verify_millionths: 0,
            record_hashes: 0,
            checkpoint_steps: 0,
            checkpoint_memory: u64::MAX,
            trainers: 1,
            paces: vec![Duration::ZERO],
            stuck: None,
            attempt: Duration::from_secs(1),
            weather: Weather::fair(),
            drift_percent: 0,
            has_disk: false,
            faults: Vec::new(),
            healing: When::at(0),
            patience: Duration::ZERO,
        }
    }

    /// The same job, undisturbed.
    pub fn undisturbed(&self) -> Scenario {
        let quiet = Scenario::quiet(self.seed);
        let (trainers, pservers, paces) = (quiet.trainers, quiet.pservers, quiet.paces);
        let (weather, faults, healing) = (quiet.weather, quiet.faults, quiet.healing);
        let (poison, exclude_max) = (None, 0);
        Scenario {
            trainers,
            pservers,
            paces,
            stuck: None,
            poison,
            exclude_max,
            weather,
            drift_percent: 0,
            faults,
            healing,
            ..self.clone()
        }
    }

    /// The record that the trainer that came as `number`th cannot use.
    pub fn poison_of(&self, number: usize) -> Option<u64> {
        self.poison.filter(|poison| !poison.spares || number % 3 != 2).map(|poison| poison.record)
    }

    /// What a microbatch takes the trainer that came as `number`th.
    pub fn pace(&self, number: usize) -> Duration {
        if self.stuck == Some(number) {
            return FOR_EVER;
        }
        self.paces[number % self.paces.len()]
    }
}

/// One of ten jobs has a record that nobody can use, or not everybody.
fn poison(seed: u64, records: u64) -> Option<Poison> {
    let mut random = Random::seeded(key(&[seed, 0xB0150]));
    random.percent(10).then(|| Poison { record: random.below(records), spares: random.percent(50) })
}

/// Half of the jobs decide something, each kind as often as the others.
fn decisions(random: &mut Random) -> Option<Decisions> {
    let clip_norm = Some(0.5).filter(|_| random.percent(60));
    let loss_scale = Some(LossScale { initial: 1024.0, growth_interval: 3 }).filter(|_| random.percent(40));
    let non_finite = match loss_scale.is_some() || random.percent(40) {
        true => NonFinite::Skip { in_a_row_max: 100 },
        false => NonFinite::Fail,
    };
    random.percent(50).then_some(Decisions { clip_norm, non_finite, loss_scale })
}

fn weather(random: &mut Random, ttl: Duration) -> Weather {
    let some = |random: &mut Random, percent: u64, most: u64| match random.percent(percent) {
        true => random.below(most + 1),
        false => 0,
    };
    let delays = [Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(20), ttl / 20];
    Weather {
        loss_percent: some(random, 50, 10),
        duplicate_percent: some(random, 60, 40),
        reset_percent: some(random, 30, 10),
        cancels: random.percent(50),
        delay: delays[random.below(4) as usize],
        late_percent: some(random, 40, 10),
        late: ttl * random.below(4) as u32,
    }
}
