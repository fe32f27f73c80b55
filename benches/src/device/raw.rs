//! The driver as this bench needs it: one stream, one allocation, the kernel of an image, and a clock on the device. It must
//! never be part of a pserver.

#![allow(unsafe_code, reason = "the driver is called through its C interface")]

use anyhow::{Context, anyhow, ensure};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use shoal_pserver::device::batch::Tables;

/// A device with memory taken.
pub(crate) struct Raw {
    stream: sys::CUstream,
    events: [sys::CUevent; 2],
    /// Where the memory begins.
    pub(crate) address: u64,
    /// How much of it there is.
    pub(crate) bytes: u64,
}

fn named(call: &'static str) -> impl FnOnce(DriverError) -> anyhow::Error {
    move |error| anyhow!("{call}: {error:?}")
}

/// A kernel of an image.
#[derive(Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: allocated by `take`, freed once; the call waits for what works there.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

impl Raw {
    /// Takes up to so many bytes of a device, less what is needed beside.
    pub(crate) fn open(ordinal: u32, bytes_max: u64) -> anyhow::Result<Raw> {
        Raw::take(ordinal, |free| bytes_max.min(free.saturating_sub(256 << 20)))
    }

    /// Takes all of a device's memory but so many bytes.
    pub(crate) fn leaving(ordinal: u32, bytes: u64) -> anyhow::Result<Raw> {
        Raw::take(ordinal, |free| free.saturating_sub(bytes))
    }

    fn take(ordinal: u32, bytes_of: impl FnOnce(u64) -> u64) -> anyhow::Result<Raw> {
        // SAFETY: calls of the driver in the order that it wants, with what it gave; all but the memory lives until the process ends.
        unsafe {
            ensure!(sys::is_culib_present(), "the CUDA driver (libcuda) is not installed");
            result::init().map_err(named("cuInit"))?;
            let device = result::device::get(ordinal as i32).map_err(named("cuDeviceGet"))?;
            let context = result::primary_ctx::retain(device).map_err(named("cuDevicePrimaryCtxRetain"))?;
            result::ctx::set_current(context).map_err(named("cuCtxSetCurrent"))?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
            let event = || {
                result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(named("cuEventCreate"))
            };
            let (free, _) = result::mem_get_info().map_err(named("cuMemGetInfo"))?;
            let bytes = bytes_of(free as u64) & !0xFFFF;
            let address = result::malloc_sync(bytes as usize).map_err(named("cuMemAlloc"))?;
            Ok(Raw {
                stream: stream.map_err(named("cuStreamCreate"))?,
                events: [event()?, event()?],
                address,
                bytes,
            })
        }
    }

    /// The kernel of an image, PTX or machine code.
    pub(crate) fn function(&self, image: &[u8]) -> anyhow::Result<Function> {
        let image = [image, &[0]].concat();
        // SAFETY: a whole image, ended with a zero; the module is never unloaded.
        unsafe {
            let module =
                result::module::load_data(image.as_ptr().cast()).map_err(named("cuModuleLoadData"))?;
            let function = result::module::get_function(module, c"update".to_owned());
            function.map(Function).map_err(named("cuModuleGetFunction"))
        }
    }

    /// Writes to the memory, `at` bytes from its beginning.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
        ensure!(at + bytes.len() as u64 <= self.bytes, "beyond the memory");
        // SAFETY: inside the allocation.
        unsafe { result::memcpy_htod_sync(self.address + at, bytes) }.map_err(named("cuMemcpyHtoD"))
    }

    /// What is in the memory, `at` bytes from its beginning, once all that was launched is done.
    pub(crate) fn read(&self, at: u64, bytes: usize) -> anyhow::Result<Vec<u8>> {
        ensure!(at + bytes as u64 <= self.bytes, "beyond the memory");
        let mut read = vec![0; bytes];
        result::ctx::synchronize().map_err(named("cuCtxSynchronize"))?;
        // SAFETY: inside the allocation.
        unsafe {
            result::memcpy_dtoh_sync(&mut read, self.address + at).map_err(named("cuMemcpyDtoH"))?;
        }
        Ok(read)
    }

    /// Copies the first `bytes` of the memory to what follows them.
    pub(crate) fn copy(&self, bytes: u64) -> anyhow::Result<()> {
        ensure!(2 * bytes <= self.bytes, "beyond the memory");
        // SAFETY: both halves are inside the allocation.
        unsafe { result::memcpy_dtod_async(self.address + bytes, self.address, bytes as usize, self.stream) }
            .map_err(named("cuMemcpyDtoDAsync"))
    }

    /// Launches what the tables at `at` say; all that they name is inside the memory.
    pub(crate) fn launch(&self, function: Function, tables: &Tables, at: u64) -> anyhow::Result<()> {
        let mut addresses = tables.addresses(self.address + at);
        let mut arguments = addresses.each_mut().map(|address| std::ptr::from_mut(address).cast());
        let grid = (tables.chunks(), 1, 1);
        // SAFETY: the kernel takes three tables; whoever made them kept to the memory.
        unsafe { result::launch_kernel(function.0, grid, (256, 1, 1), 0, self.stream, &mut arguments) }
            .map_err(named("cuLaunchKernel"))
    }

    /// Starts a kernel that takes nothing, and does not wait for it.
    pub(crate) fn start(&self, function: Function) -> anyhow::Result<()> {
        // SAFETY: it has no arguments, and what becomes of it is the device's.
        unsafe { result::launch_kernel(function.0, (1, 1, 1), (1, 1, 1), 0, self.stream, &mut []) }
            .map_err(named("cuLaunchKernel"))
    }

    /// Seconds that the device takes for `work`, several times in a row so that it is long enough; the median of `rounds`.
    pub(crate) fn seconds(
        &self,
        rounds: usize,
        work: impl Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let once = self.measure(3, &work)?;
        let repetitions = (0.05 / once.max(1e-6)).clamp(1.0, 2000.0) as usize;
        let mut all =
            (0..rounds).map(|_| self.measure(repetitions, &work)).collect::<anyhow::Result<Vec<f64>>>()?;
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().context("no rounds")
    }

    fn measure(&self, repetitions: usize, work: &impl Fn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let [begin, end] = self.events;
        // SAFETY: the events and the stream live as long as `self`.
        unsafe {
            result::event::record(begin, self.stream).map_err(named("cuEventRecord"))?;
            (0..repetitions).try_for_each(|_| work())?;
            result::event::record(end, self.stream).map_err(named("cuEventRecord"))?;
            result::event::synchronize(end).map_err(named("cuEventSynchronize"))?;
            let milliseconds = result::event::elapsed(begin, end).map_err(named("cuEventElapsedTime"))?;
            Ok(f64::from(milliseconds) / 1e3 / repetitions as f64)
        }
    }
}
