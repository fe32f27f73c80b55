//! The counters of one trainer, or the sums over many, as metrics: one list for all who show them.

use super::Exposition;
use crate::wire::proto::TrainerCounters;

impl Exposition {
    /// One trainer (`whose` is "trainer") or the sums over many ("trainers").
    pub fn trainers(&mut self, whose: &str, counters: &TrainerCounters) {
        let name = |what: &str| format!("shoal_{whose}_{what}_total");
        let seconds = |micros: u64| micros as f64 / 1e6;
        let parts = [
            ("compute", counters.compute_micros),
            ("pull", counters.pull_micros),
            ("push", counters.push_micros),
            ("read", counters.read_micros),
            ("wait", counters.wait_micros),
        ];
        let help = "Seconds spent on each activity; they add up to the time since joining. read: waiting for records; wait: no task, or others have yet to complete the step before.";
        self.counters(
            &name("seconds"),
            help,
            "activity",
            parts.map(|(part, micros)| (part, seconds(micros))),
        );
        let help = "Microbatches put through the step function.";
        self.counter(&name("microbatches"), help, counters.microbatches);
        self.counter(&name("tasks"), "Tasks done.", counters.tasks);
        self.counter(&name("read_bytes"), "Bytes of chunks read.", counters.bytes_read);
        self.counter(&name("retries"), "Calls tried again after a pause.", counters.retries);
    }
}
