//! A job for tests: its machine, and a keeper that adopts whatever is decided at once.

use super::*;
use crate::document::{PlacedBlock, Wanted};
pub(super) use crate::fixture::*;
use shoal_runtime::cluster::block_copy::WHOLE;
use shoal_runtime::cluster::checkpoint::{FileRecord, WrittenFile};
use shoal_runtime::cluster::{ManifestRecord, PieceRef, StateName};
use std::ops::{Deref, DerefMut};

/// Decides and adopts until there is nothing left to decide, as the keeper does.
pub(super) fn settle(machine: &mut Machine, now: Duration) {
    let mut rounds = 0;
    loop {
        while let Some(document) = machine.decide(now) {
            machine.adopt(document, now);
            rounds += 1;
            assert!(rounds < 100, "never comes to rest: {:?}", machine.document());
        }
        if !write_checkpoint(machine, now) {
            return;
        }
    }
}

/// The pservers write the checkpoint under way, if all blocks are at its version, and the keeper its manifest.
pub(crate) fn write_checkpoint(machine: &mut Machine, now: Duration) -> bool {
    if !write_pieces(machine) {
        return false;
    }
    let manifest = machine.checkpoint_to_commit().expect("every block is written");
    let record = ManifestRecord { checkpoint: manifest.checkpoint, bytes: 1, crc32: 1 };
    machine.committed(record, &manifest, now);
    true
}

/// The pservers write the checkpoint under way, if all blocks are at its version.
pub(super) fn write_pieces(machine: &mut Machine) -> bool {
    let front = machine.job.as_ref().and_then(|job| job.reports.lowest_version());
    let Some(named) = machine.document.named.filter(|named| front == Some(named.version)) else {
        return false;
    };
    let layout = Layout::new(machine.declaration().expect("a checkpoint is named"));
    let is_bucket = |at: u64| layout.block(BlockId(at as u32)).is_some_and(|block| block.bucket.is_some());
    let piece = |(at, block): (u64, &PlacedBlock)| PieceRef {
        block: BlockId(at as u32),
        rewind: block.rewind,
        name: StateName { term: block.term, version: named.version },
        slots: WHOLE,
        is_delta: named.since.is_some() && is_bucket(at),
        file: 0,
        offset: 1000 * (at + 1),
        bytes: 100,
        crc32: 0,
    };
    let pieces: Vec<PieceRef> = (0..).zip(&machine.document.blocks).map(piece).collect();
    let file = FileRecord {
        checkpoint: named.checkpoint,
        name: String::from("pserver-1.1-1.blocks"),
        bytes: 1000 * (pieces.len() as u64 + 2),
        crc32: 0,
    };
    machine.hear_of_checkpoint(named.checkpoint.0, vec![WrittenFile { file, pieces }], &[], false);
    true
}

/// A machine and its keeper. Its calls leave out what most scenarios do not care about.
pub(super) struct Job {
    pub(super) machine: Machine,
    /// How many reports were made.
    reports: u64,
}

impl Deref for Job {
    type Target = Machine;
    fn deref(&self) -> &Machine {
        &self.machine
    }
}
impl DerefMut for Job {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }
}

impl Job {
    /// The master elected first for this job.
    pub(super) fn new(settings: JobSettings, pservers: u32, replicas: u32) -> Job {
        let manifest = manifest(settings.records);
        let document =
            Document::new(settings, Wanted { pservers, trainers: 2, replicas, exclude_max: 0 }).elected("m1");
        Job {
            machine: Machine::new(document, manifest, at_the_end(), String::from("here"), at(0)),
            reports: 0,
        }
    }
    /// Another master is elected with what the store holds.
    pub(super) fn restart(&mut self, master: &str, millis: u64) {
        let manifest = manifest(self.settings().records);
        let document = self.document().clone().elected(master);
        self.machine = Machine::new(document, manifest, at_the_end(), String::from("here"), at(millis));
        self.settle(millis);
    }
    pub(super) fn settle(&mut self, millis: u64) {
        settle(&mut self.machine, at(millis));
    }
    /// Time passes until `millis`.
    pub(super) fn pass(&mut self, millis: u64) {
        self.machine.tick(at(millis));
        self.settle(millis);
    }

