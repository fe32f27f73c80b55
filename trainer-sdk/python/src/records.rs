//! RecordIO files for Python: chunks to be written, and records that were read. Files are opened and renamed in Python.

use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shoal_trainer_sdk::recordio::{Compressor, Error, Reader, Writer, WriterOptions};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Cuts records into chunks. What is to be written next is given back by each call, most of the time nothing.
#[pyclass(module = "shoal._core")]
pub(crate) struct RecordWriter {
    writer: Option<Writer<Chunks>>,
    chunks: Chunks,
}

/// Chunks that are whole and have not been given back.
#[derive(Clone, Debug, Default)]
struct Chunks(Arc<Mutex<Vec<u8>>>);

impl Chunks {
    fn take<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = PyBytes::new(py, &bytes);
        bytes.clear();
        taken
    }
}

impl io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[pymethods]
impl RecordWriter {
    #[new]
    fn new(compression: &str, chunk_bytes: u64, chunk_records: u32) -> PyResult<RecordWriter> {
        let compressor = match compression {
            "none" => Compressor::None,
            "snappy" => Compressor::Snappy,
            "gzip" => Compressor::Gzip,
            other => {
                return Err(PyValueError::new_err(format!(
                    "compression {other:?}: give none, snappy or gzip"
                )));
            }
        };
        let options = WriterOptions { compressor, chunk_bytes, chunk_records, ..WriterOptions::default() };
        let chunks = Chunks::default();
        Ok(RecordWriter { writer: Some(Writer::new(chunks.clone(), options)), chunks })
    }

    /// Adds a record.
    fn write<'py>(&mut self, py: Python<'py>, record: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.writer.as_mut().ok_or_else(finished)?.write(record).map_err(said)?;
        Ok(self.chunks.take(py))
    }

    /// Closes the last chunk.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.writer.take().ok_or_else(finished)?.finish().map_err(said)?;
        Ok(self.chunks.take(py))
    }
}

fn finished() -> PyErr {
    PyValueError::new_err("the file is finished")
}

/// Reads chunks of a file.
#[pyclass(frozen, module = "shoal._core")]
pub(crate) struct RecordReader(Reader);

#[pymethods]
impl RecordReader {
    #[new]
    fn open(path: PathBuf) -> PyResult<RecordReader> {
        Reader::open(path).map(RecordReader).map_err(said)
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.0.index().records()).unwrap_or(usize::MAX)
    }

    /// How many chunks there are.
    #[getter]
    fn chunks(&self) -> usize {
        self.0.index().chunks.len()
    }

    /// The records of a chunk, checked and copied.
    fn chunk<'py>(&self, py: Python<'py>, chunk: usize) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let chunk = self.0.chunk(chunk).map_err(said)?;
        Ok(chunk.iter().map(|record| PyBytes::new(py, record)).collect())
    }

    /// In which chunk a record is, and where there.
    fn locate(&self, record: u64) -> PyResult<(usize, usize)> {
        self.0.index().locate(record).ok_or_else(|| PyIndexError::new_err("no such record"))
    }
}

fn said(error: Error) -> PyErr {
    match error {
        Error::Io { .. } => PyOSError::new_err(error.to_string()),
        other => PyValueError::new_err(other.to_string()),
    }
}
