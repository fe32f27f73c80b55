//! What never changes about a block: its parameters, their rules, their initial values; what it refuses.
//!
//! It needs no lock, so that a gradient is checked before one is taken. It must never hold a version.

use super::evaluate::MetricTurn;
use super::reduce::{DenseSum, Difference, Sum};
use crate::bucket::shape::BucketShape;
use crate::kernel::norm::SquareSum;
use crate::kernel::rules::{self, Pass};
use crate::kernel::sum::{Half, Single, Word, first_non_finite};
use shoal_runtime::cluster::layout::{BlockLayout, BucketOf};
use shoal_runtime::cluster::rows::RowDifference;
use shoal_runtime::cluster::{
    BlockId, Decisions, Declaration, Node, Parameter, Partial, Precision, Refusal, RefusalKind, Rows, Rule,
    Step,
};
use shoal_runtime::wire::rows;
use std::ops::Range;

/// Bytes of the keys of a bucket that have occurred and have no row.
const CANDIDATES_BYTES_MAX: usize = 1 << 19;
/// Elements that are read from a message and then updated before the next are: those of all buffers stay in the caches of one
/// core meanwhile, and the constants of a rule are made often enough not to be seen.
pub const STRETCH: usize = 16 << 10;

/// Where in the job an update is, for schedules and bias corrections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateContext {
    /// The step whose learning rate holds.
    pub step: Step,
    /// Updates of this block, this one included.
    pub updates: u64,
    /// What the learning rate is multiplied with.
    pub scale: f32,
    /// Of a metric's update: what it is.
    pub turn: MetricTurn,
    /// Whether parameters that a device makes are brought here at once.
    pub brings: bool,
}

/// What gradient sums are divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divisor {
    /// Records (or tokens) in the sum: the mean is the sum divided by it.
    pub weight: u64,
    /// What means of trained parameters are multiplied with.
    pub factor: f32,
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
    /// Of the scalar block: what it decides.
    pub decisions: Option<Decisions>,
    /// Whether a step is applied only as the scalar block decides.
    pub is_decided: bool,
    /// Whether it holds metrics: then evaluations alone add to it, otherwise they never do.
    pub is_metric: bool,
    /// Of a bucket: its table.
    pub bucket: Option<BucketShape>,
    /// In which precision gradients come and are summed.
    pub precision: Precision,
    takes_non_finite: bool,
    pieces: Vec<PieceShape>,
}

#[derive(Debug)]
struct PieceShape {
    parameter: Parameter,
    first: u64,
    range: Range<usize>,
}

impl BlockShape {
    /// The shape of one block of a checked declaration, in a job with that seed whose gradients are that precise.
    pub fn new(
        id: BlockId,
        layout: &BlockLayout,
        declaration: &Declaration,
        seed: u64,
        gradients: Precision,
    ) -> BlockShape {
        let pieces = layout.pieces.iter().map(|piece| PieceShape {
            parameter: declaration.parameters[piece.parameter].clone(),
            first: piece.first,
            range: piece.range.clone(),
        });
        let pieces: Vec<PieceShape> = pieces.collect();
        let slots = pieces.iter().map(|piece| piece.parameter.slots().len()).max().unwrap_or(0);
        let decisions = declaration.decisions();
        let bucket = layout.bucket.and_then(|BucketOf { parameter, number }| {
            BucketShape::new(seed, declaration.parameters.get(parameter)?, number)
        });
        BlockShape {
            id,
            elements: layout.elements,
            slots,
            decisions: decisions.filter(|_| !layout.is_pushed),
            is_decided: decisions.is_some() && layout.is_pushed && !layout.is_metric,
            is_metric: layout.is_metric,
            bucket,
            precision: layout.precision(gradients),
            // A metric that is no number is the metric's own affair: no step reads it.
            takes_non_finite: layout.is_metric
                || decisions.is_some_and(|decisions| decisions.takes_non_finite()),
            pieces,
        }
    }

