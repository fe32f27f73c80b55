//! The reduction of a block's gradients: what microbatches add up to, over the tree of their step. Pure.
//!
//! For example, of a step with microbatches 0 to 3 the nodes `0`, `2` and `3` come: `2` and `3` are merged into the node above
//! them, `0` waits for `1`. Held nodes never cover one another, and complete siblings are always merged. So those below the
//! *lowest missing* slot are the binary digits of that slot, at most `root_level` of them; beyond it at most `window` nodes are
//! held, and what would exceed that is not taken. A node that covers the lowest missing slot only ever lowers the number beyond
//! it, so it is always taken and the step can always go on. Held: at most `root_level + window`.
//!
//! Nothing here may depend on the order in which nodes come but which of them were refused: not one bit of the sum.

use super::dense::bytes_of;
use super::shape::STRETCH;
use crate::device::{DeviceError, Tree, Words};
use crate::kernel::sum::{
    Half, Single, Word, add_left_words, add_right, add_right_words, first_difference, read_into,
};
use bytes::Bytes;
use shoal_runtime::cluster::precision::bf16_to_bytes;
use shoal_runtime::cluster::rows::RowDifference;
use shoal_runtime::cluster::{BlockId, Node, Precision, Rows, Step, StepTree};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The sum of a node's present slots.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldNode {
    /// The node, raised over absent siblings: the highest that covers the same present slots.
    pub node: Node,
    /// Records (or tokens) in the sum.
    pub weight: u64,
    /// Of the block.
    pub sum: Sum,
}

/// The nodes held for one step, keyed by first slot.
#[derive(Debug)]
pub struct HeldNodes {
    tree: StepTree,
    window: usize,
    nodes: BTreeMap<u32, HeldNode>,
}

/// How two results for one node differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Difference {
    /// In their weights.
    Weight {
        /// The weight that is held.
        held: u64,
        /// The weight that came.
        came: u64,
    },
    /// In their values, first at `element` of the block.
    Element {
        /// Index in the block.
        element: usize,
        /// The value that is held.
        held: f32,
        /// The value that came.
        came: f32,
    },
    /// Of a bucket: in their rows.
    Row(RowDifference),
}

/// What a node is to the nodes that are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// A held node covers it: it is not needed.
    Covered,
    /// It covers the lowest missing slot, and is always taken.
    Lowest,
    /// Were it taken, so many nodes would be held beyond the lowest missing slot.
    Beyond(usize),
}

/// What taking a node has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// How many held nodes it covered.
    pub replaced: usize,
    /// Whether it made the root, which is held, unread in part. So it is once in a step.
    pub is_whole: bool,
}

impl HeldNodes {
    /// Nothing held of a step; at most `window` nodes will be held beyond the lowest missing slot.
    pub fn new(tree: StepTree, window: usize) -> HeldNodes {
        HeldNodes { tree, window, nodes: BTreeMap::new() }
    }

    /// The step's tree.
    pub fn tree(&self) -> StepTree {
        self.tree
    }

    /// What is held, in slot order.
    pub fn nodes(&self) -> impl Iterator<Item = &HeldNode> {
        self.nodes.values()
    }

    /// Rows of a bucket that are held, or more.
    pub fn rows(&self) -> usize {
        self.nodes().map(|held| held.sum.rows()).sum()
    }

    /// The root, once it is whole.
    pub fn root(&self) -> Option<&HeldNode> {
        self.nodes.get(&0).filter(|held| self.tree.covers_all(held.node))
    }

    /// The same, for good.
    pub fn into_root(mut self) -> Option<HeldNode> {
        self.root()?;
        self.nodes.remove(&0)
    }

