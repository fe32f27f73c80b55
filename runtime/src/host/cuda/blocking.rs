//! Work on the device's default stream, one thing after another: for who has nothing to do beside it.

#![allow(unsafe_code, reason = "the driver is called through its C interface")]

use super::context::{Context, lost};
use super::error::DeviceError;
use super::kernel::Kernel;
use super::memory::Memory;
use super::shared::Mapped;
use cudarc::driver::{result, sys};
use std::ffi::c_void;

impl Context {
    /// Fills memory with zeros, after what was queued.
    ///
    /// # Errors
    /// The device has failed.
    pub fn zero(&self, memory: &Memory) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the range is the memory's own, and is borrowed.
        unsafe { sys::cuMemsetD8_v2(memory.address(), 0, memory.bytes()) }
            .result()
            .map_err(lost("cuMemsetD8"))
    }

    /// Copies `from` into memory, from its byte `at` on; done when it returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn write(&self, to: &Memory, at: usize, from: &[u8]) -> Result<(), DeviceError> {
        assert!(fits(at, from.len(), to.bytes()), "a copy beyond the end of device memory");
        self.enter()?;
        // SAFETY: `from` is borrowed, and `to` was allocated as long as it says.
        unsafe { result::memcpy_htod_sync(to.address() + at as u64, from) }.map_err(lost("cuMemcpyHtoD"))
    }

    /// Copies memory, from its byte `at` on, to `to`; done when it returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn read(&self, from: &Memory, at: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        assert!(fits(at, to.len(), from.bytes()), "a copy beyond the end of device memory");
        self.enter()?;
        // SAFETY: `to` is borrowed, and `from` was allocated as long as it says.
        unsafe { result::memcpy_dtoh_sync(to, from.address() + at as u64) }.map_err(lost("cuMemcpyDtoH"))
    }

    /// Copies `from` into another process's memory, from its byte `at` on; done when it returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn write_mapped(&self, to: &Mapped, at: usize, from: &[u8]) -> Result<(), DeviceError> {
        assert!(fits(at, from.len(), to.bytes()), "a copy beyond the end of another process's memory");
        self.enter()?;
        // SAFETY: `from` is borrowed; `to` is mapped for as long as the driver said when it was.
        unsafe { result::memcpy_htod_sync(to.address() + at as u64, from) }.map_err(lost("cuMemcpyHtoD"))
    }

    /// Copies another process's memory, from its byte `at` on, to `to`; done when it returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn read_mapped(&self, from: &Mapped, at: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        assert!(fits(at, to.len(), from.bytes()), "a copy beyond the end of another process's memory");
        self.enter()?;
        // SAFETY: `to` is borrowed; `from` is mapped for as long as the driver said when it was.
        unsafe { result::memcpy_dtoh_sync(to, from.address() + at as u64) }.map_err(lost("cuMemcpyDtoH"))
    }

    /// Copies stretches of memory to another process's: each so many bytes from there to there. Done when it returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn send(
        &self,
        from: &Memory,
        to: &Mapped,
        copies: impl IntoIterator<Item = (usize, usize, usize)>,
    ) -> Result<(), DeviceError> {
        self.copy((from.address(), from.bytes()), (to.address(), to.bytes()), copies)
    }

    /// Copies stretches of another process's memory to memory: each so many bytes from there to there. Done when it returns.
    ///
    /// # Errors
    /// The device has failed.
    pub fn receive(
        &self,
        from: &Mapped,
        to: &Memory,
        copies: impl IntoIterator<Item = (usize, usize, usize)>,
    ) -> Result<(), DeviceError> {
        self.copy((from.address(), from.bytes()), (to.address(), to.bytes()), copies)
    }

    fn copy(
        &self,
        (from, from_bytes): (u64, usize),
        (to, to_bytes): (u64, usize),
        copies: impl IntoIterator<Item = (usize, usize, usize)>,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        for (at, there, bytes) in copies {
            assert!(fits(at, bytes, from_bytes), "a copy beyond the end of the memory that it is from");
            assert!(fits(there, bytes, to_bytes), "a copy beyond the end of the memory that it is to");
            let (to, from) = (to + there as u64, from + at as u64);
            // SAFETY: both ranges were allocated here, or mapped for as long as the driver said, and are borrowed until all
            // is done.
            unsafe { result::memcpy_dtod_async(to, from, bytes, std::ptr::null_mut()) }
                .map_err(lost("cuMemcpyDtoDAsync"))?;
        }
        self.synchronize()
    }

    /// Queues `blocks` blocks of `threads` threads with these arguments, 8 bytes each.
    ///
    /// # Errors
    /// The device has failed.
    ///
    /// # Safety
    /// The kernel takes such arguments, and the memory that they name stays until [`synchronize`](Self::synchronize)
    /// returns.
    pub(super) unsafe fn launch(
        &self,
        kernel: &Kernel,
        (blocks, threads): (u32, u32),
        arguments: &mut [u64],
    ) -> Result<(), DeviceError> {
        self.enter()?;
        let mut addresses: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
        // SAFETY: arguments are copied by the call; the rest is the caller's to keep.
        unsafe {
            let (stream, grid, block) = (std::ptr::null_mut(), (blocks, 1, 1), (threads, 1, 1));
            result::launch_kernel(kernel.function, grid, block, 0, stream, &mut addresses)
        }
        .map_err(lost("cuLaunchKernel"))
    }

    /// Waits until all that this process has queued on the device is done, on whatever stream.
    ///
    /// # Errors
    /// The device has failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.enter()?;
        result::ctx::synchronize().map_err(lost("cuCtxSynchronize"))
    }
}

/// Whether `bytes` from the byte `at` on are within memory of so many.
fn fits(at: usize, bytes: usize, within: usize) -> bool {
    at.checked_add(bytes).is_some_and(|end| end <= within)
}
