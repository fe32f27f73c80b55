//! What happens to a job's members, disks and links, and how a seed draws it: what happens, and how far the job has come
//! by then. By time alone most of it would meet jobs that have not done a step yet, for how long a step takes under
//! faults is anybody's guess.

use super::scenario::Scenario;
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::store::{DiskFault, SwapFault};
use std::io::ErrorKind;
use std::time::Duration;

/// Something that happens. Whom it happens to is drawn as any number, and taken modulo those there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A trainer is killed.
    Crash(u64),
    /// A trainer stands still.
    Pause(u64, Duration),
    /// A trainer is asked to leave.
    Leave(u64),
    /// A trainer joins under a new name.
    Join,
    /// A trainer joins under the name of one that there was.
    JoinAs(u64),
    /// A pserver stands still.
    PausePserver(u64, Duration),
    /// The master stands still.
    PauseMaster(Duration),
    /// A pserver is killed; after a while another takes its place, under its name or under a new one.
    CrashPserver(u64, Duration),
    /// The master is killed, and after a while started again.
    CrashMaster(Duration),
    /// So many pservers are wanted from now on.
    ScalePservers(u32),
    /// The job's live settings are others from now on.
    Edit(Edit),
    /// A pserver is to be replaced by another.
    MigratePserver(u64),
    /// What one member sends to another is lost.
    Cut(u64, u64, Duration),
    /// Two members do not hear from each other.
    Part(u64, u64, Duration),
    /// A member hears from nobody, and nobody from it.
    Isolate(u64, Duration),
    /// Whatever a member does takes so much longer.
    Slow(u64, Duration, Duration),
    /// The master's machine loses its power, and what its disk had not synced; after a while it is back.
    CutPower(Duration),
    /// The master's disk has a fault at the so-manieth step from now on. Where it dies, so does the machine, or only the process.
    Disk(usize, DiskFault, bool),
    /// Whatever the master's disk does takes so long.
    StallDisk(Duration, Duration),
    /// The next swap of a store that is no disk has a fault.
    Swap(SwapFault),
    /// The master loses its leadership, as a lease that ran out would take it.
    Depose,
    /// The place of checkpoints does not answer.
    SilencePlace(Duration),
    /// Each change of the place of checkpoints takes so long.
    SlowPlace(Duration, Duration),
    /// The place of checkpoints is full.
    FillPlace(Duration),
    /// An object of a checkpoint is not what it was.
    Rot(u64),
}

/// Live settings as somebody edits them; the others stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Copies of each block beside its primary.
    pub replicas: u32,
    /// Of so many of a million microbatches two computations are compared.
    pub verify_millionths: u32,
    /// Steps between two checkpoints; 0 for none but the last.
    pub checkpoint_steps: u64,
}

/// When something happens: so long after the job has come so far. A job that does not come so far is not waited for: it
/// counts as half way once half of the scenario's patience is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct When {
    /// Thousandths of the whole job that are done.
    pub permille: u64,
    /// From then on.
    pub later: Duration,
}

impl When {
    /// As soon as so many thousandths of the job are done.
    pub fn at(permille: u64) -> When {
        When { permille, later: Duration::ZERO }
    }
    /// Any time between the beginning and the end.
    fn any(random: &mut Random) -> When {
        When::at(random.below(1000))
    }
    fn and(self, later: Duration) -> When {
        When { later, ..self }
    }
}

/// A length of time between nothing and `whole`.
fn span(random: &mut Random, whole: Duration) -> Duration {
    whole * random.below(1001) as u32 / 1000
}

/// The faults of a scenario in order, and when it heals: after the last of them.
pub(super) fn drawn(scenario: &Scenario, random: &mut Random) -> (Vec<(When, Fault)>, When) {
    let mut faults = members(scenario, random);
    let healing = When::any(random).and(span(random, scenario.ttl));
    // From seeds of their own, so that what members meet does not depend on what else there is.
    let stream = |number: u64| Random::seeded(key(&[scenario.seed, 0xD15C, number]));
    faults.extend(links(scenario, &mut stream(1)));
    faults.extend(stores(scenario, &mut stream(2)));
    faults.extend(places(scenario, &mut stream(3)));
    faults.extend(churn(&mut stream(4)));
    faults.extend(disasters(scenario, &mut stream(5)));
    faults.extend(edits(&mut stream(6)));
    faults.sort_by_key(|(when, _)| *when);
    let last = faults.iter().map(|(when, _)| *when).max();
    (faults, last.map_or(healing, |last| last.max(healing)))
}

/// Pservers that may be wanted.
const PSERVERS_MAX: u32 = 5;

/// What happens to processes. Each seed draws which kinds it knows.
fn members(scenario: &Scenario, random: &mut Random) -> Vec<(When, Fault)> {
    let kinds: Vec<u64> = (0..12).filter(|_| random.percent(40)).collect();
    let count = if kinds.is_empty() { 0 } else { random.below(9) };
    // Pservers and the master are never away for as long as the master's patience with pservers.
    let mut away_left = scenario.ttl * 6;
    let mut faults = Vec::new();
    for _ in 0..count {
        let at = When::any(random);
        let (who, other) = (random.bits(), random.bits());
        let long = span(random, scenario.ttl * 3);
        let short = span(random, scenario.ttl * 3).min(away_left);
        let fault = match kinds[random.below(kinds.len() as u64) as usize] {
            0 => Fault::Crash(who),
            1 => Fault::Pause(who, long),
            2 => Fault::Leave(who),
            3 => Fault::Join,
            4 => Fault::JoinAs(who),
            5 => Fault::PausePserver(who, short),
            6 => Fault::PauseMaster(short),
            7 => Fault::CrashPserver(who, long),
            8 => Fault::CrashMaster(short),
            9 => Fault::ScalePservers(1 + (who % u64::from(PSERVERS_MAX)) as u32),
            10 => Fault::MigratePserver(who),
            _ => Fault::Cut(who, other, short),
        };
        if matches!(fault, Fault::PausePserver(..) | Fault::PauseMaster(_) | Fault::Cut(..)) {
            away_left -= short;
        }
        faults.push((at, fault));
    }
    faults
}

