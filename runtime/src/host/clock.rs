//! Wall-clock time, for labels that people read. No decision may rest on it.

/// Seconds since 1970 by the wall clock, which may jump.
pub fn wall_seconds() -> u64 {
    #[allow(clippy::disallowed_methods)] // The one door to the wall clock.
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
