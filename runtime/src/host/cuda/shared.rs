//! Device memory of one process that another reads and writes: CUDA's interprocess handles. Both are on one machine, and the
//! devices are one or reach each other.

#![allow(unsafe_code, reason = "the driver is called through its C interface")]

use super::context::{Context, name_of};
use super::error::DeviceError;
use super::memory::Memory;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Bytes of a handle.
pub const HANDLE_BYTES: usize = 64;
/// Areas of a pserver's that one trainer may have: a gradient that is held, one that is on its way, one that is computed, and
/// parameters.
pub const AREAS_MAX: usize = 4;
/// Memory that is shared is a multiple of this: the driver shares nothing smaller, and what else lay there would be shared too.
pub const SHARED_BYTES: usize = 2 << 20;

/// What tells machines apart: the kernel's identity of this boot; nothing where there is none.
pub fn machine() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    read.trim().to_owned()
}

/// Whether that is said of this machine.
pub fn is_this_machine(said: &str) -> bool {
    !said.is_empty() && said == machine()
}

fn unshared(call: &'static str) -> impl FnOnce(DriverError) -> DeviceError {
    move |error| DeviceError::Unshared { call, code: name_of(error) }
}

impl Memory {
    /// What another process has to know to map this memory: a multiple of [`SHARED_BYTES`].
    ///
    /// # Errors
    /// The driver shares none.
    pub fn export(&self) -> Result<[u8; HANDLE_BYTES], DeviceError> {
        assert!(self.bytes.is_multiple_of(SHARED_BYTES), "only whole stretches are shared");
        self.context.enter()?;
        let mut handle = MaybeUninit::uninit();
        // SAFETY: it is memory that was allocated; the driver fills the handle if it succeeds.
        let handle = unsafe {
            let exported = sys::cuIpcGetMemHandle(handle.as_mut_ptr(), self.address).result();
            exported.map_err(unshared("cuIpcGetMemHandle"))?;
            handle.assume_init()
        };
        Ok(handle.reserved.map(|byte| byte as u8))
    }
}

/// Memory of another process, mapped here until it is dropped: as much as the driver says is there, or less.
#[derive(Debug)]
pub struct Mapped {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl Mapped {
    /// Where it begins, for the device: a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Context {
    /// Maps memory that another process of this machine has exported, which says that it has `said` bytes. That is a claim:
    /// how long the allocation is, the driver is asked, and what it does not say is not believed.
    ///
    /// # Errors
    /// The driver refuses: the handle is of another machine, or the devices do not reach each other. There is less memory
    /// than is said.
    pub fn map(self: &Arc<Self>, handle: [u8; HANDLE_BYTES], said: usize) -> Result<Mapped, DeviceError> {
        self.enter()?;
        let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| byte as c_char) };
        let flags = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut address = 0;
        // SAFETY: the driver refuses what is no handle.
        let mapped = unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut address, handle, flags) };
        mapped.result().map_err(unshared("cuIpcOpenMemHandle"))?;
        // Unmapped again where it is refused.
        let mapped = Mapped { context: Arc::clone(self), address, bytes: said };
        match mapped.bytes_to_its_end()? {
            bytes if bytes < said => Err(DeviceError::Overstated { said, bytes }),
            _ => Ok(mapped),
        }
    }
}

impl Mapped {
    /// How long the allocation is from here on, by the driver.
    fn bytes_to_its_end(&self) -> Result<usize, DeviceError> {
        let (mut begin, mut bytes) = (0, 0);
        // SAFETY: the driver fills both if it succeeds, and refuses an address of no allocation.
        unsafe { sys::cuMemGetAddressRange_v2(&raw mut begin, &raw mut bytes, self.address) }
            .result()
            .map_err(unshared("cuMemGetAddressRange"))?;
        Ok(bytes.saturating_sub((self.address - begin) as usize))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, given back once; nothing is under way: whoever copied there has waited.
        let _ = self.context.enter().map(|()| unsafe { sys::cuIpcCloseMemHandle(self.address) });
    }
}
