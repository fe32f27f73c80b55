//! A trainer's CUDA device: parameters and gradients that a program has in device memory, reduced there, and given to pservers of
//! this machine without a way through the processor.
//!
//! All that is kept there of one microbatch, one node or one version lies in one stretch of memory: [`Tensors`]. Work is done
//! on the device's default stream, and waited for before anybody else may look.

pub(crate) mod areas;
#[cfg(test)]
pub(crate) mod tests;

use crate::error::TrainError;
use shoal_runtime::cluster::{Declaration, Rule};
pub use shoal_runtime::host::cuda::Slice as DeviceSlice;
use shoal_runtime::host::cuda::{Context, DeviceError, HANDLE_BYTES, Mapped, Memory, Reduction, Slice};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a parameter begins: a multiple.
const ALIGNMENT: usize = 256;
/// Stretches of memory that are kept for the next gradient.
const UNUSED_MAX: usize = 4;

/// Which parameters a program has on a CUDA device: their values are put there before a step, and their gradients are taken
/// from there after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDevice {
    /// Which device, by the number that the driver gives it.
    pub ordinal: u32,
    /// Names of dense parameters that are no metrics.
    pub parameters: Vec<String>,
}

/// The device, and where parameters lie in a stretch of its memory.
#[derive(Debug)]
pub(crate) struct Device {
    context: Arc<Context>,
    reduction: Reduction,
    /// For each parameter, as declared, its first byte in the stretch and its number of elements; `None`: the parameter is not
    /// on the device.
    places: Vec<Option<(usize, usize)>>,
    bytes: usize,
    unused: Mutex<Vec<Memory>>,
}

impl Device {
    /// Opens it, for these parameters.
    pub(crate) fn open(wanted: &OnDevice, declaration: &Declaration) -> Result<Arc<Device>, TrainError> {
        let places = places(wanted, declaration)?;
        let end = |(at, elements): &(usize, usize)| at + 4 * elements;
        let bytes = places.iter().flatten().map(end).max().unwrap_or(0).max(ALIGNMENT);
        let context = Context::open(wanted.ordinal)?;
        let reduction = Reduction::open(&context)?;
        tracing::info!(device = wanted.ordinal, name = context.name(), "gradients are computed on a device");
        Ok(Arc::new(Device { context, reduction, places, bytes, unused: Mutex::default() }))
    }

    /// Whether a parameter is here.
    pub(crate) fn has(&self, parameter: usize) -> bool {
        self.places[parameter].is_some()
    }

    /// Bytes of all parameters that are here.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Waits until all that this process has queued on it is done.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.context.synchronize()
    }

    /// Maps memory that a pserver has shared.
    pub(crate) fn map(&self, handle: [u8; HANDLE_BYTES], bytes: usize) -> Result<Mapped, DeviceError> {
        self.context.map(handle, bytes)
    }

    /// A zero for every element, and between parameters.
    pub(crate) fn zeros(self: &Arc<Device>) -> Result<Tensors, DeviceError> {
        let tensors = self.unwritten()?;
        tensors.memory.iter().try_for_each(|memory| self.context.zero(memory))?;
        // The program may have streams that wait for no other.
        self.synchronize()?;
        Ok(tensors)
    }

    /// Anything for every element.
    pub(crate) fn unwritten(self: &Arc<Device>) -> Result<Tensors, DeviceError> {
        let unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let memory =
            unused.map_or_else(|| self.context.allocate("parameters or gradients", self.bytes), Ok)?;
        Ok(Tensors { device: Arc::clone(self), memory: Some(memory) })
    }
}

/// Where each parameter lies.
fn places(wanted: &OnDevice, declaration: &Declaration) -> Result<Vec<Option<(usize, usize)>>, TrainError> {
    let (mut places, mut end) = (vec![None; declaration.parameters.len()], 0);
    for name in &wanted.parameters {
        let refused =
            |why: &str| TrainError::Settings(format!("parameter {name:?} cannot be on a device: {why}"));
        let at = declaration.parameters.iter().position(|parameter| parameter.name == *name);
        let at = at.ok_or_else(|| refused("it was not declared"))?;
        let parameter = &declaration.parameters[at];
        if parameter.table.is_some()
            || parameter.rule.is_metric()
            || matches!(parameter.rule, Rule::Decide(_))
        {
            return Err(refused("only dense parameters can, and no metrics"));
        }
        if places[at].is_some() {
            return Err(refused("it is named twice"));
        }
        let elements = parameter.elements() as usize;
        places[at] = Some((end, elements));
        end = (end + 4 * elements).next_multiple_of(ALIGNMENT);
    }
    Ok(places)
}

/// A stretch of a parameter, and the byte of a pserver's memory from which on it is there, or is to be.
pub(crate) struct Copied {
    pub(crate) parameter: usize,
    pub(crate) range: Range<usize>,
    pub(crate) at: usize,
}

/// Values of all parameters that are on the device.
#[derive(Debug)]
pub(crate) struct Tensors {
    device: Arc<Device>,
    /// There until it is dropped.
    memory: Option<Memory>,
}

