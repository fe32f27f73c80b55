//! When the steps of a job began, and what follows for its speed. The first steps are left out: processes start, and whoever
//! comes first does them alone. Pure.

use anyhow::{Context, ensure};

/// Steps that do not count.
pub(crate) const WARM: usize = 3;

/// When each step began, by whoever began first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Begins(Vec<u64>);

impl Begins {
    /// Of so many steps, from what trainers wrote down, each for itself: a step and nanoseconds, a line for each.
    pub(crate) fn read<'a>(steps: u32, written: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Begins> {
        let mut begins = vec![u64::MAX; steps as usize];
        for line in written.into_iter().flat_map(str::lines) {
            let (step, nanos) =
                line.split_once(' ').with_context(|| format!("{line:?} is no begin of a step"))?;
            let begin = begins.get_mut(step.parse::<usize>()?).context("a step that the job has not")?;
            *begin = nanos.parse::<u64>()?.min(*begin);
        }
        Begins::new(begins)
    }

    /// Nanoseconds of all steps in turn.
    pub(crate) fn new(begins: Vec<u64>) -> anyhow::Result<Begins> {
        let counted = begins.get(WARM..).filter(|counted| counted.len() > 1).context("too few steps")?;
        ensure!(
            counted.is_sorted() && !begins.contains(&u64::MAX),
            "not every step was begun after the one before"
        );
        Ok(Begins(begins))
    }

    /// Seconds of each step that counts.
    pub(crate) fn seconds(&self) -> Vec<f64> {
        self.0[WARM..].windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect()
    }

    /// Steps in a second, over all that count.
    pub(crate) fn rate(&self) -> f64 {
        let seconds = self.seconds();
        seconds.len() as f64 / seconds.iter().sum::<f64>()
    }
}

/// The speed that so many trainers would have if none cost the others anything.
pub(crate) fn perfect(trainers: u32, alone: f64) -> f64 {
    f64::from(trainers) * alone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_first_begins_the_step_and_the_first_steps_do_not_count() {
        let one = "0 5\n1 6\n2 7\n3 1000000000\n5 3000000000\n";
        let two = "3 1000000009\n4 1500000000\n5 2000000000\n";
        let begins = Begins::read(6, [one, two]).unwrap();
        assert_eq!((begins.seconds(), begins.rate()), (vec![0.5, 0.5], 2.0));
    }

    #[test]
    fn steps_that_nobody_began_or_that_went_back_are_no_measurement() {
        assert!(Begins::read(7, ["0 5\n1 6\n2 7\n3 8\n4 9\n6 11\n"]).is_err());
        assert!(Begins::new(vec![1, 2, 3, 4, 5, 4, 6]).is_err());
        assert!(Begins::new(vec![1, 2, 3, 4]).is_err());
        assert!(Begins::read(7, ["7 1\n"]).is_err() && Begins::read(7, ["now\n"]).is_err());
    }

    #[test]
    fn efficiency_is_the_part_of_the_perfect_speed() {
        assert_eq!(1.5 / perfect(4, 0.5), 0.75);
    }
}
