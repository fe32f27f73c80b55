//! Memory that is lent to array libraries, by the array interface of NumPy (version 3): the address of values that a Python object
//! owns, so that they are there as long as an array over them is.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use shoal_trainer_sdk::{GradientSums, KeptRecord, Parameters};
use std::sync::{Arc, Mutex, PoisonError};

/// A stretch of memory of Shoal's, one-dimensional.
#[pyclass(frozen, module = "shoal._core")]
pub(crate) struct Memory {
    #[expect(dead_code, reason = "owned for the memory alone")]
    owner: Owner,
    address: usize,
    length: usize,
    /// Of the array interface.
    kind: &'static str,
    is_read_only: bool,
}

/// What has the memory.
#[expect(dead_code, reason = "owned for the memory alone")]
enum Owner {
    Parameters(Parameters),
    Record(KeptRecord),
    Bytes(Vec<u8>),
    Sums(Arc<Mutex<GradientSums>>),
}

/// A gradient's sums while Python adds to them.
pub(crate) struct LentSums(Arc<Mutex<GradientSums>>);

impl LentSums {
    /// The sums as memory, and what has them again afterwards.
    pub(crate) fn lend(mut sums: GradientSums) -> (Memory, LentSums) {
        let values = sums.all_mut();
        let (address, length) = (values.as_mut_ptr().expose_provenance(), values.len());
        let sums = Arc::new(Mutex::new(sums));
        let owner = Owner::Sums(sums.clone());
        (Memory { owner, address, length, kind: "<f4", is_read_only: false }, LentSums(sums))
    }

    /// The sums themselves, or a copy if somebody keeps an array over them.
    pub(crate) fn back(self) -> GradientSums {
        let copy =
            |kept: Arc<Mutex<GradientSums>>| kept.lock().unwrap_or_else(PoisonError::into_inner).copy();
        Arc::try_unwrap(self.0)
            .map_or_else(copy, |sums| sums.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Memory {
    /// All dense parameters, to be read.
    pub(crate) fn of_parameters(parameters: Parameters) -> Memory {
        let (address, length) = (parameters.all().as_ptr().addr(), parameters.all().len());
        let owner = Owner::Parameters(parameters);
        Memory { owner, address, length, kind: "<f4", is_read_only: true }
    }

    /// A record's bytes, to be read.
    pub(crate) fn of_record(record: KeptRecord) -> Memory {
        let (address, length) = (record.as_ptr().addr(), record.len());
        Memory { owner: Owner::Record(record), address, length, kind: "|u1", is_read_only: true }
    }

    /// Bytes of the caller's.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Memory {
        let (address, length) = (bytes.as_ptr().addr(), bytes.len());
        Memory { owner: Owner::Bytes(bytes), address, length, kind: "|u1", is_read_only: false }
    }
}

#[pymethods]
impl Memory {
    /// What NumPy asks for.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", PyTuple::new(py, [self.length])?)?;
        interface.set_item("typestr", self.kind)?;
        interface.set_item("data", (self.address, self.is_read_only))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.length
    }
}
