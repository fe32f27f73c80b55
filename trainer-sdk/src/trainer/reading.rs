//! The loop that reads the records of leased tasks while others are being computed.

use super::Trainer;
use crate::chunks::{ChunkCache, MicrobatchRecords, Unreadable};
use crate::complaint::Complaint;
use crate::desk::Desk;
use crate::trainer::compute::Place;
use shoal_runtime::cluster::Task;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

impl Trainer {
    /// Reads the records of leased tasks, the lowest first, for ever.
    pub(super) async fn read_loop(&self, mut chunks: ChunkCache) -> Infallible {
        loop {
            let task = self.wait_for(Desk::unread).await;
            match self.read(&mut chunks, &task).await {
                Ok(records) => self.change(|desk| desk.was_read(&task, records)),
                Err(complaint) => self.complain(&task, &complaint),
            }
            self.session.meter.bytes_read.store(chunks.bytes_read, Relaxed);
        }
    }

    async fn read(&self, chunks: &mut ChunkCache, task: &Task) -> Result<Vec<MicrobatchRecords>, Complaint> {
        let job = &self.session.master.job;
        let mut records = Vec::new();
        for (at, microbatch) in task.microbatches.iter().enumerate() {
            let Place { pass, unit, .. } = Place::of(job, task, at);
            let exclusions = self.session.exclusions.present();
            let is_excluded = |records: &Range<u64>| exclusions.excludes_all(records, unit);
            let read = chunks.records(job, pass, microbatch, is_excluded).await;
            records.push(read.map_err(|Unreadable { records, source }| Complaint {
                at,
                records: vec![records],
                why: source.to_string(),
            })?);
        }
        Ok(records)
    }
}
