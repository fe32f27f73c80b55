//! A job's parameters by name and by place: what a trainer knows of them without their values. Pure, but that it knows of the
//! device that some are on.

use crate::access::AccessError;
use crate::acks::Acks;
use crate::device::Device;
use crate::flat::{Flat, Places};
use crate::sums::{Sums, Unused};
use ndarray::{ArrayViewD, ArrayViewMutD};
use shoal_runtime::cluster::initial::RowInitial;
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::{BlockId, Declaration, Layout, Parameter, Precision, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The names and places of a job's parameters.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) declaration: Declaration,
    pub(crate) layout: Layout,
    index: BTreeMap<String, usize>,
    /// Of tables the first block, and the rows of keys that have none; indexed as declared.
    tables: Vec<Option<(BlockId, RowInitial)>>,
    /// In which precision gradients travel, where a block's may be rounded.
    pub(crate) gradients: Precision,
    /// Of each parameter, as declared, how many of its first elements have gradients that are rounded.
    pub(crate) rounded: Arc<[usize]>,
    /// Where each dense parameter lies, and where its sums do, in steps that train and in evaluations.
    dense: Places,
    gradient: Places,
    metrics: Places,
    /// Blocks whose values never change, and are not on a device: they are pulled once.
    frozen: BTreeSet<BlockId>,
    /// The device that some parameters are on; `None`: none are.
    pub(crate) device: Option<Arc<Device>>,
    /// Memory of gradients that were dropped.
    unused: Arc<Unused>,
    /// How many values of dense parameters there have been.
    versions: AtomicU64,
}

