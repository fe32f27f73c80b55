//! What pservers have said of their blocks: the truth about progress. Pure.
//!
//! Invariant: a word about a block counts only from its primary under its present term. When the term changes the word
//! is forgotten; until the next one the block has published nothing and lacks everything.

use crate::decide::{CopyWord, Sums};
use crate::document::PlacedBlock;
use crate::lease::Lacking;
use crate::runs;
use shoal_runtime::cluster::tree::aligned;
use shoal_runtime::cluster::{
    BlockId, Fill, Incarnation, JobShape, Ledger, Node, StateName, Step, Term, Version,
};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of one pserver whose primaries stand alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockProgress {
    /// The blocks.
    pub blocks: Vec<BlockId>,
    /// Their term.
    pub term: Term,
    /// Updates published.
    pub version: Version,
    /// Synchronous jobs: nodes held of this and later steps, disjoint in each.
    pub held: Vec<(Step, Vec<Node>)>,
    /// Asynchronous jobs: the positions published.
    pub ledger: Ledger,
}

/// Blocks of one pserver whose copies follow, and stand alike.
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

/// The sums of one block that holds metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockSums {
    /// The block.
    pub block: BlockId,
    /// Its term.
    pub term: Term,
    /// Which evaluation.
    pub number: u64,
    /// The sums.
    pub sums: Vec<f32>,
}

/// What is known of one block.
#[derive(Debug)]
struct KnownBlock {
    term: Term,
    primary: Incarnation,
    word: Option<Arc<PrimaryWord>>,
    /// Of metrics: the newest whole sums, and which evaluation's they are.
    sums: Option<(u64, Vec<f32>)>,
}

/// How a primary stands.
#[derive(Debug, PartialEq, Eq)]
struct PrimaryWord {
    version: Version,
    /// Synchronous jobs: nodes held of this and later steps, disjoint in each.
    held: Vec<(Step, Vec<Node>)>,
    /// Asynchronous jobs: the positions published.
    ledger: Ledger,
}

/// The different words about blocks that trainers push to, each once, and how many blocks stand so: there are few, however many
/// blocks there are.
#[derive(Debug, Default)]
struct PrimaryWords(BTreeMap<(Version, Held), Vec<Counted>>);

/// A word, and how many blocks stand so.
type Counted = (Arc<PrimaryWord>, usize);

/// Nodes held, by step.
type Held = Vec<(Step, Vec<Node>)>;

impl PrimaryWords {
    /// The word, shared with the blocks that stand so already.
    fn share(&mut self, word: PrimaryWord) -> Arc<PrimaryWord> {
        let alike = self.0.entry((word.version, word.held.clone())).or_default();
        match alike.iter_mut().find(|(known, _)| known.ledger == word.ledger) {
            Some((known, _)) => Arc::clone(known),
            None => {
                let word = Arc::new(word);
                alike.push((Arc::clone(&word), 0));
                word
            }
        }
    }

    /// One block more stands so, or one fewer.
    fn count(&mut self, word: &Arc<PrimaryWord>, is_more: bool) {
        let of = (word.version, word.held.clone());
        let Some(alike) = self.0.get_mut(&of) else { return };
        if let Some((_, blocks)) = alike.iter_mut().find(|(known, _)| Arc::ptr_eq(known, word)) {
            *blocks = if is_more { *blocks + 1 } else { blocks.saturating_sub(1) };
        }
        self.forget_unused(word);
    }

