//! The CUDA driver's objects as things that are safe to hold: a context, memory on both sides, a kernel. Nothing here knows of
//! blocks or gradients, or of what is done with memory: that is a role's.

mod blocking;
mod context;
mod error;
mod kernel;
mod map_lock;
mod memory;
mod reduction;
mod shared;

pub use context::{Context, lost, name_of};
pub use error::DeviceError;
pub use kernel::{Image, Kernel};
pub use map_lock::{MapLock, MapWatch};
pub use memory::{Memory, Pinned};
pub use reduction::{Reduction, Slice};
pub use shared::{AREAS_MAX, HANDLE_BYTES, Mapped, SHARED_BYTES, is_this_machine, machine};
