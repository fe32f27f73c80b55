//! The band of loads that counts as balanced: a tenth around the fair share. Pure.

/// Bytes that a host shall have at least and at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Band {
    /// The least whole number of bytes that is no less than 0.9 fair.
    pub(super) floor: u64,
    /// The greatest that is no more than 1.1 fair.
    pub(super) ceiling: u64,
}

impl Band {
    pub(super) fn new(sizes: &[u64], hosts: u32) -> Band {
        assert!(hosts > 0, "blocks on no host");
        let total: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
        assert!(total <= u128::from(u64::MAX), "blocks of {total} bytes: 2^64 and more cannot be counted");
        let tenths = 10 * u128::from(hosts);
        // One host has a ceiling above the total, which is as good as the total.
        let ceiling = (11 * total / tenths).min(total);
        Band { floor: (9 * total).div_ceil(tenths) as u64, ceiling: ceiling as u64 }
    }

    /// Whether a host of `load` bytes may stay as it is while the least loaded host has `least`.
    pub(super) fn holds(&self, load: u64, least: u64) -> bool {
        load <= self.ceiling && least >= self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_is_what_whole_numbers_of_bytes_lie_within_a_tenth_of_fair() {
        let band = Band::new(&[90, 9], 9);
        assert_eq!((band.floor, band.ceiling), (10, 12));
        assert!(band.holds(12, 10) && !band.holds(13, 10) && !band.holds(12, 9));
        assert_eq!(Band::new(&[u64::MAX], 1).ceiling, u64::MAX);
    }
}
