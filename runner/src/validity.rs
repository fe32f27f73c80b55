//! From when until when a certificate counts that the command issues.

use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::tls::Validity;
use std::time::Duration;

/// A certificate counts from a little before it was issued, for clocks that are behind: a tenth of its time, this at most.
const BEFORE_MAX: Duration = Duration::from_secs(300);

/// A validity from about now on.
pub fn lasting(time: Duration) -> Validity {
    let now = wall_seconds();
    Validity { from: now.saturating_sub((time / 10).min(BEFORE_MAX).as_secs()), until: now + time.as_secs() }
}
