//! Memory of a device, and memory of this machine that it copies from and to.

#![allow(unsafe_code, reason = "the driver is called through its C interface")]

use super::context::{Context, lost};
use super::error::DeviceError;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Device memory.
#[derive(Debug)]
pub struct Memory {
    pub(super) context: Arc<Context>,
    pub(super) address: sys::CUdeviceptr,
    pub(super) bytes: usize,
}

impl Memory {
    /// Where it begins, for the device: a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.context.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        // SAFETY: allocated by `allocate`, freed once; a stream holds whatever it works on.
        let _ = self.context.enter().map(|()| unsafe { result::free_sync(self.address) });
    }
}

/// Memory of this machine that the device copies from and to. It begins at a multiple of 16.
#[derive(Debug)]
pub struct Pinned {
    context: Arc<Context>,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory that is owned, like a `Vec`'s.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and filled by `pin`, and not lent to a stream: that takes it whole.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }
    /// What it holds, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `pin`, freed once.
        let _ = self.context.enter().map(|()| unsafe { result::free_host(self.address.cast()) });
    }
}

impl Context {
    /// So much device memory, of no particular content.
    pub fn allocate(self: &Arc<Self>, what: &'static str, bytes: usize) -> Result<Memory, DeviceError> {
        self.enter()?;
        // SAFETY: what is not read before it is written may hold anything.
        let address = unsafe { result::malloc_sync(bytes) };
        let address = address.map_err(|error| self.no_memory("cuMemAlloc", what, bytes, error))?;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(Memory { context: Arc::clone(self), address, bytes })
    }

    /// So much of this machine's memory, at a place from which the device can copy by itself; zeros.
    pub fn pin(self: &Arc<Self>, bytes: usize) -> Result<Pinned, DeviceError> {
        self.enter()?;
        // SAFETY: it is filled at once.
        let address = unsafe { result::malloc_host(bytes, 0) };
        let address =
            address.map_err(|error| self.no_memory("cuMemHostAlloc", "pinned memory", bytes, error))?;
        // SAFETY: `bytes` were allocated there, and nobody else knows of them.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(Pinned { context: Arc::clone(self), address: address.cast(), bytes })
    }

    fn no_memory(
        &self,
        call: &'static str,
        what: &'static str,
        bytes: usize,
        error: DriverError,
    ) -> DeviceError {
        match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::Memory { what, bytes, free: self.free() },
            _ => lost(call)(error),
        }
    }
}
