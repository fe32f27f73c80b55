//! The model of a job at rest: parameters and update-rule state, read from pservers or from a checkpoint, hashed,
//! exported.

use crate::table_state::{TableState, TableTensors};
use anyhow::{Context, bail, ensure};
use safetensors::tensor::{Dtype, TensorView};
use sha2::{Digest, Sha256};
use shoal_runtime::cluster::block_copy::{Settled, WHOLE};
use shoal_runtime::cluster::{
    BlockId, CheckpointManifest, Declaration, JobSettings, Layout, Parameter, Routing,
};
use shoal_runtime::host::checkpoints::read_piece;
use shoal_runtime::host::rpc::{Security, TcpDial, pserver_client};
use shoal_runtime::host::storage::Storage;
use shoal_runtime::wire::proto;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Bytes of parameters asked for in one message; the state may be three times as much.
const MESSAGE_BYTES: usize = 1 << 20;
/// How long a pserver may take to answer one message.
const ANSWER: Duration = Duration::from_secs(5);

/// All parameters of a job at one version.
#[derive(Debug)]
pub(crate) struct ModelState {
    /// Updates applied.
    pub(crate) version: u64,
    pub(crate) layout: Layout,
    declaration: Declaration,
    values: Vec<Vec<f32>>,
    /// `slots[s][p]`: slot `s` of parameter `p`; empty where the rule has no such slot.
    slots: Vec<Vec<Vec<f32>>>,
    /// Rows of tables, indexed as declared.
    tables: Vec<Option<TableState>>,
}

impl ModelState {
    /// Reads the model that `status` describes, at the version it names, from its pservers. Asynchronous jobs are read
    /// once they are done.
    pub(crate) async fn read(status: &proto::StatusReply, security: &Security) -> anyhow::Result<ModelState> {
        let declaration = status.declaration.clone().context("no trainer has declared parameters yet")?;
        let declaration = Declaration::try_from(declaration)?;
        let routing = Routing::try_from(
            status.routing.clone().context("no blocks are placed yet: wait for pservers")?,
        )?;
        let settings = JobSettings::try_from(status.settings.clone().unwrap_or_default())?;
        let job = settings.job.0;
        let mut state = ModelState::empty(declaration, status.version);
        let dial = TcpDial { security: security.clone(), ..TcpDial::default() };
        for (at, pserver) in routing.pservers.iter().enumerate() {
            let mut client = pserver_client(&dial, &pserver.address).map_err(anyhow::Error::msg)?;
            for blocks in state.batches(&routing.blocks_of(at)) {
                let asked: Vec<u32> = blocks.iter().map(|block| block.0).collect();
                let mut next = Some(0);
                while let Some(from) = next {
                    let (job, version, blocks) = (job.clone(), state.version, asked.clone());
                    let request = proto::ReadStateRequest { job, version, blocks, from };
                    let reply = tokio::time::timeout(ANSWER, client.read_state(request)).await;
                    let reply =
                        reply.unwrap_or_else(|_| Err(tonic::Status::unavailable("no answer in time")));
                    let reply = reply.map_err(shoal_runtime::wire::Fault::from);
                    let reply = reply.with_context(|| format!("pserver at {}", pserver.address))?;
                    let copies = reply.into_inner().blocks;
                    ensure!(copies.len() == asked.len(), "pserver at {} left blocks out", pserver.address);
                    // Buckets are asked for alone, one segment at a time.
                    next = copies.iter().find_map(segment_after);
                    copies.into_iter().try_for_each(|copy| state.take(copy, &mut Settled::default()))?;
                }
            }
        }
        Ok(state)
    }

    /// Reads the model in a checkpoint, every piece against its checksum. In an asynchronous job's the blocks may have
    /// different versions; the lowest names the model's.
    pub(crate) async fn read_checkpoint(
        storage: &Storage,
        manifest: &CheckpointManifest,
    ) -> anyhow::Result<ModelState> {
        let mut state = ModelState::empty(manifest.declaration.clone(), manifest.version().0);
        for pieces in manifest.pieces.chunk_by(|a, b| a.block == b.block) {
            // A bucket's come newest first: what changed, then what that rests on.
            let mut settled = Settled::default();
            for piece in pieces {
                state.take(read_piece(storage, manifest, piece).await?, &mut settled)?;
            }
        }
        Ok(state)
    }

    fn empty(declaration: Declaration, version: u64) -> ModelState {
        let zeros = |parameter: &Parameter| match parameter.table {
            Some(_) => Vec::new(),
            None => vec![0.0; parameter.elements() as usize],
        };
        let values: Vec<Vec<f32>> = declaration.parameters.iter().map(zeros).collect();
        let slots_max = declaration.parameters.iter().map(|p| p.slots().len()).max().unwrap_or(0);
        let slots = vec![values.clone(); slots_max];
        let tables = declaration.parameters.iter().map(|p| p.table.map(|_| TableState::new(p))).collect();
        ModelState { version, layout: Layout::new(&declaration), declaration, values, slots, tables }
    }

