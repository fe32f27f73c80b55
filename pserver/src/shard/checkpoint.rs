//! This pserver's part in the checkpoint under way: pieces to write, files written.

use super::Shard;
use crate::block::memory::Budget;
use crate::block::{GivenPiece, NamedCheckpoint};
use shoal_runtime::cluster::checkpoint::WrittenFile;
use shoal_runtime::cluster::{CheckpointId, DamagedCheckpoint, Refusal};
use std::sync::{Arc, PoisonError};

/// How far this pserver is with the checkpoint under way.
#[derive(Clone, Debug, Default)]
pub struct Checkpointing {
    /// Which is under way.
    pub named: Option<NamedCheckpoint>,
    /// Files that are written and synced.
    pub written: Vec<WrittenFile>,
    /// Files begun, failed ones included: each has a name of its own.
    pub begun: u64,
    /// Why pieces cannot be written; empty while they can.
    pub trouble: String,
}

impl Shard {
    /// The same with a bound, in bytes, on what pieces hold beyond what training needs while they wait to be written.
    /// Updates that would hold more are put off.
    pub fn with_checkpoint_memory(mut self, bytes: u64) -> Shard {
        self.terms = Arc::new(self.terms.with_budget(Budget::of(bytes)));
        self
    }

    /// The same with segments of buckets of another size, in bytes, about.
    pub fn with_segments(mut self, bytes: usize) -> Shard {
        self.terms = Arc::new(self.terms.with_segments(bytes));
        self
    }

    /// The most bytes that pieces held at a time beyond what training needs.
    pub fn checkpoint_memory_peak(&self) -> u64 {
        self.terms.budget().peak()
    }

    /// What this pserver has done for the checkpoint under way.
    pub fn checkpointing(&self) -> Checkpointing {
        self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another checkpoint is under way, or none.
    pub(super) fn begin_checkpoint(&self, named: Option<NamedCheckpoint>) {
        let mut checkpointing = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        let id = |named: Option<NamedCheckpoint>| named.map(|named| named.checkpoint);
        if id(checkpointing.named) != id(named) {
            *checkpointing = Checkpointing { named, ..Checkpointing::default() };
        }
    }

    /// Bytes copied because an update met buffers that a piece or a follower still had.
    pub fn copied(&self) -> Result<u64, Refusal> {
        let hosting = self.hosting();
        hosting
            .iter()
            .flat_map(|hosting| hosting.blocks.values())
            .map(|hosted| Ok(hosted.lock()?.copied()))
            .sum()
    }

    /// Whether some block here was past the version when it heard of the checkpoint.
    pub fn has_passed(&self, checkpoint: CheckpointId) -> Result<bool, Refusal> {
        let hosting = self.hosting();
        for hosted in hosting.iter().flat_map(|hosting| hosting.blocks.values()) {
            if hosted.lock()?.has_passed(checkpoint) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Pieces of the checkpoint under way that wait to be written, about `bytes` of them, and the number of the file
    /// to write them to.
    pub fn give_pieces(&self, bytes: usize) -> Result<Option<(CheckpointId, u64, Vec<GivenPiece>)>, Refusal> {
        let (Some(hosting), Some(named)) = (self.hosting(), self.checkpointing().named) else {
            return Ok(None);
        };
        let (mut pieces, mut given) = (Vec::new(), 0);
        for hosted in hosting.blocks.values() {
            let mut block = hosted.lock()?;
            while given < bytes
                && let Some((checkpoint, piece)) = block.give_piece()
            {
                if checkpoint == named.checkpoint {
                    given += piece.copy.bytes();
                    pieces.push(piece);
                }
            }
        }
        if pieces.is_empty() {
            return Ok(None);
        }
        Ok(Some((named.checkpoint, self.next_file(), pieces)))
    }

    /// The number of the next file of this checkpoint.
    pub fn next_file(&self) -> u64 {
        let mut checkpointing = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        checkpointing.begun += 1;
        checkpointing.begun
    }

    /// A file is written and synced.
    pub fn note_written(&self, checkpoint: CheckpointId, written: WrittenFile) {
        let (pieces, bytes) = (written.pieces.len() as u64, written.file.bytes);
        {
            let mut checkpointing = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
            if checkpointing.named.is_some_and(|named| named.checkpoint == checkpoint) {
                checkpointing.written.push(written);
            }
            checkpointing.trouble.clear();
        }
        self.count(|counters| {
            counters.pieces_written += pieces;
            counters.bytes_written += bytes;
        });
        self.published.send();
    }

    /// Pieces cannot be written, and why.
    pub fn note_trouble(&self, why: String) {
        self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner).trouble = why;
        self.published.send();
    }

    /// A checkpoint cannot be restored from, and why. The first fault of each is kept.
    pub fn note_damage(&self, found: DamagedCheckpoint) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if damaged.iter().all(|known| known.record != found.record) {
            damaged.push(found);
        }
        drop(damaged);
        self.published.send();
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
