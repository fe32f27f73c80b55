//! A device beside the processor: blocks that live in its memory and are updated there, to the same bits.
//!
//! The way of an update: [`Resident::update`] fills a pinned page with the gradient sum and queues it; `engine` copies it in,
//! runs the rules of many blocks in one launch, and copies the new parameters out into the same page, which is then what is
//! published. What is queued is no longer here to be undone: the device failing is this process failing, and the job goes on
//! as it does without any other pserver. Nothing here knows of versions, steps or copies.

mod area;
pub mod batch;
mod choice;
mod engine;
mod pool;
pub mod self_test;
mod stream;
mod tree;

use crate::kernel::rules::{Constants, Pass};
pub use area::{Area, WORDS_ALIGNMENT, Words};
pub use batch::PieceUpdate;
use bytes::Bytes;
pub use choice::DeviceChoice;
use engine::{Update, Work};
use pool::{Pool, PoolPage};
use shoal_runtime::cluster::{BlockId, Rule};
pub use shoal_runtime::host::cuda::DeviceError;
use shoal_runtime::host::cuda::{Context, Image, Kernel, Memory};
use shoal_runtime::host::signal::{Changes, Signal};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
pub use tree::Tree;

/// Device code, the most special first.
pub const IMAGES: [Image; 3] = [
    Image { name: "sm_90", major: 9, code: include_bytes!("kernels/update.sm_90.cubin") },
    Image { name: "sm_80", major: 8, code: include_bytes!("kernels/update.sm_80.cubin") },
    Image { name: "compute_80", major: 0, code: include_bytes!("kernels/update.compute_80.ptx") },
];
/// Elements of the buffers of a block: a multiple, so that all of them begin alike.
pub const BUFFER_ELEMENTS: usize = 64;

/// A device that is at work. Clones share it; its threads end with the last.
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<Shared>,
    queue: Sender<Work>,
}

#[derive(Debug)]
struct Shared {
    context: Arc<Context>,
    pool: Arc<Pool>,
    kernel: Arc<Kernel>,
    /// Blocks with updates that are done and not heard of.
    finished: Mutex<Vec<BlockId>>,
    failure: OnceLock<DeviceError>,
    changed: Signal,
    /// Blocks that are here, and those that there was no memory for.
    blocks: AtomicU64,
    overflow: AtomicU64,
    /// Bytes of areas; bytes of gradient sums that updates found on the device.
    area_bytes: AtomicU64,
    gradient_bytes: AtomicU64,
}

impl Device {
    /// The device that is chosen; none for the processor. `auto` takes the first if it can be used, and says why not.
    ///
    /// # Errors
    /// One that was named cannot be used.
    pub fn open(choice: DeviceChoice) -> Result<Option<Device>, DeviceError> {
        match choice {
            DeviceChoice::Cpu => Ok(None),
            DeviceChoice::Cuda(ordinal) => Device::start(ordinal).map(Some),
            DeviceChoice::Auto => match Device::start(0) {
                Ok(device) => Ok(Some(device)),
                Err(why @ DeviceError::Absent { .. }) => {
                    tracing::info!(%why, "updates run on the processor");
                    Ok(None)
                }
                Err(why) => {
                    tracing::warn!(%why, "updates run on the processor");
                    Ok(None)
                }
            },
        }
    }

    fn start(ordinal: u32) -> Result<Device, DeviceError> {
        Device::with_code(ordinal, &IMAGES)
    }

    /// Starts a device with the first of these forms of device code that it takes, and sees that it makes the processor's bits.
    ///
    /// # Errors
    /// It is not there, takes none of them, or makes other bits.
    pub fn with_code(ordinal: u32, images: &[Image]) -> Result<Device, DeviceError> {
        let context = Context::open(ordinal)?;
        let kernel = Arc::new(Kernel::of(&context, images, c"update")?);
        let (finished, failure, changed) = (Mutex::default(), OnceLock::new(), Signal::new());
        let pool = Pool::new(&context);
        let [blocks, overflow, area_bytes, gradient_bytes] = [const { AtomicU64::new(0) }; 4];
        let shared = Arc::new(Shared {
            context,
            pool,
            kernel,
            finished,
            failure,
            changed,
            blocks,
            overflow,
            area_bytes,
            gradient_bytes,
        });
        let device = Device { queue: engine::start(&shared)?, shared };
        self_test::run(&device)?;
        let (name, free) = (device.name(), device.shared.context.free());
        tracing::info!(device = ordinal, name, free_bytes = free, "updates run on a device");
        Ok(device)
    }

    /// What the driver calls it.
    pub fn name(&self) -> &str {
        self.shared.context.name()
    }

