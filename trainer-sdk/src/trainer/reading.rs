//! The loop that reads the records of leased tasks while others are being computed.

use super::Trainer;
use crate::chunks::{ReadTask, Reader};
use crate::complaint::Complaint;
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;

impl Trainer {
    /// Reads the records of leased tasks, the lowest first, for ever.
    pub(super) async fn read_loop(&self, mut reader: Reader) -> Infallible {
        let meter = &self.session.meter;
        loop {
            let changed = self.changed.notified();
            let unread = self.desk().unread();
            let exclusions = self.session.exclusions.present();
            let read = reader.advance(&unread, exclusions, meter.waited_for_records());
            meter.count(|counters| counters.bytes_read = reader.bytes_read());
            meter.reads_max.store(reader.depth() as u64, Relaxed);
            match read {
                Some(ReadTask { task, records: Ok(records) }) => {
                    self.change(|desk| desk.was_read(&task, records));
                }
                Some(ReadTask { task, records: Err(unreadable) }) => {
                    let (records, why) = (vec![unreadable.records], unreadable.source.to_string());
                    self.complain(&task, &Complaint { at: unreadable.at, records, why });
                }
                None => tokio::select! {
                    biased;
                    () = reader.arrived() => {}
                    () = changed => {}
                },
            }
        }
    }
}
