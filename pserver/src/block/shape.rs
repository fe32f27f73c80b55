//! What never changes about a block: its parameters, their rules, their initial values; what it refuses.
//!
//! It needs no lock, so that a gradient is checked before one is taken. It must never hold a version.

use crate::kernel::rules::{self, AdamStep};
use crate::kernel::sum::{Word, first_non_finite};
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::{
    BlockId, Declaration, Node, Parameter, Refusal, RefusalKind, Rule, Step, StepTree,
};
use std::ops::Range;

/// One node's gradient for one block, as it came.
#[derive(Clone, Copy, Debug)]
pub struct NodeGradient<'a> {
    /// The step whose tree the node is in.
    pub step: Step,
    /// Which slots are summed.
    pub node: Node,
    /// Records (or tokens) in the sum.
    pub weight: u64,
    /// One word for each element of the block.
    pub words: &'a [Word],
}

/// The lasting facts of one block.
#[derive(Debug)]
pub struct BlockShape {
    /// Which block.
    pub id: BlockId,
    /// Elements of all pieces.
    pub elements: usize,
    /// State slots beside the parameters: the most that a rule in the block needs.
    pub slots: usize,
    pieces: Vec<PieceShape>,
}

#[derive(Debug)]
struct PieceShape {
    parameter: Parameter,
    first: u64,
    range: Range<usize>,
}

impl BlockShape {
    /// The shape of one block of a checked declaration.
    pub fn new(id: BlockId, layout: &BlockLayout, declaration: &Declaration) -> BlockShape {
        let pieces = layout.pieces.iter().map(|piece| PieceShape {
            parameter: declaration.parameters[piece.parameter].clone(),
            first: piece.first,
            range: piece.range.clone(),
        });
        let pieces: Vec<PieceShape> = pieces.collect();
        let slots = pieces.iter().map(|piece| piece.parameter.rule.slots().len()).max().unwrap_or(0);
        BlockShape { id, elements: layout.elements, slots, pieces }
    }

    /// The block's parameters before the first step: a function of (seed, parameter, element).
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut values = vec![0.0; self.elements];
        for piece in &self.pieces {
            let parameter = &piece.parameter;
            parameter.initial.fill(seed, &parameter.name, piece.first, &mut values[piece.range.clone()]);
        }
        values
    }

    /// Refuses a gradient for another tree, of another length, or with an infinity or not-a-number in it.
    pub fn check(&self, arriving: &NodeGradient<'_>, tree: StepTree) -> Result<(), Refusal> {
        let NodeGradient { step, node, words, .. } = *arriving;
        if !tree.contains(node) {
            let (present, root) = (tree.present(), tree.root());
            let detail =
                format!("step {step} has no node {node}: its root is {root}, {present} microbatches");
            return Err(Refusal::new(RefusalKind::OutOfRange, self, detail));
        }
        if words.len() != self.elements {
            let (ours, theirs) = (self.elements, words.len());
            let detail =
                format!("the block has {ours} elements, the gradient {theirs} (step {step}, node {node})");
            return Err(Refusal::new(RefusalKind::WrongShape, self, detail));
        }
        if let Some(element) = first_non_finite(words) {
            let (name, index) = self.place(element);
            let value = f32::from_le_bytes(words[element]);
            let detail = format!("element {index} is {value} (step {step}, node {node}, block {})", self.id);
            return Err(Refusal::new(RefusalKind::NonFinite, format!("parameter {name:?}"), detail));
        }
        Ok(())
    }

    /// The parameter that an element of the block belongs to, and its index there.
    pub fn place(&self, element: usize) -> (&str, u64) {
        let piece = self.pieces.iter().find(|piece| piece.range.contains(&element));
        piece.map_or(("", element as u64), |piece| {
            (piece.parameter.name.as_str(), piece.first + (element - piece.range.start) as u64)
        })
    }

    /// Runs every parameter's rule once: `values` holds the gradient sum and becomes the new parameters.
    ///
    /// `slots[s]` is as long as the block; a piece whose rule has fewer slots leaves the others at zero.
    pub fn update(
        &self,
        step: Step,
        parameters: &[f32],
        values: &mut [f32],
        slots: &mut [Vec<f32>],
        weight: u64,
    ) {
        for piece in &self.pieces {
            let range = piece.range.clone();
            let (parameters, values) = (&parameters[range.clone()], &mut values[range.clone()]);
            let (weight, rate) = (weight as f32, piece.parameter.learning_rate.at(step));
            match (piece.parameter.rule, &mut *slots) {
                (Rule::Momentum { momentum }, [velocity, ..]) => {
                    rules::momentum(parameters, values, &mut velocity[range], weight, rate, momentum);
                }
                (Rule::Adam { beta1, beta2, epsilon }, [first, second, ..]) => {
                    let adam = AdamStep::new(step.0 + 1, rate, beta1, beta2, epsilon);
                    let (first, second) = (&mut first[range.clone()], &mut second[range]);
                    rules::adam(parameters, values, first, second, weight, adam);
                }
                (Rule::Sum, _) => rules::sum(parameters, values),
                (Rule::Sgd, _) => rules::sgd(parameters, values, weight, rate),
                (Rule::Momentum { .. } | Rule::Adam { .. }, _) => unreachable!("`slots` covers every rule"),
            }
        }
    }
}

impl std::fmt::Display for BlockShape {
    /// `block 3 (parameter "w")`, or of several parameters the first and how many more.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.pieces.first().map_or("", |piece| piece.parameter.name.as_str());
        match self.pieces.len() {
            0 | 1 => write!(f, "block {} (parameter {name:?})", self.id),
            more => write!(f, "block {} (parameter {name:?} and {} more)", self.id, more - 1),
        }
    }
}
