//! Looks at a job from outside, over calls that no fault touches.

use super::host::Host;
use super::link::Door;
use super::network::Network;
use super::reference::{Row, Rows, Trained};
use super::weather::Fate;
use super::world::{JOB, MASTER};
use anyhow::Context;
use shoal_job::spec::{self, Spec};
use shoal_runtime::cluster::block_copy::{Settled, WHOLE};
use shoal_runtime::cluster::{BlockCopy, BlockId, Declaration, Layout, ManifestRecord, Routing};
use shoal_runtime::host::checkpoints::{load, read_piece};
use shoal_runtime::host::rpc::{Channel, master_client, pserver_client};
use shoal_runtime::host::storage::Storage;
use shoal_runtime::wire::proto::{self, master_client::MasterClient};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A host of its own.
#[derive(Debug)]
pub struct Observer {
    door: Door,
    master: MasterClient<Channel>,
    /// For how long it waits for the master.
    patience: Duration,
}

const NAME: &str = "observer";

impl Observer {
    /// Joins the network, not the job.
    pub fn new(network: &Arc<Network>) -> Observer {
        network.intercept(|call, fate| {
            if call.from == NAME {
                *fate = Fate::delivered(Duration::from_millis(1));
            }
        });
        let door = Door::of(&Host::new(NAME), network);
        let master = master_client(&door, MASTER).expect("any address will do");
        // Over TCP a connection may have to be made.
        let patience = Duration::from_millis(if network.is_wire() { 700 } else { 50 });
        Observer { door, master, patience }
    }

    /// The door, for other calls.
    pub fn door(&self) -> &Door {
        &self.door
    }

    /// What the master says, unless it is paused.
    pub async fn status(&self) -> Option<proto::StatusReply> {
        let mut master = self.master.clone();
        let asked = master.status(proto::StatusRequest { job: JOB.to_owned(), ..Default::default() });
        let answered = tokio::time::timeout(self.patience, asked).await;
        answered.ok()?.ok().map(tonic::Response::into_inner)
    }

    /// Asks for so many pservers. A master that does not answer is not asked again.
    pub async fn scale_pservers(&self, pservers: u32) {
        let mut master = self.master.clone();
        let job = JOB.to_owned();
        let request = proto::ScaleRequest { job, pservers: Some(pservers), ..Default::default() };
        let _ = tokio::time::timeout(self.patience, master.scale(request)).await;
    }

    /// Tells settings. Whether they were taken; a master that does not answer is not asked again.
    ///
    /// # Panics
    /// The master refuses them.
    pub async fn tell(&self, spec: &Spec) -> bool {
        let mut master = self.master.clone();
        let (job, spec) = (JOB.to_owned(), Some(spec::Document(spec.live()).to_string()));
        let request = proto::ScaleRequest { job, spec, ..Default::default() };
        let told = tokio::time::timeout(self.patience, master.scale(request)).await;
        let refused = told.as_ref().ok().and_then(|told| told.as_ref().err()).map(|why| why.message());
        assert!(refused.is_none_or(|why| !why.contains("spec")), "{refused:?}");
        matches!(told, Ok(Ok(_)))
    }

    /// Asks for another pserver in the place of one.
    pub async fn migrate(&self, pserver: &str) {
        let mut master = self.master.clone();
        let request = proto::DrainRequest { job: JOB.to_owned(), pserver: pserver.to_owned(), replace: true };
        let _ = tokio::time::timeout(self.patience, master.drain(request)).await;
    }

