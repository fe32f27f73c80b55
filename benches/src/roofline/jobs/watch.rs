//! Looking at the processes of a job while it runs: how much memory each had at most, and what its pserver has taken in and given
//! out. It must never change the job; what it misses is an error, not a small figure.

use crate::process::peak_resident_bytes;
use crate::programs::{Joined, joined};
use anyhow::{Context, ensure};
use shoal_runtime::host::rpc::{Channel, TcpDial, master_client};
use shoal_runtime::wire::proto::master_client::MasterClient;
use shoal_runtime::wire::proto::{DescribeRequest, StatusReply, StatusRequest};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// How long a master may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// Who looks.
pub(crate) struct Watch {
    runtime: Runtime,
    /// The most resident bytes of each process: its role, by its number.
    peaks: BTreeMap<u32, (String, u64)>,
    master: Option<Master>,
    /// The first of the master's words at the newest step.
    status: Option<StatusReply>,
}

struct Master {
    client: MasterClient<Channel>,
    job: String,
}

/// What was seen of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The most that the pserver had resident.
    pub(crate) pserver_bytes: u64,
    /// The most that one of the trainers had.
    pub(crate) trainer_bytes: u64,
    /// Gradients that the pserver took in and parameters that it gave out, for each step.
    pub(crate) bytes_per_step: f64,
}

impl Watch {
    pub(crate) fn new() -> anyhow::Result<Watch> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Watch { runtime, peaks: BTreeMap::new(), master: None, status: None })
    }

    /// Looks at the run in `folder`. What has not begun or has ended is not there to be seen.
    pub(crate) fn look(&mut self, folder: &Path) {
        for Joined { role, process } in joined(folder) {
            if let Ok(bytes) = peak_resident_bytes(process) {
                self.peaks.insert(process, (role, bytes));
            }
        }
        let newest = self.status.as_ref().map_or(0, |status| status.step);
        if let Some(status) = self.ask(folder).filter(|status| status.step > newest) {
            self.status = Some(status);
        }
    }

    /// What the master says; nothing while it does not answer.
    fn ask(&mut self, folder: &Path) -> Option<StatusReply> {
        self.runtime.block_on(async {
            if self.master.is_none() {
                let address = std::fs::read_to_string(folder.join("master.address")).ok()?;
                let mut client = master_client(&TcpDial::default(), address.trim()).ok()?;
                let described = timeout(ANSWER, client.describe(DescribeRequest {})).await.ok()?.ok()?;
                let job = described.into_inner().settings?.job;
                self.master = Some(Master { client, job });
            }
            let Master { client, job } = self.master.as_mut()?;
            let asked = client.status(StatusRequest { job: job.clone(), ..Default::default() });
            Some(timeout(ANSWER, asked).await.ok()?.ok()?.into_inner())
        })
    }

    /// What was seen until the job's end.
    pub(crate) fn seen(self) -> anyhow::Result<Seen> {
        let most = |role: &str| {
            let of_role = self.peaks.values().filter(|(of, _)| of == role);
            of_role.map(|(_, bytes)| *bytes).max().with_context(|| format!("no {role} was seen"))
        };
        let status = self.status.as_ref().context("the master was never heard")?;
        ensure!(status.step == status.steps, "the end of the job was missed, at step {}", status.step);
        let counters = status.pservers.iter().filter_map(|pserver| pserver.counters);
        let bytes: u64 = counters.map(|counters| counters.bytes_in + counters.bytes_out).sum();
        Ok(Seen {
            pserver_bytes: most("pserver")?,
            trainer_bytes: most("trainer")?,
            bytes_per_step: bytes as f64 / status.steps as f64,
        })
    }
}
