//! The CUDA driver's objects as things that are safe to hold: a context, memory on both sides, a kernel. Nothing here knows of
//! blocks, or of what is done with memory: that is a stream's.

#![allow(unsafe_code, reason = "the driver is called through its C interface")]

use super::error::DeviceError;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device's primary context.
#[derive(Debug)]
pub(super) struct Context {
    ordinal: u32,
    name: String,
    raw: sys::CUcontext,
    device: sys::CUdevice,
    /// Bytes of device memory that were taken here.
    taken: AtomicUsize,
}

// SAFETY: a context may be made current on any thread, and the driver locks what its calls share.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The driver's name of an error.
pub(super) fn name_of(error: DriverError) -> String {
    error
        .error_name()
        .map_or_else(|_| format!("error {:?}", error.0 as u32), |name| name.to_string_lossy().into_owned())
}

pub(super) fn lost(call: &'static str) -> impl FnOnce(DriverError) -> DeviceError {
    move |error| DeviceError::Lost { call, code: name_of(error) }
}

impl Context {
    /// The context of a device.
    ///
    /// # Errors
    /// There is no driver or no such device; it is older than our code.
    pub(super) fn open(ordinal: u32) -> Result<Arc<Context>, DeviceError> {
        let absent = |what: String| DeviceError::Absent { ordinal, what };
        // SAFETY: loads the driver's library, whose initialisers are trusted as those of any installed library.
        if !unsafe { sys::is_culib_present() } {
            return Err(absent("the CUDA driver (libcuda) is not installed".to_owned()));
        }
        let named = |call: &'static str| move |error| absent(format!("{call} says {}", name_of(error)));
        result::init().map_err(named("cuInit"))?;
        let count = result::device::get_count().map_err(named("cuDeviceGetCount"))?;
        if i64::from(ordinal) >= i64::from(count) {
            return Err(absent(format!("this machine has {count}")));
        }
        let device = result::device::get(ordinal as i32).map_err(named("cuDeviceGet"))?;
        let name = result::device::get_name(device).map_err(named("cuDeviceGetName"))?;
        // SAFETY: `device` is one that the driver gave.
        let raw = unsafe { result::primary_ctx::retain(device) };
        let raw = raw.map_err(|error| DeviceError::Unsuitable {
            ordinal,
            name: name.clone(),
            what: format!("cuDevicePrimaryCtxRetain says {}", name_of(error)),
        })?;
        Ok(Arc::new(Context { ordinal, name, raw, device, taken: AtomicUsize::new(0) }))
    }

    /// What the driver calls the device.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The refusal of a device that cannot run our code.
    pub(super) fn unsuitable(&self, what: String) -> DeviceError {
        DeviceError::Unsuitable { ordinal: self.ordinal, name: self.name.clone(), what }
    }

    /// Its compute capability.
    pub(super) fn capability(&self) -> Result<(i32, i32), DeviceError> {
        use sys::CUdevice_attribute_enum::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: `device` is one that the driver gave.
        let ask = |attribute| unsafe { result::device::get_attribute(self.device, attribute) };
        Ok((
            ask(MAJOR).map_err(lost("cuDeviceGetAttribute"))?,
            ask(MINOR).map_err(lost("cuDeviceGetAttribute"))?,
        ))
    }

    /// Bytes of its memory that are free, if it says so. This thread has entered it.
    pub(super) fn free(&self) -> usize {
        result::mem_get_info().map_or(0, |(free, _)| free)
    }

    /// Makes it this thread's. To be called before anything else is.
    pub(super) fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.raw) }.map_err(lost("cuCtxSetCurrent"))
    }

    /// Bytes of device memory that were taken here.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// So much device memory, of no particular content.
    pub(super) fn allocate(
        self: &Arc<Self>,
        what: &'static str,
        bytes: usize,
    ) -> Result<Memory, DeviceError> {
        self.enter()?;
        // SAFETY: what is not read before it is written may hold anything.
        let address = unsafe { result::malloc_sync(bytes) };
        let address = address.map_err(|error| self.no_memory("cuMemAlloc", what, bytes, error))?;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(Memory { context: Arc::clone(self), address, bytes })
    }

    /// So much of this machine's memory, at a place from which the device can copy by itself; zeros.
    pub(super) fn pin(self: &Arc<Self>, bytes: usize) -> Result<Pinned, DeviceError> {
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

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; all that was made in it holds it.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Device memory.
#[derive(Debug)]
pub(super) struct Memory {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl Memory {
    /// Where it begins, for the device: a multiple of 256.
    pub(super) fn address(&self) -> u64 {
        self.address
    }
    /// How long it is.
    pub(super) fn bytes(&self) -> usize {
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
pub(super) struct Pinned {
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
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and filled by `pin`, and not lent to a stream: that takes it whole.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }
    /// What it holds, to be written.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
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

/// One kernel of a loaded image of device code.
#[derive(Debug)]
pub(super) struct Kernel {
    context: Arc<Context>,
    module: sys::CUmodule,
    pub(super) function: sys::CUfunction,
}

// SAFETY: functions are called on any thread that has entered their context.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The kernel `name` of an image, PTX or machine code. The inner error is the driver's: it cannot use the image.
    pub(super) fn load(
        context: &Arc<Context>,
        image: &[u8],
        name: &CStr,
    ) -> Result<Result<Kernel, DriverError>, DeviceError> {
        context.enter()?;
        // PTX is text that ends with a zero; machine code says itself how long it is.
        let image = [image, &[0]].concat();
        // SAFETY: a whole image, ended with a zero.
        let module = match unsafe { result::module::load_data(image.as_ptr().cast()) } {
            Ok(module) => module,
            Err(error) => return Ok(Err(error)),
        };
        // SAFETY: the module was just loaded.
        let function = unsafe { result::module::get_function(module, name.to_owned()) };
        Ok(function.map(|function| Kernel { context: Arc::clone(context), module, function }))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: loaded by `load`, unloaded once; whoever launches holds the kernel until it has run.
        let _ = self.context.enter().map(|()| unsafe { result::module::unload(self.module) });
    }
}
