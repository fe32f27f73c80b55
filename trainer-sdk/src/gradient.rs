//! What a step adds to: the gradient sums of one microbatch.

use crate::access::AccessError;
use crate::device::{Device, DeviceSlice, Tensors};
use crate::names::Names;
use crate::sums::Sums;
use crate::tables::{EmbeddingGradients, Keys};
use ndarray::{ArrayViewD, ArrayViewMutD};
use shoal_runtime::cluster::Rows;
use shoal_runtime::host::cuda::DeviceError;
use std::ops::Range;
use std::sync::Arc;

/// The gradient sums of one microbatch, zero at first.
#[derive(Debug)]
pub struct Gradient {
    pub(crate) names: Arc<Names>,
    pub(crate) values: Sums,
    /// Of tables, indexed as declared.
    pub(crate) rows: Vec<Rows>,
    /// Sums of parameters that are on a device; `None`: none are.
    pub(crate) there: Option<Tensors>,
    pub(crate) weight: u64,
}

impl Gradient {
    /// Of a batch in which these keys occur.
    ///
    /// # Errors
    /// Some are on a device, which has failed or has no memory for them.
    pub(crate) fn zeros(names: &Arc<Names>, keys: Keys, weight: u64) -> Result<Gradient, DeviceError> {
        let there = names.device.as_ref().map(Device::zeros).transpose()?;
        Ok(Gradient { names: names.clone(), values: names.gradient_sums(), rows: keys.rows(), there, weight })
    }

