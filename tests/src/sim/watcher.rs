//! Judges the master's watch over the front (P6): a job that stands names a cause, and the cause is true.
//!
//! The script reports the hosts and places that faults touch, and every status. Only time in which the master answers counts: an absent
//! master can name nothing.

use super::world::MASTER;
use shoal_runtime::wire::proto::{Standstill, StatusReply};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Times to live for which a front may stand without a word: the master tells after one, by a clock that may be slow.
const SILENT_TTLS: u32 = 3;

/// The place of checkpoints, among those that faults touch.
pub const PLACE: &str = "the place";
/// The master's store.
pub const STORE: &str = "the store";

/// The observations of one job.
#[derive(Debug)]
pub struct Watcher {
    ttl: Duration,
    /// The time after a fault in which its effects may last.
    aftermath: Duration,
    /// The master's term, the rewind number and the front; whether blocks are placed.
    place: (u64, u64, u64, bool),
    last: Instant,
    /// The time since the front's last advance in which the master has answered.
    answered: Duration,
    /// The end of the faults that touch a host or a place, by name.
    touched: BTreeMap<String, Instant>,
    /// The number of causes named.
    named: u64,
    violations: Vec<String>,
}

impl Watcher {
    /// Begins to watch a job whose leases live for `ttl`.
    pub fn new(ttl: Duration, aftermath: Duration) -> Watcher {
        Watcher {
            ttl,
            aftermath,
            place: (0, 0, 0, false),
            last: Instant::now(),
            answered: Duration::ZERO,
            touched: BTreeMap::new(),
            named: 0,
            violations: Vec::new(),
        }
    }

    /// A fault touches a host or a place for so long.
    pub fn touch(&mut self, whom: &str, how_long: Duration) {
        let until = Instant::now() + how_long;
        let known = self.touched.entry(name_of(whom).to_owned()).or_insert(until);
        *known = until.max(*known);
    }

    /// The master answers. `has_trainer`: one lives. `is_fair`: the network loses and delays nothing by itself, and every trainer gets on.
    pub fn saw(&mut self, status: &StatusReply, has_trainer: bool, is_fair: bool) {
        let now = Instant::now();
        let is_placed = status.phase == "training";
        let place = (u64::from(status.master_term), status.rewind, status.front, is_placed);
        let passed = now.saturating_duration_since(self.last).min(self.ttl / 4);
        self.last = now;
        if place != self.place || !matches!(status.phase.as_str(), "waiting" | "training") {
            (self.place, self.answered) = (place, Duration::ZERO);
            return;
        }
        self.answered += passed;
        if !has_trainer {
            // One that comes is at its beginning.
            self.touch("trainers", Duration::ZERO);
        }
        let fault = match &status.standstill {
            Some(standstill) => {
                self.named += 1;
                // A front that has just come to stand may be about to advance.
                let is_long = self.answered >= self.ttl * 2;
                if is_long { self.untrue(standstill, has_trainer, is_fair) } else { None }
            }
            None if self.answered >= self.ttl * SILENT_TTLS => Some(String::from("no cause is named")),
            None => None,
        };
        if let Some(fault) = fault {
            let answered = self.answered;
            let (term, ttl) = (status.master_term, self.ttl);
            self.violations.push(format!(
                "front {} stands for {answered:?} of answers in term {term}, leases live for {ttl:?}: {fault}",
                status.front
            ));
        }
    }

    /// Returns the reason for which a named cause cannot be true; `None` if it can.
    fn untrue(&self, standstill: &Standstill, has_trainer: bool, is_fair: bool) -> Option<String> {
        let Standstill { reason, subject, cause, .. } = standstill;
        let is_touched = |whom: &str| {
            self.touched.get(name_of(whom)).is_some_and(|until| Instant::now() < *until + self.aftermath)
        };
        let is_any_touched = || self.touched.keys().any(|whom| is_touched(whom));
        if cause.is_empty() || standstill.way_out.is_empty() {
            return Some(format!("{reason} says nothing"));
        }
        let may_be = match reason.as_str() {
            "PserverSilent" => !is_fair || is_touched(subject) || is_touched(MASTER),
            "TrainerSilent" => !is_fair || !has_trainer || is_touched(subject) || is_touched(MASTER),
            // The one that a member waited for when it was stopped is in its last report.
            "Storage" | "CheckpointMemory" => is_any_touched(),
            "NoTrainer" => !has_trainer || !is_fair || is_any_touched(),
            "Store" => is_touched(STORE) || is_touched(MASTER) || !is_fair,
            _ => !is_fair || is_any_touched(),
        };
        (!may_be).then(|| format!("{reason} of {subject:?} is named, and nothing is wrong there: {cause}"))
    }

    /// Returns the number of causes named, and the faults found.
    pub fn into_verdict(self) -> (u64, Vec<String>) {
        (self.named, self.violations)
    }
}

/// A host's name without the number of its life.
fn name_of(host: &str) -> &str {
    host.split('#').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(front: u64, standstill: Option<(&str, &str)>) -> StatusReply {
        let standstill = standstill.map(|(reason, subject)| Standstill {
            reason: reason.to_owned(),
            subject: subject.to_owned(),
            cause: "a".to_owned(),
            way_out: "b".to_owned(),
            ..Standstill::default()
        });
        StatusReply { phase: "training".to_owned(), front, standstill, ..StatusReply::default() }
    }

    /// Returns the number of faults found in looks a quarter of a time to live apart.
    async fn verdict(watcher: Watcher, looks: Vec<StatusReply>) -> usize {
        let mut watcher = watcher;
        for look in looks {
            tokio::time::advance(Duration::from_millis(250)).await;
            watcher.saw(&look, true, true);
        }
        watcher.into_verdict().1.len()
    }

    fn watcher() -> Watcher {
        Watcher::new(Duration::from_secs(1), Duration::from_secs(5))
    }

    #[tokio::test(start_paused = true)]
    async fn a_front_may_stand_for_three_times_to_live_without_a_word() {
        assert_eq!(verdict(watcher(), vec![status(0, None); 12]).await, 0);
        assert_eq!(verdict(watcher(), vec![status(0, None); 13]).await, 1);
        let moving = (0..40).map(|front| status(front, None)).collect();
        assert_eq!(verdict(watcher(), moving).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_named_must_have_been_touched() {
        let silent = || vec![status(0, Some(("PserverSilent", "pserver-1"))); 9];
        assert_eq!(verdict(watcher(), silent()).await, 1);
        let mut touched = watcher();
        touched.touch("pserver-1#2", Duration::ZERO);
        assert_eq!(verdict(touched, silent()).await, 0);
        let mut other = watcher();
        other.touch("pserver-2", Duration::from_secs(100));
        assert_eq!(verdict(other, silent()).await, 1);
        let mut long_ago = watcher();
        long_ago.touch("pserver-1", Duration::ZERO);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(verdict(long_ago, silent()).await, 1);
    }
}
