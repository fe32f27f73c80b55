//! The operator's pages for probes and Prometheus. Decides nothing.

use crate::cluster::{Calls, Watched};
use shoal_runtime::host::http::{self, Exposition};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An operator that has heard nothing of the API server for so long would not take over either: it asks for the lease every
/// 2 s, and each call is given up after 8 s.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// What the pages show.
pub(crate) struct Pages {
    pub(crate) watched: Watched,
    pub(crate) calls: Arc<Calls>,
}

impl Pages {
    fn jobs(&self, page: &mut Exposition) {
        if let Some(counts) = self.watched.jobs.by_phase() {
            let help = "TrainingJobs by phase, on the operator that leads.";
            page.gauges("shoal_operator_jobs", help, "phase", counts);
        }
        let queue = &self.watched.reconciles.queue;
        let (depth, longest) = queue.depth();
        let help = "Jobs that something was said of since they were reconciled last.";
        page.gauge("shoal_operator_queue_depth", help, depth);
        let help = "How long the one of them that has waited longest has waited.";
        page.gauge("shoal_operator_queue_longest_wait_seconds", help, longest.as_secs_f64());
        let (buckets, seconds) = queue.seconds();
        let help = "How long a job waited to be reconciled.";
        page.histogram_of_seconds("shoal_operator_queue_wait_seconds", help, &buckets, seconds);
    }

    fn reconciles(&self, page: &mut Exposition) {
        let reconciles = &self.watched.reconciles;
        let (buckets, seconds) = reconciles.seconds();
        let name = "shoal_operator_reconcile_seconds";
        page.histogram_of_seconds(name, "How long it took to reconcile a job once.", &buckets, seconds);
        let help = "Reconciliations, by result.";
        page.counters("shoal_operator_reconciles_total", help, "result", reconciles.results());
        let help = "Reconciliations that failed and are repeated after a pause, by why: conflict (somebody else wrote first), \
                    refused or unanswered by the API server, deadline, not_leading, or broken: a fault of the operator, of which nothing was done.";
        page.counters("shoal_operator_reconcile_errors_total", help, "kind", reconciles.errors());
        let help = "Jobs that are being reconciled now.";
        page.gauge("shoal_operator_reconciles_under_way", help, reconciles.under_way());
    }

    fn calls(&self, page: &mut Exposition) {
        let calls: Vec<_> = self.calls.counted();
        let labels = |kind: &crate::cluster::CallKind| {
            [
                ("verb", kind.verb.to_owned()),
                ("resource", kind.resource.clone()),
                ("code", kind.code.to_string()),
            ]
        };
        let counts = calls.iter().map(|(kind, count, _)| (labels(kind), *count));
        let help =
            "Calls to the API server, by what was asked and the answer's status; 0 for no answer in time.";
        page.counters_by("shoal_operator_api_calls_total", help, counts);
        let seconds = calls.iter().map(|(kind, _, took)| (labels(kind), took.as_secs_f64()));
        let help = "How long those calls took; of a watch, until it began.";
        page.counters_by("shoal_operator_api_calls_seconds_total", help, seconds);
        let silent = self.calls.silent_for().as_secs_f64();
        page.gauge(
            "shoal_operator_api_silent_seconds",
            "Since when the API server has answered nothing.",
            silent,
        );
    }
}

impl http::Watched for Pages {
    fn metrics(&self) -> String {
        let mut page = Exposition::new();
        page.build("operator", env!("CARGO_PKG_VERSION"));
        let leads = u64::from(self.watched.leader.is_leading());
        page.gauge("shoal_operator_leads", "1 on the operator that leads.", leads);
        self.jobs(&mut page);
        self.reconciles(&mut page);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let plans = &self.watched.plans;
        page.counter("shoal_operator_plans_total", "Plans for all jobs.", read(&plans.count));
        let help = "Plans that would have broken what must hold of every plan, and were not used.";
        page.counter("shoal_operator_plans_broken_total", help, read(&plans.broken));
        let seconds = read(&plans.micros) as f64 / 1e6;
        page.counter("shoal_operator_plans_seconds_total", "How long plans took.", seconds);
        let help = "Jobs that have no room for their least.";
        page.gauge("shoal_operator_waiting_jobs", help, read(&plans.waiting));
        self.calls(&mut page);
        page.into_text()
    }

    /// One that stands by is ready to take over, if it hears of the API server.
    async fn readiness(&self) -> Result<(), String> {
        let silent = self.calls.silent_for();
        if silent < SILENT_MAX {
            return Ok(());
        }
        Err(format!("the API server has not answered for {} s", silent.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Leader;
    use shoal_runtime::host::http::Watched as _;
    use std::collections::BTreeSet;

    fn pages() -> Pages {
        let server = tower::service_fn(async |_: ::http::Request<kube::client::Body>| {
            Err::<::http::Response<kube::client::Body>, tower::BoxError>("away".into())
        });
        let leader = Leader::new(kube::Client::new(server, "n"), "n", "l", "me".to_owned(), true);
        let watched = Watched {
            leader: Arc::new(leader),
            reconciles: Arc::default(),
            jobs: Arc::default(),
            plans: Arc::default(),
        };
        Pages { watched, calls: Arc::default() }
    }

    #[tokio::test]
    async fn the_table_for_people_has_each_metric_and_no_other() {
        let pages = pages();
        pages.watched.jobs.are_in(kube::runtime::reflector::store().0);
        let page = pages.metrics();
        let shown = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let shown: BTreeSet<&str> = shown.filter(|name| *name != "shoal_build_info").collect();
        let table =
            include_str!("../../docs/install.md").lines().filter(|line| line.starts_with("| `shoal_"));
        let told =
            table.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2));
        let told: BTreeSet<&str> = told.map(|name| name.split('{').next().unwrap_or_default()).collect();
        assert_eq!(shown, told);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_has_not_reached_the_api_server_for_long_is_not_ready_and_says_so() {
        let pages = pages();
        assert_eq!(pages.readiness().await, Ok(()));
        tokio::time::advance(SILENT_MAX).await;
        assert_eq!(pages.readiness().await, Err("the API server has not answered for 30 s".to_owned()));
        let page = pages.metrics();
        assert!(page.contains("shoal_operator_reconcile_seconds_bucket{le=\"+Inf\"} 0"), "{page}");
    }
}
