//! A pserver as other programs look at it: what it has counted, and whether it is registered and its master is heard.
//! Decides nothing, and puts the name of no trainer and no block on anything.

use crate::counters;
use crate::device::DeviceUsage;
use crate::shard::Shard;
use shoal_job::counters::{Counters as _, Metric};
use shoal_runtime::cluster::Staleness;
use shoal_runtime::host::http::{self, Exposition};
use shoal_runtime::host::rpc::{Masters, Security};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A pserver from its first moment on.
#[allow(missing_debug_implementations, reason = "a channel has nothing to show")]
pub struct Watched<'a> {
    masters: &'a Masters,
    security: &'a Security,
    shard: OnceLock<Arc<Shard>>,
}

impl<'a> Watched<'a> {
    /// A pserver that is not registered yet.
    pub fn new(masters: &'a Masters, security: &'a Security) -> Watched<'a> {
        Watched { masters, security, shard: OnceLock::new() }
    }

    /// The master has taken it in.
    pub fn registered(&self, shard: &Arc<Shard>) {
        // It registers once in a process; later lives have the same shard.
        let _ = self.shard.set(Arc::clone(shard));
    }
}

impl http::Watched for Watched<'_> {
    fn metrics(&self) -> String {
        let mut page = text(self.shard.get().map(AsRef::as_ref));
        page.push_str(&http::certificate(self.security));
        page
    }

    /// It is registered, and a master that leads was heard of within two leases' time to live.
    async fn readiness(&self) -> Result<(), String> {
        let Some(shard) = self.shard.get() else {
            let masters = self.masters.addresses();
            return Err(format!("not registered yet: none of the masters at {masters} has taken it in"));
        };
        if let Some(why) = shard.failure() {
            return Err(why);
        }
        self.masters.check_heard(Duration::from_millis(shard.job().lease_ttl_millis))
    }
}

/// The metrics of a pserver: of one that is not registered yet, only that.
pub fn text(shard: Option<&Shard>) -> String {
    let mut page = Exposition::new();
    page.build("pserver", env!("CARGO_PKG_VERSION"));
    let help = "1 once a master has taken this pserver in.";
    page.gauge("shoal_pserver_registered", help, shard.is_some());
    if let Some(shard) = shard {
        holdings(&mut page, shard);
        // Who has no device shows nothing of one.
        let is_shown = |metric: &Metric| shard.device().is_some() || !metric.name.starts_with("device_");
        page.counted("shoal_pserver", counters::all(shard).metrics().into_iter().filter(is_shown));
        if let Some(device) = shard.device() {
            device_usage(&mut page, device.usage());
        }
        if !shard.job().is_sync() {
            staleness(&mut page, &shard.staleness());
        }
    }
    page.into_text()
}

fn device_usage(page: &mut Exposition, usage: DeviceUsage) {
    page.gauge(
        "shoal_pserver_device_bytes",
        "Device memory that this pserver has taken, in bytes.",
        usage.bytes,
    );
    let help = "Blocks so far that the device had no memory for: the processor updates them.";
    page.counter("shoal_pserver_device_overflow_total", help, usage.overflow);
    let help = "Device memory that is shared with trainers of this machine, in bytes.";
    page.gauge("shoal_pserver_device_area_bytes", help, usage.area_bytes);
}

fn holdings(page: &mut Exposition, shard: &Shard) {
    // After a panic in an update there is nothing to say about blocks: readiness tells of it.
    if let Ok((led, followed)) = shard.holdings() {
        let parts = [("primary", led), ("follower", followed)];
        page.gauges("shoal_pserver_blocks", "Copies of blocks held here, by their part.", "part", parts);
    }
    let help = "The routing version of what is held here; 0 while nothing is.";
    page.gauge("shoal_pserver_routing_version", help, shard.routing_version().1);
}

fn staleness(page: &mut Exposition, staleness: &Staleness) {
    let buckets = staleness.buckets().map(|(_, last, updates)| (last, updates));
    let help = "Updates applied as a primary, by how many updates the block had moved on since the gradient's parameters were read.";
    page.histogram("shoal_pserver_staleness_updates", help, &buckets, staleness.sum());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::tests::shard;
    use http::Watched as _;
    use shoal_runtime::cluster::{Refusal, RefusalKind};
    use shoal_runtime::host::rpc::TcpDial;
    use shoal_runtime::wire::Fault;

    #[tokio::test(start_paused = true)]
    async fn a_pserver_is_ready_once_it_is_registered_and_while_its_master_is_heard() {
        let masters = Masters::new("a:1,b:2", &TcpDial::default()).unwrap();
        let watched = Watched::new(&masters, &Security::Loopback);
        assert!(watched.readiness().await.unwrap_err().contains("not registered yet"));
        assert!(watched.metrics().contains("shoal_pserver_registered 0\n"));
        let shard = Arc::new(shard());
        let ttl = Duration::from_millis(shard.job().lease_ttl_millis);
        let (asked, _) = masters.present();
        masters.hear(asked, &Ok(()));
        watched.registered(&shard);
        assert_eq!(watched.readiness().await, Ok(()));
        assert!(watched.metrics().contains("shoal_pserver_registered 1\n"));
        tokio::time::advance(2 * ttl + Duration::from_millis(1)).await;
        let not_leading = Refusal::new(RefusalKind::NotLeader, "master", "another leads");
        masters.hear(asked, &Err::<(), Fault>(not_leading.into()));
        assert!(watched.readiness().await.unwrap_err().contains("a:1,b:2"));
        masters.hear(masters.present().0, &Ok(()));
        assert_eq!(watched.readiness().await, Ok(()));
        shard.fail("differing bits".to_owned());
        assert_eq!(watched.readiness().await, Err("differing bits".to_owned()));
    }
}
