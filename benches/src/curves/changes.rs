//! When the number of trainers of an elastic job changes, and to what. Pure.

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
#[derive(Clone, Debug, PartialEq)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_to_and_fro_and_leave_both_ends_a_stretch_of_their_own() {
        let changes = Changes::evenly(4).0;
        assert_eq!(changes.iter().map(|change| change.trainers).collect::<Vec<_>>(), [4, 2, 4, 2]);
        assert_eq!(changes.iter().map(|change| change.share).collect::<Vec<_>>(), [0.2, 0.4, 0.6, 0.8]);
    }
}
