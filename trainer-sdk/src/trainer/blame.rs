//! Which records are to blame for a panic of the program. Pure.
//!
//! A panic may leave the model in any state: a record that fails on it afterwards need not be a bad one, and a good record must
//! never be left out. So the model has to prove that it works still: a record that fails alone is blamed only if one that was
//! tried right before or right after it did not.

/// The places of the records to blame, of so many that panicked together; `fails` tries one alone. The search ends with two
/// failures in a row: the model is broken, or many records are bad, and more of either is not learnt from it.
pub(super) fn after_panic(records: usize, mut fails: impl FnMut(usize) -> bool) -> Vec<usize> {
    if records == 1 {
        // There is nothing else that it could be, and the model was sound.
        return vec![0];
    }
    let (mut failed, mut has_failed) = (Vec::new(), false);
    for at in 0..records {
        let fails = fails(at);
        if fails && has_failed {
            // The one before it is to blame if another was done right before that.
            failed.retain(|_| at > 1);
            break;
        }
        failed.extend(fails.then_some(at));
        has_failed = fails;
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blamed, and how many were tried, where `bad` records fail and the model is broken for good by the one at `breaks`.
    fn blamed(records: usize, bad: &[usize], breaks: Option<usize>) -> (Vec<usize>, usize) {
        let (mut tried, mut is_broken) = (0, false);
        let blamed = after_panic(records, |at| {
            tried += 1;
            is_broken |= breaks == Some(at);
            is_broken || bad.contains(&at)
        });
        (blamed, tried)
    }

    #[test]
    fn a_record_that_fails_between_others_that_do_not_is_blamed() {
        for bad in 0..5 {
            assert_eq!(blamed(5, &[bad], None), (vec![bad], 5));
        }
        assert_eq!(blamed(6, &[0, 2, 5], None), (vec![0, 2, 5], 6));
        assert_eq!(blamed(6, &[], None), (vec![], 6));
    }

    #[test]
    fn nothing_is_learnt_from_a_model_that_fails_twice_in_a_row() {
        assert_eq!(blamed(5, &[0, 1, 2, 3, 4], None), (vec![], 2), "it was broken by the first panic");
        assert_eq!(blamed(6, &[3], Some(3)), (vec![3], 5), "it is broken by the second");
        assert_eq!(blamed(6, &[1], Some(3)), (vec![1, 3], 5), "by the third");
        assert_eq!(blamed(6, &[0], Some(0)), (vec![], 2), "nobody knows by which");
        assert_eq!(blamed(2, &[1], None), (vec![1], 2));
    }

    #[test]
    fn a_record_that_panicked_by_itself_is_not_tried_again() {
        assert_eq!(blamed(1, &[], None), (vec![0], 0));
        assert_eq!(blamed(0, &[], None), (vec![], 0));
    }
}
