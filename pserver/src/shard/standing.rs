//! How the copies stand, for the master: progress of primaries, progress of followers, admissions asked for.

use super::{Kind, Listener, Shard, Since};
use crate::block::evaluate::EvaluatedBlock;
use crate::block::recorder::Recorder;
use crate::block::{Block, Standing};
use crate::hosting::Changed;
use shoal_runtime::cluster::{
    BlockId, Fill, Incarnation, Ledger, Node, Refusal, StateName, Step, Term, Version,
};
use shoal_runtime::wire::proto;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that one report tells of, beside those that ask for something: about a megabyte, where each stands otherwise.
const REPORT_BLOCKS_MAX: usize = 1 << 15;
/// Bytes of standings after which a report tells of no more blocks: held nodes of large steps are many, and where terms differ they
/// are told once for each. Beside them a report has up to 6 MiB of written pieces, and a message 20 MiB.
const REPORT_BYTES: usize = 8 << 20;

/// How primaries stand, how followers stand, which copies are to be admitted.
pub type Standings = (Vec<proto::BlockProgress>, Vec<proto::CopyProgress>, Vec<proto::Admission>);

/// Blocks by what they have in common; ledgers have no order of their own.
type Primaries = BTreeMap<(Term, Version, Vec<(Step, Vec<Node>)>), Vec<(Ledger, Vec<u32>)>>;

/// What the master has not been told of blocks here.
#[derive(Debug)]
pub struct Untold {
    changed: Listener,
    blocks: BTreeSet<BlockId>,
    /// Blocks that ask for something: they do so until it is granted, in turns where they are many.
    asking: BTreeSet<BlockId>,
    /// Whose turn is next.
    turn: BlockId,
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
        self.blocks.difference(blocks).next().is_some()
    }

    /// Waits until there may be more.
    pub async fn changed(&mut self) {
        self.changed.changed().await;
    }
}

impl Shard {
    /// What is recorded of the blocks here.
    pub fn recorder(&self) -> &Recorder {
        self.settings.recorder()
    }

    /// What the master has to be told: all there is, and from now on what changes.
    pub fn untold(&self) -> Untold {
        let changed = self.changes.listen(Kind::Standing);
        let (blocks, asking) = Default::default();
        let mut untold = Untold { changed, blocks, asking, turn: BlockId(0) };
        untold.forget(self);
        untold
    }

