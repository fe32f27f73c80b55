//! Judges what trainers wrote down of pservers' answers (`SHOAL_PUSH_LOG`): an update that was answered `Applied` is
//! kept. Pure.
//!
//! A ledger that lacked an acknowledged position would have it computed again, and answered `Applied` again: in one
//! history of a block (its rewind number) each position is acknowledged once. A step of a synchronous job that was lost
//! would be made again with the same bits, which no answer shows: there the steps must all be there in the end. What
//! stood in ledgers while the job went on, [`ledgers`](crate::ledgers) reads out.

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

/// What a trainer was told to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A part of this step of a synchronous job.
    Step(u64),
    /// This position of an asynchronous job.
    Position(u64),
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// What was applied.
    pub of: Of,
    /// The block.
    pub block: u64,
    /// The block's history.
    pub rewind: u64,
    /// Where its line ends in the log, in bytes.
    pub end: u64,
}

/// One push, until every block had answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// How long it lasted, in microseconds.
    pub micros: u64,
    /// Where its line ends in the log, in bytes.
    pub end: u64,
}

/// What a log says.
#[derive(Debug, Default)]
pub struct Log {
    /// All answers, in the order of the log.
    pub acknowledged: Vec<Acknowledged>,
    /// All pushes, in the order of their ends.
    pub pushes: Vec<Push>,
}

impl Log {
    /// Reads lines. The last one of a file may be torn by a kill, and is passed over if it is.
    ///
    /// # Errors
    /// Another line that is none.
    pub fn read(text: &str) -> anyhow::Result<Log> {
        let (mut log, mut end) = (Log::default(), 0);
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        for line in whole.split_inclusive('\n') {
            end += line.len() as u64;
            match serde_json::from_str(line).map_err(|error| anyhow::anyhow!("{line:?}: {error}"))? {
                Line::Applied(Applied { step, position, block, rewind }) => {
                    let of = step.map(Of::Step).or(position.map(Of::Position));
                    let of = of.ok_or_else(|| anyhow::anyhow!("{line:?}: neither a step nor a position"))?;
                    log.acknowledged.push(Acknowledged { of, block, rewind, end });
                }
                Line::PushMicros(micros) => log.pushes.push(Push { micros, end }),
            }
        }
        Ok(log)
    }

    /// What shows that an acknowledged update was not kept by a job that has ended with `steps` steps; empty when all
    /// were.
    pub fn not_kept(&self, steps: u64) -> Vec<String> {
        let (mut times, mut not_kept) = (BTreeMap::<_, u32>::new(), Vec::new());
        for Acknowledged { of, block, rewind, .. } in &self.acknowledged {
            match of {
                Of::Position(position) => *times.entry((*block, *rewind, *position)).or_default() += 1,
                Of::Step(step) if *step < steps => {}
                Of::Step(step) => not_kept.push(format!("step {step} was acknowledged, of {steps}")),
            }
        }
        let twice = times.into_iter().filter(|(_, times)| *times > 1);
        not_kept.extend(twice.map(|((block, rewind, position), times)| {
            format!("position {position} of block {block} was applied {times} times under rewind {rewind}")
        }));
        not_kept
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
        assert_eq!((log.acknowledged.len(), log.acknowledged[0].end), (1, one.len() as u64));
        assert_eq!(log.pushes, [Push { micros: 70, end: one.len() as u64 + 19 }]);
        assert!(Log::read(&["{\"appl\n", &one].concat()).is_err());
    }
}