/// What happens to links and machines: in a third of the scenarios.
fn links(scenario: &Scenario, random: &mut Random) -> Vec<(When, Fault)> {
    let count = if random.percent(33) { 1 + random.below(5) } else { 0 };
    let mut faults = Vec::new();
    for _ in 0..count {
        let at = When::any(random);
        let (who, other) = (random.bits(), random.bits());
        let long = span(random, scenario.ttl * 4);
        faults.push(match random.below(3) {
            0 => (at, Fault::Part(who, other, long)),
            1 => (at, Fault::Isolate(who, long)),
            _ => (at, Fault::Slow(who, span(random, scenario.ttl / 4), long)),
        });
    }
    faults
}

/// What happens to the master's durable memory: in half of the scenarios.
fn stores(scenario: &Scenario, random: &mut Random) -> Vec<(When, Fault)> {
    let count = if random.percent(50) { 1 + random.below(4) } else { 0 };
    let mut faults = Vec::new();
    for _ in 0..count {
        let (at, away) = (When::any(random), span(random, scenario.ttl * 2));
        let kind = random.below(if scenario.has_disk { 4 } else { 3 });
        let fault = match (scenario.has_disk, kind) {
            (true, 0) => Fault::CutPower(away),
            (true, 1) => {
                let dies = if random.percent(50) { DiskFault::Dies } else { DiskFault::DiesHalfway };
                Fault::Disk(random.below(12) as usize, dies, random.percent(60))
            }
            (true, 2) => {
                let kind = if random.percent(50) { ErrorKind::StorageFull } else { ErrorKind::Other };
                Fault::Disk(random.below(12) as usize, DiskFault::Refuses(kind), false)
            }
            (true, _) => Fault::StallDisk(span(random, scenario.ttl * 3), away),
            (false, 0) => Fault::Depose,
            (false, _) => {
                let faults = [SwapFault::NotApplied, SwapFault::AnswerLost, SwapFault::AppliedLate];
                Fault::Swap(faults[random.below(3) as usize])
            }
        };
        faults.push((at, fault));
    }
    faults
}

/// What happens to checkpoints: in a third of the scenarios.
fn places(scenario: &Scenario, random: &mut Random) -> Vec<(When, Fault)> {
    let count = if random.percent(33) { 1 + random.below(4) } else { 0 };
    let mut faults = Vec::new();
    for _ in 0..count {
        let (at, long) = (When::any(random), span(random, scenario.ttl * 3));
        faults.push(match random.below(4) {
            0 => (at, Fault::SilencePlace(long)),
            1 => (at, Fault::SlowPlace(span(random, scenario.ttl), long)),
            2 => (at, Fault::FillPlace(long)),
            _ => (at, Fault::Rot(random.bits())),
        });
    }
    faults
}

/// Trainers that come and go by the hundred: in one of fifty scenarios.
fn churn(random: &mut Random) -> Vec<(When, Fault)> {
    let count = if random.percent(2) { 100 + random.below(100) } else { 0 };
    let event = |random: &mut Random| match random.below(8) {
        0 | 1 => Fault::Crash(random.bits()),
        2 => Fault::Leave(random.bits()),
        3 => Fault::JoinAs(random.bits()),
        _ => Fault::Join,
    };
    (0..count).map(|_| (When::any(random), event(random))).collect()
}

/// Pservers that are killed one right after another, as a rack's are, so that those that have just taken over are lost as
/// well: in a quarter of the scenarios. A checkpoint may have been damaged before, which only shows when it is needed.
fn disasters(scenario: &Scenario, random: &mut Random) -> Vec<(When, Fault)> {
    let count = if random.percent(25) { 1 + random.below(2) } else { 0 };
    let mut faults = Vec::new();
    for _ in 0..count {
        let at = When::any(random);
        if random.percent(40) {
            faults.push((at, Fault::Rot(random.bits())));
        }
        for _ in 0..=random.below(3) {
            let crash = Fault::CrashPserver(random.bits(), span(random, scenario.ttl));
            faults.push((at.and(span(random, scenario.ttl / 2)), crash));
        }
    }
    faults
}

/// Edits of settings while the job lives: in a quarter of the scenarios.
fn edits(random: &mut Random) -> Vec<(When, Fault)> {
    let count = if random.percent(25) { 1 + random.below(3) } else { 0 };
    let edit = |random: &mut Random| Edit {
        replicas: random.below(3) as u32,
        verify_millionths: [0, 200_000, 1_000_000][random.below(3) as usize],
        checkpoint_steps: random.below(5),
    };
    (0..count).map(|_| (When::any(random), Fault::Edit(edit(random)))).collect()
}