    /// The sums of the evaluation that is to be judged next, as far as they are here and whole.
    pub fn evaluated(&self) -> Result<Vec<proto::EvaluatedBlock>, Refusal> {
        let mut evaluated = Vec::new();
        let hosting = self.hosting();
        for hosted in hosting.iter().flat_map(|hosting| &hosting.metrics) {
            let whole = hosted.read(Block::evaluated)?;
            evaluated.extend(whole.map(|EvaluatedBlock { term, number, sums }| proto::EvaluatedBlock {
                block: hosted.shape.id.0,
                term: term.0,
                number,
                sums,
            }));
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
        let again = untold.asking.range(untold.turn..).chain(untold.asking.range(..untold.turn));
        let again = again.filter(|id| !untold.blocks.contains(id)).take(REPORT_BLOCKS_MAX);
        let those = untold.blocks.iter().take(REPORT_BLOCKS_MAX).chain(again).copied().collect::<Vec<_>>();
        let (mut grouped, mut changed) = (Grouped::default(), Changed::default());
        let (hosting, mut told) = (self.hosting(), BTreeSet::new());
        let first = untold.blocks.len().min(REPORT_BLOCKS_MAX);
        for (at, id) in those.iter().enumerate() {
            if grouped.bytes > REPORT_BYTES {
                break;
            }
            told.insert(*id);
            if untold.asking.remove(id) && at >= first {
                untold.turn = BlockId(id.0.wrapping_add(1));
            }
            let Some(hosted) = hosting.as_ref().and_then(|hosting| hosting.block(*id)) else { continue };
            let (standing, asked) = hosted.with(&mut changed, |block| (block.standing(), asked(block)))?;
            if !asked.is_empty() {
                untold.asking.insert(*id);
            }
            grouped.add(*id, standing, asked);
        }
        self.settle(changed);
        Ok((grouped.into_standings(), told))
    }
}

/// The copies that a primary asks for, and which of them are to take over.
fn asked(block: &mut Block) -> Vec<(Incarnation, Fill, bool)> {
    let asked = block.ask_for().into_iter().map(|(pserver, fill)| (pserver, fill, false));
    let mut asked: Vec<_> = asked.collect();
    asked.extend(block.hand_over().map(|(pserver, fill)| (pserver, fill, true)));
    asked
}

/// Bytes in a message, at most: of a block in a group, of an admission, of a group or a range of a ledger, of a node.
const BLOCK_BYTES: usize = 6;
const ADMISSION_BYTES: usize = 48;
const GROUP_BYTES: usize = 40;
const NODE_BYTES: usize = 16;

fn held_bytes(held: &[(Step, Vec<Node>)]) -> usize {
    held.iter().map(|(_, nodes)| NODE_BYTES * (1 + nodes.len())).sum()
}

/// How copies stand, those that stand alike together.
#[derive(Debug, Default)]
struct Grouped {
    primaries: Primaries,
    followers: BTreeMap<(Fill, Option<StateName>, bool), Vec<u32>>,
    admissions: Vec<proto::Admission>,
    /// About how much they have in a message.
    bytes: usize,
}

impl Grouped {
    fn add(&mut self, block: BlockId, standing: Standing, asked: Vec<(Incarnation, Fill, bool)>) {
        self.bytes += BLOCK_BYTES + ADMISSION_BYTES * asked.len();
        match standing {
            Standing::Primary { term, published, held, ledger } => {
                let of_group = held_bytes(&held) + GROUP_BYTES * (1 + ledger.ranges().count());
                let groups = self.primaries.entry((term, published, held)).or_default();
                match groups.iter_mut().find(|(known, _)| *known == ledger) {
                    Some((_, blocks)) => blocks.push(block.0),
                    None => {
                        self.bytes += of_group;
                        groups.push((ledger, vec![block.0]));
                    }
                }
                let admission = |(pserver, fill, is_heir): (Incarnation, Fill, bool)| {
                    let (block, pserver, fill, term) = (block.0, pserver.0, fill.0, term.0);
                    proto::Admission { block, pserver, fill, term, is_heir }
                };
                self.admissions.extend(asked.into_iter().map(admission));
            }
            Standing::Follower { fill, name, is_broken } => {
                self.bytes += GROUP_BYTES;
                self.followers.entry((fill, name, is_broken)).or_default().push(block.0);
            }
            Standing::Nothing => {}
        }
    }

    fn into_standings(self) -> Standings {
        let primary = |((term, version, held), groups): (_, Vec<(Ledger, Vec<u32>)>)| {
            let held: Vec<proto::HeldStep> = Vec::into_iter(held).map(held_step).collect();
            let (Term(term), Version(version)) = (term, version);
            groups.into_iter().map(move |(ledger, blocks)| {
                let (held, ledger) = (held.clone(), Some((&ledger).into()));
                proto::BlockProgress { blocks, version, held, term, ledger }
            })
        };
        let follower = |((fill, name, is_broken), blocks): ((Fill, Option<StateName>, _), _)| {
            proto::CopyProgress { blocks, fill: fill.0, name: name.map(Into::into), is_broken }
        };
        let progress = self.primaries.into_iter().flat_map(primary).collect();
        (progress, self.followers.into_iter().map(follower).collect(), self.admissions)
    }
}

fn held_step((step, nodes): (Step, Vec<Node>)) -> proto::HeldStep {
    proto::HeldStep { step: step.0, nodes: nodes.into_iter().map(Into::into).collect() }
}
