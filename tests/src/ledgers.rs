//! Reads pservers' ledgers out of the checkpoints that a run writes under fire, and compares them with what trainers had
//! been told before: what was answered `Applied` stands in every later ledger of its history, exactly once.
//!
//! "Later" is no matter of clocks: a checkpoint is named in the master's document before any of its pieces is taken,
//! so that whatever stood in the log when only `n` checkpoints had been named stands in the pieces of all after the
//! `n`-th.

use crate::applied::{Acknowledged, Log, Of};
use anyhow::Context;
use shoal_master::document::Document;
use shoal_runtime::cluster::{BlockCopy, CheckpointId, CheckpointManifest, Layout, Ledger};
use shoal_runtime::host::checkpoints::{Completeness, list, load, read_piece};
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store;
use std::path::{Path, PathBuf};

/// A look at a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// So long was the log,
    log_bytes: u64,
    /// when no more checkpoints than these had been named.
    named: u64,
}

/// Looks at a run while it goes on, and judges it in the end. The run keeps all its checkpoints.
#[derive(Debug)]
pub struct Reader {
    state: PathBuf,
    log: PathBuf,
    looks: Vec<Look>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Ledgers of single blocks.
    pub ledgers: u64,
    /// Answers that were looked up in at least one later ledger of their history.
    pub compared: u64,
    /// What is wrong with them.
    pub faults: Vec<String>,
}

impl Reader {
    /// A reader of the run in `folder`, whose trainers write to `log`.
    pub fn of(folder: &Path, log: &Path) -> Reader {
        Reader { state: folder.join("state"), log: log.to_owned(), looks: Vec::new() }
    }

    /// Notes what trainers have been told so far. A run that has yet to write anything is no error.
    ///
    /// # Errors
    /// A store or a log that cannot be read.
    pub async fn look(&mut self) -> anyhow::Result<()> {
        if !self.state.is_dir() || !self.log.is_file() {
            return Ok(());
        }
        let log_bytes = std::fs::metadata(&self.log)?.len();
        // Only then: what is named later holds all that was seen.
        let Some(document) = document(&self.state).await? else { return Ok(()) };
        self.looks.push(Look { log_bytes, named: document.checkpoints_named });
        Ok(())
    }

    /// Reads every complete checkpoint, and compares its ledgers with the log.
    ///
    /// # Errors
    /// A place that cannot be read, a damaged checkpoint.
    pub async fn judge(&self, log: &Log) -> anyhow::Result<Readings> {
        let place = self.state.join("checkpoints");
        let storage = Storage::open(&place.display().to_string()).await?;
        let firsts: Vec<Option<u64>> =
            log.acknowledged.iter().map(|one| first_after(&self.looks, one.end)).collect();
        let mut is_compared = vec![false; firsts.len()];
        let mut readings = Readings::default();
        for entry in list(&storage).await? {
            let Completeness::Complete(record) = &entry.completeness else { continue };
            let manifest = load(&storage, record).await?;
            let pieces = pieces(&storage, &manifest).await?;
            readings.ledgers += pieces.len() as u64;
            let is_sync = manifest.cut.is_some();
            readings.faults.extend(pieces.iter().filter(|_| !is_sync).filter_map(not_once));
            let due =
                |first: &Option<u64>| first.is_some_and(|first| CheckpointId(first) <= entry.checkpoint);
            for (at, one) in log.acknowledged.iter().enumerate().filter(|(at, _)| due(&firsts[*at])) {
                let piece = pieces.get(one.block as usize).context("an answer for a block that is none")?;
                is_compared[at] |= piece.rewind.0 == one.rewind;
                let lacks =
                    lacks(piece, one).map(|fault| format!("checkpoint {}: {fault}", entry.checkpoint));
                readings.faults.extend(lacks);
            }
        }
        readings.compared = is_compared.iter().filter(|is_compared| **is_compared).count() as u64;
        Ok(readings)
    }
}

