//! Exclusions on the wire.

use super::{malformed, proto, required};
use crate::cluster::exclusions::EXCLUSIONS_MAX;
use crate::cluster::{Exclusion, Exclusions, Refusal, Step};
use std::ops::Range;

impl From<&Range<u64>> for proto::RecordRange {
    fn from(range: &Range<u64>) -> Self {
        proto::RecordRange { first: range.start, end: range.end }
    }
}

impl TryFrom<proto::RecordRange> for Range<u64> {
    type Error = Refusal;

    fn try_from(wire: proto::RecordRange) -> Result<Self, Refusal> {
        if wire.first >= wire.end {
            return Err(malformed("records", format!("{}..{} holds none", wire.first, wire.end)));
        }
        Ok(wire.first..wire.end)
    }
}

impl From<&Exclusions> for proto::Exclusions {
    fn from(exclusions: &Exclusions) -> Self {
        let entry = |exclusion: &Exclusion| proto::Exclusion {
            records: Some((&exclusion.records).into()),
            from: exclusion.from.0,
            why: exclusion.why.clone(),
        };
        proto::Exclusions { number: exclusions.number, list: exclusions.list.iter().map(entry).collect() }
    }
}

impl TryFrom<proto::Exclusions> for Exclusions {
    type Error = Refusal;

    fn try_from(wire: proto::Exclusions) -> Result<Self, Refusal> {
        if wire.list.len() > EXCLUSIONS_MAX {
            return Err(malformed("exclusions", format!("more than {EXCLUSIONS_MAX}")));
        }
        let entry = |wire: proto::Exclusion| {
            let records = required(wire.records, "exclusion.records")?.try_into()?;
            Ok(Exclusion { records, from: Step(wire.from), why: wire.why })
        };
        let list = wire.list.into_iter().map(entry).collect::<Result<_, Refusal>>()?;
        Ok(Exclusions { number: wire.number, list })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusions_survive_the_wire_and_an_empty_range_is_refused() {
        let list = vec![Exclusion { records: 3..9, from: Step(7), why: String::from("damaged") }];
        let exclusions = Exclusions { number: 12, list };
        let wire = proto::Exclusions::from(&exclusions);
        assert_eq!(Exclusions::try_from(wire.clone()).unwrap(), exclusions);
        let mut wire = wire;
        wire.list[0].records = Some(proto::RecordRange { first: 4, end: 4 });
        assert_eq!(Exclusions::try_from(wire).unwrap_err().subject, "records");
    }
}
