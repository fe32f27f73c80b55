//! What a program's functions read: the parameters of one version.

use crate::access::AccessError;
use crate::device::{DeviceSlice, Tensors};
use crate::flat::Flat;
use crate::names::Names;
use crate::share::InAreas;
use crate::tables::{Embeddings, TableRows};
use ndarray::ArrayViewD;
use shoal_runtime::cluster::Decision;
use shoal_runtime::cluster::parameter::DECISIONS;
use shoal_runtime::host::cuda::DeviceError;
use std::ops::Range;
use std::sync::Arc;

/// The parameters at the version that a step reads. Counters (rule `Sum`) and metrics are not pulled: they read as 0.
#[derive(Clone, Debug)]
pub struct Parameters {
    pub(crate) names: Arc<Names>,
    pub(crate) values: Arc<Flat>,
    /// Of tables the rows that were pulled, indexed as declared.
    pub(crate) rows: Arc<Vec<TableRows>>,
    /// Parameters that are on a device; `None`: none are.
    pub(crate) there: Option<Arc<Tensors>>,
    pub(crate) version: u64,
}

impl Parameters {
    /// Parameters of values and rows that were pulled; some are put on the device.
    ///
    /// # Errors
    /// The device has failed, or has no memory for them.
    pub(crate) fn pulled(
        names: &Arc<Names>,
        mut values: Flat,
        rows: Vec<TableRows>,
        areas: &InAreas,
    ) -> Result<Parameters, DeviceError> {
        let device = names.device.as_ref();
        let there = device.map(|device| areas.settle(names, device, &mut values)).transpose()?;
        let (values, rows, there) = (Arc::new(values), Arc::new(rows), there.map(Arc::new));
        Ok(Parameters { names: names.clone(), values, rows, there, version: names.next_version() })
    }

    /// Which values of dense parameters these are: two of one trainer with the same number have the same. So a program may load
    /// them once for all microbatches of a step, as into the memory of a framework.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All dense parameters in one stretch of memory, where [`place`](Self::place) says; each begins at a multiple of 64 bytes. What
    /// lies between them is of no meaning.
    pub fn all(&self) -> &[f32] {
        self.values.all()
    }

    /// Where a dense parameter's values lie in [`all`](Self::all), in elements.
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    pub fn place(&self, name: &str) -> Result<Range<usize>, AccessError> {
        Ok(self.values.place(self.names.dense_here(name)?))
    }

    /// A dense parameter's values in row-major order: as many as it has elements (the product of its declared dimensions; 1 of a
    /// scalar).
    ///
    /// # Errors
    /// No such parameter, a table, or one that [`Model::on_device`](crate::Model::on_device) has named.
    pub fn slice(&self, name: &str) -> Result<&[f32], AccessError> {
        Ok(&self.values[self.names.dense_here(name)?])
    }

    /// The same values in the shape that was declared.
    ///
    /// ```
    /// # use shoal_trainer_sdk::{Batch, Gradient, Parameters, ndarray};
    /// use ndarray::{Array1, Ix1, Ix2};
    ///
    /// // Declared: "weight" of shape [classes, features], "bias" of shape [classes].
    /// fn logits(parameters: &Parameters, features: &Array1<f32>) -> anyhow::Result<Array1<f32>> {
    ///     let weight = parameters.array("weight")?.into_dimensionality::<Ix2>()?;
    ///     let bias = parameters.array("bias")?.into_dimensionality::<Ix1>()?;
    ///     Ok(weight.dot(features) + bias)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    pub fn array(&self, name: &str) -> Result<ArrayViewD<'_, f32>, AccessError> {
        let at = self.names.dense_here(name)?;
        self.names.shaped(at, &self.values[at])
    }

    /// A dense parameter's values in device memory, to be read, in row-major order: as many as it has elements. They are ready when
    /// the step begins.
    ///
    /// # Errors
    /// No such parameter, a table, or one that [`Model::on_device`](crate::Model::on_device) has not named.
    pub fn on_device(&self, name: &str) -> Result<DeviceSlice<'_>, AccessError> {
        let at = self.names.dense(name)?;
        let slice = self.there.as_ref().and_then(|there| there.slice(at));
        slice.ok_or_else(|| AccessError::NotOnDevice { name: name.to_owned() })
    }

    /// The rows of an embedding table: those of the keys that [`Model::keys`](crate::Model::keys) has named.
    ///
    /// # Errors
    /// No such table.
    pub fn embeddings(&self, table: &str) -> Result<Embeddings<'_>, AccessError> {
        let at = self.names.table(table)?;
        let parameter = &self.names.declaration.parameters[at];
        Ok(Embeddings::new(&parameter.name, parameter.elements() as usize, &self.rows[at]))
    }

    /// What the program multiplies its loss with, and so its gradients, before it computes in a narrow number format:
    /// pservers divide by it again. A power of two from 2^-16 to 2^24; 1 unless a loss scale was declared
    /// ([`crate::Decisions`]). Counters and metrics stay unscaled.
    pub fn loss_scale(&self) -> f32 {
        self.decision().map_or(1.0, |decision| decision.loss_scale)
    }

    /// What was decided over the step that made them; nothing in a job that decides nothing.
    pub(crate) fn decision(&self) -> Option<Decision> {
        let decisions = self.names.layout.scalars().and(self.names.find(DECISIONS).ok());
        decisions.and_then(|at| Decision::from_values(&self.values[at]))
    }
}
