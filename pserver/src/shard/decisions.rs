//! What is decided over all blocks, between the blocks here and the scalar block, wherever that is.

use super::{Kind, Listener, Shard, Since};
use crate::block::{Block, PartialsOutcome};
use bytes::Bytes;
use shoal_runtime::cluster::{BlockId, Decision, Incarnation, Partial, Refusal, RefusalKind, Rewind, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks here that wait for what is decided of a step, and what they know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Undecided {
    /// Their history.
    pub rewind: Rewind,
    /// The step.
    pub step: Step,
    /// The blocks.
    pub partials: Vec<(BlockId, Partial)>,
}

/// What the scalar block answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionAnswer {
    /// What is decided: its parameters after the step.
    Decided(Bytes),
    /// It is not decided, or not published yet.
    NotYet,
    /// It is not here, or one of the two has yet to hear of a rewind.
    NotHere,
}

/// Hears of blocks that begin to wait for a decision.
#[derive(Debug)]
pub struct Waiters(Listener);

impl Waiters {
    /// Takes all that began to wait until now as heard of.
    pub fn mark_heard(&mut self, shard: &Shard) {
        self.0.take(&shard.changes);
    }

    /// Waits until some block may wait that did not.
    pub async fn changed(&mut self) {
        self.0.changed().await;
    }
}

/// Hears of what the scalar block here has published.
#[derive(Debug)]
pub struct Decided(Listener);

impl Decided {
    /// Waits until it has published something.
    pub async fn changed(&mut self, shard: &Shard) {
        loop {
            self.0.changed().await;
            let scalars = shard.hosting().and_then(|hosting| hosting.layout.scalars());
            match (scalars, self.0.take(&shard.changes)) {
                (Some(scalars), Since::Blocks(blocks)) if !blocks.contains(&scalars) => {}
                _ => return,
            }
        }
    }
}

impl Shard {
    /// Hears of blocks that begin to wait from now on.
    pub fn waiters(&self) -> Waiters {
        Waiters(self.changes.listen(Kind::Undecided))
    }

    /// Hears of what the scalar block publishes from now on.
    pub fn decided(&self) -> Decided {
        Decided(self.changes.listen(Kind::Published))
    }

    /// What blocks here wait for, by history and step: of those that began to wait since `waiters` was asked last or, without it,
    /// of all.
    pub async fn undecided(
        self: &Arc<Self>,
        waiters: Option<&mut Waiters>,
    ) -> Result<Vec<Undecided>, Refusal> {
        let since = waiters.map_or(Since::Any, |waiters| waiters.0.take(&self.changes));
        let Some(hosting) = self.hosting().filter(|hosting| hosting.assignment.scalars.is_some()) else {
            return Ok(Vec::new());
        };
        let those: Vec<_> = match since {
            Since::Any => hosting.blocks.values().cloned().collect(),
            Since::Blocks(blocks) => blocks.iter().filter_map(|id| hosting.block(*id).cloned()).collect(),
        };
        let told = self.each(those, |_, changed, hosted| {
            let undecided = hosted.with(changed, Block::undecided)?;
            Ok(undecided.map(|undecided| (hosted.shape.id, undecided)))
        });
        let mut steps: BTreeMap<(Rewind, Step), Vec<(BlockId, Partial)>> = BTreeMap::new();
        for (id, (rewind, step, partial)) in told.await?.into_iter().flatten() {
            steps.entry((rewind, step)).or_default().push((id, partial));
        }
        let undecided = |((rewind, step), partials)| Undecided { rewind, step, partials };
        Ok(steps.into_iter().map(undecided).collect())
    }

    /// Where the scalar block's primary is; none in jobs without one.
    pub fn scalar_primary(&self) -> Option<(Incarnation, String)> {
        let hosting = self.hosting()?;
        let primary = hosting.assignment.scalars?;
        Some((primary, hosting.address(primary)?.to_owned()))
    }

    /// A step is decided: those of these blocks that wait for it go on.
    pub async fn decide(
        self: &Arc<Self>,
        rewind: Rewind,
        step: Step,
        blocks: Vec<BlockId>,
        decision: &[u8],
    ) -> Result<(), Refusal> {
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(decision);
        let Some(decision) = Decision::from_values(&values) else {
            let detail = format!("{} bytes are no decision", decision.len());
            return Err(Refusal::new(RefusalKind::Malformed, format!("step {step}"), detail));
        };
        let Some(hosting) = self.hosting() else { return Ok(()) };
        let those = blocks.iter().filter_map(|id| hosting.block(*id).cloned()).collect();
        self.each(those, move |_, changed, hosted| {
            hosted.with(changed, |block| block.decide(rewind, step, decision))
        })
        .await?;
        Ok(())
    }

    /// Blocks somewhere tell what they know of a step; the scalar block answers if it is here.
    pub fn tell_partials(&self, undecided: &Undecided) -> Result<DecisionAnswer, Refusal> {
        self.check_arithmetic()?;
        let Undecided { rewind, step, partials } = undecided;
        if *step >= Step(self.job.steps()) {
            return Err(self.beyond(*step));
        }
        let Some(hosting) = self.hosting() else { return Ok(DecisionAnswer::NotHere) };
        let scalars = hosting.layout.scalars();
        for (block, _) in partials {
            hosting.check(*block)?;
            if Some(*block) == scalars {
                let detail = "the scalar block tells itself nothing: build all roles from the same version";
                return Err(Refusal::new(RefusalKind::Malformed, format!("block {block}"), detail));
            }
        }
        let Some(hosted) = scalars.and_then(|scalars| hosting.block(scalars)) else {
            return Ok(DecisionAnswer::NotHere);
        };
        let told = self.with(hosted, |block| {
            let told = block.tell_partials(*rewind, *step, partials, hosting.layout.decided());
            told.map(|told| (told, block.decided(*rewind, *step)))
        })?;
        let (told, decided) = told.inspect_err(|refusal| {
            if matches!(refusal.kind, RefusalKind::Nondeterministic | RefusalKind::JobFailed) {
                self.fail(refusal.to_string());
            }
        })?;
        Ok(match (told, decided?) {
            (PartialsOutcome::NotHere, _) => DecisionAnswer::NotHere,
            (_, Some(decision)) => DecisionAnswer::Decided(decision),
            (_, None) => DecisionAnswer::NotYet,
        })
    }
}
