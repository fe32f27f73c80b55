//! This pserver's part in the checkpoint under way: pieces to write, files written.

use super::{Kind, Listener, Shard, Since};
use crate::block::memory::Budget;
use crate::block::{GivenPiece, NamedCheckpoint};
use crate::hosting::Hosted;
use shoal_runtime::cluster::checkpoint::WrittenFile;
use shoal_runtime::cluster::{BlockId, CheckpointId, DamagedCheckpoint, Refusal};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

/// Pieces that one file has at most: a report tells of them all.
const FILE_PIECES_MAX: usize = 1 << 15;
/// Pieces that one report tells of, if they are of more than one file: about 4 MiB.
const REPORT_PIECES_MAX: usize = 1 << 16;
/// Blocks without a piece that one report tells of: 192 KiB.
const REPORT_PASSED_MAX: usize = 1 << 16;

/// How far this pserver is with the checkpoint under way.
#[derive(Clone, Debug, Default)]
pub struct Checkpointing {
    /// Which is under way.
    pub named: Option<NamedCheckpoint>,
    /// Files that are written and synced.
    pub written: Vec<WrittenFile>,
    /// Blocks that were past the version when they heard of it, or began to lead.
    pub passed: Vec<BlockId>,
    /// Files begun, failed ones included: each has a name of its own.
    pub begun: u64,
}

/// Blocks whose pieces wait to be written.
#[derive(Debug)]
pub struct Pieces {
    waiting: BTreeSet<BlockId>,
    taken: Listener,
}

impl Pieces {
    /// Waits until there may be more.
    pub async fn changed(&mut self) {
        self.taken.changed().await;
    }
}

/// Gives away one block's piece of a checkpoint, or its next segment.
fn give(
    shard: &Arc<Shard>,
    hosted: Arc<Hosted>,
    checkpoint: CheckpointId,
) -> impl FnOnce() -> Result<Option<GivenPiece>, Refusal> + Send + 'static {
    let shard = Arc::clone(shard);
    move || shard.with(&hosted, |block| block.give_piece(checkpoint))
}

impl Shard {
    /// The same with a bound, in bytes, on what pieces hold beyond what training needs while they wait to be written.
    /// Updates that would hold more are put off.
    pub fn with_checkpoint_memory(mut self, bytes: u64) -> Shard {
        let freed = self.freed.clone();
        self.settings = Arc::new(self.settings.with_budget(Budget::telling(bytes, move || freed.send())));
        self
    }

    /// The same with segments of buckets of another size, in bytes, about.
    pub fn with_segments(mut self, bytes: usize) -> Shard {
        self.settings = Arc::new(self.settings.with_segments(bytes));
        self
    }

    /// The most bytes that pieces held at a time beyond what training needs.
    pub fn checkpoint_memory_peak(&self) -> u64 {
        self.settings.budget().peak()
    }

