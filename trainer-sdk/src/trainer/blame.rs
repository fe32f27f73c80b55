//! Which records are to blame for a failure of the program. Pure.
//!
//! An error leaves the model as it was: a record that fails alone is to blame, unless all would, and in the same words. A panic may leave the model in any state: a record that fails on it afterwards need not be a bad one, and a good record must
//! never be left out. So the model has to prove that it works still: a record that fails alone is blamed only if one that was
//! tried right before or right after it did not.

/// What comes of one record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fails {
    Not,
    /// In the same words as all together.
    Alike,
    Otherwise,
}

/// The places of the records that fail alone, of so many that gave an error together; `tried` tries one. None as soon as the first
/// and the last fail in the words of all: it is not the records. The two are far apart, since bad records often lie together.
pub(super) fn after_error(records: usize, mut tried: impl FnMut(usize) -> Fails) -> Option<Vec<usize>> {
    let last = records.saturating_sub(1);
    if last < 2 {
        return Some((0..records).filter(|at| tried(*at) != Fails::Not).collect());
    }
    let first = tried(0);
    // Tried out of turn only where it may be the last to be tried.
    let end = (first == Fails::Alike).then(|| tried(last));
    if end == Some(Fails::Alike) {
        return None;
    }
    let mut fails = |at| match at {
        0 => first,
        _ if at == last => end.unwrap_or_else(|| tried(at)),
        _ => tried(at),
    };
    Some((0..records).filter(|at| fails(*at) != Fails::Not).collect())
}

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

    /// What is found of an error, and how many records were tried.
    fn told(words: &[Fails]) -> (Option<Vec<usize>>, usize) {
        let mut tried = 0;
        let blamed = after_error(words.len(), |at| {
            tried += 1;
            words[at]
        });
        (blamed, tried)
    }

    #[test]
    fn an_error_that_the_first_and_the_last_record_repeat_is_none_of_the_records() {
        use Fails::{Alike, Not, Otherwise};
        assert_eq!(told(&[Alike; 32]), (None, 2));
        assert_eq!(told(&[Alike, Not, Alike]), (None, 2));
        for (words, blamed) in [
            (&[Alike][..], vec![0]),
            (&[Alike, Alike], vec![0, 1]),
            (&[Alike, Alike, Not], vec![0, 1]),
            (&[Not, Alike, Alike], vec![1, 2]),
            (&[Alike, Not, Otherwise], vec![0, 2]),
            (&[Otherwise, Otherwise, Otherwise], vec![0, 1, 2]),
            (&[Not, Alike, Alike, Not], vec![1, 2]),
            (&[Not, Not, Not], vec![]),
        ] {
            assert_eq!(told(words), (Some(blamed), words.len()), "{words:?}: each is tried once");
        }
        assert_eq!(told(&[]), (Some(vec![]), 0));
    }
}
