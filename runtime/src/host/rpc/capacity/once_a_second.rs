//! What strangers can bring about at any rate is not logged at any rate.

use std::time::Duration;
use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(1);

/// Lets one in a second be told, and counts the others.
#[derive(Debug, Default)]
pub(in crate::host::rpc) struct OnceASecond {
    told: Option<Instant>,
    untold: u64,
}

impl OnceASecond {
    /// If this is one to be told, how many before it were not.
    pub(in crate::host::rpc) fn tell(&mut self) -> Option<u64> {
        if self.told.is_some_and(|told| told.elapsed() < EVERY) {
            self.untold += 1;
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_in_a_second_is_told_with_the_number_of_the_others() {
        let mut seldom = OnceASecond::default();
        let mut told = Vec::new();
        for _ in 0..25 {
            told.extend(seldom.tell());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(told, [0, 9, 9]);
    }
}
