//! What directed tests share: a job set up by hand, questions to its document, counters of what was met. It must never
//! draw anything at random.

use super::call::Call;
use super::evidence::Evidence;
use super::hand::Hand;
use super::host::Host;
use super::invariants;
use super::observer::Observer;
use super::scenario::Scenario;
use super::world::{MASTER, World};
use shoal_master::document::{Document, Mark, PlacedBlock};
use shoal_runtime::cluster::{BlockId, Incarnation, Node};
use shoal_runtime::host::store::Store;
use shoal_runtime::wire::proto::{self, PushAnswer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A job with somebody who looks at it.
#[derive(Debug)]
pub struct Stage {
    /// The job.
    pub world: World,
    /// Who looks.
    pub observer: Observer,
}

/// The first pserver, where it answers.
pub const FIRST: &str = "pserver-1";
/// The second.
pub const SECOND: &str = "pserver-2";
/// The third.
pub const THIRD: &str = "pserver-3";
/// The root of a step of [`Scenario::quiet`].
pub const ROOT: Node = Node { level: 2, index: 0 };

/// How long anything that must come about may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(5);

impl Stage {
    /// A master and pservers; trainers are still to come.
    pub fn set(scenario: Scenario) -> Stage {
        Stage::of(World::start(scenario, true))
    }

    /// Four microbatches a step, five steps, nothing lost.
    pub fn quiet(pservers: u32, replicas: u32) -> Stage {
        Stage::set(Scenario { pservers, replicas, ..Scenario::quiet(7) })
    }

    /// Over a world that was started otherwise.
    pub fn of(world: World) -> Stage {
        let observer = Observer::new(&world.network);
        Stage { world, observer }
    }

    /// A pserver's present life.
    pub fn host(&self, address: &str) -> Arc<Host> {
        let mut lives =
            self.world.pservers.iter().filter(|host| host.name.split('#').next() == Some(address));
        Arc::clone(lives.next_back().expect("a pserver of this name was started"))
    }

    /// Kills a pserver and, once the master knows, starts another in its place.
    pub async fn replace(&mut self, lost: &str, by: &str) {
        self.host(lost).crash();
        let is_lost = |pserver: &proto::PserverStatus| pserver.address == lost && pserver.lost;
        self.until_status("the loss is noticed", |status| status.pservers.iter().any(is_lost)).await;
        self.world.start_pserver(by);
    }

    /// A trainer with the simulation's program.
    pub fn trainer(&mut self, name: &str, pace: Duration) -> usize {
        let program = self.world.scenario.program();
        self.world.start_trainer_with(name, pace, program)
    }

    /// A trainer moved by hand, once every copy that is wanted is in-sync.
    pub async fn hand(&self, name: &str) -> Hand {
        let mut hand = Hand::join(&self.world, name, 1).await.expect("the declaration is the program's");
        self.until("all copies are in-sync", |document| document.is_level()).await;
        hand.look_again().await.expect("the master answers");
        hand
    }

    /// The document as the store has it.
    pub async fn document(&self) -> Document {
        self.document_if_any().await.expect("the master was elected")
    }

    async fn document_if_any(&self) -> Option<Document> {
        let (_, bytes) = self.world.store.load().await.expect("a store in memory")?;
        Some(Document::from_bytes(&bytes).expect("the master writes what it reads"))
    }

    /// Waits until the document is so.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Document) -> bool) -> Document {
        let began = Instant::now();
        loop {
            let document = self.document_if_any().await;
            if let Some(document) = document.clone().filter(&is_so) {
                return document;
            }
            let lines = || self.world.network.trace().lines().join("\n");
            assert!(began.elapsed() < PATIENCE, "{what}: never; {document:?}\n{}", lines());
            sleep(GLANCE).await;
        }
    }

    /// Waits until the master says so.
    pub async fn until_status(&self, what: &str, is_so: impl Fn(&proto::StatusReply) -> bool) {
        let began = Instant::now();
        while !self.observer.status().await.is_some_and(|status| is_so(&status)) {
            let lines = || self.world.network.trace().lines().join("\n");
            assert!(began.elapsed() < PATIENCE, "{what}: never\n{}", lines());
            sleep(GLANCE).await;
        }
    }

    /// Counts requests that arrive.
    pub fn count(&self, mut which: impl FnMut(&Call) -> bool + Send + 'static) -> Count {
        let count = Count::default();
        let counter = Arc::clone(&count.0);
        self.world.network.witness(move |call| {
            counter.fetch_add(u64::from(which(call)), Relaxed);
        });
        count
    }

    /// While the switch is on, requests like these are lost.
    pub fn lose(&self, which: impl Fn(&Call) -> bool + Send + 'static) -> Switch {
        let switch = Switch::default();
        let is_on = Arc::clone(&switch.0);
        self.world.network.intercept(move |call, fate| {
            if is_on.load(Relaxed) && which(call) {
                *fate = fate.clone().request_lost();
            }
        });
        switch
    }

    /// Cuts two hosts off from one another, both ways.
    pub fn part(&self, one: &str, other: &str) {
        self.world.network.cut(one, other);
        self.world.network.cut(other, one);
    }
    /// Undoes [`part`](Self::part).
    pub fn join(&self, one: &str, other: &str) {
        self.world.network.mend(one, other);
        self.world.network.mend(other, one);
    }
    /// The master's words no longer reach a pserver; its own still reach the master.
    pub fn deafen(&self, pserver: &str) {
        self.world.network.cut(MASTER, pserver);
    }
    /// Undoes [`deafen`](Self::deafen).
    pub fn undeafen(&self, pserver: &str) {
        self.world.network.mend(MASTER, pserver);
    }

    /// Waits for the end of the job; all invariants must hold.
    pub async fn finished(self) -> Evidence {
        let evidence = Evidence::when_over(self.world, &self.observer, PATIENCE).await;
        let violations = invariants::check(&evidence);
        assert!(violations.is_empty(), "{violations:#?}\n{}", evidence.trace.lines().join("\n"));
        evidence
    }
}