    /// The credit of a node of the tree, whose gradient has come.
    ///
    /// # Errors
    /// The same node is held with another weight or other values.
    pub fn judge(&self, node: Node, weight: u64, gradient: &Gradient) -> Result<Credit, Difference> {
        let raised = self.raised(node);
        let Some(held) = self.root().or_else(|| self.covering(raised)) else { return Ok(self.credit(node)) };
        let is_same = held.node == raised || self.tree.covers_all(raised);
        let difference = if is_same { held.difference(weight, gradient) } else { None };
        difference.map_or(Ok(Credit::Covered), Err)
    }

    /// The credit of a node of the tree, before it has come.
    pub fn credit(&self, node: Node) -> Credit {
        let node = self.raised(node);
        if self.root().is_some() || self.covering(node).is_some() {
            return Credit::Covered;
        }
        let lowest_missing = self.lowest_missing();
        if node.first() <= lowest_missing && lowest_missing < node.end() {
            return Credit::Lowest;
        }
        Credit::Beyond(self.beyond_after(node, lowest_missing))
    }

    /// Whether a node with that credit is taken.
    pub fn takes(&self, credit: Credit) -> bool {
        match credit {
            Credit::Covered => false,
            Credit::Lowest => true,
            Credit::Beyond(held) => held <= self.window,
        }
    }

    /// Sums of one step are all on the device or all in host memory: brings the others, or `gradient`, to host memory.
    ///
    /// # Errors
    /// The device has failed; nothing of what was there is lost.
    pub fn colocate(&mut self, gradient: &mut Gradient) -> Result<(), DeviceError> {
        let is_on_device = matches!(gradient, Gradient::OnDevice(..));
        if self.nodes.values().all(|held| held.sum.is_on_device() == is_on_device) {
            return Ok(());
        }
        gradient.fetch()?;
        self.nodes.values_mut().try_for_each(|held| held.sum.fetch())
    }

    /// Returns true if the root is in host memory. Otherwise asks the device for it, which signals `block` on arrival, and does not wait.
    pub fn bring_root(&mut self, block: BlockId) -> bool {
        // Sums in host memory are fetched without the device.
        self.nodes.get_mut(&0).is_none_or(|held| held.sum.ask(block) && held.sum.fetch().is_ok())
    }

    /// Takes the gradient of a node, which [`takes`](Self::takes) has allowed, in place of the held nodes that it covers.
    pub fn take(&mut self, node: Node, mut weight: u64, gradient: Gradient) -> Merge {
        let mut node = self.raised(node);
        let covered: Vec<u32> = self.nodes.range(node.first()..node.end()).map(|(first, _)| *first).collect();
        for first in &covered {
            self.nodes.remove(first);
        }
        let mut sum = gradient.into_sum();
        while let Some(sibling) = self.remove_sibling(node) {
            weight = weight.saturating_add(sibling.weight);
            sum = sum.merge(sibling.sum, node.is_left());
            node = self.raised(node.parent());
        }
        let (is_whole, replaced) = (self.tree.covers_all(node), covered.len());
        if !is_whole {
            sum.settle();
        }
        self.nodes.insert(node.first(), HeldNode { node, weight, sum });
        Merge { replaced, is_whole }
    }

    /// The root has to wait: it is to let go of the message that made it.
    pub fn settle(&mut self) {
        if let Some(held) = self.nodes.get_mut(&0) {
            held.sum.settle();
        }
    }

    fn remove_sibling(&mut self, node: Node) -> Option<HeldNode> {
        if !self.has_sibling(node) {
            return None;
        }
        self.nodes.remove(&node.sibling().first())
    }

    fn has_sibling(&self, node: Node) -> bool {
        let sibling = node.sibling();
        !self.tree.covers_all(node)
            && self.nodes.get(&sibling.first()).is_some_and(|held| held.node == sibling)
    }

    /// The highest node that covers the same present slots: an absent sibling is the identity.
    fn raised(&self, mut node: Node) -> Node {
        while !self.tree.covers_all(node) && self.tree.is_absent(node.sibling()) {
            node = node.parent();
        }
        node
    }