impl Names {
    pub(crate) fn new(declaration: Declaration, seed: u64, gradients: Precision) -> Names {
        let layout = Layout::new(&declaration);
        let index = declaration.parameters.iter().enumerate().map(|(i, p)| (p.name.clone(), i)).collect();
        let mut tables = vec![None; declaration.parameters.len()];
        let firsts =
            layout.iter().filter_map(|(id, block)| Some((id, block.bucket.filter(|b| b.number == 0)?)));
        for (id, bucket) in firsts {
            let table = &declaration.parameters[bucket.parameter];
            tables[bucket.parameter] = Some((id, table.initial.of_rows(seed, &table.name)));
        }
        let rounded = rounded(&declaration, &layout, gradients);
        let dense = Places::of(declaration.parameters.iter().map(dense_elements));
        let (gradient, metrics) = (summed(&declaration, None, false), summed(&declaration, None, true));
        let frozen = frozen(&declaration, &layout, None);
        let (device, unused, versions) = (None, Arc::default(), AtomicU64::new(0));
        Names {
            declaration,
            layout,
            index,
            tables,
            gradients,
            rounded,
            dense,
            gradient,
            metrics,
            frozen,
            device,
            unused,
            versions,
        }
    }
    /// The same names, with the parameters on a device; `None`: there are none.
    pub(crate) fn with_device(self, device: Option<Arc<Device>>) -> Names {
        let gradient = summed(&self.declaration, device.as_deref(), false);
        let frozen = frozen(&self.declaration, &self.layout, device.as_deref());
        Names { gradient, frozen, device, ..self }
    }
    /// Whether a parameter is on a device.
    pub(crate) fn is_on_device(&self, parameter: usize) -> bool {
        self.device.as_ref().is_some_and(|device| device.has(parameter))
    }
    /// Bytes of all dense parameters.
    pub(crate) fn dense_bytes(&self) -> usize {
        self.declaration.parameters.iter().map(|parameter| 4 * dense_elements(parameter)).sum()
    }
    /// Zeros for each dense parameter.
    pub(crate) fn zeros(&self) -> Flat {
        #[cfg(test)]
        crate::ran::note("zeros");
        Flat::zeros(&self.dense)
    }
    /// A number that no values of dense parameters have had.
    pub(crate) fn next_version(&self) -> u64 {
        self.versions.fetch_add(1, Relaxed)
    }
    /// Whether a block's values never change, and are not on a device.
    pub(crate) fn is_frozen(&self, block: BlockId) -> bool {
        self.frozen.contains(&block)
    }
    /// Values of an earlier pull that nobody reads any more, or new ones with those that never change.
    pub(crate) fn values_after(&self, earlier: Arc<Flat>) -> Flat {
        Arc::try_unwrap(earlier).unwrap_or_else(|shared| {
            let mut values = self.zeros();
            let pieces = self
                .frozen
                .iter()
                .filter_map(|block| self.layout.block(*block))
                .flat_map(|layout| &layout.pieces);
            for piece in pieces {
                let range = piece.first as usize..piece.first as usize + piece.range.len();
                values[piece.parameter][range.clone()].copy_from_slice(&shared[piece.parameter][range]);
            }
            values
        })
    }
    /// Whether there are embedding tables.
    pub(crate) fn has_tables(&self) -> bool {
        self.tables.iter().any(Option::is_some)
    }
    /// The index of a table as declared, by its name.
    pub(crate) fn table(&self, name: &str) -> Result<usize, AccessError> {
        let at = self.index.get(name).copied().filter(|at| self.tables[*at].is_some());
        at.ok_or_else(|| AccessError::NoSuchTable { name: name.to_owned() })
    }
    /// The index of a dense parameter as declared, by its name.
    pub(crate) fn dense(&self, name: &str) -> Result<usize, AccessError> {
        let at = self.find(name)?;
        match self.tables[at] {
            None => Ok(at),
            Some(_) => Err(AccessError::Table { name: name.to_owned() }),
        }
    }
    /// The index of a dense parameter whose values are in host memory, by its name.
    pub(crate) fn dense_here(&self, name: &str) -> Result<usize, AccessError> {
        let at = self.dense(name)?;
        match self.is_on_device(at) {
            false => Ok(at),
            true => Err(AccessError::OnDevice { name: name.to_owned() }),
        }
    }
    /// The index of a dense parameter whose gradient sums are in host memory, by its name: of nothing that steps add nothing to.
    pub(crate) fn summed_here(&self, name: &str) -> Result<usize, AccessError> {
        let at = self.dense_here(name)?;
        match self.declaration.parameters[at].rule {
            Rule::Metric { .. } => Err(AccessError::Metric { name: name.to_owned() }),
            Rule::Decide(_) => Err(AccessError::Decided { name: name.to_owned() }),
            _ => Ok(at),
        }
    }
    /// Values of a dense parameter in its declared shape.
    pub(crate) fn shaped<'a>(
        &self,
        at: usize,
        values: &'a [f32],
    ) -> Result<ArrayViewD<'a, f32>, AccessError> {
        let given = values.len();
        ArrayViewD::from_shape(self.shape(at), values).map_err(|_| self.wrong_length(at, given))
    }
    /// Values of a dense parameter in its declared shape, to be written to.
    pub(crate) fn shaped_mut<'a>(
        &self,
        at: usize,
        values: &'a mut [f32],
    ) -> Result<ArrayViewMutD<'a, f32>, AccessError> {
        let given = values.len();
        ArrayViewMutD::from_shape(self.shape(at), values).map_err(|_| self.wrong_length(at, given))
    }
    /// A parameter's declared dimensions.
    pub(crate) fn shape(&self, at: usize) -> Vec<usize> {
        self.declaration.parameters[at].shape.iter().map(|dimension| *dimension as usize).collect()
    }
    /// The error for another number of values than a parameter has elements.
    pub(crate) fn wrong_length(&self, at: usize, given: usize) -> AccessError {
        let parameter = &self.declaration.parameters[at];
        let (name, elements) = (parameter.name.clone(), parameter.elements() as usize);
        AccessError::WrongLength { name, elements, given }
    }
    /// The places of each bucket's keys among these of a table; nothing of what is no table.
    pub(crate) fn places(&self, parameter: usize, keys: &[u64]) -> Vec<(BlockId, Vec<u32>)> {
        let table = self.tables[parameter].as_ref().zip(self.declaration.parameters[parameter].table);
        let places = table.map(|((first, _), table)| (first.0.., table.places(keys)));
        places.into_iter().flat_map(|(blocks, places)| blocks.map(BlockId).zip(places)).collect()
    }
    /// Which bucket of its table a block is; 0 of what is no table.
    pub(crate) fn bucket(&self, block: BlockId) -> u32 {
        self.layout.block(block).and_then(|layout| layout.bucket).map_or(0, |bucket| bucket.number)
    }
    /// Fills in the initial row of a key that has none yet.
    pub(crate) fn unborn(&self, parameter: usize, key: u64, row: &mut [f32]) {
        if let Some((_, initial)) = &self.tables[parameter] {
            initial.fill(key, row);
        }
    }
    /// A gradient's sums: zeros for each parameter that takes part in steps that train; none for others, nor for those that are
    /// on a device.
    pub(crate) fn gradient_sums(&self) -> Sums {
        Sums::zeros(&self.unused, &self.gradient)
    }
    /// An evaluation's sums: zeros for each metric; none for other parameters.
    pub(crate) fn metric_sums(&self) -> Flat {
        Flat::zeros(&self.metrics)
    }
    /// The acknowledgements of a gradient that no block has been given. The scalar block takes no gradient, and counts as
    /// applied.
    pub(crate) fn no_acks(&self) -> Acks {
        let mut acks = Acks::by_none(self.layout.len());
        if let Some(scalars) = self.layout.scalars() {
            acks.applied(scalars);
        }
        acks
    }
    /// Whether gradients that are not finite are pushed: the step is then skipped.
    pub(crate) fn pushes_non_finite(&self) -> bool {
        self.declaration.decisions().is_some_and(|decisions| decisions.takes_non_finite())
    }
    /// Bytes that a block's values add to a message.
    pub(crate) fn bytes(&self, block: BlockId) -> usize {
        4 * self.layout.block(block).map_or(0, |block| block.elements)
    }
    /// In which precision a block's gradient travels.
    pub(crate) fn precision(&self, block: &BlockLayout) -> Precision {
        block.precision(self.gradients)
    }
    /// Bytes that a block's gradient adds to a message.
    pub(crate) fn gradient_bytes(&self, block: BlockId) -> usize {
        self.layout.block(block).map_or(0, |block| self.precision(block).bytes() * block.elements)
    }
    pub(crate) fn find(&self, name: &str) -> Result<usize, AccessError> {
        let at = self.index.get(name).copied();
        at.ok_or_else(|| AccessError::NoSuchParameter { name: name.to_owned() })
    }
}

