//! Judges what trainers wrote down of pservers' answers (`SHOAL_PUSH_LOG`): an update that was answered `Applied` is
//! kept. Pure.
//!
//! In one history of a block (its rewind number) two things would show an acknowledged update that was lost:
//! - asynchronous jobs: its ledger lacks the position, so that it is computed again and answered `Applied` again;
//! - synchronous jobs: a push that was begun after a step was acknowledged hears that this step, or one before it, is
//!   still being waited for.

use serde::Deserialize;
use std::collections::BTreeMap;

/// One line of the log.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Applied(Applied),
    Held(Held),
    PushMicros(u64),
}

#[derive(Debug, Deserialize)]
struct Applied {
    step: Option<u64>,
    position: Option<u64>,
    block: u64,
    rewind: u64,
    /// When it was heard, in microseconds.
    at: u64,
}

#[derive(Debug, Deserialize)]
struct Held {
    step: u64,
    block: u64,
    rewind: u64,
    /// When the push was begun, in microseconds.
    began: u64,
}

/// A block in one history.
type Past = (u64, u64);

/// What a log says.
#[derive(Debug, Default)]
pub struct Log {
    /// How often each position was acknowledged.
    positions: BTreeMap<(Past, u64), u32>,
    /// When steps were acknowledged first.
    steps: BTreeMap<(Past, u64), u64>,
    held: Vec<Held>,
    acknowledged: usize,
    /// How long each push lasted until every block had answered, in microseconds, in the order of ends.
    pub push_micros: Vec<u64>,
}

impl Log {
    /// Reads lines. The last one of a file may be torn by a kill, and is passed over if it is.
    ///
    /// # Errors
    /// Another line that is none.
    pub fn read(text: &str) -> anyhow::Result<Log> {
        let mut log = Log::default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        for line in whole.lines() {
            match serde_json::from_str(line).map_err(|error| anyhow::anyhow!("{line:?}: {error}"))? {
                Line::Applied(applied) => log.note(&applied),
                Line::Held(held) => log.held.push(held),
                Line::PushMicros(micros) => log.push_micros.push(micros),
            }
        }
        Ok(log)
    }

    fn note(&mut self, Applied { step, position, block, rewind, at }: &Applied) {
        let past = (*block, *rewind);
        self.acknowledged += 1;
        if let Some(position) = position {
            *self.positions.entry((past, *position)).or_default() += 1;
        }
        if let Some(step) = step {
            let first = self.steps.entry((past, *step)).or_insert(*at);
            *first = *at.min(first);
        }
    }

    /// How many acknowledgements there are.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// What shows that an acknowledged update was not kept; empty when all were.
    pub fn not_kept(&self) -> Vec<String> {
        let twice = self.positions.iter().filter(|(_, count)| **count > 1);
        let twice = twice.map(|(((block, rewind), position), count)| {
            format!("position {position} of block {block} was applied {count} times under rewind {rewind}")
        });
        let forgotten = self.held.iter().filter_map(|held| {
            let Held { step, block, rewind, began } = held;
            let past = (*block, *rewind);
            let later = self.steps.range((past, *step)..=(past, u64::MAX));
            let (acknowledged, _) = later.into_iter().find(|(_, heard)| **heard < *began)?;
            Some(format!(
                "block {block} waited for step {step} after step {} was acknowledged, under rewind {rewind}",
                acknowledged.1
            ))
        });
        twice.chain(forgotten).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(update: &str, block: u64, rewind: u64, at: u64) -> String {
        format!(
            "{{\"applied\":{{{update},\"block\":{block},\"rewind\":{rewind},\"version\":0,\"at\":{at}}}}}\n"
        )
    }
    fn held(step: u64, block: u64, rewind: u64, began: u64) -> String {
        let node = "\"level\":0,\"index\":1";
        format!(
            "{{\"held\":{{\"step\":{step},{node},\"block\":{block},\"rewind\":{rewind},\"began\":{began}}}}}\n"
        )
    }
    fn faults(lines: &[String]) -> usize {
        Log::read(&lines.concat()).unwrap().not_kept().len()
    }
    const THREE: &str = "\"position\":3";
    const STEP: &str = "\"step\":3,\"level\":1,\"index\":0";

    #[test]
    fn a_position_that_is_applied_twice_in_one_history_was_not_kept() {
        let one = applied(THREE, 1, 1, 10);
        assert_eq!(faults(&[one.clone(), applied("\"position\":4", 1, 1, 11)]), 0);
        assert_eq!(faults(&[one.clone(), applied(THREE, 2, 1, 11), applied(THREE, 1, 7, 11)]), 0);
        assert_eq!(faults(&[one.clone(), applied(THREE, 1, 1, 11)]), 1);
    }

    #[test]
    fn a_step_that_is_waited_for_after_it_was_acknowledged_was_not_kept() {
        let one = applied(STEP, 1, 1, 10);
        assert_eq!(faults(&[one.clone(), applied(STEP, 1, 1, 11)]), 0, "whoever comes later hears it too");
        assert_eq!(faults(&[one.clone(), held(3, 1, 1, 9)]), 0, "that push may have been answered before");
        assert_eq!(faults(&[one.clone(), held(4, 1, 1, 11), held(3, 2, 1, 11), held(3, 1, 7, 11)]), 0);
        assert_eq!(faults(&[one.clone(), held(3, 1, 1, 11)]), 1);
        assert_eq!(faults(&[one.clone(), held(2, 1, 1, 11)]), 1);
    }

    #[test]
    fn a_torn_end_is_passed_over_and_a_torn_middle_is_not() {
        let one = applied(STEP, 1, 1, 10);
        let log = Log::read(&[&one, "{\"push_micros\":70}\n{\"appl"].concat()).unwrap();
        assert_eq!((log.acknowledged(), log.push_micros), (1, vec![70]));
        assert!(Log::read(&["{\"appl\n", &one].concat()).is_err());
    }
}
