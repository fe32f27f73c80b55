//! Code that a device runs.

#![allow(unsafe_code, reason = "the driver is called through its C interface")]

use super::context::{Context, name_of};
use super::error::DeviceError;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use std::ffi::CStr;
use std::sync::Arc;

/// The oldest compute capability that any code of ours is for.
const CAPABILITY_MIN: (i32, i32) = (8, 0);

/// One form of device code.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// What it is called.
    pub name: &'static str,
    /// For which major compute capability; 0: for all.
    pub major: i32,
    /// PTX or machine code.
    pub code: &'static [u8],
}

/// One kernel of a loaded image of device code.
#[derive(Debug)]
pub struct Kernel {
    context: Arc<Context>,
    module: sys::CUmodule,
    /// For launching.
    pub function: sys::CUfunction,
}

// SAFETY: functions are called on any thread that has entered their context.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The kernel `name` of the first of these images that the driver takes.
    ///
    /// # Errors
    /// The device is too old, or the driver takes none.
    pub fn of(context: &Arc<Context>, images: &[Image], name: &CStr) -> Result<Kernel, DeviceError> {
        let found = context.capability()?;
        if found < CAPABILITY_MIN {
            let what = format!("it has compute capability {}.{}, at least 8.0 is needed", found.0, found.1);
            return Err(context.unsuitable(what));
        }
        let mut refusals = Vec::new();
        for image in images.iter().filter(|image| [0, found.0].contains(&image.major)) {
            match Kernel::load(context, image.code, name)? {
                Ok(kernel) => {
                    tracing::debug!(image = image.name, ?name, "device code loaded");
                    return Ok(kernel);
                }
                Err(error) => refusals.push(format!("{}: {}", image.name, name_of(error))),
            }
        }
        Err(context.unsuitable(match &refusals[..] {
            [] => format!("none of the code is for compute capability {}.{}", found.0, found.1),
            _ => format!("its driver refuses our code ({}): it has to be 550 or newer", refusals.join(", ")),
        }))
    }

    /// The kernel `name` of an image, PTX or machine code. The inner error is the driver's: it cannot use the image.
    fn load(
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
