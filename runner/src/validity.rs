//! From when until when a certificate counts that the command issues.

use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::tls::Validity;
use std::time::Duration;

/// A validity from about now on.
pub fn lasting(time: Duration) -> Validity {
    Validity::lasting(wall_seconds(), time.as_secs())
}
