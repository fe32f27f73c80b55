//! Work on the device, in order, beside that of other streams: copies in, launches, copies out.
//!
//! What a stream works on is given to it whole and is had back once the work is done, so nobody touches a buffer that the
//! device reads or writes. After a call that failed, what was in flight stays where it is for good: the device may still
//! write there, and the process is about to end.

#![allow(unsafe_code, reason = "the driver is called through its C interface")]

use super::pool::PoolPage;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use shoal_runtime::host::cuda::{Context, DeviceError, Kernel, Memory, lost};
use std::ffi::c_void;
use std::sync::Arc;

/// A moment in a stream's work.
#[derive(Debug)]
struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: events are recorded, waited for and asked on any thread that has entered their context.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `Stream::new`, destroyed once.
        let _ = self.context.enter().map(|()| unsafe { result::event::destroy(self.raw) });
    }
}

/// What is done one after another on the device, beside what other streams do. It keeps what it works on.
#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<Context>,
    raw: sys::CUstream,
    done: Arc<Event>,
    /// Work is under way: what is kept may be read and written by the device.
    is_busy: bool,
    memories: Vec<Arc<Memory>>,
    kernels: Vec<Arc<Kernel>>,
    pages: Vec<PoolPage>,
}

// SAFETY: streams are used on any thread that has entered their context.
unsafe impl Send for Stream {}

/// The end of what a stream was given, for another to wait for.
#[derive(Clone, Debug)]
pub(super) struct Done(Arc<Event>);

impl Stream {
    /// An idle one.
    pub(super) fn new(context: &Arc<Context>) -> Result<Stream, DeviceError> {
        context.enter()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(lost("cuStreamCreate"))?;
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(lost("cuEventCreate"))?;
        let done = Arc::new(Event { context: Arc::clone(context), raw: event });
        let (memories, kernels, pages) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Stream { context: Arc::clone(context), raw, done, is_busy: false, memories, kernels, pages })
    }

    fn wait_for(&self, other: &Done) -> Result<(), DeviceError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are live.
        unsafe { result::stream::wait_event(self.raw, other.0.raw, flags) }.map_err(lost("cuStreamWaitEvent"))
    }

    /// What comes next waits until all that `other` was given is done.
    pub(super) fn after(&mut self, other: &Done) -> Result<(), DeviceError> {
        self.context.enter()?;
        self.wait_for(other)
    }

    /// Copies `bytes` from the beginning of a page to device memory, `at` bytes from its beginning. The page is kept.
    pub(super) fn copy_in(
        &mut self,
        page: PoolPage,
        bytes: usize,
        to: &Arc<Memory>,
        at: usize,
    ) -> Result<(), DeviceError> {
        assert!(at + bytes <= to.bytes(), "a copy beyond the end of device memory");
        self.is_busy = true;
        self.memories.push(Arc::clone(to));
        self.pages.push(page);
        let Some(page) = self.pages.last() else { return Ok(()) };
        let from = &page.bytes()[..bytes];
        // SAFETY: both ranges are there, and both are kept until the work is done.
        unsafe { result::memcpy_htod_async(to.address() + at as u64, from, self.raw) }
            .map_err(lost("cuMemcpyHtoDAsync"))
    }

    /// Copies device memory to the beginning of a page: of the `index`th that is kept.
    pub(super) fn copy_out(
        &mut self,
        from: &Arc<Memory>,
        at: usize,
        bytes: usize,
        index: usize,
    ) -> Result<(), DeviceError> {
        assert!(at + bytes <= from.bytes(), "a copy beyond the end of device memory");
        self.is_busy = true;
        self.memories.push(Arc::clone(from));
        let to = &mut self.pages[index].bytes_mut()[..bytes];
        // SAFETY: both ranges are there, and both are kept until the work is done.
        unsafe { result::memcpy_dtoh_async(to, from.address() + at as u64, self.raw) }
            .map_err(lost("cuMemcpyDtoHAsync"))
    }

    /// Keeps a page for [`copy_out`](Self::copy_out), and says its index.
    pub(super) fn keep(&mut self, page: PoolPage) -> usize {
        self.pages.push(page);
        self.pages.len() - 1
    }

    /// Launches `blocks` blocks of `threads` threads with these device addresses as arguments.
    ///
    /// # Safety
    /// The kernel takes so many addresses. What it reads and writes through them lies in `memories`, and is written by nothing
    /// else until this is done.
    pub(super) unsafe fn launch(
        &mut self,
        kernel: &Arc<Kernel>,
        (blocks, threads): (u32, u32),
        arguments: &mut [u64],
        memories: impl Iterator<Item = Arc<Memory>>,
    ) -> Result<(), DeviceError> {
        self.is_busy = true;
        self.kernels.push(Arc::clone(kernel));
        self.memories.extend(memories);
        let mut addresses: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
        // SAFETY: arguments are copied by the call; the rest is the caller's to keep.
        unsafe {
            result::launch_kernel(
                kernel.function,
                (blocks, 1, 1),
                (threads, 1, 1),
                0,
                self.raw,
                &mut addresses,
            )
        }
        .map_err(lost("cuLaunchKernel"))
    }

    /// Marks the end of what it was given.
    pub(super) fn close(&mut self) -> Result<Done, DeviceError> {
        // SAFETY: both are live.
        unsafe { result::event::record(self.done.raw, self.raw) }.map_err(lost("cuEventRecord"))?;
        Ok(Done(Arc::clone(&self.done)))
    }

    /// Whether all that it was given until it was closed is done; if so, the pages are had back in the order they came.
    pub(super) fn finish(&mut self) -> Result<Option<Vec<PoolPage>>, DeviceError> {
        self.context.enter()?;
        // SAFETY: the event is live.
        match unsafe { result::event::query(self.done.raw) } {
            Ok(()) => {
                self.is_busy = false;
                self.memories.clear();
                self.kernels.clear();
                Ok(Some(std::mem::take(&mut self.pages)))
            }
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(None),
            Err(error) => Err(lost("cuEventQuery")(error)),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_busy {
            // The device may still read and write there.
            std::mem::forget((
                std::mem::take(&mut self.memories),
                std::mem::take(&mut self.pages),
                std::mem::take(&mut self.kernels),
            ));
            return;
        }
        // SAFETY: created by `new`, destroyed once, idle.
        let _ = self.context.enter().map(|()| unsafe { result::stream::destroy(self.raw) });
    }
}