    /// The block's parameters before the first step: a function of (seed, parameter, element).
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        if let Some(decisions) = self.decisions {
            return decisions.initial().to_values().to_vec();
        }
        let mut values = vec![0.0; self.elements];
        for piece in &self.pieces {
            let parameter = &piece.parameter;
            parameter.initial.fill(seed, &parameter.name, piece.first, &mut values[piece.range.clone()]);
        }
        values
    }

    /// Its pieces: the parameter, the first element of it, and where they lie in the block.
    pub fn pieces(&self) -> impl Iterator<Item = (&Parameter, u64, Range<usize>)> {
        self.pieces.iter().map(|piece| (&piece.parameter, piece.first, piece.range.clone()))
    }

    /// Refuses a gradient that is not of little-endian values of the block's precision, of another length or, unless such steps
    /// may be skipped, with an infinity or not-a-number in it. `what` is it of; where that evaluates, metrics alone have
    /// values, otherwise all but they.
    pub fn check_values(
        &self,
        bytes: &[u8],
        evaluates: bool,
        what: impl std::fmt::Display,
    ) -> Result<(), Refusal> {
        if self.decisions.is_some() {
            let detail = format!("it takes no gradients ({what}): build all roles from the same version");
            return Err(Refusal::new(RefusalKind::Malformed, self, detail));
        }
        let (each, precision) = (self.precision.bytes(), self.precision.name());
        let elements = if self.takes_part(evaluates) { self.elements } else { 0 };
        if bytes.len() != each * elements {
            let came = bytes.len();
            let detail = format!(
                "the block takes {elements} elements of {each} bytes ({precision}), the gradient has {came} bytes ({what}): \
                 build all roles from the same version"
            );
            return Err(Refusal::new(RefusalKind::WrongShape, self, detail));
        }
        let first = match self.precision {
            Precision::F32 => first_non_finite::<Single>(bytes.as_chunks().0),
            Precision::Bf16 => first_non_finite::<Half>(bytes.as_chunks().0),
        };
        if let Some(element) = first.filter(|_| !self.takes_non_finite) {
            let (name, index) = self.place(element);
            let value = match self.precision {
                Precision::F32 => bytes.as_chunks::<4>().0[element].read(),
                Precision::Bf16 => bytes.as_chunks::<2>().0[element].read(),
            };
            let detail = format!("element {index} is {value} ({precision}; {what}, block {})", self.id);
            return Err(Refusal::new(RefusalKind::NonFinite, format!("parameter {name:?}"), detail));
        }
        Ok(())
    }

    /// Refuses rows of another bucket, in an evaluation any, or, unless such steps may be skipped, with an infinity or
    /// not-a-number in them.
    pub fn check_rows(
        &self,
        bucket: &BucketShape,
        rows: &Rows,
        evaluates: bool,
        what: impl std::fmt::Display,
    ) -> Result<(), Refusal> {
        let keys = rows.keys();
        if let Some(key) = keys.iter().find(|key| evaluates || !bucket.has(**key)) {
            let detail =
                format!("key {key} does not belong here ({what}): build all roles from the same version");
            return Err(Refusal::new(RefusalKind::WrongShape, self, detail));
        }
        let is_finite = rows.values().iter().fold(true, |all, value| all & value.is_finite());
        if is_finite || self.takes_non_finite {
            return Ok(());
        }
        let at = rows.values().iter().position(|value| !value.is_finite()).unwrap_or(0);
        let (key, element, value) = (keys[at / bucket.dimension], at % bucket.dimension, rows.values()[at]);
        let detail = format!("element {element} of key {key} is {value} ({what}, block {})", self.id);
        Err(Refusal::new(RefusalKind::NonFinite, format!("table {:?}", bucket.parameter.name), detail))
    }

    /// Refuses so many rows at a time that messages could not carry them.
    pub fn check_rows_bytes(&self, rows: usize) -> Result<(), Refusal> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        match rows::too_many(rows, bucket.dimension) {
            None => Ok(()),
            Some(detail) => Err(Refusal::new(RefusalKind::JobFailed, self, detail)),
        }
    }

    /// Bytes of a copy, of a bucket of one segment and the keys without rows, without earlier versions; at most.
    pub fn copy_bytes_max(&self, segment_bytes: usize) -> usize {
        match &self.bucket {
            Some(_) => segment_bytes + CANDIDATES_BYTES_MAX,
            None => 4 * self.elements * (1 + self.slots),
        }
    }

    /// Whether the block is given values by what evaluates, or by what does not.
    pub fn takes_part(&self, evaluates: bool) -> bool {
        self.is_metric == evaluates
    }

    /// The parameter that an element of the block belongs to, and its index there.
    pub fn place(&self, element: usize) -> (&str, u64) {
        let piece = self.pieces.iter().find(|piece| piece.range.contains(&element));
        piece.map_or(("", element as u64), |piece| {
            (piece.parameter.name.as_str(), piece.first + (element - piece.range.start) as u64)
        })
    }

    /// The refusal of a result that differs from an earlier one of the same node.
    pub fn nondeterministic(&self, step: Step, node: Node, difference: Difference) -> Refusal {
        let (subject, what) = match difference {
            Difference::Weight { held, came } => {
                (self.to_string(), format!("one result has weight {held}, another {came}"))
            }
            Difference::Element { element, held, came } => {
                let (name, index) = self.place(element);
                let bits = format!(
                    "{held:e} ({:#010x}), another {came:e} ({:#010x})",
                    held.to_bits(),
                    came.to_bits()
                );
                (format!("parameter {name:?}"), format!("element {index} is {bits}"))
            }
            Difference::Row(difference) => (self.to_string(), row_difference(difference)),
        };
        let detail = format!(
            "two results for node {node} of step {step} differ in block {}: {what}; the step function must give the \
             same bits wherever it runs (same processor kind, thread count and math library)",
            self.id
        );
        Refusal::new(RefusalKind::Nondeterministic, subject, detail)
    }

    /// What this block knows of a step whose gradient sums these are.
    pub fn partial(&self, weight: u64, sum: &Sum) -> Partial {
        let mut squares = SquareSum::new();
        let values = match (sum, &self.bucket) {
            // It takes no part in an evaluation.
            (Sum::Dense(sum), _) if sum.is_empty() => {
                return Partial { sum_of_squares: 0.0, is_finite: true, weight: 0 };
            }
            (Sum::Dense(sum), _) => {
                let values = sum.values();
                for piece in self.pieces.iter().filter(|piece| piece.parameter.is_trained()) {
                    squares.add(&values[piece.range.clone()]);
                }
                values
            }
            (Sum::Rows(rows), bucket) => {
                if bucket.as_ref().is_some_and(|bucket| bucket.parameter.is_trained()) {
                    squares.add(rows.values());
                }
                rows.values()
            }
        };
        let words: &[u8] = bytemuck::cast_slice(values);
        let is_finite = first_non_finite::<Single>(words.as_chunks().0).is_none();
        Partial { sum_of_squares: squares.total(), is_finite, weight }
    }

    /// The constants of an update of rows of a bucket.
    pub fn row_pass(&self, context: UpdateContext, divisor: Divisor) -> Pass {
        match &self.bucket {
            Some(bucket) => pass(&bucket.parameter, context, divisor),
            None => unreachable!("{self} is dense"),
        }
    }

    /// Runs the rule of every parameter that is not frozen once, over the gradient sum; the new parameters.
    ///
    /// `slots[s]` is as long as the block; a piece whose rule has fewer slots leaves the others at zero.
    pub fn update(
        &self,
        context: UpdateContext,
        parameters: &[f32],
        mut sum: DenseSum,
        slots: &mut [&mut [f32]],
        divisor: Divisor,
    ) -> Vec<f32> {
        for (range, rule, pass) in self.passes(context, divisor) {
            for range in stretches(range) {
                let own_slots = slots.iter_mut().take(rule.slots().len());
                let mut slots: Vec<&mut [f32]> = own_slots.map(|slot| &mut slot[range.clone()]).collect();
                let (parameters, values) = (&parameters[range.clone()], sum.stretch(range));
                match pass {
                    Some(pass) => rules::run(rule, pass, parameters, values, &mut slots),
                    None => values.copy_from_slice(parameters),
                }
            }
        }
        sum.into_values()
    }

    /// What an update is of each piece: where it lies, its rule, and the rule's constants; none of a frozen one.
    pub(super) fn passes(
        &self,
        context: UpdateContext,
        divisor: Divisor,
    ) -> impl Iterator<Item = (Range<usize>, Rule, Option<Pass>)> {
        self.pieces.iter().map(move |PieceShape { parameter, range, .. }| {
            let pass = (!parameter.group.is_frozen).then(|| pass(parameter, context, divisor));
            (range.clone(), parameter.rule, pass)
        })
    }

    /// Whether a device can update it: it is dense, and neither counted nor decided by.
    pub(super) fn is_for_devices(&self) -> bool {
        self.bucket.is_none() && self.decisions.is_none() && !self.is_metric
    }
}

