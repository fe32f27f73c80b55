//! Ledgers on the wire: the low mark and the ranges beyond it. Parts that make no ledger are refused.

use super::{malformed, proto};
use crate::cluster::{Ledger, Refusal};
use std::ops::Range;

impl From<&Ledger> for proto::Ledger {
    fn from(ledger: &Ledger) -> Self {
        let range = |range: Range<u64>| proto::LedgerRange { first: range.start, end: range.end };
        proto::Ledger { low: ledger.low(), ranges: ledger.ranges().map(range).collect() }
    }
}

impl TryFrom<proto::Ledger> for Ledger {
    type Error = Refusal;

    fn try_from(wire: proto::Ledger) -> Result<Self, Refusal> {
        let ranges = wire.ranges.into_iter().map(|range| range.first..range.end);
        Ledger::from_parts(wire.low, ranges).map_err(|fault| malformed("ledger.ranges", fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::RefusalKind;

    fn wire(low: u64, ranges: &[(u64, u64)]) -> proto::Ledger {
        let range = |(first, end): &(u64, u64)| proto::LedgerRange { first: *first, end: *end };
        proto::Ledger { low, ranges: ranges.iter().map(range).collect() }
    }

    #[test]
    fn a_ledger_travels_as_its_low_mark_and_the_ranges_beyond_it() {
        let mut ledger = Ledger::default();
        assert!([0, 1, 2, 5, 6, 9].iter().all(|position| ledger.insert(*position)));
        assert_eq!(proto::Ledger::from(&ledger), wire(3, &[(5, 7), (9, 10)]));
        assert_eq!(Ledger::try_from(proto::Ledger::from(&ledger)).unwrap(), ledger);
        assert_eq!(Ledger::try_from(wire(0, &[])).unwrap(), Ledger::default());
    }

    #[test]
    fn ranges_that_make_no_ledger_are_refused_by_the_field_they_stand_in() {
        for ranges in [&[(5, 5)][..], &[(3, 4)], &[(2, 4)], &[(7, 8), (5, 6)], &[(5, 8), (8, 9)], &[(9, 5)]] {
            let refusal = Ledger::try_from(wire(3, ranges)).unwrap_err();
            assert_eq!((refusal.kind, refusal.subject.as_str()), (RefusalKind::Malformed, "ledger.ranges"));
        }
    }
}
