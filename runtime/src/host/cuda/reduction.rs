//! The local reduction on a device: what `kernels/reduce.cu` does with stretches of its memory, each call waited for.

#![allow(unsafe_code, reason = "kernels are launched")]

use super::context::Context;
use super::error::DeviceError;
use super::kernel::{Image, Kernel};
use super::memory::Memory;
use std::sync::{Arc, Mutex, PoisonError};

const THREADS: u32 = 256;
/// Blocks of threads of one launch, at most: enough for any device.
const BLOCKS_MAX: usize = 4096;

/// f32 values in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    memory: &'a Memory,
    at: usize,
    elements: usize,
}

impl Memory {
    /// So many values from byte `at` on.
    ///
    /// # Panics
    /// They do not lie here.
    pub fn slice(&self, at: usize, elements: usize) -> Slice<'_> {
        assert!(
            at.is_multiple_of(4) && at + 4 * elements <= self.bytes(),
            "values beyond the end of device memory"
        );
        Slice { memory: self, at, elements }
    }
}

impl Slice<'_> {
    /// Where they begin, for the device.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.at as u64
    }
    /// How many there are.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Copies all of them out.
    ///
    /// # Errors
    /// The device has failed; so of writing.
    pub fn read(&self) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0f32; self.elements];
        self.memory.context.read(self.memory, self.at, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Copies `values` there, all of them.
    ///
    /// # Panics
    /// Another number of values.
    pub fn write(&self, values: &[f32]) -> Result<(), DeviceError> {
        assert_eq!(values.len(), self.elements, "as many values as there are");
        self.memory.context.write(self.memory, self.at, bytemuck::cast_slice(values))
    }
}

/// The kernels.
#[derive(Debug)]
pub struct Reduction {
    context: Arc<Context>,
    settle: Kernel,
    add: Kernel,
    find_non_finite: Kernel,
    /// What the search finds.
    lowest: Mutex<Memory>,
}

impl Reduction {
    /// Device code, the most special first.
    pub const IMAGES: [Image; 3] = [
        Image { name: "sm_90", major: 9, code: include_bytes!("kernels/reduce.sm_90.cubin") },
        Image { name: "sm_80", major: 8, code: include_bytes!("kernels/reduce.sm_80.cubin") },
        Image { name: "compute_80", major: 0, code: include_bytes!("kernels/reduce.compute_80.ptx") },
    ];

    /// Loads the kernels.
    ///
    /// # Errors
    /// The device cannot run them.
    pub fn open(context: &Arc<Context>) -> Result<Reduction, DeviceError> {
        Reduction::with_code(context, &Reduction::IMAGES)
    }

    /// Loads the kernels of the first of these forms of device code that the device takes.
    ///
    /// # Errors
    /// The device cannot run them.
    pub fn with_code(context: &Arc<Context>, images: &[Image]) -> Result<Reduction, DeviceError> {
        let kernel = |name| Kernel::of(context, images, name);
        Ok(Reduction {
            settle: kernel(c"settle")?,
            add: kernel(c"add")?,
            find_non_finite: kernel(c"find_non_finite")?,
            lowest: Mutex::new(context.allocate("a word", 8)?),
            context: Arc::clone(context),
        })
    }

    /// Makes leaves of values: without -0.0, the first so many of each rounded to bf16.
    ///
    /// # Errors
    /// The device has failed; so of all that follow.
    pub fn settle(&self, values: &[(Slice<'_>, usize)]) -> Result<(), DeviceError> {
        for (values, rounded) in values {
            let mut arguments = [values.address(), values.elements as u64, *rounded as u64];
            self.launch(&self.settle, values.elements, &mut arguments)?;
        }
        self.context.synchronize()
    }

    /// `left = left + right` for each pair, of which the first so many sums are rounded to bf16.
    ///
    /// # Panics
    /// They are not of one length.
    pub fn add(&self, pairs: &[(Slice<'_>, Slice<'_>, usize)]) -> Result<(), DeviceError> {
        for (left, right, rounded) in pairs {
            assert_eq!(left.elements, right.elements, "two of one parameter");
            let mut arguments = [left.address(), right.address(), left.elements as u64, *rounded as u64];
            self.launch(&self.add, left.elements, &mut arguments)?;
        }
        self.context.synchronize()
    }

    /// The first value that is no finite number.
    pub fn find_non_finite(&self, values: Slice<'_>) -> Result<Option<usize>, DeviceError> {
        let lowest = self.lowest.lock().unwrap_or_else(PoisonError::into_inner);
        self.context.write(&lowest, 0, &u64::MAX.to_le_bytes())?;
        let mut arguments = [values.address(), values.elements as u64, lowest.address()];
        self.launch(&self.find_non_finite, values.elements, &mut arguments)?;
        let mut found = [0; 8];
        self.context.read(&lowest, 0, &mut found)?;
        let found = u64::from_le_bytes(found);
        Ok((found < u64::MAX).then_some(found as usize))
    }

    fn launch(&self, kernel: &Kernel, elements: usize, arguments: &mut [u64]) -> Result<(), DeviceError> {
        let blocks = elements.div_ceil(THREADS as usize).clamp(1, BLOCKS_MAX) as u32;
        // SAFETY: the kernels take these arguments; the memory is borrowed by callers until they have waited.
        unsafe { self.context.launch(kernel, (blocks, THREADS), arguments) }
    }
}
