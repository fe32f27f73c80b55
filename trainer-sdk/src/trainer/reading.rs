//! The loop that reads the records of leased tasks while others are being computed.

use super::Trainer;
use crate::chunks::{ChunkCache, MicrobatchRecords};
use crate::desk::Desk;
use crate::error::TrainError;
use crate::trainer::compute::Place;
use shoal_runtime::cluster::Task;
use std::sync::atomic::Ordering::Relaxed;

impl Trainer {
    /// Reads the records of leased tasks, the lowest first.
    pub(super) async fn read_loop(&self, mut chunks: ChunkCache) -> TrainError {
        loop {
            let task = self.wait_for(Desk::unread).await;
            match self.read(&mut chunks, &task).await {
                Ok(records) => self.change(|desk| desk.was_read(&task, records)),
                Err(error) => return error,
            }
            self.session.meter.bytes_read.store(chunks.bytes_read, Relaxed);
        }
    }

    async fn read(&self, chunks: &mut ChunkCache, task: &Task) -> Result<Vec<MicrobatchRecords>, TrainError> {
        let job = &self.session.master.job;
        let mut records = Vec::new();
        for (at, microbatch) in task.microbatches.iter().enumerate() {
            let Place { epoch, step, .. } = Place::of(job, task, at);
            let read = chunks.records(job, epoch, microbatch).await;
            records.push(read.map_err(|source| TrainError::Read { step, source })?);
        }
        Ok(records)
    }
}