    /// A word as which no block stands is forgotten.
    fn forget_unused(&mut self, word: &Arc<PrimaryWord>) {
        let of = (word.version, word.held.clone());
        let Some(alike) = self.0.get_mut(&of) else { return };
        alike.retain(|(_, blocks)| *blocks > 0);
        if alike.is_empty() {
            self.0.remove(&of);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<PrimaryWord>> {
        self.0.values().flatten().map(|(word, _)| word)
    }
}

/// The newest words about every block and every copy.
#[derive(Debug)]
pub struct Reports {
    shape: JobShape,
    /// Which no trainer pushes to: it lacks nothing.
    scalars: Option<BlockId>,
    blocks: Vec<KnownBlock>,
    words: PrimaryWords,
    /// Blocks that trainers push to and nothing was heard of under their terms.
    unheard: usize,
    /// What every block has published, worked out once for all that ask between two words.
    shared: OnceCell<Option<Ledger>>,
    copies: BTreeMap<(BlockId, Incarnation), CopyWord>,
}

impl Reports {
    /// Nothing heard yet of blocks placed so.
    pub fn new(shape: JobShape, placed: &[PlacedBlock], scalars: Option<BlockId>) -> Reports {
        let known = |block: &PlacedBlock| KnownBlock {
            term: block.term,
            primary: block.primary,
            word: None,
            sums: None,
        };
        let blocks: Vec<KnownBlock> = placed.iter().map(known).collect();
        let is_there = |scalars: &BlockId| (scalars.0 as usize) < blocks.len();
        let unheard = blocks.len() - usize::from(scalars.as_ref().is_some_and(is_there));
        let (words, shared, copies) = (PrimaryWords::default(), OnceCell::new(), BTreeMap::new());
        Reports { shape, scalars, blocks, words, unheard, shared, copies }
    }

    /// Blocks are placed anew: words of other terms are forgotten.
    pub fn place(&mut self, placed: &[PlacedBlock]) {
        self.shared.take();
        for (at, block) in placed.iter().enumerate().take(self.blocks.len()) {
            let known = &self.blocks[at];
            if (known.term, known.primary) != (block.term, block.primary) {
                self.set_word(BlockId(at as u32), None);
                self.blocks[at] =
                    KnownBlock { term: block.term, primary: block.primary, word: None, sums: None };
            }
        }
        let is_there = |id: &BlockId, pserver: &Incarnation, word: &CopyWord| {
            let block = placed.get(id.0 as usize).and_then(|block| block.copy_on(*pserver));
            block.is_some_and(|copy| copy.fill == word.fill)
        };
        self.copies.retain(|(id, pserver), word| is_there(id, pserver, word));
    }

    /// A block stands so from now on.
    fn set_word(&mut self, id: BlockId, word: Option<Arc<PrimaryWord>>) {
        let known = &mut self.blocks[id.0 as usize];
        let before = std::mem::replace(&mut known.word, word.clone());
        if Some(id) == self.scalars {
            return;
        }
        self.unheard = self.unheard + usize::from(before.is_some()) - usize::from(word.is_some());
        if let Some(word) = word {
            self.words.count(&word, true);
        }
        if let Some(before) = before {
            self.words.count(&before, false);
        }
    }

    /// Takes a pserver's newest word. Returns whether some block was heard of for the first time under its term.
    pub fn hear(
        &mut self,
        pserver: Incarnation,
        progress: Vec<BlockProgress>,
        copies: Vec<CopyProgress>,
    ) -> bool {
        self.shared.take();
        let mut is_first = false;
        for BlockProgress { blocks, term, version, held, ledger } in progress {
            let word = self.words.share(PrimaryWord { version, held, ledger });
            for id in blocks {
                let Some(known) = self.blocks.get(id.0 as usize) else { continue };
                if (known.term, known.primary) == (term, pserver) {
                    is_first |= known.word.is_none();
                    self.set_word(id, Some(Arc::clone(&word)));
                }
            }
            self.words.forget_unused(&word);
        }
        for CopyProgress { blocks, fill, name, is_broken } in copies {
            // Of blocks that there are: what others are said to be is nobody's.
            for id in blocks.into_iter().filter(|id| (id.0 as usize) < self.blocks.len()) {
                self.copies.insert((id, pserver), CopyWord { fill, name, is_broken });
            }
        }
        is_first
    }

    /// A primary says what an evaluation came to, as far as its block holds it.
    pub fn hear_sums(&mut self, pserver: Incarnation, sums: BlockSums) {
        let known = self.blocks.get_mut(sums.block.0 as usize);
        if let Some(known) = known.filter(|known| (known.term, known.primary) == (sums.term, pserver)) {
            known.sums = Some((sums.number, sums.sums));
        }
    }

    /// What was said of metrics.
    pub fn sums(&self) -> Sums {
        let blocks = (0..).map(BlockId).zip(&self.blocks);
        blocks.filter_map(|(id, known)| Some((id, known.sums.clone()?))).collect()
    }

    /// What followers have said of their copies.
    pub fn copies(&self) -> &BTreeMap<(BlockId, Incarnation), CopyWord> {
        &self.copies
    }

    /// Whether a block was heard of under its term.
    pub fn has_heard_of(&self, block: BlockId) -> bool {
        self.blocks.get(block.0 as usize).is_some_and(|known| known.word.is_some())
    }

    /// Blocks of which nothing was heard under their terms.
    pub fn unheard(&self) -> impl Iterator<Item = BlockId> {
        (0..).map(BlockId).zip(&self.blocks).filter(|(_, known)| known.word.is_none()).map(|(id, _)| id)
    }

    /// Blocks that no other is behind, each with its version: by their ledgers in asynchronous jobs.
    pub fn behind(&self, is_sync: bool) -> impl Iterator<Item = (BlockId, Version)> {
        let place = move |word: &PrimaryWord| if is_sync { word.version.0 } else { word.ledger.low() };
        let heard = || {
            (0..).map(BlockId).zip(&self.blocks).filter_map(|(id, known)| Some((id, known.word.as_ref()?)))
        };
        let lowest = heard().map(|(_, word)| place(word)).min();
        heard().filter(move |(_, word)| Some(place(word)) == lowest).map(|(id, word)| (id, word.version))
    }

    /// The lowest version over all blocks; none while some block is unheard of under its term.
    pub fn lowest_version(&self) -> Option<Version> {
        let scalars = self.scalars.and_then(|scalars| self.blocks.get(scalars.0 as usize));
        let of_scalars = match scalars {
            Some(known) => Some(known.word.as_ref()?.version),
            None => None,
        };
        let lowest = self.words.iter().next().map(|word| word.version);
        if self.unheard > 0 {
            return None;
        }
        lowest.into_iter().chain(of_scalars).min()
    }

    /// The positions that every block has published; none while some block is unheard of under its term.
    fn ledger(&self) -> Option<&Ledger> {
        let intersection = || {
            let mut words = self.words.iter().filter(|_| self.unheard == 0);
            let first = words.next()?.ledger.clone();
            Some(words.fold(first, |all, word| all.intersection(&word.ledger)))
        };
        self.shared.get_or_init(intersection).as_ref()
    }
}

impl runs::Lacking for Reports {
    fn front(&self) -> Option<u64> {
        self.ledger().map(Ledger::low)
    }

    fn lacking(&self, range: Range<u64>) -> Option<Range<u64>> {
        match self.ledger() {
            Some(ledger) => ledger.missing(range).next(),
            None => Some(range),
        }
    }
}

impl Lacking for Reports {
    fn lacking(&self, step: Step, node: Node) -> Vec<Node> {
        let tree = self.shape.tree(step);
        let (first, end) = (node.first(), node.end().min(tree.present()));
        let mut lacks = vec![false; end.saturating_sub(first) as usize];
        if self.unheard > 0 {
            lacks.fill(true);
        }
        for word in self.words.iter() {
            if word.version > step.replaces() {
                continue;
            }
            let held = word.held.iter().find(|(held, _)| *held == step).map_or(&[][..], |(_, nodes)| nodes);
            for missing in tree.missing(held.iter().copied()) {
                let from = missing.first().clamp(first, end.max(first));
                let to = missing.end().clamp(first, end.max(first));
                lacks[(from - first) as usize..(to - first) as usize].fill(true);
            }
        }
        stretches(&lacks, first)
    }
}

/// The true stretches of `lacks` as aligned nodes, `first` being the slot of its first element.
fn stretches(lacks: &[bool], first: u32) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut at = 0;
    while at < lacks.len() {
        let length = lacks[at..].iter().take_while(|lacking| **lacking).count();
        aligned(first + at as u32, first + (at + length) as u32, &mut nodes);
        at += length.max(1);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_runtime::cluster::Rewind;
    use shoal_runtime::cluster::plan::EpochShape;
    use std::collections::BTreeSet;

    fn shape() -> JobShape {
        JobShape::new(EpochShape::new(64, 1, 8), 9)
    }
    fn group(blocks: &[u32], term: u64, version: u64, held: &[(u8, u32)]) -> BlockProgress {
        BlockProgress {
            blocks: blocks.iter().map(|b| BlockId(*b)).collect(),
            term: Term(term),
            version: Version(version),
            held: vec![(
                Step(version),
                held.iter().map(|(level, index)| Node { level: *level, index: *index }).collect(),
            )],
            ledger: Ledger::default(),
        }
    }
    fn placed(term: u64, primaries: &[u64]) -> Vec<PlacedBlock> {
        let block = |primary: &u64| PlacedBlock {
            term: Term(term),
            rewind: Rewind(1),
            primary: Incarnation(*primary),
            copies: Vec::new(),
            heir: None,
            origin: None,
        };
        primaries.iter().map(block).collect()
    }
    fn reports() -> Reports {
        Reports::new(shape(), &placed(1, &[1, 1, 2]), None)
    }
    const ONE: Incarnation = Incarnation(1);
    const TWO: Incarnation = Incarnation(2);

    #[test]
    fn a_block_that_was_not_heard_of_has_published_nothing() {
        let mut reports = reports();
        assert!(reports.hear(ONE, vec![group(&[0], 1, 3, &[])], vec![]));
        reports.hear(TWO, vec![group(&[2], 1, 3, &[])], vec![]);
        assert_eq!(reports.lowest_version(), None);
        reports.hear(ONE, vec![group(&[0], 1, 3, &[]), group(&[1], 1, 4, &[])], vec![]);
        assert_eq!(reports.lowest_version(), Some(Version(3)));
    }

    #[test]
    fn what_any_block_lacks_is_lacking() {
        let mut reports = reports();
        reports.hear(ONE, vec![group(&[0, 1], 1, 3, &[(2, 0), (0, 5)])], vec![]);
        reports.hear(TWO, vec![group(&[2], 1, 4, &[])], vec![]);
        let node = Node { level: 3, index: 0 };
        let lacking: Vec<(u8, u32)> =
            reports.lacking(Step(3), node).iter().map(|n| (n.level, n.index)).collect();
        assert_eq!(lacking, [(0, 4), (1, 3)]);
        assert_eq!(reports.lacking(Step(3), Node { level: 2, index: 0 }), []);
        assert_eq!(reports.lacking(Step(4), node), [node]);
    }

    #[test]
    fn a_word_about_a_block_that_another_leads_or_nobody_changes_nothing() {
        let mut reports = reports();
        let all = vec![group(&[0, 1], 1, 4, &[])];
        reports.hear(ONE, all, vec![]);
        reports.hear(TWO, vec![group(&[2], 1, 4, &[])], vec![]);
        assert!(!reports.hear(ONE, vec![group(&[2, 9], 1, 7, &[])], vec![]));
        assert_eq!(reports.lowest_version(), Some(Version(4)));
    }

    #[test]
    fn a_new_term_forgets_the_word_and_takes_none_of_the_old() {
        let mut reports = reports();
        reports.hear(ONE, vec![group(&[0, 1], 1, 4, &[])], vec![]);
        reports.hear(TWO, vec![group(&[2], 1, 4, &[])], vec![]);
        let mut moved = placed(1, &[1, 1, 2]);
        (moved[2].term, moved[2].primary) = (Term(5), ONE);
        reports.place(&moved);
        assert_eq!(reports.lowest_version(), None);
        let node = Node { level: 3, index: 0 };
        assert_eq!(reports.lacking(Step(2), node), [node], "until then the block lacks everything");
        reports.hear(TWO, vec![group(&[2], 1, 4, &[])], vec![]);
        reports.hear(ONE, vec![group(&[2], 1, 4, &[])], vec![]);
        assert_eq!(reports.lowest_version(), None);
        assert!(reports.hear(ONE, vec![group(&[2], 5, 4, &[])], vec![]));
        assert_eq!(reports.lowest_version(), Some(Version(4)));
    }

    #[test]
    fn only_the_first_word_under_a_term_is_the_first() {
        let mut reports = reports();
        assert!(reports.hear(ONE, vec![group(&[0], 1, 0, &[])], vec![]));
        assert!(!reports.hear(ONE, vec![group(&[0], 1, 1, &[])], vec![]));
        assert!(reports.hear(ONE, vec![group(&[0, 1], 1, 1, &[])], vec![]), "of the other block");
        reports.place(&placed(1, &[1, 1, 2]));
        assert!(!reports.hear(ONE, vec![group(&[0, 1], 1, 2, &[])], vec![]), "no term has changed");
    }

    #[test]
    fn a_block_that_fell_over_lacks_everything_and_the_others_what_they_lacked() {
        let mut reports = reports();
        let halves = [(2, 0), (2, 1)];
        reports.hear(ONE, vec![group(&[0, 1], 1, 3, &halves[..1])], vec![]);
        reports.hear(TWO, vec![group(&[2], 1, 3, &halves[..1])], vec![]);
        let node = Node { level: 3, index: 0 };
        let right = Node { level: 2, index: 1 };
        assert_eq!(reports.lacking(Step(3), node), [right]);
        let mut moved = placed(1, &[1, 1, 2]);
        moved[0].term = Term(6);
        reports.place(&moved);
        assert_eq!(reports.lacking(Step(3), node), [node]);
        reports.hear(ONE, vec![group(&[0], 6, 3, &halves[1..])], vec![]);
        assert_eq!(reports.lacking(Step(3), node), [node], "one half is lacked here, the other there");
        reports.hear(ONE, vec![group(&[0], 6, 4, &[])], vec![]);
        assert_eq!(reports.lacking(Step(3), node), [right]);
    }

    proptest! {
        /// Words are shared and counted; the definition keeps one for each block.
        #[test]
        fn shared_words_say_what_the_words_of_all_blocks_say(
            turns in proptest::collection::vec((0u32..5, 1u64..4, 0u64..4, 0u32..4, any::<bool>()), 1..60)
        ) {
            let mut terms = [1; 5];
            let mut known: [Option<(u64, u32)>; 5] = [None; 5];
            let place = |terms: &[u64; 5]| terms.iter().map(|term| placed(*term, &[1]).remove(0)).collect::<Vec<_>>();
            let mut reports = Reports::new(shape(), &place(&terms), Some(BlockId(4)));
            for (block, term, version, slot, moves) in turns {
                if moves {
                    if terms[block as usize] != term {
                        known[block as usize] = None;
                    }
                    terms[block as usize] = term;
                    reports.place(&place(&terms));
                } else {
                    let blocks = [block, (block + 1) % 5];
                    reports.hear(ONE, vec![group(&blocks, term, version, &[(0, slot)])], vec![]);
                    for block in blocks.map(|block| block as usize).into_iter().filter(|block| terms[*block] == term) {
                        known[block] = Some((version, slot));
                    }
                }
                let versions = known.iter().map(|word| Some(Version((*word)?.0)));
                prop_assert_eq!(reports.lowest_version(), versions.min().flatten());
                for step in 0..4 {
                    let lacks = |slot: u32| known[..4].iter().any(|word| {
                        word.is_none_or(|(version, held)| version < step || (version == step && held != slot))
                    });
                    let lacking = reports.lacking(Step(step), Node { level: 2, index: 0 });
                    let is_lacking = |slot| lacking.iter().any(|node| node.covers(Node::leaf(slot)));
                    prop_assert!((0..4).all(|slot| is_lacking(slot) == lacks(slot)), "{known:?} {step} {lacking:?}");
                }
                let distinct: BTreeSet<_> = known[..4].iter().flatten().collect();
                prop_assert_eq!(reports.words.iter().count(), distinct.len(), "no more are kept than there are");
            }
        }
    }

    #[test]
    fn what_followers_say_is_kept_for_as_long_as_their_copies_are_there() {
        let word = |blocks: &[u32], fill: u64, version: u64| CopyProgress {
            blocks: blocks.iter().map(|id| BlockId(*id)).collect(),
            fill: Fill(fill),
            name: Some(StateName { term: Term(1), version: Version(version) }),
            is_broken: version == 0,
        };
        let mut followed = placed(1, &[1, 1, 2]);
        followed.iter_mut().for_each(|block| block.add(Incarnation(3), 4));
        let mut reports = Reports::new(shape(), &followed, None);
        assert!(!reports.hear(Incarnation(3), vec![], vec![word(&[0, 1], 4, 7), word(&[2], 4, 0)]));
        let known = |reports: &Reports, id: u32| {
            let known = reports.copies().get(&(BlockId(id), Incarnation(3)))?;
            Some((known.fill.0, known.name.map(|name| name.version.0), known.is_broken))
        };
        let all = [0, 1, 2].map(|id| known(&reports, id));
        assert_eq!(all, [Some((4, Some(7), false)), Some((4, Some(7), false)), Some((4, Some(0), true))]);
        followed[0].term = Term(9);
        followed[1].remove(Incarnation(3));
        followed[2].copies[0].fill = Fill(8);
        reports.place(&followed);
        let left = [0, 1, 2].map(|id| known(&reports, id).is_some());
        assert_eq!(
            left,
            [true, false, false],
            "a change of primary keeps copies, a new fill forgets the old"
        );
    }

    #[test]
    fn the_ledger_is_what_every_block_has_published() {
        let mut reports = reports();
        let with = |blocks: &[u32], low: u64| {
            let ledger = Ledger::from_parts(low, std::iter::once(low + 2..low + 4)).unwrap();
            BlockProgress { ledger, ..group(blocks, 1, low + 2, &[]) }
        };
        reports.hear(ONE, vec![with(&[0], 3), with(&[1], 5)], vec![]);
        assert_eq!(reports.ledger(), None);
        reports.hear(TWO, vec![with(&[2], 4)], vec![]);
        assert_eq!(reports.ledger(), Some(&Ledger::from_parts(3, []).unwrap()));
    }
}