    pub(super) fn pserver(&mut self, name: &str, nonce: u64, millis: u64) -> Result<Incarnation, Refusal> {
        let registered = self.machine.register(name, &format!("{name}:7000"), nonce, 1, None, at(millis));
        self.settle(millis);
        registered
    }
    pub(super) fn trainer(&mut self, name: &str, nonce: u64, millis: u64) -> Result<Incarnation, Refusal> {
        let joined = self.machine.join(name, nonce, 1, declaration(), None, at(millis));
        self.settle(millis);
        joined.map(|(incarnation, _)| incarnation)
    }
    pub(super) fn call(
        &mut self,
        trainer: Incarnation,
        call: u64,
        progress: &[Progress],
        millis: u64,
    ) -> LeaseOutcome {
        let word = TrainerWord { call, ..TrainerWord::default() };
        match self.hear_trainer(trainer, word, progress, &[], at(millis)) {
            Ok(true) => self.lease(trainer, call, 1, at(millis)),
            Ok(false) => LeaseOutcome::Overtaken,
            Err(refusal) => panic!("{refusal}"),
        }
    }
    pub(super) fn bye(&mut self, trainer: Incarnation, failure: &str, millis: u64) -> Result<(), Refusal> {
        let left = self.machine.leave(trainer, &[], TrainerCounters::default(), failure, &[], at(millis));
        self.settle(millis);
        left
    }

    /// The next report of a pserver arrives; the keeper is busy.
    pub(super) fn hear(
        &mut self,
        pserver: Incarnation,
        word: PserverWord,
        millis: u64,
    ) -> Result<(), Refusal> {
        self.reports += 1;
        self.machine.report(pserver, PserverWord { call: self.reports, ..word }, at(millis))
    }
    /// The next report of a pserver.
    pub(super) fn report(
        &mut self,
        pserver: Incarnation,
        word: PserverWord,
        millis: u64,
    ) -> Result<(), Refusal> {
        let heard = self.hear(pserver, word, millis);
        self.settle(millis);
        heard
    }
    /// What a pserver says whose blocks all stand at `version`.
    pub(super) fn word(&self, pserver: Incarnation, version: u64) -> PserverWord {
        PserverWord { progress: self.standing(pserver, version), ..PserverWord::default() }
    }
    pub(super) fn say(&mut self, pserver: Incarnation, progress: Vec<BlockProgress>, millis: u64) {
        self.report(pserver, PserverWord { progress, ..PserverWord::default() }, millis).unwrap();
    }
    pub(super) fn blocks_of(&self, pserver: Incarnation) -> Vec<BlockId> {
        let blocks = self.document().blocks.iter().zip(0..);
        blocks.filter(|(block, _)| block.primary == pserver).map(|(_, at)| BlockId(at)).collect()
    }
    /// What a pserver says of the blocks it leads, if all stand at `version`.
    pub(super) fn standing(&self, pserver: Incarnation, version: u64) -> Vec<BlockProgress> {
        let word = |id: BlockId| progress(id.0, self.document().blocks[id.0 as usize].term, version);
        self.blocks_of(pserver).into_iter().map(word).collect()
    }
    /// One pserver says that all of its blocks stand at `version`.
    pub(super) fn publish(&mut self, pserver: Incarnation, version: u64, millis: u64) {
        let said = self.standing(pserver, version);
        self.say(pserver, said, millis);
    }
    /// Primaries ask for every filling copy to be in-sync and for every heir to take over, until there is none.
    pub(super) fn level(&mut self, millis: u64) {
        for _ in 0..20 {
            let asked: Vec<Admission> = self
                .document()
                .blocks
                .iter()
                .zip(0..)
                .flat_map(|(block, id)| asked_for(block, BlockId(id)))
                .collect();
            if asked.is_empty() {
                return;
            }
            for admission in asked {
                let word = PserverWord { admissions: vec![admission], ..PserverWord::default() };
                self.report(admission.primary, word, millis).unwrap();
            }
        }
        panic!("never level: {:?}", self.document());
    }
    pub(super) fn publish_everywhere(&mut self, version: u64, millis: u64) {
        let pservers: Vec<Incarnation> = self.pservers.live().map(|(incarnation, _)| incarnation).collect();
        for pserver in pservers {
            self.publish(pserver, version, millis);
        }
    }
}

