//! The truth that the lease machine's model judges by: blocks, who leads them, what they hold, what was told of it.

use super::*;

/// One block as its primary has it.
#[derive(Clone, Debug)]
struct Block {
    term: u64,
    /// The pserver of its primary.
    host: usize,
    version: u64,
    /// Slots held of the step that reads `version`.
    held: BTreeSet<u32>,
    /// What has arrived of it under its term: its version.
    told: Option<u64>,
}

/// Three blocks on two pservers.
#[derive(Debug)]
pub(super) struct Blocks {
    shape: JobShape,
    blocks: [Block; 3],
    /// Of each pserver the newest report that arrived.
    newest: [u64; 2],
}

impl Blocks {
    pub(super) fn new(shape: JobShape) -> Blocks {
        let block = |host| Block { term: 1, host, version: 0, held: BTreeSet::new(), told: None };
        Blocks { shape, blocks: [0, 0, 1].map(block), newest: [0; 2] }
    }

    pub(super) fn placed(&self) -> Vec<PlacedBlock> {
        let placed = |block: &Block| PlacedBlock::restored(pserver(block.host), block.term);
        self.blocks.iter().map(placed).collect()
    }

    /// The version that every block has published.
    pub(super) fn published(&self) -> u64 {
        self.blocks.iter().map(|block| block.version).min().unwrap()
    }

    /// The lowest version that was told of any block; none while some block is unheard of under its term.
    pub(super) fn told(&self) -> Option<u64> {
        let told: Option<Vec<u64>> = self.blocks.iter().map(|block| block.told).collect();
        told.and_then(|told| told.into_iter().min())
    }

    /// Whether a block that was heard of under its term lacks a slot.
    pub(super) fn lacks(&self, step: Step, slot: u32) -> bool {
        let lacks = |block: &Block| {
            block.version < step.0 || (block.version == step.0 && !block.held.contains(&slot))
        };
        self.blocks.iter().filter(|block| block.told.is_some()).any(lacks)
    }

    pub(super) fn report_of(&self, pserver: usize) -> Vec<BlockProgress> {
        let progress = |(id, block): (u32, &Block)| {
            let mut held = Vec::new();
            let (mut from, end) = (0, block.held.last().map_or(0, |last| last + 1));
            while from < end {
                let to = (from..=end).find(|slot| !block.held.contains(slot)).unwrap();
                aligned(from, to, &mut held);
                from = to + 1;
            }
            let (blocks, term, version) = (vec![BlockId(id)], Term(block.term), Version(block.version));
            BlockProgress {
                blocks,
                term,
                version,
                held: vec![(Step(block.version), held)],
                ledger: Ledger::default(),
            }
        };
        (0..).zip(&self.blocks).filter(|(_, block)| block.host == pserver).map(progress).collect()
    }

    /// A report has arrived. False if it was overtaken.
    pub(super) fn note(&mut self, from: usize, call: u64, progress: &[BlockProgress]) -> bool {
        if call <= self.newest[from] {
            return false;
        }
        self.newest[from] = call;
        for group in progress {
            let block = &mut self.blocks[group.blocks[0].0 as usize];
            if (block.term, block.host) == (group.term.0, from) {
                block.told = Some(group.version.0);
            }
        }
        true
    }

    pub(super) fn fail_over(&mut self, block: usize) {
        let block = &mut self.blocks[block];
        (block.term, block.host, block.told) = (block.term + 1, 1 - block.host, None);
        block.held.clear();
    }

    /// A computed node reaches the blocks of `mask`; a block that has it, or has made the step, answers all the same.
    pub(super) fn push(&mut self, task: &mut InHand, mask: u8) {
        let Grant { step, node, .. } = task.grant;
        if task.computed < node.width() {
            return;
        }
        for (at, block) in self.blocks.iter_mut().enumerate().filter(|(at, _)| mask & (1 << at) != 0) {
            assert!(step.0 <= block.version, "a trainer that is ahead of the job");
            task.answered.insert(at);
            if step.0 == block.version {
                block.held.extend(node.first()..node.end());
                if block.held.len() as u32 == self.shape.tree(step).present() {
                    (block.version, block.held) = (step.0 + 1, BTreeSet::new());
                }
            }
        }
    }
}
