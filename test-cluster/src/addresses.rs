//! Addresses of pods. Each cluster on this machine has a network of its own, whichever process it belongs to: pods of two
//! clusters listen on the same ports.

use anyhow::Context;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;

/// Numbers of networks; the first ones of loopback are often used by others.
const NETWORKS: RangeInclusive<u8> = 64..=119;
/// Who listens here, on the last address of a network, has the network.
const CLAIM_PORT: u16 = 61_999;

/// Addresses of a network of containers: one in 64 of 198.18.0.0/15, which is for tests of networks and routed nowhere.
const BRIDGED: u32 = 1 << 11;

/// What a network's addresses are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// 127.N.0.0/16, for processes.
    Loopback,
    /// A piece of 198.18.0.0/15 whose first address is the machine's, for containers.
    Bridge,
}

/// A network, and which of its addresses are given out.
#[derive(Debug)]
pub(super) struct Addresses {
    range: Range,
    network: u8,
    given: u16,
    _claim: TcpListener,
}

impl Addresses {
    /// A network that no other cluster has until this is dropped.
    ///
    /// # Errors
    /// All of them are taken.
    pub(super) fn claim(range: Range) -> anyhow::Result<Addresses> {
        Self::claim_of(range, NETWORKS)
    }

    fn claim_of(range: Range, mut networks: RangeInclusive<u8>) -> anyhow::Result<Addresses> {
        let claimed = networks.find_map(|network| {
            let claim = TcpListener::bind((Ipv4Addr::new(127, network, 255, 254), CLAIM_PORT)).ok()?;
            Some(Addresses { range, network, given: 0, _claim: claim })
        });
        claimed.context("no network is free for another cluster: end one of those that run")
    }

    /// An address that none of the last 65,000 pods has had; of containers, none of the last 2,000.
    pub(super) fn next(&mut self) -> String {
        let count = if self.range == Range::Loopback { 65_000 } else { 2_000 };
        self.given = self.given % count + 1;
        match self.range {
            Range::Loopback => {
                let [third, fourth] = self.given.to_be_bytes();
                Ipv4Addr::new(127, self.network, third, fourth).to_string()
            }
            // After the machine's own.
            Range::Bridge => self.bridged(u32::from(self.given) + 1).to_string(),
        }
    }

    /// The number of the network, which no other cluster has meanwhile.
    pub(super) fn network(&self) -> u8 {
        self.network
    }

    /// The machine's own address on a bridge, with the length of the network's prefix.
    pub(super) fn gateway(&self) -> String {
        format!("{}/{}", self.bridged(1), BRIDGED.leading_zeros() + 1)
    }

    fn bridged(&self, number: u32) -> Ipv4Addr {
        let begin = u32::from(self.network - NETWORKS.start()) * BRIDGED;
        Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + begin + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_have_no_address_in_common_and_one_that_ends_gives_its_network_back() {
        let claim = || Addresses::claim_of(Range::Loopback, 120..=121);
        let (mut one, mut other) = (claim().unwrap(), claim().unwrap());
        assert_eq!([one.next(), other.next()], ["127.120.0.1", "127.121.0.1"]);
        assert!(claim().unwrap_err().to_string().contains("no network is free"));
        drop(one);
        assert_eq!(claim().unwrap().next(), "127.120.0.1");
    }

    #[test]
    fn addresses_follow_one_another_and_begin_anew() {
        let mut addresses = Addresses::claim_of(Range::Loopback, 122..=122).unwrap();
        let given: Vec<String> = (0..65_000).map(|_| addresses.next()).collect();
        assert_eq!([&given[0], &given[255]], ["127.122.0.1", "127.122.1.0"]);
        assert!(!given[1..].contains(&given[0]));
        assert_eq!(addresses.next(), given[0]);
    }

    #[test]
    fn networks_of_containers_lie_beside_one_another_within_those_that_are_for_tests() {
        let mut first = Addresses::claim_of(Range::Bridge, 123..=123).unwrap();
        let mut second = Addresses::claim_of(Range::Bridge, 124..=124).unwrap();
        assert_eq!([first.gateway(), second.gateway()], ["198.19.216.1/21", "198.19.224.1/21"]);
        let given: Vec<String> = (0..2_000).map(|_| first.next()).collect();
        assert_eq!([&given[0], &given[1_999]], ["198.19.216.2", "198.19.223.209"]);
        assert_eq!([first.next(), second.next()], [given[0].clone(), "198.19.224.2".to_owned()]);
    }
}