/// A job in training with one follower of every block, all of them in-sync.
pub(super) fn copied(pservers: u32) -> (Job, Vec<Incarnation>, Incarnation) {
    let mut job = Job::new(settings(64, 2, 8, 2), pservers, 1);
    let hosts: Vec<Incarnation> =
        (0..pservers).map(|n| job.pserver(&format!("p{n}"), 1, 0).unwrap()).collect();
    let trainer = job.trainer("a", 1, 0).unwrap();
    job.level(0);
    job.publish_everywhere(0, 0);
    (job, hosts, trainer)
}

/// A block's primary under `term` has published `version`, and holds nothing beyond it.
pub(super) fn progress(block: u32, term: Term, version: u64) -> BlockProgress {
    let (blocks, version) = (vec![BlockId(block)], Version(version));
    BlockProgress { blocks, term, version, held: vec![], ledger: Ledger::default() }
}

/// Two epochs of four steps of eight microbatches, waiting for so many pservers.
pub(super) fn waiting(pservers: u32) -> Job {
    Job::new(settings(64, 2, 8, 2), pservers, 0)
}

/// A job in training: two pservers that have told how they stand, one trainer `a` that has asked for nothing yet.
pub(super) fn training() -> (Job, [Incarnation; 2], Incarnation) {
    let mut job = waiting(2);
    let pservers = [job.pserver("p0", 1, 0).unwrap(), job.pserver("p1", 1, 0).unwrap()];
    let trainer = job.trainer("a", 1, 0).unwrap();
    job.publish_everywhere(0, 0);
    (job, pservers, trainer)
}

/// What a primary asks for, with everything level.
fn asked_for(block: &PlacedBlock, id: BlockId) -> Vec<Admission> {
    let others = block.copies.iter().filter(|copy| copy.pserver != block.primary);
    let asked = others.map(|copy| Admission {
        block: id,
        pserver: copy.pserver,
        fill: copy.fill,
        term: block.term,
        primary: block.primary,
        is_heir: block.heir == Some(copy.pserver),
    });
    asked
        .filter(|asked| {
            asked.is_heir || block.copy_on(asked.pserver).is_some_and(|copy| copy.mark == Mark::Filling)
        })
        .collect()
}

pub(super) fn digest(machine: &Machine) -> String {
    format!("{machine:?}")
}

pub(super) fn only_task(outcome: LeaseOutcome) -> Task {
    match outcome {
        LeaseOutcome::Tasks(mut tasks) if tasks.len() == 1 => tasks.remove(0),
        other => panic!("expected one task, got {other:?}"),
    }
}
/// Step, node and history of a synchronous task.
pub(super) fn work(task: &Task) -> (Step, Node, Rewind) {
    match task.work {
        Work::Node { step, node, rewind } => (step, node, rewind),
        Work::Run { .. } => panic!("a task of an asynchronous job: {task:?}"),
    }
}
pub(super) fn step(task: &Task) -> Step {
    work(task).0
}
pub(super) fn knows(task: &Task) -> Progress {
    Progress { lease: task.lease, microbatches: 0, pushed: false, waits: false }
}
pub(super) fn node(level: u8, index: u32) -> Node {
    Node { level, index }
}
