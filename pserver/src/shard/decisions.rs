//! What is decided over all blocks, between the blocks here and the scalar block, wherever that is.

use super::Shard;
use crate::block::Told;
use bytes::Bytes;
use shoal_runtime::cluster::{BlockId, Decision, Incarnation, Partial, Refusal, RefusalKind, Rewind, Step};
use std::collections::BTreeMap;

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
pub enum Answer {
    /// What is decided: its parameters after the step.
    Decided(Bytes),
    /// It is not decided, or not published yet.
    NotYet,
    /// It is not here, or one of the two has yet to hear of a rewind.
    NotHere,
}

impl Shard {
    /// What blocks here wait for, by history and step.
    pub fn undecided(&self) -> Result<Vec<Undecided>, Refusal> {
        let mut steps: BTreeMap<(Rewind, Step), Vec<(BlockId, Partial)>> = BTreeMap::new();
        let hosting = self.hosting().filter(|hosting| hosting.scalars.is_some());
        for (id, hosted) in hosting.iter().flat_map(|hosting| &hosting.blocks) {
            if let Some((rewind, step, partial)) = hosted.lock()?.undecided() {
                steps.entry((rewind, step)).or_default().push((*id, partial));
            }
        }
        let undecided = |((rewind, step), partials)| Undecided { rewind, step, partials };
        Ok(steps.into_iter().map(undecided).collect())
    }

    /// Where the scalar block's primary is; none in jobs without one.
    pub fn scalar_primary(&self) -> Option<(Incarnation, String)> {
        let hosting = self.hosting()?;
        let primary = hosting.scalars?;
        Some((primary, hosting.address(primary)?.to_owned()))
    }

    /// A step is decided: blocks that waited for that go on.
    pub fn decide(&self, rewind: Rewind, step: Step, decision: &[u8]) -> Result<(), Refusal> {
        self.check_arithmetic()?;
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(decision);
        let Some(decision) = Decision::from_values(&values) else {
            let detail = format!("{} bytes are no decision", decision.len());
            return Err(Refusal::new(RefusalKind::Malformed, format!("step {step}"), detail));
        };
        let Some(hosting) = self.hosting() else { return Ok(()) };
        for hosted in hosting.blocks.values() {
            hosted.lock()?.decide(rewind, step, decision);
        }
        self.published.send();
        self.logged.send();
        self.whole.send();
        Ok(())
    }

    /// Blocks somewhere tell what they know of a step; the scalar block answers if it is here.
    pub fn tell_partials(&self, undecided: &Undecided) -> Result<Answer, Refusal> {
        self.check_arithmetic()?;
        let Undecided { rewind, step, partials } = undecided;
        if *step >= Step(self.job.steps()) {
            return Err(self.beyond(*step));
        }
        let Some(hosting) = self.hosting() else { return Ok(Answer::NotHere) };
        let scalars = hosting.layout.scalars();
        for (block, _) in partials {
            hosting.check(*block)?;
            if Some(*block) == scalars {
                let detail = "the scalar block tells itself nothing: build all roles from the same version";
                return Err(Refusal::new(RefusalKind::Malformed, format!("block {block}"), detail));
            }
        }
        let Some(hosted) = scalars.and_then(|scalars| hosting.block(scalars)) else {
            return Ok(Answer::NotHere);
        };
        let (told, decided) = {
            let mut block = hosted.lock()?;
            let told = block.tell_partials(*rewind, *step, partials, hosting.layout.decided());
            (told, block.decided(*rewind, *step)?)
        };
        let told = told.inspect_err(|refusal| {
            if matches!(refusal.kind, RefusalKind::Nondeterministic | RefusalKind::JobFailed) {
                self.fail(refusal.to_string());
            }
        })?;
        if told == Told::Decided {
            self.published.send();
            self.logged.send();
        }
        Ok(match (told, decided) {
            (Told::NotHere, _) => Answer::NotHere,
            (_, Some(decision)) => Answer::Decided(decision),
            (_, None) => Answer::NotYet,
        })
    }
}
