//! A device, entered.

#![allow(unsafe_code, reason = "the driver is called through its C interface")]

use super::error::DeviceError;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device's primary context.
#[derive(Debug)]
pub struct Context {
    ordinal: u32,
    name: String,
    raw: sys::CUcontext,
    device: sys::CUdevice,
    /// Bytes of device memory that were taken here.
    pub(super) taken: AtomicUsize,
}

// SAFETY: a context may be made current on any thread, and the driver locks what its calls share.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The driver's name of an error.
pub fn name_of(error: DriverError) -> String {
    error
        .error_name()
        .map_or_else(|_| format!("error {:?}", error.0 as u32), |name| name.to_string_lossy().into_owned())
}

/// A failed call as what it means for the device.
pub fn lost(call: &'static str) -> impl FnOnce(DriverError) -> DeviceError {
    move |error| DeviceError::Lost { call, code: name_of(error) }
}

impl Context {
    /// The context of a device.
    ///
    /// # Errors
    /// There is no driver or no such device; it is older than our code.
    pub fn open(ordinal: u32) -> Result<Arc<Context>, DeviceError> {
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
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The refusal of a device that cannot run our code.
    pub fn unsuitable(&self, what: String) -> DeviceError {
        DeviceError::Unsuitable { ordinal: self.ordinal, name: self.name.clone(), what }
    }

    /// Its compute capability.
    pub fn capability(&self) -> Result<(i32, i32), DeviceError> {
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
    pub fn free(&self) -> usize {
        result::mem_get_info().map_or(0, |(free, _)| free)
    }

    /// Makes it this thread's. To be called before anything else is.
    pub fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.raw) }.map_err(lost("cuCtxSetCurrent"))
    }

    /// Bytes of device memory that were taken here.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; all that was made in it holds it.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