    /// A dense parameter's gradient sums in device memory, in row-major order, as many as it has elements: zero at first, to be
    /// added to on whatever streams; when the step returns all that the program has queued on the device is waited for.
    ///
    /// # Errors
    /// No such parameter, a table, or one that [`Model::on_device`](crate::Model::on_device) has not named.
    pub fn on_device_mut(&mut self, name: &str) -> Result<DeviceSlice<'_>, AccessError> {
        let at = self.names.dense(name)?;
        let slice = self.there.as_ref().and_then(|there| there.slice(at));
        slice.ok_or_else(|| AccessError::NotOnDevice { name: name.to_owned() })
    }

    /// Refuses what steps add nothing to, and what is not here.
    fn find_here(&self, name: &str) -> Result<usize, AccessError> {
        let at = self.names.summed_here(name)?;
        if self.is_taken() { Err(AccessError::Taken { name: name.to_owned() }) } else { Ok(at) }
    }

    /// Takes all dense sums out, to be filled where a reference to them cannot go, as in another language: until they are
    /// [given back](Self::give), which must be before the step returns, nothing else is had of them.
    pub fn take(&mut self) -> GradientSums {
        GradientSums { names: self.names.clone(), values: std::mem::take(&mut self.values) }
    }

    /// Gives sums back that were taken: those of this gradient, or of an earlier one of the same trainer.
    pub fn give(&mut self, sums: GradientSums) {
        assert!(Arc::ptr_eq(&self.names, &sums.names), "sums of another trainer");
        self.values = sums.values;
    }

    /// Whether the sums were taken and not given back.
    pub(crate) fn is_taken(&self) -> bool {
        self.values.len() != self.names.declaration.parameters.len()
    }

    /// The gradient sums of an embedding table's rows: those of the keys that [`Model::keys`](crate::Model::keys) has named.
    ///
    /// # Errors
    /// No such table.
    pub fn embeddings_mut(&mut self, table: &str) -> Result<EmbeddingGradients<'_>, AccessError> {
        let at = self.names.table(table)?;
        let parameter = &self.names.declaration.parameters[at];
        let dimension = parameter.elements() as usize;
        Ok(EmbeddingGradients::new(&parameter.name, dimension, &mut self.rows[at]))
    }

    /// A dense parameter's gradient sums in row-major order, to be looked at: as many as it has elements.
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut).
    pub fn slice(&self, name: &str) -> Result<&[f32], AccessError> {
        Ok(&self.values[self.find_here(name)?])
    }

    /// A dense parameter's gradient sums in row-major order, as many as it has elements: to be added to.
    ///
    /// # Errors
    /// No such parameter, a table, a metric, or one that [`Model::on_device`](crate::Model::on_device) has named.
    pub fn slice_mut(&mut self, name: &str) -> Result<&mut [f32], AccessError> {
        let at = self.find_here(name)?;
        Ok(&mut self.values[at])
    }

    /// The same sums in the shape that was declared, to be looked at.
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut).
    pub fn array(&self, name: &str) -> Result<ArrayViewD<'_, f32>, AccessError> {
        let at = self.find_here(name)?;
        self.names.shaped(at, &self.values[at])
    }

    /// The same sums in the shape that was declared, to be added to.
    ///
    /// ```
    /// # use shoal_trainer_sdk::{Batch, Gradient, Parameters, ndarray};
    /// use ndarray::{Array2, Ix2, linalg::general_mat_mul};
    ///
    /// // Declared: "weight" of shape [outputs, inputs]. A row of `errors` and of `inputs` is a record.
    /// fn add(gradient: &mut Gradient, errors: &Array2<f32>, inputs: &Array2<f32>) -> anyhow::Result<()> {
    ///     let mut weight = gradient.array_mut("weight")?.into_dimensionality::<Ix2>()?;
    ///     general_mat_mul(1.0, &errors.t(), inputs, 1.0, &mut weight);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut).
    pub fn array_mut(&mut self, name: &str) -> Result<ArrayViewMutD<'_, f32>, AccessError> {
        let at = self.find_here(name)?;
        self.names.shaped_mut(at, &mut self.values[at])
    }

    /// Adds `values`, in row-major order, to a parameter's gradient sums.
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut); another number of values than it has elements.
    pub fn add(&mut self, name: &str, values: &[f32]) -> Result<(), AccessError> {
        let at = self.find_here(name)?;
        let sums = &mut self.values[at];
        if sums.len() != values.len() {
            return Err(self.names.wrong_length(at, values.len()));
        }
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        Ok(())
    }

    /// What the step's mean divides by, with those of the step's other microbatches: the number of the batch's records unless it is
    /// stated here (tokens, say): at most 2^40.
    ///
    /// With 0 the microbatch's sums are taken, and divided by the weight of the others. Where all of them have 0, nobody divides: the
    /// step changes nothing at all, running statistics and counters included, and what was added to them is lost. In an
    /// asynchronous job a microbatch is a step.
    pub fn set_weight(&mut self, weight: u64) {
        self.weight = weight;
    }
}

/// The dense gradient sums of one microbatch, apart from their [`Gradient`]. Their memory is used for a later one when they are dropped.
#[derive(Debug)]
pub struct GradientSums {
    names: Arc<Names>,
    values: Sums,
}

impl GradientSums {
    /// All of them in one stretch of memory, where [`place`](Self::place) says; each parameter begins at a multiple of 64 bytes.
    pub fn all(&self) -> &[f32] {
        self.values.all()
    }

    /// The same, to be added to.
    pub fn all_mut(&mut self) -> &mut [f32] {
        self.values.all_mut()
    }

    /// Where a dense parameter's sums lie in [`all`](Self::all), in elements: as many as it has.
    ///
    /// # Errors
    /// As [`Gradient::slice_mut`].
    pub fn place(&self, name: &str) -> Result<Range<usize>, AccessError> {
        let at = self.names.summed_here(name)?;
        Ok(self.values.place(at))
    }

    /// A copy, in memory of a gradient that was dropped where there is some.
    #[must_use]
    pub fn copy(&self) -> GradientSums {
        let mut copy = GradientSums { names: self.names.clone(), values: self.names.gradient_sums() };
        copy.all_mut().copy_from_slice(self.all());
        copy
    }
}
