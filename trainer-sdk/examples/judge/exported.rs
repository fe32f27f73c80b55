//! Judges an exported model on held-out records. It must never train, nor tell a mean of means: sums are added up over
//! all records and divided once.
//!
//! Included by path: `#[path = "../judge/exported.rs"] mod exported;`.

use anyhow::Context;
use safetensors::{Dtype, SafeTensors};
use shoal_recordio::Reader;
use std::collections::BTreeMap;
use std::path::Path;

/// Parameters of an exported model by name.
#[derive(Debug)]
pub(crate) struct Exported(BTreeMap<String, Vec<f32>>);

/// A name, a sum over records, and the weight to divide it by.
pub(crate) type Told = (&'static str, f64, f64);

impl Exported {
    /// Reads what `shoal run` or `shoal export` wrote.
    ///
    /// # Errors
    /// A file that cannot be read, or is no safetensors.
    pub(crate) fn open(file: &Path) -> anyhow::Result<Exported> {
        let cannot = || format!("cannot read {}", file.display());
        let bytes = std::fs::read(file).with_context(cannot)?;
        let tensors = SafeTensors::deserialize(&bytes).with_context(cannot)?;
        let floats = tensors.iter().filter(|(_, tensor)| tensor.dtype() == Dtype::F32);
        let values = |bytes: &[u8]| bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect();
        Ok(Exported(floats.map(|(name, tensor)| (name.to_owned(), values(tensor.data()))).collect()))
    }

    /// A parameter's values.
    ///
    /// # Errors
    /// No such parameter.
    pub(crate) fn slice(&self, name: &str) -> anyhow::Result<&[f32]> {
        Ok(self.0.get(name).with_context(|| format!("the model has no parameter {name:?}"))?)
    }

    /// Prints the mean of everything that `tell` counts over all records of a file, chunk by chunk, as one JSON object.
    ///
    /// # Errors
    /// A file that cannot be read, and whatever `tell` says.
    #[expect(clippy::print_stdout, reason = "what it finds is what it is asked for")]
    pub(crate) fn judge(
        &self,
        data: &Path,
        tell: impl Fn(&Exported, &[&[u8]]) -> anyhow::Result<Vec<Told>>,
    ) -> anyhow::Result<()> {
        let reader = Reader::open(data)?;
        let mut totals: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for index in 0..reader.index().chunks.len() {
            let chunk = reader.chunk(index)?;
            let records: Vec<&[u8]> = (0..chunk.len()).map(|record| chunk.record(record)).collect();
            for (name, sum, weight) in tell(self, &records)? {
                let total = totals.entry(name).or_default();
                *total = (total.0 + sum, total.1 + weight);
            }
        }
        let means: Vec<String> =
            totals.iter().map(|(name, (sum, weight))| format!("\"{name}\":{}", sum / weight)).collect();
        println!("{{{}}}", means.join(","));
        Ok(())
    }
}
