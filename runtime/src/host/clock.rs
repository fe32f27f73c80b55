//! Wall-clock time, for labels that people read. No decision may rest on it.

use std::time::Duration;

/// Seconds since 1970 by the wall clock, which may jump.
pub fn wall_seconds() -> u64 {
    since_1970().as_secs()
}

/// Microseconds since 1970 by the wall clock, which may jump.
pub fn wall_micros() -> u64 {
    since_1970().as_micros() as u64
}

fn since_1970() -> Duration {
    #[allow(clippy::disallowed_methods)] // The one door to the wall clock.
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
