//! One block by itself and among its copies. This file has what these tests share; it tests nothing.

mod areas;
mod buckets;
mod copies;
mod decisions;
mod deltas;
mod devices;
mod evaluations;
mod filling;
mod heirs;
mod positions;
mod steps;
mod traces;
mod witness;
mod world;

use super::reduce::{DenseSum, Gradient, HeldNode, Sum};
use super::state::CopyOf;
use super::*;
use bytes::Bytes;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::precision::{bf16_to_bytes, round_bf16};
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{
    BlockId, Declaration, Group, JobId, JobSettings, Layout, Mode, Parameter, Precision, Refusal,
    RefusalKind, Rule,
};

impl Block {
    /// Breaks it: it says that it has published what it has not made.
    pub(crate) fn claim(&mut self, version: Version) {
        self.published = version;
    }
}

/// The pserver that blocks without copies are on.
pub(crate) const ME: Incarnation = Incarnation(1);

pub(crate) fn job(records: u64, slots: u32) -> JobSettings {
    JobSettings {
        job: JobId("test".into()),
        seed: 7,
        epochs: 3,
        microbatch_records: 1,
        microbatches_per_step: slots,
        shuffle_run: 1,
        records,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 1000,
        mode: Mode::SYNC,
        gradients: Precision::F32,
        warm_start: None,
        evaluated: None,
    }
}

/// The same with a delay.
pub(crate) fn delayed(job: JobSettings, delay: u32) -> JobSettings {
    JobSettings { mode: Mode::Sync { delay }, ..job }
}

/// The same with an update for each microbatch.
pub(crate) fn async_job(records: u64, slots: u32, scale_by_staleness: bool) -> JobSettings {
    JobSettings { mode: Mode::Async { staleness_window: 8, scale_by_staleness }, ..job(records, slots) }
}

/// Four small parameters of different rules; the first three share block 0, the metric is block 1.
pub(crate) fn declaration() -> Declaration {
    declaration_at(Schedule::constant(0.1))
}

/// The same with rates that fall every other step.
fn decaying() -> Declaration {
    declaration_at(Schedule::step(0.1, 0.7, 2))
}

fn declaration_at(rate: Schedule) -> Declaration {
    let normal = Initial::Normal { deviation: 0.5 };
    let parameter = |name: &str, rule| Parameter::new(name, &[2], rule, rate.clone(), normal);
    let parameters = vec![
        parameter("plain", Rule::Sgd),
        parameter("heavy", Rule::Momentum { momentum: 0.5 }),
        parameter("adam", Rule::ADAM),
        Parameter::sum("loss", &[1]),
    ];
    Declaration { parameters, block_elements: 64 }
}

/// A primary without followers, placed and restored at `version` of the routing.
pub(crate) fn alone(version: u64) -> Placement {
    Placement {
        fill: Fill(version),
        term: Term(version),
        rewind: Rewind(version),
        primary: ME,
        copies: Vec::new(),
        heir: None,
        origin: None,
    }
}

fn shape_of(declaration: &Declaration, id: BlockId) -> Arc<BlockShape> {
    shape_in(declaration, id, Precision::F32)
}

/// The same in a job whose gradients are that precise.
fn shape_in(declaration: &Declaration, id: BlockId, gradients: Precision) -> Arc<BlockShape> {
    let layout = Layout::new(declaration);
    Arc::new(BlockShape::new(id, layout.block(id).unwrap(), declaration, 7, gradients))
}

/// A block that nobody follows, at its initial values.
fn block_of(job: &JobSettings, declaration: &Declaration, id: BlockId) -> Block {
    let terms = Arc::new(BlockSettings::new(job, 16));
    let mut block = Block::new(shape_in(declaration, id, job.gradients), terms, alone(1), ME);
    block.restore_initial(Term(1));
    block
}

fn words(values: &[f32]) -> Bytes {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A gradient as it travels to a block.
fn encoded(values: &[f32], precision: Precision) -> Bytes {
    match precision {
        Precision::F32 => words(values),
        Precision::Bf16 => values.iter().flat_map(|value| bf16_to_bytes(round_bf16(*value))).collect(),
    }
}

fn values(bytes: &Bytes) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Everything that a block's state holds.
fn state(block: &Block) -> BlockCopy {
    let state = block.state.as_ref().unwrap();
    state.copy(&block.shape, block.copy_of(block.job.mode.earlier_states(), 0)).unwrap()
}

/// The newest parameters.
fn current(block: &Block) -> Vec<f32> {
    values(&state(block).parameters)
}

/// Everything a block holds, to tell whether a call has changed it.
fn digest(block: &Block) -> String {
    let held: Vec<String> = match &block.role {
        Role::Primary(primary) => {
            let text = |(step, held): (Step, &HeldNode)| {
                format!("{step} {} {} {:?}", held.node, held.weight, bits(&held.sum.dense()))
            };
            primary.held.nodes().map(text).collect()
        }
        Role::Follower { is_broken } => vec![format!("follower, broken: {is_broken}")],
        Role::Retired => vec![String::from("retired")],
    };
    let state = block.state.as_ref().map(|_| state(block));
    format!("{:?} {state:?} {:?} {held:?}", block.placement, block.published)
}

/// What the shard does with one block, under the block's own rewind number: both checks, then the push.
fn push(
    block: &mut Block,
    step: u64,
    node: Node,
    weight: u64,
    gradient: &[f32],
) -> Result<PushOutcome, Refusal> {
    let precision = block.shape.precision;
    let words = encoded(gradient, precision);
    let came = Gradient::Words(words.clone(), precision);
    let arriving = NodeGradient { step: Step(step), node, weight, gradient: came };
    block.shape.check_values(&words, false, format!("step {step}, node {node}"))?;
    block.push(block.placement.rewind, arriving)
}

/// The parameters that a step reads, asked for under the block's own rewind number.
fn read(block: &Block, step: u64) -> Reading {
    block.read(block.placement.rewind, Step(step), &[])
}

/// The parameters that a step reads, which must be there.
fn parameters(block: &Block, step: u64) -> Bytes {
    match read(block, step) {
        Reading::Parameters(bytes, version) if version == Version(step) => bytes,
        other => panic!("step {step}: {other:?}"),
    }
}

fn leaf_gradient(step: u64, slot: u32) -> Vec<f32> {
    (0..6).map(|e| libm::sinf((step * 31 + u64::from(slot) * 7 + e) as f32) * 3.0).collect()
}

/// The node's gradient by recursion, absent slots left out, rounded where the job says so.
fn node_gradient(job: &JobSettings, step: u64, node: Node) -> Option<(u64, Vec<f32>)> {
    let settled = |values: Vec<f32>| match job.gradients {
        Precision::F32 => values,
        Precision::Bf16 => values.into_iter().map(round_bf16).collect(),
    };
    if job.shape().training().tree(Step(step)).is_absent(node) {
        return None;
    }
    let Some((left, right)) = node.children() else {
        return Some((1, settled(leaf_gradient(step, node.index))));
    };
    let left = node_gradient(job, step, left)?;
    let Some(right) = node_gradient(job, step, right) else { return Some(left) };
    Some((left.0 + right.0, settled(left.1.iter().zip(&right.1).map(|(l, r)| l + r).collect())))
}
