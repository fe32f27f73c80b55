//! Taking a push message in: whole or not at all.
//!
//! Every block of a message is checked, with the locks of all of them held, before any of them changes.

use super::Shard;
use crate::block::PushOutcome;
use crate::block::shape::NodeGradient;
use crate::exact::assert_exact_arithmetic;
use crate::hosting::{Hosted, Hosting};
use shoal_runtime::cluster::{BlockId, Node, Refusal, RefusalKind, Step};

/// One push message.
#[derive(Clone, Debug)]
pub struct Push<'a> {
    /// The caller's routing.
    pub routing_version: u64,
    /// The step whose tree the node is in.
    pub step: Step,
    /// Which slots are summed.
    pub node: Node,
    /// Records (or tokens) in the sum.
    pub weight: u64,
    /// Gradients as little-endian f32, each block at most once.
    pub gradients: Vec<(BlockId, &'a [u8])>,
}

/// What a message brings to one block.
struct Arriving<'a> {
    /// Where in the message.
    at: usize,
    hosted: &'a Hosted,
    gradient: NodeGradient<'a>,
}

impl Shard {
    /// Takes a push message in; the outcomes are in the order of its blocks. A refusal changes nothing.
    pub fn push(&self, push: &Push<'_>) -> Result<Vec<PushOutcome>, Refusal> {
        let hosting = self.hosting_at(push.routing_version)?;
        self.check_arithmetic()?;
        let mut arrivals = self.arrivals(&hosting, push)?;
        arrivals.sort_unstable_by_key(|arriving| arriving.hosted.shape.id);
        if let Some(pair) =
            arrivals.windows(2).find(|pair| pair[0].hosted.shape.id == pair[1].hosted.shape.id)
        {
            let detail = "a push message names a block once";
            return Err(Refusal::new(RefusalKind::Malformed, &pair[0].hosted.shape, detail));
        }
        let outcomes = take(&arrivals).inspect_err(|refusal| {
            if refusal.kind == RefusalKind::Nondeterministic {
                self.fail(refusal.to_string());
            }
        })?;
        let mut in_order: Vec<(usize, PushOutcome)> = arrivals.iter().map(|a| a.at).zip(outcomes).collect();
        in_order.sort_unstable_by_key(|(at, _)| *at);
        let outcomes: Vec<PushOutcome> = in_order.into_iter().map(|(_, outcome)| outcome).collect();
        self.note(push, &hosting, &outcomes);
        Ok(outcomes)
    }

    /// Checked with every message, because a library can change the arithmetic of one thread at any time.
    fn check_arithmetic(&self) -> Result<(), Refusal> {
        assert_exact_arithmetic().map_err(|inexact| {
            let refusal = Refusal::new(RefusalKind::JobFailed, "pserver", inexact);
            self.fail(refusal.to_string());
            refusal
        })
    }

    /// What a push message brings to which block, checked as far as it can be without a lock.
    fn arrivals<'a>(&self, hosting: &'a Hosting, push: &Push<'a>) -> Result<Vec<Arriving<'a>>, Refusal> {
        let (step, node, weight) = (push.step, push.node, push.weight);
        if step.0 >= self.job.steps() {
            return Err(self.beyond(step));
        }
        let tree = self.epoch.tree(step);
        let arriving = |(at, (id, bytes)): (usize, &(BlockId, &'a [u8]))| {
            let hosted = hosting.block(*id)?;
            let (words, rest) = bytes.as_chunks();
            if !rest.is_empty() {
                let detail = format!("{} bytes came, f32 values have 4 each", bytes.len());
                return Err(Refusal::new(RefusalKind::WrongShape, &hosted.shape, detail));
            }
            let gradient = NodeGradient { step, node, weight, words };
            hosted.shape.check(&gradient, tree)?;
            Ok(Arriving { at, hosted, gradient })
        };
        push.gradients.iter().enumerate().map(arriving).collect()
    }

    fn note(&self, push: &Push<'_>, hosting: &Hosting, outcomes: &[PushOutcome]) {
        let bytes = push.gradients.iter().map(|(_, gradient)| gradient.len() as u64).sum();
        let lowest = hosting.blocks.keys().next().copied();
        let outcomes: Vec<(BlockId, PushOutcome)> =
            push.gradients.iter().zip(outcomes).map(|((id, _), outcome)| (*id, *outcome)).collect();
        self.count(|counters| counters.count_push(push.node, push.weight, bytes, lowest, &outcomes));
        if outcomes.iter().any(|(_, outcome)| matches!(outcome, PushOutcome::Published { .. })) {
            self.published.send_replace(());
        } else if outcomes.iter().any(|(_, outcome)| matches!(outcome, PushOutcome::Held { .. })) {
            self.held.send_replace(());
        }
    }
}

/// Locks all blocks in order, checks all, then changes all.
fn take(arrivals: &[Arriving<'_>]) -> Result<Vec<PushOutcome>, Refusal> {
    let mut blocks = arrivals.iter().map(|arriving| arriving.hosted.lock()).collect::<Result<Vec<_>, _>>()?;
    for (block, arriving) in blocks.iter().zip(arrivals) {
        block.check(&arriving.gradient)?;
    }
    blocks.iter_mut().zip(arrivals).map(|(block, arriving)| block.push(&arriving.gradient)).collect()
}
