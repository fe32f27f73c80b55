//! The fake driver, as this process's `libcuda`: what our driver crate opens by that name is what was opened here before.

#![allow(unsafe_code, reason = "a library is opened and called")]

mod compiled;

pub(crate) use compiled::library;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The driver's source.
pub(crate) const DRIVER: &str = "runtime/src/host/cuda/fake/driver.c";

/// The only driver of this process, for one test at a time. Dropped, it has no faults any more.
pub(crate) struct Fake {
    library: &'static libloading::Library,
    _alone: MutexGuard<'static, ()>,
}

const FAULTS: [(&str, &str); 11] = [
    ("DEVICES", "1"),
    ("CAPABILITY", "9.0"),
    ("MEMORY", "1073741824"),
    ("LOSE_AFTER", ""),
    ("STALL_AFTER", ""),
    ("FLUSH", ""),
    ("REFUSE_CUBIN", ""),
    ("REFUSE_PTX", ""),
    ("REFUSE_PINS", ""),
    ("REFUSE_RANGES", ""),
    ("SHARED", ""),
];

impl Fake {
    pub(crate) fn driver() -> Fake {
        static ALONE: Mutex<()> = Mutex::new(());
        static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let library = LIBRARY.get_or_init(|| {
            let folder = library("libcuda.so", &[DRIVER]);
            // SAFETY: our own library, without initialisers.
            unsafe { libloading::Library::new(folder.join("libcuda.so")) }.unwrap()
        });
        Fake { library, _alone: alone }
    }

    pub(crate) fn set(&self, name: &str, value: &str) {
        let [name, value] = [name, value].map(|text| CString::new(text).unwrap());
        // SAFETY: `shoal_fake_cuda_set` of driver.c.
        unsafe {
            let set = self
                .library
                .get::<unsafe extern "C" fn(*const c_char, *const c_char)>(b"shoal_fake_cuda_set");
            set.unwrap()(name.as_ptr(), value.as_ptr());
        }
    }

    /// Launches, bytes copied in, bytes copied out, and allocations of either memory, so far.
    pub(crate) fn counts(&self) -> [u64; 4] {
        let mut counts = [0; 4];
        // SAFETY: `shoal_fake_cuda_counts` of driver.c.
        unsafe {
            let count = self.library.get::<unsafe extern "C" fn(*mut u64)>(b"shoal_fake_cuda_counts");
            count.unwrap()(counts.as_mut_ptr());
        }
        counts
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        FAULTS.iter().for_each(|(name, value)| self.set(name, value));
    }
}
