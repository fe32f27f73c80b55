//! Areas: device memory of this pserver into which a trainer on the same machine puts a gradient, or is given parameters.
//!
//! The memory is this process's: no trainer's death takes it away. Who writes there is agreed upon by messages: a trainer has
//! an area to itself. It fills one before it pushes what is in it, and uses it again only once every block has applied
//! that; or it names one in a pull, and uses it again only once every call that named it is answered.

use super::engine::{Bring, Work};
use super::version::Outcome;
use super::{Device, DeviceError};
use bytes::Bytes;
use shoal_runtime::cluster::BlockId;
use shoal_runtime::host::cuda::{HANDLE_BYTES, Memory, SHARED_BYTES};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

/// Where the words of a block begin: a multiple, from the beginning of an area.
pub const WORDS_ALIGNMENT: usize = 16;

/// Device memory that a trainer and this pserver both read and write.
#[derive(Debug)]
pub struct Area {
    device: Device,
    memory: Arc<Memory>,
    handle: [u8; HANDLE_BYTES],
}

/// The f32 values of one gradient for one block, in an area.
#[derive(Clone, Debug)]
pub struct Words {
    area: Arc<Area>,
    at: usize,
    elements: usize,
    /// The values, once they were asked for and are in this machine's memory.
    here: Outcome,
}

impl Device {
    /// Memory for another process to write to, of at least so many bytes.
    ///
    /// # Errors
    /// There is no memory for it, or the driver shares none.
    pub fn area(&self, bytes: usize) -> Result<Area, DeviceError> {
        let bytes = bytes.max(1).next_multiple_of(SHARED_BYTES);
        let memory = self.shared.context.allocate("an area", bytes)?;
        let handle = memory.export()?;
        self.shared.area_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Area { device: self.clone(), memory: Arc::new(memory), handle })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        self.device.shared.area_bytes.fetch_sub(self.bytes() as u64, Ordering::Relaxed);
    }
}

impl Area {
    /// What the other process has to know to map it.
    pub fn handle(&self) -> [u8; HANDLE_BYTES] {
        self.handle
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// So many values from byte `at` on; none that do not lie there, or not as they should.
    pub fn words(self: &Arc<Self>, at: u64, elements: usize) -> Option<Words> {
        let here = Outcome::default();
        self.place(at, elements).map(|at| Words { area: Arc::clone(self), at, elements, here })
    }

    /// The byte `at`, if so many values can lie there.
    pub(super) fn place(&self, at: u64, elements: usize) -> Option<usize> {
        let at = usize::try_from(at).ok().filter(|at| at.is_multiple_of(WORDS_ALIGNMENT))?;
        let end = at.checked_add(elements.checked_mul(4)?)?;
        (end <= self.bytes()).then_some(at)
    }

    /// What it lies in.
    pub(super) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }
}

impl Words {
    /// Where they are, for the device.
    pub(super) fn address(&self) -> u64 {
        self.area.memory.address() + self.at as u64
    }

    /// What they lie in.
    pub(super) fn memory(&self) -> Arc<Memory> {
        self.area.memory()
    }

    /// How many values they are.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Returns true if the words are in host memory, so that [`bring`](Self::bring) does not wait. Otherwise asks the device for them,
    /// which signals `block` on arrival.
    pub(super) fn ask(&self, block: BlockId) -> bool {
        if self.elements == 0 || self.here.bytes().is_some() {
            return true;
        }
        if self.here.is_first_to_ask() {
            let (memory, outcome) = (self.memory(), self.here.clone());
            let bring = Bring { block, memory, at: self.at, bytes: 4 * self.elements, outcome };
            // A failed device takes nothing from its queue; its failure is reported elsewhere.
            let _ = self.area.device.queue.send(Work::Bring(bring));
        }
        false
    }

    /// Copies them out, little-endian. Waits for all that was queued before, unless they are here.
    ///
    /// # Errors
    /// The device has failed.
    pub fn bring(&self) -> Result<Bytes, DeviceError> {
        if self.elements == 0 {
            return Ok(Bytes::new());
        }
        if let Some(bytes) = self.here.bytes() {
            return Ok(bytes.clone());
        }
        let (answer, answered) = channel();
        let device = &self.area.device;
        let _ = device.queue.send(Work::Fetch(self.memory(), self.at, 4 * self.elements, answer));
        let page = answered.recv().map_err(|_| device.lost())?;
        Ok(Bytes::copy_from_slice(page.bytes()))
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Words) -> bool {
        Arc::ptr_eq(&self.area, &other.area) && (self.at, self.elements) == (other.at, other.elements)
    }
}