/// How often something was met.
#[derive(Clone, Debug, Default)]
pub struct Count(pub Arc<AtomicU64>);

impl Count {
    /// So far.
    pub fn so_far(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Turned on and off by hand; off at first.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// On.
    pub fn on(&self) {
        self.0.store(true, Relaxed);
    }
    /// Returns true while it is on.
    pub fn is_on(&self) -> bool {
        self.0.load(Relaxed)
    }
    /// Off.
    pub fn off(&self) {
        self.0.store(false, Relaxed);
    }
}

/// What directed tests ask of a document.
pub trait Asked {
    /// Whether every block has as many in-sync copies as are wanted.
    fn is_level(&self) -> bool;
    /// The pserver that answers at an address, if copies are there.
    fn at(&self, address: &str) -> Option<Incarnation>;
    /// Where a block's primary answers.
    fn primary_of(&self, block: BlockId) -> &str;
    /// Blocks that a pserver leads.
    fn led_by(&self, address: &str) -> Vec<BlockId>;
    /// Marks of the copies that a pserver has and does not lead.
    fn marks_at(&self, address: &str) -> Vec<Mark>;
}

impl Asked for Document {
    fn is_level(&self) -> bool {
        let wanted = 1 + self.wanted.replicas as usize;
        !self.blocks.is_empty() && self.blocks.iter().all(|block| block.in_sync().count() == wanted)
    }
    fn at(&self, address: &str) -> Option<Incarnation> {
        self.pservers.iter().filter(|(_, at)| at.address == address).map(|(who, _)| *who).next_back()
    }
    fn primary_of(&self, block: BlockId) -> &str {
        let primary = self.blocks[block.0 as usize].primary;
        self.pservers.get(&primary).map_or("", |at| at.address.as_str())
    }
    fn led_by(&self, address: &str) -> Vec<BlockId> {
        let all = (0..self.blocks.len() as u32).map(BlockId);
        all.filter(|block| self.primary_of(*block) == address).collect()
    }
    fn marks_at(&self, address: &str) -> Vec<Mark> {
        let Some(who) = self.at(address) else { return Vec::new() };
        let followed = |block: &PlacedBlock| block.copy_on(who).filter(|_| block.primary != who).copied();
        self.blocks.iter().filter_map(followed).map(|copy| copy.mark).collect()
    }
}

/// Whether blocks answered all alike.
pub fn all(answers: &[PushAnswer], expected: PushAnswer) -> bool {
    !answers.is_empty() && answers.iter().all(|answer| *answer == expected)
}

/// How often the job has gone back.
pub fn rewinds(evidence: &Evidence) -> Option<u64> {
    evidence.status.as_ref().map(|status| status.rewind)
}

/// For short.
pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
