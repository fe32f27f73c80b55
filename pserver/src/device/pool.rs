//! Pinned pages that are used again: making one costs more than a copy through it.
//!
//! As many bytes are kept unused as blocks have parameters on the device, and a little more: each block fills one page at a time,
//! and finds it here at its next update. What was given back longest ago goes first, so that sizes that nobody asks for any
//! more do not stay.

use shoal_runtime::host::cuda::{Context, DeviceError, Pinned};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The pages of one device.
#[derive(Debug)]
pub(super) struct Pool {
    context: Arc<Context>,
    unused: Mutex<Unused>,
}

/// Bytes that are kept unused whatever is on the device: tables go through pages, too.
const UNUSED_BYTES: usize = 16 << 20;

#[derive(Debug)]
struct Unused {
    /// Given back one after another.
    pages: VecDeque<Pinned>,
    bytes: usize,
    bytes_max: usize,
}

/// A page. Whoever has it has it alone; once nobody has, it is used again.
#[derive(Debug)]
pub(super) struct PoolPage {
    pool: Arc<Pool>,
    /// There until it is dropped.
    page: Option<Pinned>,
}

impl Pool {
    /// None yet.
    pub(super) fn new(context: &Arc<Context>) -> Arc<Pool> {
        let unused = Unused { pages: VecDeque::new(), bytes: 0, bytes_max: UNUSED_BYTES };
        Arc::new(Pool { context: Arc::clone(context), unused: Mutex::new(unused) })
    }

    /// A page of exactly so many bytes, with anything in it.
    pub(super) fn page(self: &Arc<Self>, bytes: usize) -> Result<PoolPage, DeviceError> {
        let unused = self.lock().take(bytes);
        let page = unused.map_or_else(|| self.context.pin(bytes), Ok)?;
        Ok(PoolPage { pool: Arc::clone(self), page: Some(page) })
    }

    /// From now on so many more bytes may lie unused.
    pub(super) fn expect(&self, bytes: usize) {
        self.lock().bytes_max += bytes;
    }

    /// So many fewer.
    pub(super) fn expect_no_more(&self, bytes: usize) {
        let mut unused = self.lock();
        unused.bytes_max -= bytes;
        let released = unused.release();
        // The driver is called without the lock.
        drop(unused);
        drop(released);
    }

    fn lock(&self) -> MutexGuard<'_, Unused> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unused {
    fn take(&mut self, bytes: usize) -> Option<Pinned> {
        let at = self.pages.iter().rposition(|page| page.bytes().len() == bytes)?;
        self.bytes -= bytes;
        self.pages.remove(at)
    }

    /// Those that are too many.
    fn release(&mut self) -> Vec<Pinned> {
        let mut released = Vec::new();
        while self.bytes > self.bytes_max
            && let Some(page) = self.pages.pop_front()
        {
            self.bytes -= page.bytes().len();
            released.push(page);
        }
        released
    }
}

impl PoolPage {
    /// What it holds.
    pub(super) fn bytes(&self) -> &[u8] {
        self.page.as_ref().map_or(&[], Pinned::bytes)
    }
    /// What it holds, to be written.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.page.as_mut().map_or(&mut [], Pinned::bytes_mut)
    }
}

impl AsRef<[u8]> for PoolPage {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Drop for PoolPage {
    fn drop(&mut self) {
        let Some(page) = self.page.take() else { return };
        let mut unused = self.pool.lock();
        unused.bytes += page.bytes().len();
        unused.pages.push_back(page);
        let released = unused.release();
        // The driver is called without the lock.
        drop(unused);
        drop(released);
    }
}
