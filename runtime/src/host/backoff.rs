//! Waiting times between retries: exponential, capped, fully jittered ("Exponential Backoff And Jitter", AWS 2015).

use super::random::Random;
use std::time::Duration;

/// The state of one series of retries.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    attempts: u32,
}

impl Backoff {
    /// Pauses that begin near `first` and never exceed `cap`.
    pub fn new(first: Duration, cap: Duration) -> Backoff {
        Backoff { first, cap, attempts: 0 }
    }
    /// The next pause: between half and the whole of `first * 2^attempts`, capped.
    pub fn pause(&mut self, random: &mut Random) -> Duration {
        let whole = self.first.saturating_mul(1 << self.attempts.min(16)).min(self.cap);
        self.attempts += 1;
        let half = (whole.as_micros() as u64 / 2).max(1);
        Duration::from_micros(half + random.below(half))
    }
    /// How many pauses were taken since the last success.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
    /// Begins anew after a success.
    pub fn succeed(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_begin_anew_after_success() {
        let mut random = Random::seeded(1);
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));
        let pauses: Vec<u128> = (0..40).map(|_| backoff.pause(&mut random).as_millis()).collect();
        assert!((5..=10).contains(&pauses[0]) && pauses.iter().all(|p| *p <= 200) && pauses[39] >= 100);
        backoff.succeed();
        assert!(backoff.pause(&mut random).as_millis() <= 10);
    }
}
