//! `shoal._core`: a trainer as Python has it. The thread that calls `train` waits for microbatches with the GIL released and
//! computes them with it; the trainer's loops are on a thread that never takes it, not even to log.

mod logs;
mod memory;
mod program;
mod records;
mod views;

use pyo3::prelude::*;

/// The compiled half of the package `shoal`; what programs use is documented there.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::logs::log_to_logging;
    #[pymodule_export]
    use super::memory::Memory;
    #[pymodule_export]
    use super::records::{RecordReader, RecordWriter};
    #[pymodule_export]
    use super::views::{Batch, Job, Parameters, Record};

    #[pymodule_export]
    use super::program::{log_to_stderr, train};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