    fn batches(&self, blocks: &[BlockId]) -> Vec<Vec<BlockId>> {
        let bytes = |block: &BlockId| match self.layout.block(*block) {
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
            batches.iter_mut().last().into_iter().for_each(|batch| batch.push(*block));
        }
        batches
    }

    fn take(&mut self, block: proto::BlockCopy, settled: &mut Settled) -> anyhow::Result<()> {
        let Some(layout) = self.layout.block(BlockId(block.block)) else { bail!("no block {}", block.block) };
        if let Some(bucket) = layout.bucket {
            let table = self.tables[bucket.parameter].as_mut().context("a bucket is of a table")?;
            return table.take(&block.try_into()?, settled);
        }
        let floats = |bytes: &[u8]| {
            ensure!(bytes.len() == 4 * layout.elements, "block {} has {} bytes", block.block, bytes.len());
            Ok(bytemuck::pod_collect_to_vec::<u8, f32>(bytes))
        };
        layout.scatter(&floats(&block.parameters)?, &mut self.values);
        for (slot, bytes) in self.slots.iter_mut().zip(&block.slots) {
            layout.scatter(&floats(bytes)?, slot);
        }
        Ok(())
    }

    /// A parameter's values in row-major order.
    pub(crate) fn values(&self, name: &str) -> anyhow::Result<&[f32]> {
        let at = self.declaration.parameters.iter().position(|parameter| parameter.name == name);
        at.map(|at| self.values[at].as_slice())
            .with_context(|| format!("the model has no parameter {name:?}"))
    }

    /// SHA-256 over version, parameters and update-rule state, in name order: equal for equal models however they
    /// were cut into blocks and placed.
    pub(crate) fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"shoal model 1");
        hash.update(self.version.to_le_bytes());
        for (name, at) in self.by_name() {
            let parameter = &self.declaration.parameters[at];
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name.as_bytes());
            parameter.shape.iter().for_each(|dimension| hash.update(dimension.to_le_bytes()));
            if let Some(table) = &self.tables[at] {
                table.hash(&mut hash);
                continue;
            }
            hash.update(bytemuck::cast_slice::<f32, u8>(&self.values[at]));
            for (slot, slot_name) in parameter.slots().iter().enumerate() {
                hash.update(slot_name.as_bytes());
                hash.update(bytemuck::cast_slice::<f32, u8>(&self.slots[slot][at]));
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn by_name(&self) -> BTreeMap<&str, usize> {
        self.declaration.parameters.iter().enumerate().map(|(at, p)| (p.name.as_str(), at)).collect()
    }

    /// The tables by name.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&str, &TableState)> {
        let parameters = self.declaration.parameters.iter().zip(&self.tables);
        parameters.filter_map(|(parameter, table)| Some((parameter.name.as_str(), table.as_ref()?)))
    }

    /// Writes the parameters as safetensors, tables row by row in key order with their keys as `TABLE.keys`; `with_state`
    /// adds the update rules' slots as `PARAMETER.SLOT`. The file appears whole or not at all.
    pub(crate) fn export(&self, path: &Path, with_state: bool) -> anyhow::Result<()> {
        let tables = self.declaration.parameters.iter().zip(&self.tables);
        let tables: Vec<TableTensors> = tables
            .filter_map(|(parameter, table)| Some(table.as_ref()?.tensors(parameter, with_state)))
            .collect::<Result<_, _>>()?;
        let mut tensors: Vec<(String, TensorView<'_>)> = Vec::new();
        for table in &tables {
            tensors.extend(table.views()?);
        }
        let dense = |(_, parameter): &(usize, &Parameter)| parameter.table.is_none();
        for (at, parameter) in self.declaration.parameters.iter().enumerate().filter(dense) {
            let shape: Vec<usize> = parameter.shape.iter().map(|dimension| *dimension as usize).collect();
            let view =
                |values| TensorView::new(Dtype::F32, shape.clone(), bytemuck::cast_slice::<f32, u8>(values));
            tensors.push((parameter.name.clone(), view(&self.values[at])?));
            let slots = parameter.slots().iter().enumerate().filter(|_| with_state);
            for (slot, slot_name) in slots {
                tensors.push((format!("{}.{slot_name}", parameter.name), view(&self.slots[slot][at])?));
            }
        }
        let metadata = [
            ("format", "shoal".to_owned()),
            ("version", self.version.to_string()),
            ("sha256", self.sha256()),
        ];
        let metadata = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let bytes = safetensors::serialize(tensors, Some(metadata))?;
        write_whole(path, &bytes)
    }
}

/// Where the next segment of a bucket begins, unless this was the last.
fn segment_after(copy: &proto::BlockCopy) -> Option<u32> {
    copy.segment.as_ref().map(|segment| segment.end).filter(|end| *end != WHOLE.end)
}

/// Writes a file beside its place, syncs it, and moves it there.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    use std::io::Write;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make folder {}", folder.display()))?;
    let mut file = tempfile::NamedTempFile::new_in(folder)
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    file.write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}
