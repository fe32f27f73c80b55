//! A job at rest: the state of its blocks at the pservers, or in a checkpoint. The one way of reading it; it never holds
//! more than one message or one piece.

use anyhow::{Context, ensure};
use shoal_runtime::cluster::block_copy::{Settled, WHOLE};
use shoal_runtime::cluster::{BlockId, CheckpointManifest, Declaration, JobSettings, Layout, Routing};
use shoal_runtime::host::checkpoints::read_piece;
use shoal_runtime::host::rpc::{Dial, PserverClient, pserver_client};
use shoal_runtime::host::storage::Storage;
use shoal_runtime::wire::proto;
use std::time::Duration;

/// Bytes of parameters asked for in one message; the state may be three times as much.
const MESSAGE_BYTES: usize = 1 << 20;
/// How long a pserver may take to answer one message.
const ANSWER: Duration = Duration::from_secs(5);

/// A job at one version.
pub struct AtRest<'a> {
    /// Updates applied.
    pub version: u64,
    /// Where which parameter lies.
    pub layout: Layout,
    /// The parameters.
    pub declaration: Declaration,
    source: Source<'a>,
}

enum Source<'a> {
    Pservers { job: String, routing: Routing, clients: Vec<PserverClient> },
    Checkpoint { storage: &'a Storage, manifest: &'a CheckpointManifest },
}

impl<'a> AtRest<'a> {
    /// The job that `status` describes, at the version that it names, at its pservers. Asynchronous jobs are read once
    /// they are done.
    pub fn of_job(status: &proto::StatusReply, dial: &dyn Dial) -> anyhow::Result<AtRest<'a>> {
        ensure!(
            status.is_progress_known,
            "the master has yet to hear from pservers how far the job is: try again"
        );
        let declaration = status.declaration.clone().context("no trainer has declared parameters yet")?;
        let declaration = Declaration::try_from(declaration)?;
        let routing = Routing::try_from(
            status.routing.clone().context("no blocks are placed yet: wait for pservers")?,
        )?;
        let settings = JobSettings::try_from(status.settings.clone().unwrap_or_default())?;
        let clients = routing.pservers.iter().map(|pserver| pserver_client(dial, &pserver.address));
        let clients = clients.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
        let source = Source::Pservers { job: settings.job.0, routing, clients };
        Ok(AtRest { version: status.version, layout: Layout::new(&declaration), declaration, source })
    }

    /// The job in a checkpoint, every piece against its checksum. In an asynchronous job's the blocks may have different
    /// versions; the lowest names the job's.
    pub fn in_checkpoint(storage: &'a Storage, manifest: &'a CheckpointManifest) -> AtRest<'a> {
        let declaration = manifest.declaration.clone();
        let source = Source::Checkpoint { storage, manifest };
        AtRest { version: manifest.version().0, layout: Layout::new(&declaration), declaration, source }
    }

    /// All blocks.
    pub fn blocks(&self) -> Vec<BlockId> {
        self.layout.iter().map(|(block, _)| block).collect()
    }

    /// Hands on the copies of `blocks`: those of one block one after another, with what newer ones of them have settled;
    /// blocks in no order.
    pub async fn read(
        &self,
        blocks: &[BlockId],
        mut take: impl FnMut(proto::BlockCopy, &mut Settled) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match &self.source {
            Source::Pservers { job, routing, clients } => {
                let primary = |block: &BlockId| routing.blocks.get(block.0 as usize).map(|to| to.primary);
                ensure!(blocks.iter().all(|block| primary(block).is_some()), "not all blocks are placed yet");
                for (at, client) in (0..).zip(clients) {
                    let here = blocks.iter().copied().filter(|block| primary(block) == Some(at));
                    for batch in self.batches(here) {
                        let read = self.read_batch(job, client.clone(), &batch, &mut take).await;
                        read.with_context(|| {
                            format!("pserver at {}", routing.pservers[at as usize].address)
                        })?;
                    }
                }
            }
            Source::Checkpoint { storage, manifest } => {
                for block in blocks {
                    // A bucket's come newest first: what changed, then what that rests on.
                    let mut settled = Settled::default();
                    for piece in manifest.pieces_of(*block) {
                        take(read_piece(storage, manifest, &self.layout, piece).await?, &mut settled)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// One message after another, as long as segments of a bucket follow. Buckets are alone in theirs.
    async fn read_batch(
        &self,
        job: &str,
        mut client: PserverClient,
        batch: &[BlockId],
        take: &mut impl FnMut(proto::BlockCopy, &mut Settled) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut next = Some(0);
        while let Some(from) = next {
            let blocks = batch.iter().map(|block| block.0).collect();
            let request =
                proto::ReadStateRequest { job: job.to_owned(), version: self.version, blocks, from };
            let reply = tokio::time::timeout(ANSWER, client.read_state(request)).await;
            let reply = reply.unwrap_or_else(|_| Err(tonic::Status::unavailable("no answer in time")));
            let copies = reply.map_err(shoal_runtime::wire::Fault::from)?.into_inner().blocks;
            ensure!(copies.len() == batch.len(), "it left blocks out");
            next = copies.iter().find_map(segment_after);
            copies.into_iter().try_for_each(|copy| take(copy, &mut Settled::default()))?;
        }
        Ok(())
    }

    fn batches(&self, blocks: impl Iterator<Item = BlockId>) -> Vec<Vec<BlockId>> {
        let bytes = |block: BlockId| match self.layout.block(block) {
            Some(layout) if layout.bucket.is_some() => MESSAGE_BYTES,
            layout => 4 * layout.map_or(0, |layout| layout.elements),
        };
        let mut batches: Vec<Vec<BlockId>> = Vec::new();
        let mut filled = MESSAGE_BYTES;
        for block in blocks {
            if filled + bytes(block) > MESSAGE_BYTES {
                batches.push(Vec::new());
                filled = 0;
            }
            filled += bytes(block);
            batches.iter_mut().last().into_iter().for_each(|batch| batch.push(block));
        }
        batches
    }
}

/// Where the next segment of a bucket begins, unless this was the last.
fn segment_after(copy: &proto::BlockCopy) -> Option<u32> {
    copy.segment.as_ref().map(|segment| segment.end).filter(|end| *end != WHOLE.end)
}
