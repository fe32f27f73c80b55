//! Pinned pages that are used again: making one costs more than a copy through it.
//!
//! As many bytes are kept unused as blocks have parameters on the device: each of them fills one page at a time, and finds it
//! here at its next update.

use super::cuda::{Context, Pinned};
use super::error::DeviceError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The pages of one device.
#[derive(Debug)]
pub(super) struct Pool {
    context: Arc<Context>,
    unused: Mutex<Unused>,
}

#[derive(Debug, Default)]
struct Unused {
    /// By their length.
    pages: BTreeMap<usize, Vec<Pinned>>,
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
        Arc::new(Pool { context: Arc::clone(context), unused: Mutex::default() })
    }

    /// A page of exactly so many bytes, with anything in it.
    pub(super) fn page(self: &Arc<Self>, bytes: usize) -> Result<PoolPage, DeviceError> {
        let unused = {
            let mut unused = self.lock();
            let page = unused.pages.get_mut(&bytes).and_then(Vec::pop);
            unused.bytes -= page.as_ref().map_or(0, |_| bytes);
            page
        };
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
        let mut released = Vec::new();
        while unused.bytes > unused.bytes_max
            && let Some(mut pages) = unused.pages.last_entry()
        {
            if let Some(page) = pages.get_mut().pop() {
                unused.bytes -= page.bytes().len();
                released.push(page);
            } else {
                pages.remove();
            }
        }
        // The driver is called without the lock.
        drop(unused);
    }

    fn lock(&self) -> MutexGuard<'_, Unused> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
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
        let bytes = page.bytes().len();
        if unused.bytes + bytes <= unused.bytes_max {
            unused.bytes += bytes;
            unused.pages.entry(bytes).or_default().push(page);
            return;
        }
        // The driver is called without the lock.
        drop(unused);
        drop(page);
    }
}