    fn covering(&self, node: Node) -> Option<&HeldNode> {
        let (_, held) = self.nodes.range(..=node.first()).next_back()?;
        held.node.covers(node).then_some(held)
    }

    /// The first slot that no held node covers.
    fn lowest_missing(&self) -> u32 {
        let mut next = 0;
        for held in self.nodes.values() {
            if held.node.first() != next {
                break;
            }
            next = held.node.end();
        }
        next
    }

    /// How many nodes would be held beyond the lowest missing slot, once `node` has replaced and merged.
    fn beyond_after(&self, node: Node, lowest_missing: u32) -> usize {
        let before = self.nodes.range(lowest_missing..).count();
        let replaced = self.nodes.range(node.first()..node.end()).count();
        let (mut merged, mut at) = (0, node);
        while self.has_sibling(at) {
            merged += 1;
            at = self.raised(at.parent());
        }
        before - replaced - merged + 1
    }
}

impl HeldNode {
    fn difference(&self, weight: u64, gradient: &Gradient) -> Option<Difference> {
        if self.weight != weight {
            return Some(Difference::Weight { held: self.weight, came: weight });
        }
        self.sum.first_difference(gradient)
    }
}

/// The steps of which nodes may be held, in order.
#[derive(Debug)]
pub(super) struct HeldSteps {
    first: Step,
    /// Nodes taken in so far, also of steps that are done.
    taken: u64,
    steps: VecDeque<HeldNodes>,
}

impl HeldSteps {
    /// Nothing held of the steps from `first` on.
    pub(super) fn new(first: Step, steps: impl IntoIterator<Item = HeldNodes>) -> HeldSteps {
        HeldSteps { first, taken: 0, steps: steps.into_iter().collect() }
    }

    /// A node was taken in.
    pub(super) fn note_taken(&mut self) {
        self.taken += 1;
    }

    /// Nodes taken in so far, also of steps that are done.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// The nodes of one step; none of a step that is done or too far ahead.
    pub(super) fn of(&self, step: Step) -> Option<&HeldNodes> {
        self.steps.get(step.0.checked_sub(self.first.0)? as usize)
    }

    /// The same, to take in an arrival.
    pub(super) fn of_mut(&mut self, step: Step) -> Option<&mut HeldNodes> {
        self.steps.get_mut(step.0.checked_sub(self.first.0)? as usize)
    }

    /// The root of a step that has to wait lets go of the message that made it.
    pub(super) fn settle(&mut self, step: Step) {
        if let Some(held) = self.of_mut(step) {
            held.settle();
        }
    }

    /// Copies the root of the first step to host memory, if it is on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    pub(super) fn bring_root(&mut self, block: BlockId) -> bool {
        self.steps.front_mut().is_none_or(|held| held.bring_root(block))
    }

    /// All nodes by step.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (Step, &HeldNode)> {
        let steps = (self.first.0..).map(Step).zip(&self.steps);
        steps.flat_map(|(step, held)| held.nodes().map(move |node| (step, node)))
    }

    /// The root of the first step, if it is whole.
    pub(super) fn root(&self) -> Option<&HeldNode> {
        self.steps.front().and_then(HeldNodes::root)
    }

    /// Gives the root of the first step away; from now on that is the step after it. `last` is the one that may be held
    /// now as well.
    pub(super) fn advance(&mut self, last: HeldNodes) -> Option<HeldNode> {
        self.root()?;
        self.steps.push_back(last);
        self.first = self.first.next();
        self.steps.pop_front().and_then(HeldNodes::into_root)
    }
}

/// A sum over microbatches.
#[derive(Clone, Debug, PartialEq)]
pub enum Sum {
    /// Of a dense block.
    Dense(DenseSum),
    /// Of a bucket, the rows whose keys occurred.
    Rows(Rows),
}