impl Tensors {
    /// A parameter's values; `None`: the parameter is not on the device.
    pub(crate) fn slice(&self, parameter: usize) -> Option<Slice<'_>> {
        let (at, elements) = (*self.device.places.get(parameter)?)?;
        Some(self.memory.as_ref()?.slice(at, elements))
    }

    /// Bytes of all values.
    pub(crate) fn bytes(&self) -> usize {
        self.device.bytes
    }

    fn each(&self) -> impl Iterator<Item = (usize, Slice<'_>)> {
        (0..self.device.places.len()).filter_map(|parameter| Some((parameter, self.slice(parameter)?)))
    }

    /// All values as one, and the zeros between parameters.
    fn whole(&self) -> Option<Slice<'_>> {
        Some(self.memory.as_ref()?.slice(0, self.device.bytes / 4))
    }

    /// Makes a leaf of them: without -0.0, of each parameter the first `rounded` rounded.
    pub(crate) fn settle(&self, rounded: &[usize]) -> Result<(), DeviceError> {
        if let Some(whole) = self.whole().filter(|_| rounded.iter().all(|rounded| *rounded == 0)) {
            return self.device.reduction.settle(&[(whole, 0)]);
        }
        let values: Vec<_> = self.each().map(|(parameter, slice)| (slice, rounded[parameter])).collect();
        self.device.reduction.settle(&values)
    }

    /// Adds `other`, which comes after it in the tree; of each parameter the first `rounded` sums are rounded.
    pub(crate) fn add(&self, other: &Tensors, rounded: &[usize]) -> Result<(), DeviceError> {
        let wholes = self.whole().zip(other.whole());
        if let Some((left, right)) = wholes.filter(|_| rounded.iter().all(|rounded| *rounded == 0)) {
            return self.device.reduction.add(&[(left, right, 0)]);
        }
        let pairs = self.each().zip(other.each());
        let pairs: Vec<_> =
            pairs.map(|((parameter, left), (_, right))| (left, right, rounded[parameter])).collect();
        self.device.reduction.add(&pairs)
    }

    /// The first value that is no finite number: which parameter, and which element of it.
    pub(crate) fn first_non_finite(&self) -> Result<Option<(usize, usize)>, DeviceError> {
        // Looking at each costs more than looking at all of them.
        if let Some(whole) = self.whole()
            && self.device.reduction.find_non_finite(whole)?.is_none()
        {
            return Ok(None);
        }
        for (parameter, slice) in self.each() {
            if let Some(element) = self.device.reduction.find_non_finite(slice)? {
                return Ok(Some((parameter, element)));
            }
        }
        Ok(None)
    }

    /// Copies stretches of parameters to a pserver's memory.
    pub(crate) fn send(&self, copies: Vec<Copied>, to: &Mapped) -> Result<(), DeviceError> {
        let Some(memory) = &self.memory else { return Ok(()) };
        self.device.context.send(memory, to, self.joined(copies))
    }

    /// Copies stretches of parameters from a pserver's memory.
    pub(crate) fn receive(&self, copies: Vec<Copied>, from: &Mapped) -> Result<(), DeviceError> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let copies = self.joined(copies).into_iter().map(|(at, there, bytes)| (there, at, bytes));
        self.device.context.receive(from, memory, copies)
    }

    /// Where each stretch is here and there, and how long it is in bytes. Those that follow one another on both sides are one.
    fn joined(&self, copies: Vec<Copied>) -> Vec<(usize, usize, usize)> {
        let mut joined: Vec<(usize, usize, usize)> = Vec::new();
        for Copied { parameter, range, at: there } in copies {
            let Some((at, elements)) = self.device.places[parameter] else { continue };
            assert!(range.end <= elements, "values of a parameter");
            let (here, bytes) = (at + 4 * range.start, 4 * range.len());
            match joined.last_mut() {
                Some((at, to, before)) if (*at + *before, *to + *before) == (here, there) => {
                    *before += bytes;
                }
                _ => joined.push((here, there, bytes)),
            }
        }
        joined
    }

    /// Copies values of a pserver's memory, from its byte `at` on, that are not to be on the device.
    pub(crate) fn receive_here(
        &self,
        values: &mut [f32],
        from: &Mapped,
        at: usize,
    ) -> Result<(), DeviceError> {
        self.device.context.read_mapped(from, at, bytemuck::cast_slice_mut(values))
    }

    /// Writes some values of a parameter.
    pub(crate) fn write(&self, parameter: usize, first: usize, values: &[f32]) -> Result<(), DeviceError> {
        match (&self.memory, self.device.places[parameter]) {
            (Some(memory), Some((at, elements))) => {
                assert!(first + values.len() <= elements, "values of a parameter");
                memory.slice(at + 4 * first, values.len()).write(values)
            }
            _ => Ok(()),
        }
    }

    /// Copies values that are not on the device to a pserver's memory, from its byte `at` on.
    pub(crate) fn send_here(&self, values: &[f32], to: &Mapped, at: usize) -> Result<(), DeviceError> {
        self.device.context.write_mapped(to, at, bytemuck::cast_slice(values))
    }

    /// Copies some values of a parameter out.
    pub(crate) fn read(&self, parameter: usize, range: Range<usize>) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0f32; range.len()];
        if let (Some(memory), Some((at, elements))) = (&self.memory, self.device.places[parameter]) {
            assert!(range.end <= elements, "values of a parameter");
            let bytes = bytemuck::cast_slice_mut(&mut values);
            self.device.context.read(memory, at + 4 * range.start, bytes)?;
        }
        Ok(values)
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        let mut unused = self.device.unused.lock().unwrap_or_else(PoisonError::into_inner);
        if unused.len() < UNUSED_MAX {
            unused.extend(self.memory.take());
        }
    }
}