/// The master's document in the state folder of a run, if it has begun.
///
/// # Errors
/// A store that cannot be read.
pub async fn document(state: &Path) -> anyhow::Result<Option<Document>> {
    let found = store::open(&state.display().to_string(), &Security::Loopback, None)?.load().await?;
    Ok(found.map(|(_, bytes)| Document::from_bytes(&bytes)).transpose()?)
}

async fn pieces(storage: &Storage, manifest: &CheckpointManifest) -> anyhow::Result<Vec<BlockCopy>> {
    let mut pieces = Vec::with_capacity(manifest.pieces.len());
    let layout = Layout::new(&manifest.declaration);
    for piece in &manifest.pieces {
        pieces.push(read_piece(storage, manifest, &layout, piece).await?.try_into()?);
    }
    Ok(pieces)
}

/// The first checkpoint that was named after a line of the log was seen, which ends there.
fn first_after(looks: &[Look], end: u64) -> Option<u64> {
    looks.get(looks.partition_point(|look| look.log_bytes < end)).map(|look| look.named + 1)
}

/// An asynchronous block's version counts its updates: more of them than positions were applied twice.
fn not_once(piece: &BlockCopy) -> Option<String> {
    let (positions, version) = (positions(&piece.ledger), piece.name.version);
    let what = || format!("block {} has made {version} updates of {positions} positions", piece.block);
    (positions != version.0).then(what)
}

fn positions(ledger: &Ledger) -> u64 {
    ledger.low() + ledger.ranges().map(|range| range.end - range.start).sum::<u64>()
}

/// What an answer says that a later ledger does not. A later history may have gone back behind it.
fn lacks(piece: &BlockCopy, one: &Acknowledged) -> Option<String> {
    let Acknowledged { of, block, rewind, .. } = *one;
    if piece.rewind.0 < rewind {
        return Some(format!("block {block} is of history {}, {of:?} was applied in {rewind}", piece.rewind));
    }
    let is_there = match of {
        Of::Step(step) => piece.name.version.0 > step,
        Of::Position(position) => piece.ledger.contains(position),
    };
    let is_lost = piece.rewind.0 == rewind && !is_there;
    is_lost.then(|| format!("block {block} lacks {of:?}, applied in history {rewind}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_runtime::cluster::{BlockId, Rewind, StateName, Term, Version};

    fn piece(version: u64, low: u64) -> BlockCopy {
        BlockCopy {
            block: BlockId(0),
            rewind: Rewind(5),
            name: StateName { term: Term(5), version: Version(version) },
            published: Version(version),
            parameters: Bytes::new(),
            earlier: Vec::new(),
            slots: Vec::new(),
            ledger: Ledger::from_parts(low, std::iter::once(low + 2..low + 3)).unwrap(),
            segment: None,
        }
    }
    fn told(of: Of, rewind: u64) -> Acknowledged {
        Acknowledged { of, block: 0, rewind, end: 0 }
    }

    #[test]
    fn what_was_told_in_the_same_history_must_be_there_and_what_was_told_in_a_later_one_cannot() {
        let piece = piece(4, 3);
        for (of, is_there) in [
            (Of::Position(2), true),
            (Of::Position(3), false),
            (Of::Position(5), true),
            (Of::Step(3), true),
            (Of::Step(4), false),
        ] {
            assert_eq!(lacks(&piece, &told(of, 5)).is_none(), is_there, "{of:?}");
            assert_eq!(lacks(&piece, &told(of, 4)), None);
            assert!(lacks(&piece, &told(of, 6)).is_some());
        }
    }

    #[test]
    fn more_updates_than_positions_are_told() {
        assert_eq!(not_once(&piece(4, 3)), None);
        assert!(not_once(&piece(5, 3)).is_some());
    }

    #[test]
    fn a_line_counts_from_the_first_checkpoint_named_after_it_was_seen() {
        let looks = [(100, 0), (200, 3), (200, 4)].map(|(log_bytes, named)| Look { log_bytes, named });
        let firsts = [1, 100, 101, 200, 201].map(|end| first_after(&looks, end));
        assert_eq!(firsts, [Some(1), Some(1), Some(4), Some(4), None]);
    }
}
