//! The processor time that this process has used.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Of all its threads together, since it began.
pub fn used() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_uses_it() {
        let begun = used();
        let mut sum = 0_u64;
        for number in 0..20_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
        let took = used() - begun;
        assert!(took > Duration::from_micros(100), "{took:?} for {sum}");
    }
}
