//! Staleness on the wire. Any counts are sensible, so nothing is refused.

use super::proto;
use crate::cluster::Staleness;

impl From<&Staleness> for proto::Staleness {
    fn from(staleness: &Staleness) -> proto::Staleness {
        let updates = staleness.buckets().into_iter().map(|(_, _, updates)| updates).collect();
        proto::Staleness { updates, sum: staleness.sum() }
    }
}

impl From<&proto::Staleness> for Staleness {
    fn from(wire: &proto::Staleness) -> Staleness {
        Staleness::from_counts(&wire.updates, wire.sum)
    }
}
