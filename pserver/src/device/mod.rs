//! A device beside the processor: blocks that live in its memory and are updated there, to the same bits.
//!
//! The way of an update: [`Resident::update`] fills a pinned page with the gradient sum and queues it; `engine` copies it in,
//! runs the rules of many blocks in one launch, and copies the new parameters out into the same page, which is then what is
//! published. A trainer of this machine may put the gradient into the device's memory, and be given the parameters there: then
//! neither comes here. What is queued is no longer here to be undone: the device failing is this process failing, and the job
//! goes on as it does without any other pserver. Nothing here knows of steps or copies.

mod area;
pub mod batch;
mod choice;
mod engine;
mod landing;
mod pool;
mod resident;
pub mod self_test;
mod stream;
mod tree;
mod version;

use crate::kernel::rules::{Constants, Pass};
pub use area::{Area, WORDS_ALIGNMENT, Words};
pub use batch::PieceUpdate;
pub use choice::DeviceChoice;
use engine::Work;
use pool::Pool;
pub use resident::{ComingSlots, Resident};
use shoal_runtime::cluster::{BlockId, Rule};
pub use shoal_runtime::host::cuda::DeviceError;
use shoal_runtime::host::cuda::{Context, Image, Kernel};
use shoal_runtime::host::signal::{Changes, Signal};
use shoal_runtime::host::waits::Waits;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
pub use tree::Tree;
pub use version::{Given, Outcome};

/// Device code, the most special first.
pub const IMAGES: [Image; 3] = [
    Image { name: "sm_90", major: 9, code: include_bytes!("kernels/update.sm_90.cubin") },
    Image { name: "sm_80", major: 8, code: include_bytes!("kernels/update.sm_80.cubin") },
    Image { name: "compute_80", major: 0, code: include_bytes!("kernels/update.compute_80.ptx") },
];
/// Elements of the buffers of a block: a multiple, so that all of them begin alike.
pub const BUFFER_ELEMENTS: usize = 64;

/// How long one flight may take: a thousand times what the slowest does.
const PATIENCE: Duration = Duration::from_secs(60);

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
    /// Blocks with updates that are done, or parameters that are here, and not heard of.
    finished: Mutex<Vec<BlockId>>,
    failure: OnceLock<DeviceError>,
    changed: Signal,
    /// The pserver's waits.
    waits: Waits,
    /// How long one flight may take, in milliseconds. Tests of devices that stall have less.
    patience_millis: AtomicU64,
    /// Blocks that are here, and those that there was no memory for.
    blocks: AtomicU64,
    overflow: AtomicU64,
    /// Bytes of areas; of gradient sums that updates found on the device; of parameters that were given there.
    area_bytes: AtomicU64,
    gradient_bytes: AtomicU64,
    parameter_bytes: AtomicU64,
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
        let [blocks, overflow, area_bytes, gradient_bytes, parameter_bytes] =
            [const { AtomicU64::new(0) }; 5];
        let shared = Arc::new(Shared {
            context,
            pool,
            kernel,
            finished,
            failure,
            changed,
            waits: Waits::default(),
            patience_millis: AtomicU64::new(PATIENCE.as_millis() as u64),
            blocks,
            overflow,
            area_bytes,
            gradient_bytes,
            parameter_bytes,
        });
        let device = Device { queue: engine::start(&shared)?, shared };
        self_test::run(&device)?;
        let (name, free) = (device.name(), device.shared.context.free());
        tracing::info!(device = ordinal, name, free_bytes = free, "updates run on a device");
        Ok(device)
    }

    /// Returns the registry that the device's threads report late flights to.
    pub fn waits(&self) -> &Waits {
        &self.shared.waits
    }

    /// What the driver calls it.
    pub fn name(&self) -> &str {
        self.shared.context.name()
    }

    /// Blocks with updates that are done, or parameters that are here, since this was asked last.
    pub fn take_finished(&self) -> Vec<BlockId> {
        std::mem::take(&mut self.shared.finished.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Told whenever updates are done, parameters here or given, and of the failure.
    pub fn changed(&self) -> Changes {
        self.shared.changed.listen()
    }

    /// Gives a flight no more than that.
    #[cfg(test)]
    pub(crate) fn give_up_after(&self, patience: Duration) {
        self.shared.patience_millis.store(patience.as_millis() as u64, Ordering::Relaxed);
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
            parameter_bytes: self.shared.parameter_bytes.load(Ordering::Relaxed),
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
    /// Of parameters that trainers were given there, so far.
    pub parameter_bytes: u64,
}

impl Shared {
    /// These blocks' updates are done, or their parameters here.
    fn finish(&self, blocks: impl Iterator<Item = BlockId>) {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).extend(blocks);
        self.changed.send();
    }

    /// The first failure is the one that is told.
    fn fail(&self, error: DeviceError) {
        let _ = self.failure.set(error);
        self.changed.send();
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

impl PieceUpdate {
    /// One update of a range of a block by a rule that devices have; none of the others.
    pub fn new(range: Range<usize>, rule: Rule, pass: Pass) -> Option<PieceUpdate> {
        Constants::of(rule, pass).map(|constants| PieceUpdate { range, constants })
    }
}

#[cfg(test)]
pub(crate) mod tests;