/// One value for each element of a dense block; none where the block takes no part. What came last in a message may still
/// be there, unread: a root's is read stretch by stretch on its way into the update, which saves a pass over memory.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseSum {
    values: Vec<f32>,
    unread: Option<(Bytes, Side)>,
    /// The sum, if it is on a device: then there are no values in host memory.
    on_device: Option<Tree>,
    /// How messages of the block are to be read, and what becomes of each sum of two.
    precision: Precision,
}

/// What an unread message is of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    /// All of it: there are no values yet.
    All,
    /// To be added to the values, as the left side or the right one.
    Left,
    Right,
}

/// A gradient of one block, as a message or an area of device memory has it.
#[derive(Clone, Debug)]
pub enum Gradient {
    /// In host memory, one little-endian word for each element of the block, of so many bytes as the precision has.
    Words(Bytes, Precision),
    /// On this pserver's device, one f32 for each element of the block, rounded as the precision says.
    OnDevice(Words, Precision),
    /// Of a bucket, the rows whose keys occurred.
    Rows(Rows),
}

impl Gradient {
    /// Copies to host memory what is on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    pub fn fetch(&mut self) -> Result<(), DeviceError> {
        if let Gradient::OnDevice(words, precision) = self {
            let values = Tree::of(words.clone(), *precision).bring()?;
            let words: Vec<u8> = match precision {
                Precision::F32 => bytemuck::cast_slice(&values).to_vec(),
                Precision::Bf16 => values.iter().flat_map(|value| bf16_to_bytes(*value)).collect(),
            };
            *self = Gradient::Words(words.into(), *precision);
        }
        Ok(())
    }

    /// The same, of a dense block unread.
    pub fn into_sum(self) -> Sum {
        match self {
            Gradient::Words(words, precision) => Sum::Dense(DenseSum::unread(words, precision)),
            Gradient::OnDevice(words, precision) => {
                let on_device = Some(Tree::of(words, precision));
                Sum::Dense(DenseSum { values: Vec::new(), unread: None, on_device, precision })
            }
            Gradient::Rows(rows) => Sum::Rows(rows),
        }
    }

    /// Rows of a bucket.
    pub(super) fn rows(&self) -> usize {
        match self {
            Gradient::Words(..) | Gradient::OnDevice(..) => 0,
            Gradient::Rows(rows) => rows.len(),
        }
    }
}

impl From<Vec<f32>> for DenseSum {
    fn from(values: Vec<f32>) -> DenseSum {
        DenseSum { values, unread: None, on_device: None, precision: Precision::F32 }
    }
}

impl DenseSum {
    /// What a message says, little-endian, in that precision.
    pub fn unread(words: Bytes, precision: Precision) -> DenseSum {
        DenseSum { values: Vec::new(), unread: Some((words, Side::All)), on_device: None, precision }
    }

    /// Whether it has no values, and none to be read.
    pub fn is_empty(&self) -> bool {
        let is_unread = self.unread.as_ref().is_some_and(|(words, _)| !words.is_empty());
        self.values.is_empty()
            && !is_unread
            && self.on_device.as_ref().is_none_or(|tree| tree.elements() == 0)
    }

    /// The sum, if it is on a device.
    pub fn on_device(&self) -> Option<&Tree> {
        self.on_device.as_ref()
    }

