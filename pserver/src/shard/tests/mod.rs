//! The shard over several blocks. This file has what these tests share; it tests nothing.

mod areas;
mod assignments;
mod busy_device;
mod copies;
mod door;
mod news;
mod positions;
mod pulls;
mod pushes;
mod refused;
mod sizes;
pub(crate) mod threads;

use super::*;
use crate::block::evaluate::Verdicts;
use crate::block::tests::{ME, alone, declaration, job};
use crate::block::{Placement, PushOutcome};
use futures_util::FutureExt;
use shoal_runtime::cluster::{Node, Rewind};
use shoal_runtime::wire::proto;

const ROOT: Node = Node { level: 1, index: 0 };

/// What a pserver without followers is to hold: these blocks, all added and restored at routing version 3.
pub(crate) fn assignment(routing_version: u64, blocks: &[u32]) -> Assignment {
    assigned(1, routing_version, blocks.iter().map(|block| (*block, alone(3))))
}

pub(crate) fn assigned(
    master_term: u32,
    routing_version: u64,
    blocks: impl IntoIterator<Item = (u32, Placement)>,
) -> Assignment {
    Assignment {
        master_term,
        routing_version,
        declaration: declaration(),
        blocks: blocks.into_iter().map(|(block, placement)| (BlockId(block), placement)).collect(),
        pservers: Vec::new(),
        may_leave: false,
        is_over: false,
        checkpoint: None,
        scalars: None,
        exclusions: 0,
        verdicts: Verdicts::default(),
        record_hashes: 0,
    }
}

/// What a shard does on all processors, done in place.
impl Shard {
    pub(crate) fn assign_now(self: &Arc<Self>, assignment: Assignment) -> Result<(), Refusal> {
        self.assign(assignment).now_or_never().unwrap()
    }
    pub(crate) fn hear_now(self: &Arc<Self>, followed: Vec<proto::FollowedBlock>) -> Result<(), Refusal> {
        self.hear(followed).now_or_never().unwrap()
    }
    pub(crate) fn note_done_now(self: &Arc<Self>, blocks: &[BlockId]) -> Result<(), Refusal> {
        self.note_done(blocks).now_or_never().unwrap()
    }
    /// How all copies stand.
    pub(crate) fn whole_standing(&self) -> Result<Standings, Refusal> {
        self.standing(&mut self.untold()).map(|(standings, _)| standings)
    }
    pub(crate) fn following_now(&self, primary: Incarnation) -> Result<Vec<proto::FollowedBlocks>, Refusal> {
        let channel = |number| self.following(Channel { primary, number });
        let stands = channel(0)?.into_iter().chain(channel(1)?);
        Ok(grouped(&stands.collect()))
    }
    /// What a follower is answered in a session of its own.
    pub(crate) fn follow_now(
        &self,
        follower: Incarnation,
        following: &[proto::FollowedBlocks],
    ) -> Result<Vec<proto::FollowedBlock>, Refusal> {
        self.lead(follower, 0, 0, 0, following).unwrap().news(self).map(FollowAnswer::encode)
    }
    pub(crate) fn told(&self, kind: Kind) -> Changes {
        self.changes.told(kind)
    }
}

/// Takes an assignment, and restores what it wants restored.
pub(crate) fn host(shard: &Arc<Shard>, assignment: Assignment) {
    shard.assign_now(assignment).unwrap();
    let unrestored = shard.unrestored().unwrap().into_iter().map(|(hosted, term, _)| (hosted, term));
    shard.restore_initial(unrestored.collect()).now_or_never().unwrap().unwrap();
}

/// A pserver that holds nothing yet.
pub(crate) fn empty(job: JobSettings, window: usize, me: Incarnation) -> Arc<Shard> {
    Arc::new(Shard::new(job, window, me))
}

/// A shard that holds block 0 (six elements) and block 1 (a metric), in steps of two of five microbatches.
pub(crate) fn shard() -> Arc<Shard> {
    let shard = empty(job(5, 2), 16, ME);
    host(&shard, assignment(3, &[0, 1]));
    shard
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn push(
    shard: &Shard,
    step: u64,
    node: Node,
    gradients: &[(u32, &[f32])],
) -> Result<Vec<PushOutcome>, Refusal> {
    // One byte before the gradient, so that it is not aligned.
    let bytes: Vec<(u32, Vec<u8>)> =
        gradients.iter().map(|(id, values)| (*id, [vec![0], bytes(values)].concat())).collect();
    let gradients = bytes.iter().map(|(id, bytes)| gradient(*id, &bytes[1..])).collect();
    let tree = shard.shape.tree(Step(step));
    let weight = if tree.contains(node) { tree.present_in(node).into() } else { 1 };
    shard.push(&message(Pushed::Node(Step(step), node), weight, gradients))
}

/// A push message.
pub(crate) fn message(what: Pushed, weight: u64, blocks: Vec<proto::BlockGradient>) -> proto::PushRequest {
    let (step, node, position) = match what {
        Pushed::Node(step, node) => (step.0, Some(node.into()), 0),
        Pushed::Position(position) => (0, None, position),
    };
    proto::PushRequest { step, node, position, weight, blocks, ..Default::default() }
}

/// Computed in the history that [`assignment`] begins.
pub(crate) fn gradient(block: u32, bytes: &[u8]) -> proto::BlockGradient {
    let gradient = bytes::Bytes::copy_from_slice(bytes);
    proto::BlockGradient { block, rewind: 3, gradient, ..Default::default() }
}

fn both(shard: &Arc<Shard>, step: u64, node: Node) -> Vec<PushOutcome> {
    push(shard, step, node, &[(1, &[1.0]), (0, &[1.0; 6])]).unwrap()
}

/// Everything a shard holds that a refusal might change.
fn digest(shard: &Arc<Shard>) -> String {
    let hosting = shard.hosting().unwrap();
    let blocks: Vec<String> =
        hosting.blocks.values().map(|hosted| format!("{:?}", hosted.locked())).collect();
    format!("{blocks:?} {:?} {:?}", shard.counters(), shard.routing_version())
}
