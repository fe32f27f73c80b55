//! Routing tables on the wire: ranges of blocks, so that a table costs what its boundaries cost.

use super::{malformed, proto};
use crate::cluster::layout::BLOCKS_MAX;
use crate::cluster::routing::{BlockRoute, PserverAddress};
use crate::cluster::{Incarnation, Refusal, Rewind, Routing, Term};

impl From<&PserverAddress> for proto::PserverAddress {
    fn from(pserver: &PserverAddress) -> Self {
        proto::PserverAddress { incarnation: pserver.incarnation.0, address: pserver.address.clone() }
    }
}

impl From<proto::PserverAddress> for PserverAddress {
    fn from(wire: proto::PserverAddress) -> Self {
        PserverAddress { incarnation: Incarnation(wire.incarnation), address: wire.address }
    }
}

impl From<&Routing> for proto::Routing {
    fn from(routing: &Routing) -> Self {
        let mut ranges: Vec<proto::RoutingRange> = Vec::new();
        for (block, route) in routing.blocks.iter().enumerate() {
            match ranges.last_mut() {
                Some(range) if of_range(range) == *route => range.blocks += 1,
                _ => ranges.push(proto::RoutingRange {
                    first_block: block as u32,
                    blocks: 1,
                    pserver: route.primary,
                    term: route.term.0,
                    rewind: route.rewind.0,
                }),
            }
        }
        let pservers = routing.pservers.iter().map(Into::into).collect();
        proto::Routing { version: routing.version, pservers, ranges }
    }
}

fn of_range(range: &proto::RoutingRange) -> BlockRoute {
    BlockRoute { primary: range.pserver, term: Term(range.term), rewind: Rewind(range.rewind) }
}

impl TryFrom<proto::Routing> for Routing {
    type Error = Refusal;

    fn try_from(wire: proto::Routing) -> Result<Self, Refusal> {
        let mut blocks = Vec::new();
        for range in &wire.ranges {
            if range.first_block as usize != blocks.len() {
                return Err(malformed("routing.ranges", "ranges must cover every block once, in order"));
            }
            if range.pserver as usize >= wire.pservers.len() {
                return Err(malformed("routing.ranges", "a range names a pserver that is not in the table"));
            }
            let end = blocks.len() + range.blocks as usize;
            if end as u64 > BLOCKS_MAX {
                return Err(malformed("routing.ranges", format!("more than {BLOCKS_MAX} blocks")));
            }
            blocks.resize(end, of_range(range));
        }
        let pservers = wire.pservers.into_iter().map(Into::into).collect();
        Ok(Routing { version: wire.version, pservers, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Routing {
        let pserver =
            |n: u64| PserverAddress { incarnation: Incarnation(n), address: format!("127.0.0.1:{n}") };
        let route = |primary, term| BlockRoute { primary, term: Term(term), rewind: Rewind(1) };
        let blocks = vec![route(0, 1), route(0, 1), route(1, 1), route(1, 2), route(1, 2), route(0, 1)];
        Routing { version: 3, pservers: vec![pserver(1), pserver(2)], blocks }
    }

    #[test]
    fn a_table_travels_as_its_boundaries() {
        let wire = proto::Routing::from(&table());
        assert_eq!(wire.ranges.len(), 4);
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
