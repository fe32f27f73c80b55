//! An allocator that counts what each thread holds, so that tests beside one another count their own memory alone. What a
//! thread frees of another's counts where it is freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Neither allocates when it is first used, nor has to be dropped: an allocator may use both.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn add(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: every call is passed on to the system's allocator unchanged; the counters are beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Layout) -> *mut u8 {
        add(block.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Layout) {
        add(-(block.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, block) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` returns, and the bytes that this thread held at its peak beyond those it held before.
pub(crate) fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let returned = work();
    (returned, PEAK.get().abs_diff(before))
}

#[test]
fn a_peak_is_this_threads_and_outlives_what_is_freed() {
    let (sum, bytes) = peak_bytes(|| {
        let other = std::thread::spawn(|| vec![1u8; 1 << 20].len());
        drop(vec![1u8; 1 << 16]);
        other.join().map_or(0, |length| length + 1)
    });
    assert_eq!(sum, (1 << 20) + 1);
    assert!((1 << 16..1 << 18).contains(&bytes), "{bytes} bytes");
}
