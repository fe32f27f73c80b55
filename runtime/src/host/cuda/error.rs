//! What can go wrong with a device, by what is to be done next.

/// Why there is no device, or none any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no driver, or no such device.
    #[error(
        "no CUDA device {ordinal}: {what}; install the NVIDIA driver, or choose with --device one that is there, or cpu"
    )]
    Absent {
        /// Which was wanted.
        ordinal: u32,
        /// What was found instead.
        what: String,
    },
    /// The device or its driver cannot run our code.
    #[error("CUDA device {ordinal} ({name}) cannot be used: {what}; choose another with --device, or cpu")]
    Unsuitable {
        /// Which.
        ordinal: u32,
        /// What the driver calls it.
        name: String,
        /// Why.
        what: String,
    },
    /// There is not as much memory.
    #[error("{what} of {bytes} bytes cannot be had: {free} bytes of the device's memory are free")]
    Memory {
        /// What was wanted.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// How much of the device's memory is free, if it says so.
        free: usize,
    },
    /// Memory of one process cannot be used by another.
    #[error("device memory cannot be shared with another process: {call} says {code}")]
    Unshared {
        /// The driver's function.
        call: &'static str,
        /// The driver's name of the error.
        code: String,
    },
    /// Another process says that its memory is longer than the driver does.
    #[error("device memory of another process is not used: it is said to have {said} bytes, and has {bytes}")]
    Overstated {
        /// Bytes, by the other process.
        said: usize,
        /// Bytes, by the driver.
        bytes: usize,
    },
    /// The device or its driver has failed, and all that it held is gone.
    #[error("the device is lost: {call} says {code}; its blocks begin anew elsewhere")]
    Lost {
        /// The driver's function.
        call: &'static str,
        /// The driver's name of the error.
        code: String,
    },
    /// The device has not finished within the time that nothing takes.
    #[error(
        "the device has not finished an update for {seconds} s: it is given up, and its blocks begin anew elsewhere"
    )]
    Stalled {
        /// How long.
        seconds: u64,
    },
}