    /// Copies to host memory what is on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    fn fetch(&mut self) -> Result<(), DeviceError> {
        if let Some(tree) = &self.on_device {
            self.values = tree.bring()?;
            self.on_device = None;
        }
        Ok(())
    }

    /// Reads what is unread, and lets go of the message. What is on a device stays there.
    pub fn settle(&mut self) {
        let elements = self.elements();
        self.stretch(0..elements);
        self.unread = None;
    }

    /// Settles it into a buffer that its clones share.
    fn freeze(&mut self) {
        debug_assert!(self.on_device.is_none(), "it is to be fetched before it is frozen");
        self.settle();
        let values = std::mem::take(&mut self.values);
        *self = DenseSum::unread(bytes_of(Arc::new(values)), Precision::F32);
    }

    /// Its values, little-endian f32; shared if it is frozen.
    pub fn bytes(&self) -> Bytes {
        match &self.unread {
            Some((words, Side::All)) if self.precision == Precision::F32 => words.clone(),
            _ => bytes_of(Arc::new(self.values().to_vec())),
        }
    }

    /// All values of one that is settled.
    pub fn values(&self) -> &[f32] {
        debug_assert!(self.unread.is_none(), "it is to be settled before it is looked at");
        debug_assert!(self.on_device.is_none(), "it is to be brought here before it is looked at");
        &self.values
    }

    /// The values of the stretch that comes next, read now. Stretches are asked for in order, each once.
    pub(super) fn stretch(&mut self, range: Range<usize>) -> &mut [f32] {
        match self.precision {
            Precision::F32 => self.read::<Single>(range.clone(), |words| words.as_chunks().0),
            Precision::Bf16 => self.read::<Half>(range.clone(), |words| words.as_chunks().0),
        }
        &mut self.values[range]
    }

    /// Reads a stretch of what is unread, by what its bytes are as words.
    #[inline]
    fn read<W: Word>(&mut self, range: Range<usize>, words: fn(&[u8]) -> &[W]) {
        let Some((bytes, side)) = &self.unread else { return };
        let words = &words(bytes)[range.clone()];
        match side {
            Side::All => {
                if self.values.is_empty() {
                    self.values.reserve_exact(bytes.len() / self.precision.bytes());
                }
                read_into(words, &mut self.values);
            }
            Side::Left => add_left_words(words, &mut self.values[range]),
            Side::Right => add_right_words(&mut self.values[range], words),
        }
    }

    /// Reads all of it to there, stretch by stretch.
    pub(super) fn read_to(&mut self, to: &mut [f32]) {
        for (at, to) in to.chunks_mut(STRETCH).enumerate() {
            let first = at * STRETCH;
            to.copy_from_slice(self.stretch(first..first + to.len()));
        }
    }

    /// All values, once every stretch was asked for.
    pub(super) fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// How many values it has.
    pub fn elements(&self) -> usize {
        self.unread.as_ref().map_or(self.values.len(), |(words, _)| words.len() / self.precision.bytes())
    }

    /// Both are of one block, and so of one precision; both are here, or both on a device.
    fn merge(mut self, mut sibling: DenseSum, is_left: bool) -> DenseSum {
        let precision = self.precision;
        if let (Some(tree), Some(other)) = (&self.on_device, &sibling.on_device) {
            let on_device =
                Some(tree.join(other).unwrap_or_else(|| unreachable!("a step's tree is not so deep")));
            return DenseSum { on_device, ..self };
        }
        sibling.settle();
        if let Some((words, Side::All)) = self.unread {
            let side = if is_left { Side::Left } else { Side::Right };
            return DenseSum {
                values: sibling.values,
                unread: Some((words, side)),
                on_device: None,
                precision,
            };
        }
        self.settle();
        let (mut left, right) = if is_left { (self, sibling) } else { (sibling, self) };
        match precision {
            Precision::F32 => add_right::<Single>(&mut left.values, &right.values),
            Precision::Bf16 => add_right::<Half>(&mut left.values, &right.values),
        }
        left
    }
}

/// The first difference in bits of values to words.
fn difference<W: Word>(held: &[f32], words: &[W]) -> Option<Difference> {
    let element = first_difference(held, words)?;
    Some(Difference::Element { element, held: held[element], came: words[element].read() })
}

impl Sum {
    /// Of no microbatch.
    pub(super) fn nothing(is_of_rows: bool) -> Sum {
        if is_of_rows { Sum::Rows(Rows::default()) } else { Sum::Dense(Vec::new().into()) }
    }

