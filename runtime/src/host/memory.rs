//! Telling the allocator what sizes come and go here. It must never hold memory itself.

use std::hint::black_box;

/// The largest block up to which glibc learns from what is freed (mallopt(3), `M_MMAP_THRESHOLD`), less its own words.
const LEARNT_BYTES: usize = (32 << 20) - (64 << 10);

/// Messages of a megabyte come and go all the time. glibc at first maps each anew and gives it back at once, so that every page
/// of every message is a fault and zeroed; a block that was mapped and freed teaches it to keep as large ones, and up to twice
/// as much of what is free. So this frees one that nobody has touched. Other allocators keep what they like, and lose nothing.
///
/// To be called once, when a role begins.
pub fn keep_large_buffers() {
    drop(black_box(Vec::<u8>::with_capacity(LEARNT_BYTES)));
}
