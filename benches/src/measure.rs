//! The stopwatch: works measured in turn, round by round, and what is said of the rounds.
//! It must never compare figures of different rounds: a ratio is taken inside a round, then the median of ratios.

use crate::process::processor_seconds;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Fewer rounds than this have no median worth printing.
pub const ROUNDS_MIN: u32 = 9;

/// One thing to measure: its side effects are its own, its faults end the run.
pub type Work<'a> = &'a mut dyn FnMut() -> anyhow::Result<()>;

/// The middle and the ends of what the rounds gave.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Spread {
    /// The middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one figure.
    pub fn of(mut figures: Vec<f64>) -> Spread {
        figures.sort_by(f64::total_cmp);
        let (half, last) = (figures.len() / 2, figures.len() - 1);
        let median =
            if figures.len() % 2 == 1 { figures[half] } else { (figures[half - 1] + figures[half]) / 2.0 };
        Spread { median, min: figures[0], max: figures[last] }
    }
}

/// Seconds of each work in each round: A B A B …, after one round that is thrown away.
///
/// # Errors
/// The fault of a work.
pub fn in_turn<const WORKS: usize>(
    rounds: u32,
    mut works: [Work<'_>; WORKS],
) -> anyhow::Result<Vec<[f64; WORKS]>> {
    let mut measured = Vec::new();
    for _ in 0..=rounds {
        let mut seconds = [0.0; WORKS];
        for (work, seconds) in works.iter_mut().zip(&mut seconds) {
            *seconds = self::seconds(&mut **work)?;
        }
        measured.push(seconds);
    }
    Ok(measured.split_off(1))
}

/// What one work took.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub struct Took {
    /// By the wall.
    pub seconds: f64,
    /// Of processors, in all processes that took part.
    pub processor_seconds: f64,
}

/// What a work takes, in these processes.
///
/// # Errors
/// The fault of the work; one of the processes is not there.
pub fn took(processes: &[u32], work: Work<'_>) -> anyhow::Result<Took> {
    let busy = || processes.iter().map(|process| processor_seconds(*process)).sum::<anyhow::Result<f64>>();
    let before = busy()?;
    let seconds = seconds(work)?;
    Ok(Took { seconds, processor_seconds: busy()? - before })
}

/// Seconds that a work takes.
///
/// # Errors
/// The fault of the work.
#[allow(clippy::disallowed_methods, reason = "a bench measures real time; nothing here is simulated")]
pub fn seconds(work: Work<'_>) -> anyhow::Result<f64> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Stands still, in place of computing or between two looks.
#[allow(clippy::disallowed_methods, reason = "it stands for work that keeps a thread busy")]
pub fn pause(pause: Duration) {
    std::thread::sleep(pause);
}

/// The one clock that all processes of a machine share.
#[allow(clippy::disallowed_methods, reason = "a bench measures real time; nothing here is simulated")]
pub fn wall_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn works_take_turns_and_the_first_round_is_thrown_away() {
        let order = RefCell::new(String::new());
        let mut a = || {
            order.borrow_mut().push('a');
            Ok(())
        };
        let mut b = || {
            order.borrow_mut().push('b');
            Ok(())
        };
        let rounds = in_turn(2, [&mut a, &mut b]).unwrap();
        assert_eq!((rounds.len(), order.into_inner().as_str()), (2, "ababab"));
    }

    #[test]
    fn a_median_lies_in_the_middle_of_odd_and_even_counts() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn a_fault_of_a_work_ends_the_run() {
        assert!(in_turn(9, [&mut || anyhow::bail!("broken")]).is_err());
    }
}
