//! The model of a job at rest: all parameters and update-rule state, hashed, exported as safetensors.

use crate::at_rest::AtRest;
use crate::table_state::{TableState, TableTensors};
use anyhow::{Context, bail, ensure};
use safetensors::tensor::{Dtype, TensorView};
use sha2::{Digest, Sha256};
use shoal_runtime::cluster::block_copy::Settled;
use shoal_runtime::cluster::tensor_names::beside;
use shoal_runtime::cluster::{BlockId, Declaration, Layout, Parameter};
use shoal_runtime::host::files;
use shoal_runtime::wire::proto;
use std::collections::BTreeMap;
use std::path::Path;

/// All parameters of a job at one version.
#[derive(Debug)]
pub struct ModelState {
    /// Updates applied.
    pub version: u64,
    /// Where which parameter lies.
    pub layout: Layout,
    declaration: Declaration,
    values: Vec<Vec<f32>>,
    /// `slots[s][p]`: slot `s` of parameter `p`; empty where the rule has no such slot.
    slots: Vec<Vec<Vec<f32>>>,
    /// Rows of tables, indexed as declared.
    tables: Vec<Option<TableState>>,
}

impl ModelState {
    /// Reads the model of a job at rest.
    pub async fn read(job: &AtRest<'_>) -> anyhow::Result<ModelState> {
        let mut state = ModelState::empty(job.declaration.clone(), job.version);
        job.read(&job.blocks(), |copy, settled| state.take(copy, settled)).await?;
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

    /// What the job declared.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// A parameter's values in row-major order.
    pub fn values(&self, name: &str) -> anyhow::Result<&[f32]> {
        let at = self.declaration.parameters.iter().position(|parameter| parameter.name == name);
        at.map(|at| self.values[at].as_slice())
            .with_context(|| format!("the model has no parameter {name:?}"))
    }

    /// A slot of a dense parameter's rule, if it has so many.
    pub fn slot(&self, name: &str, slot: usize) -> Option<&[f32]> {
        let at = self.declaration.parameters.iter().position(|parameter| parameter.name == name)?;
        Some(self.slots.get(slot)?.get(at)?.as_slice())
    }

    /// SHA-256 over version, parameters and update-rule state, in name order: equal for equal models however they
    /// were cut into blocks and placed.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"shoal model 1");
        hash.update(self.version.to_le_bytes());
        for (name, at) in self.by_name() {
            let parameter = &self.declaration.parameters[at];
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name.as_bytes());
            parameter.shape.iter().for_each(|dimension| hash.update(dimension.to_le_bytes()));
            if let Some(table) = &self.tables[at] {
                table.hash_into(&mut hash);
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
    pub fn tables(&self) -> impl Iterator<Item = (&str, &TableState)> {
        let parameters = self.declaration.parameters.iter().zip(&self.tables);
        parameters.filter_map(|(parameter, table)| Some((parameter.name.as_str(), table.as_ref()?)))
    }

    /// Writes the parameters as safetensors, tables row by row in key order with their keys as `TABLE.keys`; `with_state`
    /// adds the update rules' slots as `PARAMETER.SLOT`. The file appears whole or not at all. Returns the
    /// model's hash, which is in the file as well.
    pub fn export(&self, path: &Path, with_state: bool) -> anyhow::Result<String> {
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
                tensors.push((beside(&parameter.name, slot_name), view(&self.slots[slot][at])?));
            }
        }
        let sha256 = self.sha256();
        let metadata = [
            ("format", "shoal".to_owned()),
            ("version", self.version.to_string()),
            ("sha256", sha256.clone()),
        ];
        let metadata = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let bytes = safetensors::serialize(tensors, Some(metadata))?;
        files::write(path, &bytes)?;
        Ok(sha256)
    }
}

#[cfg(test)]
mod tests;
