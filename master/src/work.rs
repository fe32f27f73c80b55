//! How much of what was applied still counts: records applied in one master's term, and those that the job has lost
//! again by going back. For people; no decision may rest on it. Pure.

/// The records of one master's term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Records that counted when this master first knew.
    began_at: Option<u64>,
    /// Applied, and lost again, since.
    lost: u64,
    /// While it is not known how far the job has gone back: the records that counted before.
    before: Option<u64>,
}

impl Work {
    /// Every block was heard of: so many records count.
    pub(crate) fn know(&mut self, trained: u64) {
        self.began_at.get_or_insert(trained);
        if let Some(before) = self.before.take() {
            self.lost += before.saturating_sub(trained);
        }
    }

    /// The job goes back from where so many records counted; how far, [`know`](Self::know) will tell.
    pub(crate) fn go_back(&mut self, trained: u64) {
        if self.began_at.is_some() {
            self.before.get_or_insert(trained);
        }
    }

    /// Records applied since this master first knew, those that were lost again included, where `trained` count now.
    pub(crate) fn applied(&self, trained: u64) -> u64 {
        let began_at = self.began_at.unwrap_or(trained);
        (self.before.unwrap_or(trained) + self.lost).saturating_sub(began_at)
    }

    /// Of those, the records that were lost again.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_trained_before_this_master_knew_is_not_of_its_term() {
        let mut work = Work::default();
        assert_eq!(work.applied(70), 0);
        work.go_back(70);
        work.know(40);
        assert_eq!((work.applied(40), work.applied(65), work.lost()), (0, 25, 0));
    }

    #[test]
    fn what_is_trained_again_after_going_back_counts_as_applied_twice() {
        let mut work = Work::default();
        work.know(0);
        work.go_back(100);
        assert_eq!(work.applied(0), 100, "it is not known yet how far it goes back");
        work.go_back(0);
        work.know(60);
        assert_eq!((work.applied(60), work.lost()), (100, 40));
        assert_eq!((work.applied(130), work.lost()), (170, 40));
    }

    proptest! {
        #[test]
        fn applied_never_falls_and_less_what_was_lost_is_what_counts(moves in proptest::collection::vec((0u8..3, 0u64..50), 0..60)) {
            let (mut work, mut trained, mut before) = (Work::default(), 0u64, 0);
            work.know(0);
            for (what, by) in moves {
                if what == 0 {
                    work.go_back(trained);
                    trained = trained.saturating_sub(by);
                    prop_assert!(work.applied(trained) >= before);
                    work.know(trained);
                } else {
                    trained += by;
                }
                prop_assert!(work.applied(trained) >= before);
                before = work.applied(trained);
                prop_assert_eq!(work.applied(trained) - work.lost(), trained);
            }
        }
    }
}
