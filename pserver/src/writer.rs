//! Writing pieces of checkpoints while training goes on. A file that could not be written is written again under
//! another name, until it is, or its checkpoint is not under way any more. Nothing that training does may hold it up:
//! updates wait for it.

use crate::block::GivenPiece;
use crate::shard::Shard;
use shoal_runtime::cluster::checkpoint::Origin;
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{CheckpointId, Refusal};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::checkpoints::write_pieces;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::storage::Storage;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one file, about: so much waits in memory and is written in one go.
const FILE_BYTES: usize = 64 << 20;

/// Writes whatever is to be written, for ever. Returns only what no repetition can mend.
pub async fn write(shard: &Arc<Shard>, storage: &Storage, random: &mut Random) -> Refusal {
    let mut waiting = shard.pieces();
    loop {
        match shard.give_pieces(&mut waiting, FILE_BYTES).await {
            Err(refusal) => return refusal,
            // What the pieces hold is free again once they are dropped.
            Ok(Some((checkpoint, file, pieces))) => {
                write_file(shard, storage, checkpoint, file, pieces, random).await;
            }
            Ok(None) => waiting.changed().await,
        }
    }
}

async fn write_file(
    shard: &Shard,
    storage: &Storage,
    checkpoint: CheckpointId,
    first: u64,
    pieces: Vec<GivenPiece>,
    random: &mut Random,
) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    let mut file = first;
    let wait = shard.waits().begin(WaitKind::Storage, format!("write {}", storage.at(&checkpoint.folder())));
    loop {
        let job = shard.job().job.clone();
        let origin = Origin { job, checkpoint, writer: shard.incarnation(), sequence: file };
        let copies: Vec<_> = pieces.iter().map(|piece| piece.copy.clone().into()).collect();
        match write_pieces(storage, &origin, copies).await {
            Ok(written) => return shard.note_written(checkpoint, written),
            Err(error) => {
                tracing::error!(%checkpoint, %error, "a checkpoint's file cannot be written; trying again");
                wait.failed(error);
            }
        }
        tokio::time::sleep(backoff.pause(random)).await;
        match shard.next_file(checkpoint) {
            Some(next) => file = next,
            None => return,
        }
    }
}
