//! Judges what trainers wrote down of pservers' answers (`SHOAL_PUSH_LOG`): an update that was answered `Applied` is
//! kept. Pure.
//!
//! A ledger that lacked an acknowledged position would have it computed again, and answered `Applied` again: in one
//! history of a block (its rewind number) each position is acknowledged once. A step of a synchronous job that was lost
//! would be made again with the same bits, which no answer shows: there the steps must all be there in the end.

use serde::Deserialize;
use std::collections::BTreeMap;

/// One line of the log.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Applied(Applied),
    PushMicros(u64),
}

#[derive(Debug, Deserialize)]
struct Applied {
    step: Option<u64>,
    position: Option<u64>,
    block: u64,
    rewind: u64,
}

/// What a log says.
#[derive(Debug, Default)]
pub struct Log {
    /// How often each position was acknowledged: by block, rewind number and position.
    positions: BTreeMap<(u64, u64, u64), u32>,
    acknowledged: usize,
    step_max: Option<u64>,
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
                Line::PushMicros(micros) => log.push_micros.push(micros),
            }
        }
        Ok(log)
    }

    fn note(&mut self, Applied { step, position, block, rewind }: &Applied) {
        self.acknowledged += 1;
        self.step_max = self.step_max.max(*step);
        if let Some(position) = position {
            *self.positions.entry((*block, *rewind, *position)).or_default() += 1;
        }
    }

    /// How many acknowledgements there are.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// What shows that an acknowledged update was not kept by a job that has ended with `steps` steps; empty when all
    /// were.
    pub fn not_kept(&self, steps: u64) -> Vec<String> {
        let twice = self.positions.iter().filter(|(_, count)| **count > 1);
        let twice = twice.map(|((block, rewind, position), count)| {
            format!("position {position} of block {block} was applied {count} times under rewind {rewind}")
        });
        let beyond = self.step_max.filter(|step| *step >= steps);
        twice.chain(beyond.map(|step| format!("step {step} was acknowledged, of {steps}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(update: &str, block: u64, rewind: u64) -> String {
        format!("{{\"applied\":{{{update},\"block\":{block},\"rewind\":{rewind},\"version\":0}}}}\n")
    }
    fn faults(lines: &[String]) -> usize {
        Log::read(&lines.concat()).unwrap().not_kept(4).len()
    }
    const THREE: &str = "\"position\":3";
    const STEP: &str = "\"step\":3,\"level\":1,\"index\":0";

    #[test]
    fn a_position_that_is_applied_twice_in_one_history_was_not_kept() {
        let one = applied(THREE, 1, 1);
        assert_eq!(faults(&[one.clone(), applied("\"position\":4", 1, 1)]), 0);
        assert_eq!(faults(&[one.clone(), applied(THREE, 2, 1), applied(THREE, 1, 7)]), 0);
        assert_eq!(faults(&[one.clone(), one]), 1);
    }

    #[test]
    fn a_step_is_acknowledged_to_whoever_asks_and_must_be_there_in_the_end() {
        let one = applied(STEP, 1, 1);
        assert_eq!(faults(&[one.clone(), one.clone()]), 0);
        assert_eq!(Log::read(&one).unwrap().not_kept(3).len(), 1);
    }

    #[test]
    fn a_torn_end_is_passed_over_and_a_torn_middle_is_not() {
        let one = applied(STEP, 1, 1);
        let log = Log::read(&[&one, "{\"push_micros\":70}\n{\"appl"].concat()).unwrap();
        assert_eq!((log.acknowledged(), log.push_micros), (1, vec![70]));
        assert!(Log::read(&["{\"appl\n", &one].concat()).is_err());
    }
}
