//! Hashes of computations on the wire.

use super::{malformed, proto};
use crate::cluster::verification::{HASH_BYTES, HASHES_MAX};
use crate::cluster::{LeaseId, Refusal, Rewind, Step, Verified};

impl From<&Verified> for proto::Verified {
    fn from(verified: &Verified) -> Self {
        let Verified { lease, step, slot, rewind, exclusions, hashes } = verified.clone();
        proto::Verified {
            lease: lease.0,
            step: step.0,
            slot,
            rewind: rewind.0,
            exclusions,
            hashes: hashes.into(),
        }
    }
}

impl TryFrom<proto::Verified> for Verified {
    type Error = Refusal;

    fn try_from(wire: proto::Verified) -> Result<Self, Refusal> {
        let proto::Verified { lease, step, slot, rewind, exclusions, hashes } = wire;
        if hashes.len() > HASH_BYTES * (HASHES_MAX + 1) || !hashes.len().is_multiple_of(HASH_BYTES) {
            return Err(malformed("verified.hashes", format!("{} bytes", hashes.len())));
        }
        Ok(Verified {
            lease: LeaseId(lease),
            step: Step(step),
            slot,
            rewind: Rewind(rewind),
            exclusions,
            hashes: hashes.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_come_as_they_were_sent_and_nothing_else_does() {
        let hashes = vec![7; 3 * HASH_BYTES];
        let (lease, step, rewind) = (LeaseId(1), Step(2), Rewind(4));
        let verified = Verified { lease, step, slot: 3, rewind, exclusions: 5, hashes };
        let wire = proto::Verified::from(&verified);
        assert_eq!(Verified::try_from(wire.clone()).unwrap(), verified);
        for bytes in [1, HASH_BYTES + 1, HASH_BYTES * (HASHES_MAX + 2)] {
            let wrong = proto::Verified { hashes: vec![0; bytes].into(), ..wire.clone() };
            assert!(Verified::try_from(wrong).is_err(), "{bytes}");
        }
    }
}
