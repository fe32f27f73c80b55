//! How the copies stand, for the master: progress of primaries, progress of followers, admissions asked for.

use super::Shard;
use crate::block::Standing;
use crate::block::verdicts::EvaluatedBlock;
use shoal_runtime::cluster::{
    BlockId, Fill, Incarnation, Ledger, Node, Refusal, StateName, Step, Term, Version,
};
use std::collections::BTreeMap;

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

impl Shard {
    /// The sums of the evaluation that is to be judged next, as far as they are here and whole.
    pub fn evaluated(&self) -> Result<Vec<(BlockId, EvaluatedBlock)>, Refusal> {
        let mut evaluated = Vec::new();
        let hosting = self.hosting();
        for (id, hosted) in hosting.iter().flat_map(|hosting| &hosting.blocks) {
            if hosted.shape.is_metric {
                evaluated.extend(hosted.lock()?.evaluated().map(|evaluated| (*id, evaluated)));
            }
        }
        Ok(evaluated)
    }

    /// How the copies stand, grouped, and which are to be admitted. Those are required from now on.
    pub fn standing(&self) -> Result<Standings, Refusal> {
        let mut primaries = Primaries::new();
        let mut followers: BTreeMap<(Fill, Option<StateName>, bool), Vec<BlockId>> = BTreeMap::new();
        let mut admissions = Vec::new();
        let hosting = self.hosting();
        for (id, hosted) in hosting.iter().flat_map(|hosting| &hosting.blocks) {
            let mut block = hosted.lock()?;
            match block.standing() {
                Standing::Primary { term, published, held, ledger } => {
                    let groups = primaries.entry((term, published, held)).or_default();
                    match groups.iter_mut().find(|(known, _)| *known == ledger) {
                        Some((_, blocks)) => blocks.push(*id),
                        None => groups.push((ledger, vec![*id])),
                    }
                    let asked = block.ask_for().into_iter().map(|asked| (asked, false));
                    let asked = asked.chain(block.hand_over().map(|heir| (heir, true)));
                    admissions.extend(asked.map(|((pserver, fill), is_heir)| Admission {
                        block: *id,
                        pserver,
                        fill,
                        term,
                        is_heir,
                    }));
                }
                Standing::Follower { fill, name, is_broken } => {
                    followers.entry((fill, name, is_broken)).or_default().push(*id);
                }
                Standing::Nothing => {}
            }
        }
        let primary = |((term, version, held), groups): (_, Vec<(Ledger, Vec<BlockId>)>)| {
            let held: Vec<(Step, Vec<Node>)> = held;
            let group =
                move |(ledger, blocks)| Progress { blocks, term, version, held: held.clone(), ledger };
            groups.into_iter().map(group)
        };
        let follower = |((fill, name, is_broken), blocks)| CopyProgress { blocks, fill, name, is_broken };
        let progress = primaries.into_iter().flat_map(primary).collect();
        Ok((progress, followers.into_iter().map(follower).collect(), admissions))
    }
}
