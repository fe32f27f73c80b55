//! What a status says of a whole job, in numbers and words: whoever shows a job, records it or judges it reads it here. Pure.

use shoal_job::counters::{Counters, PserverCounters};
use shoal_runtime::cluster::Precision;
use shoal_runtime::wire::proto::{JobSettings, PserverStatus, StatusReply};

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

/// The pservers' counters over a job.
pub fn pserver_totals(status: &StatusReply) -> PserverCounters {
    let counted = |pserver: &PserverStatus| {
        let counters = PserverCounters::from(pserver.counters.unwrap_or_default());
        if pserver.lost { counters.left_behind() } else { counters }
    };
    status.pservers.iter().map(counted).fold(PserverCounters::default(), Counters::merged)
}
