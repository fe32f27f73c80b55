//! Wasted work: records that trainers computed and that do not count. Pure: read off the status.

use serde_json::{Value, json};
use shoal_runtime::wire::proto::StatusReply;

/// Records of one status: of a master's term, or of a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waste {
    /// Put through the step function, or predicted.
    pub computed: u64,
    /// Of these, those that do not count, or not yet.
    pub wasted: u64,
    lost: u64,
}

impl Waste {
    /// What a status says of it.
    pub fn of(status: &StatusReply) -> Waste {
        let (computed, lost) = (status.trainer_totals.unwrap_or_default().records, status.records_lost);
        let counted = status.records_applied.saturating_sub(lost);
        Waste { computed, wasted: computed.saturating_sub(counted), lost }
    }

    /// One line; none before anything was computed.
    pub fn line(&self) -> Option<String> {
        let Waste { computed, wasted, lost } = *self;
        let percent = 100.0 * wasted as f64 / computed.max(1) as f64;
        let lost =
            if lost > 0 { format!("; {lost} applied ones were lost by going back") } else { String::new() };
        let line = format!(
            "{computed} records computed, {wasted} of them in vain or still on their way ({percent:.1} %){lost}"
        );
        (computed > 0).then_some(line)
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        json!({
            "records_computed": self.computed, "records_wasted": self.wasted, "records_lost": self.lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::TrainerCounters;

    fn waste(records: u64, records_applied: u64, records_lost: u64) -> Waste {
        let trainer_totals = Some(TrainerCounters { records, ..Default::default() });
        Waste::of(&StatusReply { trainer_totals, records_applied, records_lost, ..Default::default() })
    }

    #[test]
    fn what_was_computed_and_does_not_count_is_wasted() {
        assert_eq!(waste(120, 100, 0).wasted, 20);
        assert_eq!(waste(260, 200, 40).wasted, 100, "what was lost has to be computed again");
        assert_eq!(waste(90, 100, 0).wasted, 0, "a killed trainer's last words are missing");
    }

    #[test]
    fn the_line_says_what_was_lost_only_if_something_was() {
        assert_eq!(waste(0, 0, 0).line(), None);
        let plain = waste(200, 190, 0).line().unwrap();
        assert_eq!(plain, "200 records computed, 10 of them in vain or still on their way (5.0 %)");
        assert!(waste(200, 190, 30).line().unwrap().ends_with("; 30 applied ones were lost by going back"));
    }
}
