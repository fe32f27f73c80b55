//! Loopback addresses of pods. Each cluster on this machine has a network of its own, whichever process it belongs to, because
//! pods of two clusters listen on the same ports.

use anyhow::Context;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;

/// Networks 127.N.0.0/16 for N of these; the first ones are often used by others.
const NETWORKS: RangeInclusive<u8> = 64..=119;
/// Who listens here, on the last address of a network, has the network.
const CLAIM_PORT: u16 = 61_999;

/// A network, and which of its addresses are given out.
#[derive(Debug)]
pub(super) struct Addresses {
    network: u8,
    given: u16,
    _claim: TcpListener,
}

impl Addresses {
    /// A network that no other cluster has until this is dropped.
    ///
    /// # Errors
    /// All of them are taken.
    pub(super) fn claim() -> anyhow::Result<Addresses> {
        Self::claim_of(NETWORKS)
    }

    fn claim_of(mut networks: RangeInclusive<u8>) -> anyhow::Result<Addresses> {
        let claimed = networks.find_map(|network| {
            let claim = TcpListener::bind((Ipv4Addr::new(127, network, 255, 254), CLAIM_PORT)).ok()?;
            Some(Addresses { network, given: 0, _claim: claim })
        });
        claimed.context("no loopback network is free for another cluster: end one of those that run")
    }

    /// An address that none of the last 65,000 pods has had.
    pub(super) fn next(&mut self) -> String {
        self.given = self.given % 65_000 + 1;
        let [third, fourth] = self.given.to_be_bytes();
        Ipv4Addr::new(127, self.network, third, fourth).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_have_no_address_in_common_and_one_that_ends_gives_its_network_back() {
        let claim = || Addresses::claim_of(120..=121);
        let (mut one, mut other) = (claim().unwrap(), claim().unwrap());
        assert_eq!([one.next(), other.next()], ["127.120.0.1", "127.121.0.1"]);
        assert!(claim().unwrap_err().to_string().contains("no loopback network is free"));
        drop(one);
        assert_eq!(claim().unwrap().next(), "127.120.0.1");
    }

    #[test]
    fn addresses_follow_one_another_and_begin_anew() {
        let mut addresses = Addresses::claim_of(122..=122).unwrap();
        let given: Vec<String> = (0..65_000).map(|_| addresses.next()).collect();
        assert_eq!([&given[0], &given[255]], ["127.122.0.1", "127.122.1.0"]);
        assert!(!given[1..].contains(&given[0]));
        assert_eq!(addresses.next(), given[0]);
    }
}
