//! The operator's pages for probes and Prometheus. Decides nothing.

use crate::cluster::{Leader, Looks, Plans};
use shoal_runtime::host::http::{Exposition, Watched};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the pages show.
pub(crate) struct Pages {
    pub(crate) leader: Arc<Leader>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) plans: Arc<Plans>,
}

impl Watched for Pages {
    fn metrics(&self) -> String {
        let mut page = Exposition::new();
        page.build("operator", env!("CARGO_PKG_VERSION"));
        page.gauge(
            "shoal_operator_leads",
            "1 on the operator that leads.",
            u64::from(self.leader.is_leading()),
        );
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter("shoal_operator_looks_total", "Looks at jobs.", read(&self.looks.count));
        page.counter("shoal_operator_looks_failed_total", "Looks that failed.", read(&self.looks.failed));
        let seconds = read(&self.looks.micros) as f64 / 1e6;
        page.counter("shoal_operator_looks_seconds_total", "How long looks took.", seconds);
        page.counter("shoal_operator_plans_total", "Plans for all jobs.", read(&self.plans.count));
        let seconds = read(&self.plans.micros) as f64 / 1e6;
        page.counter("shoal_operator_plans_seconds_total", "How long plans took.", seconds);
        page.gauge(
            "shoal_operator_waiting_jobs",
            "Jobs that have no room for their least.",
            read(&self.plans.waiting),
        );
        page.into_text()
    }

    async fn readiness(&self) -> Result<(), String> {
        // One that stands by is ready to take over.
        Ok(())
    }
}