    /// The checkpoint under way.
    pub fn named(&self) -> Option<NamedCheckpoint> {
        self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner).named
    }

    /// Returns this pserver's part in the checkpoint under way: files from number `from` on, and blocks without a piece from
    /// `passed_from` on, as many as fit one report.
    pub fn checkpointing(&self, from: usize, passed_from: usize) -> Checkpointing {
        let known = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut pieces, after) = (0, known.written.iter().skip(from));
        let fits = |file: &&WrittenFile| {
            let is_first = pieces == 0;
            pieces += file.pieces.len();
            is_first || pieces <= REPORT_PIECES_MAX
        };
        let written = after.take_while(fits).cloned().collect();
        let passed = known.passed.iter().skip(passed_from).take(REPORT_PASSED_MAX).copied().collect();
        let Checkpointing { named, begun, .. } = *known;
        Checkpointing { named, written, passed, begun }
    }

    /// Another checkpoint is under way, or none.
    pub(super) fn begin_checkpoint(&self, named: Option<NamedCheckpoint>) {
        let mut checkpointing = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        let id = |named: Option<NamedCheckpoint>| named.map(|named| named.checkpoint);
        if id(checkpointing.named) != id(named) {
            *checkpointing = Checkpointing { named, ..Checkpointing::default() };
        }
    }

    /// Returns true if more than `files` files of the checkpoint under way are written, or more than `passed` blocks have no piece.
    pub fn has_more_than(&self, files: usize, passed: usize) -> bool {
        let known = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        known.written.len() > files || known.passed.len() > passed
    }

    /// A block cannot supply its piece of a checkpoint.
    pub(super) fn note_passed(&self, block: BlockId, checkpoint: CheckpointId) {
        let mut checkpointing = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        if checkpointing.named.is_some_and(|named| named.checkpoint == checkpoint) {
            checkpointing.passed.push(block);
        }
    }

    /// Hears of pieces that wait to be written, beginning with all that wait now.
    pub fn pieces(&self) -> Pieces {
        // In this order: none is missed.
        let taken = self.changes.listen(Kind::Piece);
        let hosting = self.hosting();
        let blocks = hosting.iter().flat_map(|hosting| hosting.blocks.keys().copied());
        Pieces { waiting: blocks.collect(), taken }
    }

    /// Pieces of the checkpoint under way that wait to be written, about `bytes` of them, and the number of the file
    /// to write them to.
    pub async fn give_pieces(
        self: &Arc<Self>,
        pieces: &mut Pieces,
        bytes: usize,
    ) -> Result<Option<(CheckpointId, u64, Vec<GivenPiece>)>, Refusal> {
        let Some(hosting) = self.hosting() else { return Ok(None) };
        match pieces.taken.take(&self.changes) {
            Since::Any => pieces.waiting = hosting.blocks.keys().copied().collect(),
            Since::Blocks(blocks) => pieces.waiting.extend(blocks),
        }
        let Some(named) = self.named() else {
            pieces.waiting.clear();
            return Ok(None);
        };
        let (mut given, mut size) = (Vec::new(), 0);
        while size < bytes
            && given.len() < FILE_PIECES_MAX
            && let Some(id) = pieces.waiting.first().copied()
        {
            let hosted = hosting.block(id).cloned();
            let piece = match hosted {
                Some(hosted) => self.processors.run(give(self, hosted, named.checkpoint)).await?,
                None => None,
            };
            match piece {
                Some(piece) => {
                    size += piece.copy.bytes();
                    given.push(piece);
                }
                // Or it has one of a checkpoint that was named meanwhile: the log of changes tells of that one, for it was taken after
                // the look at what is named, and so after the look at the log.
                None => {
                    pieces.waiting.remove(&id);
                }
            }
        }
        if given.is_empty() {
            return Ok(None);
        }
        // A checkpoint named meanwhile makes these pieces useless.
        Ok(self.next_file(named.checkpoint).map(|file| (named.checkpoint, file, given)))
    }

    /// The number of the next file of a checkpoint; `None` if that one is no longer under way.
    pub fn next_file(&self, checkpoint: CheckpointId) -> Option<u64> {
        let mut checkpointing = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        checkpointing.named.filter(|named| named.checkpoint == checkpoint)?;
        checkpointing.begun += 1;
        Some(checkpointing.begun)
    }

    /// A file is written and synced.
    pub fn note_written(&self, checkpoint: CheckpointId, written: WrittenFile) {
        let (pieces, bytes) = (written.pieces.len() as u64, written.file.bytes);
        {
            let mut checkpointing = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
            if checkpointing.named.is_some_and(|named| named.checkpoint == checkpoint) {
                checkpointing.written.push(written);
            }
        }
        self.count(|counters| {
            counters.pieces_written += pieces;
            counters.bytes_written += bytes;
        });
        self.urgent.send();
    }

    /// A checkpoint cannot be restored from, and why. The first fault of each is kept.
    pub fn note_damage(&self, found: DamagedCheckpoint) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if damaged.iter().all(|known| known.record != found.record) {
            damaged.push(found);
        }
        drop(damaged);
        self.urgent.send();
    }

    /// Damaged checkpoints that blocks here wait to be restored from: only another one, from the master, can help.
    pub fn damage(&self) -> Result<Vec<DamagedCheckpoint>, Refusal> {
        let known = self.damaged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.is_empty() {
            return Ok(known);
        }
        let unrestored = self.unrestored()?;
        let is_awaited =
            |found: &DamagedCheckpoint| unrestored.iter().any(|(.., origin)| *origin == Some(found.record));
        Ok(known.into_iter().filter(is_awaited).collect())
    }
}