    /// Takes a block in: its parameters and rule state, all of one length.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn place(
        &self,
        block: BlockId,
        parameters: &[f32],
        slots: &[&[f32]],
    ) -> Result<Resident, DeviceError> {
        let (elements, buffers) = (parameters.len(), 1 + slots.len());
        let length = elements.next_multiple_of(BUFFER_ELEMENTS);
        let bytes = 4 * length * buffers;
        let placed = self.shared.context.allocate("a block", bytes).and_then(|memory| {
            let mut page = self.shared.pool.page(bytes)?;
            let values: &mut [f32] = bytemuck::cast_slice_mut(page.bytes_mut());
            for (to, from) in values.chunks_exact_mut(length).zip(std::iter::once(&parameters).chain(slots)) {
                to[..elements].copy_from_slice(from);
            }
            Ok((Arc::new(memory), page))
        });
        let (memory, page) = placed.inspect_err(|why| {
            if self.shared.overflow.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(%block, %why, "it and others to come are updated by the processor");
            }
        })?;
        // After a failure nobody takes it: that is told.
        let _ = self.queue.send(Work::Upload(page, Arc::clone(&memory)));
        self.shared.blocks.fetch_add(1, Ordering::Relaxed);
        self.shared.pool.expect(4 * elements);
        Ok(Resident { device: self.clone(), block, memory, elements, length, slots: slots.len() })
    }

    /// Blocks with updates that are done since this was asked last.
    pub fn take_finished(&self) -> Vec<BlockId> {
        std::mem::take(&mut self.shared.finished.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Told whenever updates are done, and of the failure.
    pub fn changed(&self) -> Changes {
        self.shared.changed.listen()
    }

    /// Why nothing more is done, if so.
    pub fn failure(&self) -> Option<&DeviceError> {
        self.shared.failure.get()
    }

    /// How much is here.
    pub fn usage(&self) -> DeviceUsage {
        DeviceUsage {
            bytes: self.shared.context.taken() as u64,
            blocks: self.shared.blocks.load(Ordering::Relaxed),
            overflow: self.shared.overflow.load(Ordering::Relaxed),
            area_bytes: self.shared.area_bytes.load(Ordering::Relaxed),
            gradient_bytes: self.shared.gradient_bytes.load(Ordering::Relaxed),
        }
    }
}

/// How much a device has of this pserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Of its memory.
    pub bytes: u64,
    /// Blocks that are updated there.
    pub blocks: u64,
    /// Blocks that there was no memory for, so far: the processor updates them.
    pub overflow: u64,
    /// Of its memory what is shared with trainers.
    pub area_bytes: u64,
    /// Of gradients that updates found there, so far.
    pub gradient_bytes: u64,
}

impl Shared {
    /// These blocks' updates are done.
    fn finish(&self, blocks: &[BlockId]) {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(blocks);
        self.changed.send();
    }

    /// The first failure is the one that is told.
    fn fail(&self, error: DeviceError) {
        let _ = self.failure.set(error);
        self.changed.send();
    }
}

/// A block that lives in the memory of a device, until it is dropped.
#[derive(Debug)]
pub struct Resident {
    device: Device,
    block: BlockId,
    memory: Arc<Memory>,
    elements: usize,
    /// Elements from the beginning of one buffer to that of the next.
    length: usize,
    slots: usize,
}

/// The parameters that an update makes, once it is done.
#[derive(Clone, Debug)]
pub struct Outcome(Arc<OnceLock<Bytes>>);

impl Outcome {
    /// Little-endian f32, if the update is done.
    pub fn bytes(&self) -> Option<&Bytes> {
        self.0.get()
    }
}

impl Resident {
    /// Updates these pieces once. `fill` writes the block's gradient sum.
    pub fn update(&self, pieces: Vec<PieceUpdate>, fill: impl FnOnce(&mut [f32])) -> Outcome {
        self.queue(pieces, None, fill)
    }

    /// Updates these pieces once by a gradient sum that is on the device.
    pub fn update_by(&self, pieces: Vec<PieceUpdate>, tree: Tree) -> Outcome {
        self.device.shared.gradient_bytes.fetch_add(tree.bytes(), Ordering::Relaxed);
        self.queue(pieces, Some(tree), |_| {})
    }

    fn queue(&self, pieces: Vec<PieceUpdate>, there: Option<Tree>, fill: impl FnOnce(&mut [f32])) -> Outcome {
        let outcome = Arc::new(OnceLock::new());
        match self.device.shared.pool.page(4 * self.elements) {
            Ok(mut page) => {
                fill(bytemuck::cast_slice_mut(page.bytes_mut()));
                let (block, memory, at) = (self.block, Arc::clone(&self.memory), self.addresses());
                let told = Arc::clone(&outcome);
                let update = Update { block, memory, at, pieces, page, there, outcome: told };
                // After a failure nobody takes it: that is told.
                let _ = self.device.queue.send(Work::Update(update));
            }
            Err(error) => self.device.shared.fail(error),
        }
        Outcome(outcome)
    }

    /// The rule state as it is after all updates so far, little-endian f32. Waits for them.
    ///
    /// # Errors
    /// The device has failed.
    pub fn slots(&self) -> Result<Vec<Bytes>, DeviceError> {
        let (answer, answered) = channel();
        let bytes = 4 * self.length * self.slots;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let _ = self.device.queue.send(Work::Fetch(Arc::clone(&self.memory), 4 * self.length, bytes, answer));
        let page: PoolPage = answered.recv().map_err(|_| self.device.lost())?;
        // Copied: what is held for long does not keep pinned memory.
        let slot =
            |at: usize| Bytes::copy_from_slice(&page.bytes()[4 * self.length * at..][..4 * self.elements]);
        Ok((0..self.slots).map(slot).collect())
    }

    fn addresses(&self) -> batch::Addresses {
        let buffer = |at: usize| self.memory.address() + (4 * self.length * at) as u64;
        let slots = std::array::from_fn(|slot| if slot < self.slots { buffer(1 + slot) } else { 0 });
        batch::Addresses { parameters: buffer(0), slots }
    }
}

impl Device {
    /// Why nobody answers.
    fn lost(&self) -> DeviceError {
        let unknown =
            || DeviceError::Lost { call: "the device's thread", code: "that it has ended".to_owned() };
        self.failure().cloned().unwrap_or_else(unknown)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.device.shared.blocks.fetch_sub(1, Ordering::Relaxed);
        self.device.shared.pool.expect_no_more(4 * self.elements);
    }
}

impl PieceUpdate {
    /// One update of a range of a block by a rule that devices have; none of the others.
    pub fn new(range: Range<usize>, rule: Rule, pass: Pass) -> Option<PieceUpdate> {
        Constants::of(rule, pass).map(|constants| PieceUpdate { range, constants })
    }
}

#[cfg(test)]
pub(crate) mod tests;
