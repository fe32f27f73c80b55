//! What a status says of a whole job, in numbers and words: whoever shows a job, records it or judges it reads it here. Pure.

use shoal_runtime::cluster::Precision;
use shoal_runtime::wire::proto::{JobSettings, PserverCounters, StatusReply};

/// How many trainers are live.
pub fn live(status: &StatusReply) -> u32 {
    status.trainers.iter().filter(|trainer| trainer.state == "live").count() as u32
}

/// The epoch under way, counted from 1, and how many there are; none in a job that does not train. Everything that people
/// read counts so; `epoch` in JSON, in metrics and on the wire are those that are over.
pub fn epoch(status: &StatusReply) -> Option<(u64, u64)> {
    let epochs = status.settings.as_ref().map_or(0, |settings| settings.epochs);
    (epochs > 0).then(|| ((status.epoch + 1).min(epochs), epochs))
}

/// In which precision a job's gradients of dense parameters travel and are summed.
pub fn gradients(settings: &JobSettings) -> &'static str {
    Precision::from(settings.gradients()).name()
}

/// The levels of the tree at which nodes were pushed.
pub fn levels(bits: u64) -> Vec<u32> {
    (0..u64::BITS).filter(|level| bits >> level & 1 == 1).collect()
}

/// Sums of the pservers' counters over a job.
pub fn pserver_totals(status: &StatusReply) -> PserverCounters {
    let mut total = PserverCounters::default();
    for pserver in &status.pservers {
        let counters = pserver.counters.unwrap_or_default();
        total.pushes += counters.pushes;
        total.duplicates_refused += counters.duplicates_refused;
        total.late_pushes += counters.late_pushes;
        total.records_refused += counters.records_refused;
        total.replaced_by_ancestor += counters.replaced_by_ancestor;
        total.busy += counters.busy;
        total.short_steps += counters.short_steps;
        total.bytes_in += counters.bytes_in;
        total.bytes_out += counters.bytes_out;
        total.levels |= counters.levels;
        total.fills += counters.fills;
        total.entries += counters.entries;
        total.bytes_followed += counters.bytes_followed;
        total.moved += counters.moved;
        total.rewound += counters.rewound;
        total.pieces_written += counters.pieces_written;
        total.bytes_written += counters.bytes_written;
        total.bytes_copied_on_write += counters.bytes_copied_on_write;
        total.throttled += counters.throttled;
        total.rows_evicted += counters.rows_evicted;
        total.keys_refused += counters.keys_refused;
        total.device_gradient_bytes += counters.device_gradient_bytes;
        total.device_parameter_bytes += counters.device_parameter_bytes;
        // Others lead what a lost one led.
        if !pserver.lost {
            total.rows += counters.rows;
            total.row_bytes += counters.row_bytes;
            total.device_blocks += counters.device_blocks;
        }
        // The peaks of several pservers need not have been at one time: so much would do for the worst of them.
        total.checkpoint_memory_peak = total.checkpoint_memory_peak.max(counters.checkpoint_memory_peak);
    }
    total
}