/// A range cut into stretches, in order.
fn stretches(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(STRETCH).map(move |start| start..end.min(start + STRETCH))
}

/// The constants of one update of a parameter.
fn pass(parameter: &Parameter, context: UpdateContext, Divisor { weight, factor }: Divisor) -> Pass {
    // Dividing by more is multiplying the mean with less, without another pass.
    let weight = if parameter.is_trained() { weight as f32 / factor } else { weight as f32 };
    Pass {
        weight,
        rate: parameter.group.rate_multiplier * parameter.learning_rate.at(context.step),
        scale: context.scale,
        weight_decay: parameter.group.weight_decay,
        update: context.updates,
    }
}

fn row_difference(difference: RowDifference) -> String {
    match difference {
        RowDifference::Key { key } => format!("one result has key {key}, another has not"),
        RowDifference::Count { key, ours, theirs } => {
            format!("key {key} occurs {ours} times in one result, {theirs} times in another")
        }
        RowDifference::Element { key, element, ours, theirs } => {
            let (ours_bits, theirs_bits) = (ours.to_bits(), theirs.to_bits());
            format!(
                "element {element} of key {key} is {ours:e} ({ours_bits:#010x}), another {theirs:e} ({theirs_bits:#010x})"
            )
        }
    }
}

impl std::fmt::Display for BlockShape {
    /// `block 3 (parameter "w")`, or of several parameters the first and how many more.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(bucket) = &self.bucket {
            return write!(f, "block {} (a bucket of table {:?})", self.id, bucket.parameter.name);
        }
        let name = self.pieces.first().map_or("", |piece| piece.parameter.name.as_str());
        match self.pieces.len() {
            0 | 1 => write!(f, "block {} (parameter {name:?})", self.id),
            more => write!(f, "block {} (parameter {name:?} and {} more)", self.id, more - 1),
        }
    }
}