    /// Reads what is unread of it.
    pub fn settle(&mut self) {
        if let Sum::Dense(sum) = self {
            sum.settle();
        }
    }

    /// Reads what is unread of it, so that its clones share the values of a dense block.
    pub fn freeze(&mut self) {
        if let Sum::Dense(sum) = self {
            sum.freeze();
        }
    }

    /// Returns true if a fetch would not wait for a device. Otherwise asks the device for it.
    fn ask(&self, block: BlockId) -> bool {
        match self {
            Sum::Dense(sum) => sum.on_device.as_ref().is_none_or(|tree| tree.ask(block)),
            Sum::Rows(_) => true,
        }
    }

    /// Whether it is on a device.
    pub(super) fn is_on_device(&self) -> bool {
        matches!(self, Sum::Dense(sum) if sum.on_device.is_some())
    }

    /// Copies to host memory what is on a device.
    ///
    /// # Errors
    /// The device has failed; it is there still.
    pub(super) fn fetch(&mut self) -> Result<(), DeviceError> {
        match self {
            Sum::Dense(sum) => sum.fetch(),
            Sum::Rows(_) => Ok(()),
        }
    }

    /// Rows of a bucket.
    pub(super) fn rows(&self) -> usize {
        match self {
            Sum::Dense(_) => 0,
            Sum::Rows(rows) => rows.len(),
        }
    }

    /// `left + right`, where this is the left one or the right one of the two. Both are of one block.
    pub(super) fn merge(self, sibling: Sum, is_left: bool) -> Sum {
        match (self, sibling) {
            (Sum::Dense(sum), Sum::Dense(sibling)) => Sum::Dense(sum.merge(sibling, is_left)),
            (Sum::Rows(left), Sum::Rows(right)) if is_left => Sum::Rows(left.merge(right)),
            (Sum::Rows(right), Sum::Rows(left)) => Sum::Rows(left.merge(right)),
            (Sum::Dense(_), Sum::Rows(_)) | (Sum::Rows(_), Sum::Dense(_)) => {
                unreachable!("a block is dense or a bucket: its shape has checked what came")
            }
        }
    }

    /// The first difference in bits to what came for the same node.
    pub(super) fn first_difference(&self, came: &Gradient) -> Option<Difference> {
        if self.is_on_device() || matches!(came, Gradient::OnDevice(..)) {
            // A device that has failed contradicts nothing.
            let [mut held, mut came] = [self.clone(), came.clone().into_sum()];
            [&mut held, &mut came].into_iter().try_for_each(Sum::fetch).ok()?;
            came.settle();
            let Sum::Dense(came) = came else { return None };
            let words = bytemuck::cast_slice::<f32, u8>(came.values()).to_vec().into();
            return held.first_difference(&Gradient::Words(words, Precision::F32));
        }
        match (self, came) {
            (Sum::Dense(held), Gradient::Words(words, Precision::F32)) => {
                difference::<Single>(held.values(), words.as_chunks().0)
            }
            (Sum::Dense(held), Gradient::Words(words, Precision::Bf16)) => {
                difference::<Half>(held.values(), words.as_chunks().0)
            }
            (Sum::Rows(held), Gradient::Rows(rows)) => held.first_difference(rows).map(Difference::Row),
            (Sum::Dense(_), Gradient::Rows(_) | Gradient::OnDevice(..))
            | (Sum::Rows(_), Gradient::Words(..) | Gradient::OnDevice(..)) => {
                unreachable!("a block is dense or a bucket: its shape has checked what came")
            }
        }
    }
}

#[cfg(test)]
impl Sum {
    /// The values of a dense block.
    pub(crate) fn dense(&self) -> Vec<f32> {
        match self.clone() {
            Sum::Dense(mut sum) => {
                sum.fetch().unwrap();
                sum.settle();
                sum.into_values()
            }
            Sum::Rows(rows) => panic!("{rows:?}"),
        }
    }
}

#[cfg(test)]
mod tests;
