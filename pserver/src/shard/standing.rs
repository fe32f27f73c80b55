//! How the copies stand, for the master: progress of primaries, progress of followers, admissions asked for.

use super::{Kind, Listener, Shard, Since};
use crate::block::verdicts::EvaluatedBlock;
use crate::block::{Block, Standing};
use crate::hosting::Changed;
use shoal_runtime::cluster::{
    BlockId, Fill, Incarnation, Ledger, Node, Refusal, StateName, Step, Term, Version,
};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that one report tells of, beside those that ask for something: about a megabyte, where each stands otherwise.
const REPORT_BLOCKS_MAX: usize = 1 << 15;

/// Blocks whose primaries stand alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The blocks.
    pub blocks: Vec<BlockId>,
    /// Their term.
    pub term: Term,
    /// What is published.
    pub version: Version,
    /// Synchronous jobs: nodes held, by step and in slot order.
    pub held: Vec<(Step, Vec<Node>)>,
    /// Asynchronous jobs: positions published.
    pub ledger: Ledger,
}

/// Blocks whose copies here follow, and stand alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// The blocks.
    pub blocks: Vec<BlockId>,
    /// Which copies.
    pub fill: Fill,
    /// What they hold, if anything.
    pub name: Option<StateName>,
    /// Whether they need a new fill.
    pub is_broken: bool,
}

/// A copy that a primary asks the master to admit or, once nothing is on its way, to put in its own place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The block.
    pub block: BlockId,
    /// Where the copy is.
    pub pserver: Incarnation,
    /// Which copy it is.
    pub fill: Fill,
    /// Under which term it is asked.
    pub term: Term,
    /// Whether it is to take over.
    pub is_heir: bool,
}

/// How primaries stand, how followers stand, which copies are to be admitted.
pub type Standings = (Vec<Progress>, Vec<CopyProgress>, Vec<Admission>);

/// Blocks by what they have in common; ledgers have no order of their own.
type Primaries = BTreeMap<(Term, Version, Vec<(Step, Vec<Node>)>), Vec<(Ledger, Vec<BlockId>)>>;

/// What the master has not been told of blocks here.
#[derive(Debug)]
pub struct Untold {
    changed: Listener,
    blocks: BTreeSet<BlockId>,
    /// Blocks that ask for something: they do so until it is granted.
    asking: BTreeSet<BlockId>,
}

impl Untold {
    /// The master knows nothing.
    pub fn forget(&mut self, shard: &Shard) {
        let hosting = shard.hosting();
        self.blocks = hosting.iter().flat_map(|hosting| hosting.blocks.keys().copied()).collect();
    }

    /// The master was told of these.
    pub fn told(&mut self, blocks: &BTreeSet<BlockId>) {
        self.blocks.retain(|block| !blocks.contains(block));
    }

    /// Whether there is something to be told of other blocks than these.
    pub fn has_more_than(&self, blocks: &BTreeSet<BlockId>) -> bool {
        self.blocks.len() > blocks.len()
    }

    /// Waits until there may be more.
    pub async fn changed(&mut self) {
        self.changed.changed().await;
    }
}

impl Shard {
    /// What the master has to be told: all there is, and from now on what changes.
    pub fn untold(&self) -> Untold {
        let changed = self.changes.listen(Kind::Standing);
        let mut untold = Untold { changed, blocks: BTreeSet::new(), asking: BTreeSet::new() };
        untold.forget(self);
        untold
    }

    /// The sums of the evaluation that is to be judged next, as far as they are here and whole.
    pub fn evaluated(&self) -> Result<Vec<(BlockId, EvaluatedBlock)>, Refusal> {
        let mut evaluated = Vec::new();
        let hosting = self.hosting();
        for hosted in hosting.iter().flat_map(|hosting| &hosting.metrics) {
            evaluated.extend(hosted.read(Block::evaluated)?.map(|evaluated| (hosted.shape.id, evaluated)));
        }
        Ok(evaluated)
    }

    /// How the copies stand of which the master has to be told, as many as a report holds, and which they are. Copies that are to
    /// be admitted are required from now on.
    pub fn standing(&self, untold: &mut Untold) -> Result<(Standings, BTreeSet<BlockId>), Refusal> {
        match untold.changed.take(&self.changes) {
            Since::Any => untold.forget(self),
            Since::Blocks(blocks) => untold.blocks.extend(blocks),
        }
        let those: BTreeSet<BlockId> = untold.blocks.iter().copied().take(REPORT_BLOCKS_MAX).collect();
        let (mut grouped, mut changed) = (Grouped::default(), Changed::default());
        let hosting = self.hosting();
        for id in those.union(&untold.asking.clone()) {
            untold.asking.remove(id);
            let Some(hosted) = hosting.as_ref().and_then(|hosting| hosting.block(*id)) else { continue };
            let (standing, asked) = hosted.with(&mut changed, |block| (block.standing(), asked(block)))?;
            if !asked.is_empty() {
                untold.asking.insert(*id);
            }
            grouped.add(*id, standing, asked);
        }
        self.settle(changed);
        Ok((grouped.into_standings(), those))
    }
}

/// The copies that a primary asks for, and which of them are to take over.
fn asked(block: &mut Block) -> Vec<(Incarnation, Fill, bool)> {
    let asked = block.ask_for().into_iter().map(|(pserver, fill)| (pserver, fill, false));
    let mut asked: Vec<_> = asked.collect();
    asked.extend(block.hand_over().map(|(pserver, fill)| (pserver, fill, true)));
    asked
}

/// How copies stand, those that stand alike together.
#[derive(Debug, Default)]
struct Grouped {
    primaries: Primaries,
    followers: BTreeMap<(Fill, Option<StateName>, bool), Vec<BlockId>>,
    admissions: Vec<Admission>,
}

impl Grouped {
    fn add(&mut self, block: BlockId, standing: Standing, asked: Vec<(Incarnation, Fill, bool)>) {
        match standing {
            Standing::Primary { term, published, held, ledger } => {
                let groups = self.primaries.entry((term, published, held)).or_default();
                match groups.iter_mut().find(|(known, _)| *known == ledger) {
                    Some((_, blocks)) => blocks.push(block),
                    None => groups.push((ledger, vec![block])),
                }
                let admission = |(pserver, fill, is_heir)| Admission { block, pserver, fill, term, is_heir };
                self.admissions.extend(asked.into_iter().map(admission));
            }
            Standing::Follower { fill, name, is_broken } => {
                self.followers.entry((fill, name, is_broken)).or_default().push(block);
            }
            Standing::Nothing => {}
        }
    }

    fn into_standings(self) -> Standings {
        let primary = |((term, version, held), groups): (_, Vec<(Ledger, Vec<BlockId>)>)| {
            let held: Vec<(Step, Vec<Node>)> = held;
            let group =
                move |(ledger, blocks)| Progress { blocks, term, version, held: held.clone(), ledger };
            groups.into_iter().map(group)
        };
        let follower = |((fill, name, is_broken), blocks)| CopyProgress { blocks, fill, name, is_broken };
        let progress = self.primaries.into_iter().flat_map(primary).collect();
        (progress, self.followers.into_iter().map(follower).collect(), self.admissions)
    }
}
