//! When the number of trainers of an elastic job changes, and to what; what was seen of it. A change that nobody saw while the job
//! still trained has not arrived. Pure.

use super::results::Live;

/// The fewest trainers, with which an elastic job begins.
pub(crate) const FEW: u32 = 2;
/// The most.
pub(crate) const MANY: u32 = 4;

/// A change, due when this share of the job is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) share: f64,
    pub(crate) trainers: u32,
}

/// The changes of a job, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changes(pub(crate) Vec<Change>);

impl Changes {
    /// So many, to and fro, at equal distances.
    pub(crate) fn evenly(count: u32) -> Changes {
        let change = |number: u32| Change {
            share: f64::from(number) / f64::from(count + 1),
            trainers: if number % 2 == 1 { MANY } else { FEW },
        };
        Changes((1..=count).map(change).collect())
    }
}

/// What a running job says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The share of the records of all epochs that is trained on.
    pub(crate) share: f64,
    /// Live trainers.
    pub(crate) live: u32,
}

/// A job's changes as they are due and as they arrive.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    /// Not asked for yet, the last one first.
    changes: Vec<Change>,
    wanted: u32,
    /// Wherever the number was another one than before.
    seen: Vec<Seen>,
}

impl Following {
    /// Of a job that begins with so many trainers.
    pub(crate) fn new(trainers: u32, Changes(mut changes): Changes) -> Following {
        changes.reverse();
        Following { changes, wanted: trainers, seen: Vec::new() }
    }

    /// Takes note; returns the number to ask for now, if a change is due and the one before has arrived.
    pub(crate) fn see(&mut self, seen: Seen) -> Option<u32> {
        // At the end trainers leave by themselves.
        if seen.share >= 1.0 {
            return None;
        }
        if self.live_last() != Some(seen.live) {
            self.seen.push(seen);
        }
        let due = self.changes.pop_if(|due| seen.live == self.wanted && seen.share >= due.share)?;
        self.wanted = due.trainers;
        Some(due.trainers)
    }

    /// Changes that were not asked for or did not arrive.
    pub(crate) fn to_come(&self) -> usize {
        self.changes.len() + usize::from(self.live_last() != Some(self.wanted))
    }

    /// How many trainers were live from which epoch on.
    pub(crate) fn live(&self, epochs: u32) -> Vec<Live> {
        let live = |seen: &Seen| Live { epoch: seen.share * f64::from(epochs), trainers: seen.live };
        self.seen.iter().map(live).collect()
    }

    fn live_last(&self) -> Option<u32> {
        self.seen.last().map(|seen| seen.live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_to_and_fro_and_leave_both_ends_a_stretch_of_their_own() {
        let changes = Changes::evenly(4).0;
        assert_eq!(changes.iter().map(|change| change.trainers).collect::<Vec<_>>(), [4, 2, 4, 2]);
        assert_eq!(changes.iter().map(|change| change.share).collect::<Vec<_>>(), [0.2, 0.4, 0.6, 0.8]);
    }

    /// What is asked for at each look, and the changes that are to come at the end.
    fn followed(looks: &[(f64, u32)]) -> (Vec<Option<u32>>, usize) {
        let mut following = Following::new(FEW, Changes::evenly(2));
        let asked =
            looks.iter().map(|(share, live)| following.see(Seen { share: *share, live: *live })).collect();
        (asked, following.to_come())
    }

    #[test]
    fn a_change_waits_until_it_is_due_and_the_one_before_has_arrived() {
        let looks = [(0.1, 2), (0.4, 2), (0.7, 3), (0.8, 4), (0.9, 2)];
        assert_eq!(followed(&looks), (vec![None, Some(4), None, Some(2), None], 0));
        assert_eq!(followed(&looks[..3]).1, 2);
        assert_eq!(followed(&looks[..4]).1, 1);
    }

    #[test]
    fn who_leaves_at_the_end_is_no_change_that_arrived() {
        let looks = [(0.4, 2), (0.8, 4), (1.0, 3), (1.0, 2)];
        assert_eq!(followed(&looks), (vec![Some(4), Some(2), None, None], 1));
    }

    #[test]
    fn epochs_are_told_of_every_other_number() {
        let mut following = Following::new(FEW, Changes::default());
        for (share, live) in [(0.0, 1), (0.1, 2), (0.2, 2), (0.5, 4)] {
            following.see(Seen { share, live });
        }
        let live = [(0.0, 1), (1.0, 2), (5.0, 4)].map(|(epoch, trainers)| Live { epoch, trainers });
        assert_eq!(following.live(10), live);
    }
}
