//! Routing tables on the wire: ranges of blocks, so that a table costs what its boundaries cost.

use super::{malformed, proto};
use crate::cluster::routing::PserverAddress;
use crate::cluster::{Incarnation, Refusal, Routing};

/// The most blocks a table may have: a bound on what a stranger can make us allocate.
const BLOCKS_MAX: usize = 1 << 24;

impl From<&Routing> for proto::Routing {
    fn from(routing: &Routing) -> Self {
        let mut ranges: Vec<proto::RoutingRange> = Vec::new();
        for (block, pserver) in routing.primary.iter().enumerate() {
            match ranges.last_mut() {
                Some(range) if range.pserver == *pserver => range.blocks += 1,
                _ => ranges.push(proto::RoutingRange {
                    first_block: block as u32,
                    blocks: 1,
                    pserver: *pserver,
                }),
            }
        }
        let pservers = routing.pservers.iter().map(|pserver| proto::PserverAddress {
            incarnation: pserver.incarnation.0,
            address: pserver.address.clone(),
        });
        proto::Routing { version: routing.version, pservers: pservers.collect(), ranges }
    }
}

impl TryFrom<proto::Routing> for Routing {
    type Error = Refusal;

    fn try_from(wire: proto::Routing) -> Result<Self, Refusal> {
        let mut primary = Vec::new();
        for range in &wire.ranges {
            if range.first_block as usize != primary.len() {
                return Err(malformed("routing.ranges", "ranges must cover every block once, in order"));
            }
            if range.pserver as usize >= wire.pservers.len() {
                return Err(malformed("routing.ranges", "a range names a pserver that is not in the table"));
            }
            let end = primary.len() + range.blocks as usize;
            if end > BLOCKS_MAX {
                return Err(malformed("routing.ranges", format!("more than {BLOCKS_MAX} blocks")));
            }
            primary.resize(end, range.pserver);
        }
        let pservers = wire.pservers.into_iter().map(|pserver| PserverAddress {
            incarnation: Incarnation(pserver.incarnation),
            address: pserver.address,
        });
        Ok(Routing { version: wire.version, pservers: pservers.collect(), primary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Routing {
        let pserver =
            |n: u64| PserverAddress { incarnation: Incarnation(n), address: format!("127.0.0.1:{n}") };
        Routing { version: 3, pservers: vec![pserver(1), pserver(2)], primary: vec![0, 0, 1, 1, 1, 0] }
    }

    #[test]
    fn a_table_travels_as_its_boundaries() {
        let wire = proto::Routing::from(&table());
        assert_eq!(wire.ranges.len(), 3);
        assert_eq!(Routing::try_from(wire).unwrap(), table());
    }

    #[test]
    fn a_gap_or_an_absurd_length_is_refused() {
        let mut gap = proto::Routing::from(&table());
        gap.ranges.remove(1);
        assert!(Routing::try_from(gap).is_err());
        let mut absurd = proto::Routing::from(&table());
        absurd.ranges[2].blocks = u32::MAX;
        assert!(Routing::try_from(absurd).is_err());
    }
}