    /// All parameters and their rules' state: of a job that is done as its last checkpoint has them, otherwise at
    /// `version`, as the pservers have them.
    ///
    /// # Errors
    /// A job that is not placed, a pserver that refuses or does not answer.
    pub async fn read(
        &self,
        storage: &Storage,
        status: &proto::StatusReply,
        version: u64,
    ) -> anyhow::Result<Vec<Trained>> {
        let declaration = Declaration::try_from(status.declaration.clone().context("nothing is declared")?)?;
        let routing = Routing::try_from(status.routing.clone().context("nothing is placed")?)?;
        let layout = Layout::new(&declaration);
        let elements = |at: usize| match declaration.parameters[at].table {
            Some(_) => Vec::new(),
            None => vec![0.0f32; declaration.parameters[at].elements() as usize],
        };
        let all = || (0..declaration.parameters.len()).map(elements).collect::<Vec<_>>();
        let copies = match status.checkpoint_record {
            // A job that is done has left all of it behind, whoever lives.
            Some(record) if status.phase == "done" => self.read_checkpoint(storage, record.into()).await?,
            _ => self.read_pservers(&routing, version).await?,
        };
        // The parameters, then the slots.
        let mut columns = vec![all()];
        let mut rows = vec![Rows::default(); declaration.parameters.len()];
        // A checkpoint's pieces come newest first.
        let mut settled = BTreeMap::new();
        for state in copies {
            let block = layout.block(BlockId(state.block)).context("no such block")?;
            if let Some(bucket) = block.bucket {
                let table = &declaration.parameters[bucket.parameter];
                let dimension = table.elements() as usize;
                let width = dimension + table.rule.row_slots(dimension);
                let copy = BlockCopy::try_from(state)?;
                let settled: &mut Settled = settled.entry(copy.block).or_default();
                for row in settled.take(&copy, width).map_err(anyhow::Error::msg)? {
                    let values = values(row.values.as_flattened());
                    let read = Row { values, last: row.last, occurrences: row.occurrences };
                    let before = rows[bucket.parameter].rows.insert(row.key, read);
                    anyhow::ensure!(before.is_none(), "key {} of {:?} has two rows", row.key, table.name);
                }
                continue;
            }
            for (at, bytes) in std::iter::once(state.parameters).chain(state.slots).enumerate() {
                if columns.len() == at {
                    columns.push(all());
                }
                block.scatter(&values(&bytes), &mut columns[at]);
            }
        }
        let trained = declaration.parameters.iter().enumerate().map(|(at, parameter)| Trained {
            values: columns[0][at].clone(),
            slots: (0..parameter.slots().len()).map(|slot| columns[slot + 1][at].clone()).collect(),
            rows: rows[at].clone(),
        });
        Ok(trained.collect())
    }

    async fn read_pservers(&self, routing: &Routing, version: u64) -> anyhow::Result<Vec<proto::BlockCopy>> {
        let mut copies = Vec::new();
        for (at, pserver) in routing.pservers.iter().enumerate() {
            let blocks: Vec<u32> = routing.blocks_of(at).into_iter().map(|block| block.0).collect();
            if blocks.is_empty() {
                continue;
            }
            let mut client = pserver_client(&self.door, &pserver.address).map_err(anyhow::Error::msg)?;
            // Buckets come in segments.
            let mut wanted = vec![(0, blocks)];
            while let Some((from, blocks)) = wanted.pop() {
                let request = proto::ReadStateRequest { job: JOB.to_owned(), version, blocks, from };
                let asked = tokio::time::timeout(Duration::from_secs(1), client.read_state(request));
                let reply = asked.await?.map_err(|status| anyhow::anyhow!("{}", status.message()))?;
                let reply = reply.into_inner().blocks;
                let rest =
                    reply.iter().filter_map(|copy| Some((copy.segment.as_ref()?.end, vec![copy.block])));
                wanted.extend(rest.filter(|(end, _)| *end != WHOLE.end));
                copies.extend(reply);
            }
        }
        Ok(copies)
    }

    async fn read_checkpoint(
        &self,
        storage: &Storage,
        record: ManifestRecord,
    ) -> anyhow::Result<Vec<proto::BlockCopy>> {
        let manifest = load(storage, &record).await?;
        let mut copies = Vec::new();
        let layout = Layout::new(&manifest.declaration);
        for piece in &manifest.pieces {
            copies.push(read_piece(storage, &manifest, &layout, piece).await?);
        }
        Ok(copies)
    }
}

/// Little-endian f32 as numbers.
pub fn values(bytes: &[u8]) -> Vec<f32> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