/// How many first elements of each parameter are rounded: only its last block may have other things than gradients in it.
fn rounded(declaration: &Declaration, layout: &Layout, gradients: Precision) -> Arc<[usize]> {
    let mut rounded = vec![0; declaration.parameters.len()];
    for (_, block) in layout.iter().filter(|(_, block)| block.precision(gradients) == Precision::Bf16) {
        for piece in &block.pieces {
            debug_assert_eq!(rounded[piece.parameter], piece.first as usize);
            rounded[piece.parameter] += piece.range.len();
        }
    }
    rounded.into()
}

/// Dense blocks all of whose values never change, and none of which are on a device.
fn frozen(declaration: &Declaration, layout: &Layout, device: Option<&Device>) -> BTreeSet<BlockId> {
    let is_frozen = |parameter: usize| {
        declaration.parameters[parameter].group.is_frozen
            && !device.is_some_and(|device| device.has(parameter))
    };
    let dense = layout.iter().filter(|(_, block)| !block.pieces.is_empty());
    dense
        .filter(|(_, block)| block.pieces.iter().all(|piece| is_frozen(piece.parameter)))
        .map(|(id, _)| id)
        .collect()
}

/// Where sums lie in host memory: of what takes part in evaluations, or in steps that train.
fn summed(declaration: &Declaration, device: Option<&Device>, evaluates: bool) -> Places {
    Places::of(declaration.parameters.iter().enumerate().map(|(at, parameter)| {
        let is_here = !device.is_some_and(|device| device.has(at));
        if is_here && parameter.rule.is_metric() == evaluates { dense_elements(parameter) } else { 0 }
    }))
}

fn dense_elements(parameter: &Parameter) -> usize {
    if parameter.table.is_none() { parameter.elements() as usize } else { 0 }
}
