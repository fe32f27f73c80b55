//! The count oracle: parameters that show, record by record and epoch by epoch, how often each record took effect.
//!
//! Record *i* adds `4^epoch` to element *i* of each of three `Sum` parameters, so that a skipped and a doubled record
//! cannot cancel: the base-4 digits of an element are the counts of its epochs. Exact in f32 for 12 epochs (24 bits);
//! later epochs share digits with epoch mod 12, up to three to a digit.

use shoal_trainer_sdk::{Batch, Gradient, Parameter};

/// The three parameters; declared apart from each other, they lie on different pservers.
pub(crate) const NAMES: [&str; 3] = ["count.first", "count.second", "count.third"];
const DIGITS: u64 = 12;
/// Epochs that can be told from each other or at least counted without a carry.
pub(crate) const EPOCHS_MAX: u64 = 3 * DIGITS;

/// The parameter `NAMES[which]` for a data set of `records` records.
pub(crate) fn parameter(which: usize, records: u64) -> Parameter {
    Parameter::sum(NAMES[which], &[records])
}

/// What a record adds in an epoch.
pub(crate) fn weight(epoch: u64) -> anyhow::Result<f32> {
    anyhow::ensure!(epoch < EPOCHS_MAX, "the count is exact for at most {EPOCHS_MAX} epochs: use fewer");
    Ok((1u32 << (2 * (epoch % DIGITS))) as f32)
}

/// Counts the records of a batch.
pub(crate) fn add(batch: &Batch<'_>, gradient: &mut Gradient) -> anyhow::Result<()> {
    let weight = weight(batch.epoch)?;
    for name in NAMES {
        let counts = gradient.slice_mut(name)?;
        for record in batch.records {
            counts[record.index as usize] += weight;
        }
    }
    Ok(())
}

/// What one element says: how many times each of `epochs` epochs' records took effect, wrong ones counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Effects that should have been: records times epochs, for each parameter.
    pub(crate) expected: u64,
    /// Effects that were.
    pub(crate) counted: u64,
    /// Elements that do not hold exactly what they should.
    pub(crate) wrong: u64,
}

/// Reads the counts of one parameter after `epochs` epochs.
pub(crate) fn tally(counts: &[f32], epochs: u64) -> Tally {
    let exact: u64 = (0..epochs).map(|epoch| 1u64 << (2 * (epoch % DIGITS))).sum();
    let mut tally = Tally { expected: epochs * counts.len() as u64, ..Tally::default() };
    for count in counts {
        let mut rest = *count as u64;
        tally.wrong += u64::from(rest as f32 != *count || rest != exact);
        while rest > 0 {
            tally.counted += rest % 4;
            rest /= 4;
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_and_a_doubled_record_do_not_cancel() {
        let exact = (1 + 4 + 16) as f32;
        assert_eq!(tally(&[exact; 5], 3), Tally { expected: 15, counted: 15, wrong: 0 });
        // Record 0 twice in epoch 0, record 1 never in epoch 0; record 2 twice in epoch 1 and never in epoch 2.
        let counts = [exact + 1.0, exact - 1.0, exact + 4.0 - 16.0];
        assert_eq!(tally(&counts, 3).wrong, 3);
    }

    #[test]
    fn twelve_epochs_and_more_stay_exact() {
        for epochs in [1, 11, 12, 13, 24, 36] {
            let exact: u64 = (0..epochs).map(|e| 1u64 << (2 * (e % DIGITS))).sum();
            assert_eq!(exact as f32 as u64, exact);
            assert_eq!(tally(&[exact as f32], epochs).wrong, 0);
        }
    }
}
