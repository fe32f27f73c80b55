//! The operator as a process, for studies of what it costs: what it uses of the machine, and what it says of itself. Ends with its owner.

use anyhow::{Context, ensure};
use kube::Client;
use shoal_test_cluster::{ControlPlane, Kubelet, KubeletSettings, Run};
use shoal_tests::costs::{cpu_micros, memory_kib, peak_memory_kib};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

/// Who an operator is, with the rights that it is installed with.
pub const OPERATOR: &str = "system:serviceaccount:shoal-system:shoal-operator";
/// An operator rests once it has asked nothing for so long, but to keep its lease and its watches.
const QUIET: Duration = Duration::from_secs(10);
/// How long it may take to rest.
const RESTS_WITHIN: Duration = Duration::from_secs(900);
/// How long it may take to lead: a lease that another left behind has to run out.
const LEADS_WITHIN: Duration = Duration::from_secs(60);

/// A real control plane whose nodes and pods are pretended, with an operator's rights installed.
pub struct Pretended {
    // In the order in which they end.
    _kubelet: Kubelet,
    /// The control plane.
    pub plane: ControlPlane,
    /// An administrator's.
    pub client: Client,
}

impl Pretended {
    /// Starts one with so many nodes of 16 cores.
    ///
    /// # Errors
    /// There is no control plane here, or it does not start.
    pub async fn start(nodes: usize) -> anyhow::Result<Pretended> {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let plane = ControlPlane::start(&deploy.join("crds.yaml")).await?;
        plane.install(&deploy)?;
        let client = plane.client().await?;
        let images = ["shoal-master:test", "shoal-pserver:test", "trainer:test"];
        let settings = KubeletSettings::of(nodes, Run::Pretended, &images);
        let kubelet = Kubelet::start(client.clone(), settings).await?;
        Ok(Pretended { _kubelet: kubelet, plane, client })
    }
}

/// An operator that runs.
pub struct Operator {
    child: Child,
    pages: String,
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Operator {
    /// Starts one, and waits until it leads.
    ///
    /// # Errors
    /// It does not start, or does not lead.
    pub async fn start(program: &Path, kubeconfig: &Path) -> anyhow::Result<Operator> {
        let pages = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        // Whatever becomes of the study, it does not outlive it.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(["--master-image", "shoal-master:test", "--pserver-image", "shoal-pserver:test"])
            // The lease of one that was killed is its successor's at once.
            .args(["--identity", "only", "--http", &pages])
            .env("KUBECONFIG", kubeconfig)
            .env("SHOAL_LOG", "error")
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let operator = Operator { child, pages };
        let deadline = Instant::now() + LEADS_WITHIN;
        while !operator.page().await.is_ok_and(|page| page.contains("shoal_operator_leads 1")) {
            ensure!(Instant::now() < deadline, "the operator does not lead after {LEADS_WITHIN:?}");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(operator)
    }

    /// Its metrics.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn page(&self) -> anyhow::Result<String> {
        let mut stream = tokio::net::TcpStream::connect(&self.pages).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n").await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        Ok(page)
    }

    /// Processor time that it has used, in microseconds.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu_micros(&self) -> anyhow::Result<u64> {
        cpu_micros(self.child.id())
    }

    /// Memory that it has in RAM now, and the most that it has had, in MiB.
    ///
    /// # Errors
    /// It has ended.
    pub fn memory_mib(&self) -> anyhow::Result<(u64, u64)> {
        Ok((memory_kib(self.child.id())? / 1024, peak_memory_kib(self.child.id())? / 1024))
    }
}

/// The value of a metric without labels.
///
/// # Errors
/// The page has none of the name.
pub fn number(page: &str, name: &str) -> anyhow::Result<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).with_context(|| format!("no {name} in\n{page}"))
}

/// Calls to the API server as an operator counts them, by verb and resource.
pub fn calls(page: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for line in page.lines() {
        let Some((labels, count)) =
            line.strip_prefix("shoal_operator_api_calls_total{").and_then(|rest| rest.split_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            let value = labels.split(',').find_map(|one| one.strip_prefix(name)?.strip_prefix("=\""));
            value.map(|value| value.trim_end_matches('"').to_owned()).unwrap_or_default()
        };
        *all.entry(format!("{} {}", label("verb"), label("resource"))).or_default() +=
            count.parse::<u64>().unwrap_or(0);
    }
    all
}

/// An operator that has begun, and rests.
pub struct Begun {
    /// The operator.
    pub operator: Operator,
    /// From when it led until the last call before it rested.
    pub took: Duration,
    /// Its calls until then.
    pub calls: u64,
}

/// Starts an operator, and waits until it rests.
///
/// # Errors
/// It does not start, or does not rest.
pub async fn begin(program: &Path, kubeconfig: &Path) -> anyhow::Result<Begun> {
    let operator = Operator::start(program, kubeconfig).await?;
    let asked = async |operator: &Operator| -> anyhow::Result<u64> {
        let all = calls(&operator.page().await?);
        Ok(all
            .iter()
            .filter(|(kind, _)| !kind.ends_with(" leases") && !kind.starts_with("watch "))
            .map(|(_, n)| n)
            .sum())
    };
    let began = Instant::now();
    let (mut last, mut known) = (began, asked(&operator).await?);
    while last.elapsed() < QUIET {
        ensure!(began.elapsed() < RESTS_WITHIN, "the operator does not rest within {RESTS_WITHIN:?}");
        sleep(Duration::from_millis(200)).await;
        let now = asked(&operator).await?;
        if now != known {
            (last, known) = (Instant::now(), now);
        }
    }
    Ok(Begun { took: last - began, calls: known, operator })
}

/// An upper bound of a quantile of what a histogram of seconds was told between two looks at the metrics: one of its buckets.
///
/// # Errors
/// The pages have no such histogram.
pub fn quantile(before: &str, after: &str, name: &str, quantile: f64) -> anyhow::Result<f64> {
    let buckets = |page: &str| -> BTreeMap<String, f64> {
        let of = |line: &str| {
            let rest = line.strip_prefix(name)?.strip_prefix("_bucket{le=\"")?;
            let (bound, count) = rest.split_once("\"} ")?;
            Some((bound.to_owned(), count.parse().ok()?))
        };
        page.lines().filter_map(of).collect()
    };
    let (before, after) = (buckets(before), buckets(after));
    let more = |(bound, count): (&String, &f64)| {
        let earlier = before.get(bound).copied().unwrap_or_default();
        (bound.parse().unwrap_or(f64::INFINITY), count - earlier)
    };
    let mut all: Vec<(f64, f64)> = after.iter().map(more).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let count = all.last().with_context(|| format!("no {name}"))?.1;
    let bound = all.iter().find(|(_, below)| *below >= count * quantile);
    bound.map(|(bound, _)| *bound).with_context(|| format!("nothing in {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_over_their_answers() {
        let page = "a 1\nshoal_operator_api_calls_total{verb=\"get\",resource=\"pods\",code=\"200\"} 3\n\
            shoal_operator_api_calls_total{verb=\"get\",resource=\"pods\",code=\"404\"} 1\nb 2.5\n";
        assert_eq!(calls(page), BTreeMap::from([("get pods".to_owned(), 4)]));
        assert_eq!(number(page, "b").unwrap(), 2.5);
        assert!(number(page, "c").is_err());
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket_among_what_was_told_in_between() {
        let page = |counts: [u32; 3]| {
            let [one, two, all] = counts;
            format!(
                "h_bucket{{le=\"0.1\"}} {one}\nh_bucket{{le=\"1\"}} {two}\nh_bucket{{le=\"+Inf\"}} {all}\n"
            )
        };
        let (before, after) = (page([50, 60, 60]), page([51, 159, 160]));
        assert_eq!(quantile(&before, &after, "h", 0.01).unwrap(), 0.1);
        assert_eq!(quantile(&before, &after, "h", 0.99).unwrap(), 1.0);
        assert_eq!(quantile(&before, &after, "h", 1.0).unwrap(), f64::INFINITY);
        assert!(quantile(&before, &after, "other", 0.5).is_err());
    }
}
