//! What a program says of a job before that begins, written where `SHOAL_DESCRIBE` asks for it. It reaches no master.

use crate::model::Model;
use anyhow::{Context, ensure};
use ndarray::ArrayD;
use safetensors::tensor::{Dtype, TensorView};
use shoal_runtime::host::files;
use shoal_runtime::wire::description::{FILE, INITIAL, ProgramDescription, VARIABLE};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a program says of a job before that begins: see [`Model::describe`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// How many records it trains on, where it knows a record by its number and needs no files; none where `--data` says.
    pub records: Option<u64>,
    /// How many it is evaluated on, likewise.
    pub eval_records: Option<u64>,
    /// What parameters begin at, by their names: in the shapes that are declared, each value finite. Those that are not here begin as
    /// they are declared to.
    pub initial: BTreeMap<String, ArrayD<f32>>,
}

/// The folder that the program is asked to describe itself in, if it is.
pub(crate) fn asked() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Asks the model, and writes what it says into the folder; nothing where it has nothing to say.
///
/// # Errors
/// The model's own, values that no parameter can begin at, a seed that is none, a folder that cannot be written.
pub(crate) fn describe(model: &mut impl Model, folder: &Path) -> anyhow::Result<()> {
    let seed = std::env::var("SHOAL_SEED").unwrap_or_else(|_| "0".to_owned());
    let seed = seed.parse().with_context(|| format!("SHOAL_SEED={seed} is no seed"))?;
    let said = model.describe(seed).context("the describe function failed")?;
    if said == Description::default() {
        return Ok(());
    }
    let Description { records, eval_records, initial } = said;
    for (name, number) in [("records", records), ("eval_records", eval_records)] {
        ensure!(number != Some(0), "the describe function says that {name} are none: leave them out");
    }
    if !initial.is_empty() {
        files::write(&folder.join(INITIAL), &tensors(initial)?)?;
    }
    // Last: what is there without it counts for nothing.
    let said = ProgramDescription { records, eval_records, ..ProgramDescription::default() };
    files::write(&folder.join(FILE), said.to_json().as_bytes())?;
    Ok(())
}

fn tensors(initial: BTreeMap<String, ArrayD<f32>>) -> anyhow::Result<Vec<u8>> {
    let mut stretches = Vec::new();
    for (name, values) in initial {
        let shape = values.shape().to_vec();
        let values: Vec<f32> = values.iter().copied().collect();
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            anyhow::bail!("parameter {name:?} would begin at {} (element {at})", values[at]);
        }
        stretches.push((name, shape, values));
    }
    let views = stretches.iter().map(|(name, shape, values)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytemuck::cast_slice::<f32, u8>(values));
        Ok((name.as_str(), view?))
    });
    let views: Vec<_> = views.collect::<anyhow::Result<_>>()?;
    Ok(safetensors::serialize(views, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Declaration, Gradient, Job, Parameters};
    use ndarray::{Array2, ArrayD};

    struct Says(Description);

    impl Model for Says {
        fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
            unreachable!("there is no job yet")
        }
        fn step(&mut self, _: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> {
            unreachable!("there is no job yet")
        }
        fn describe(&mut self, _: u64) -> anyhow::Result<Description> {
            Ok(self.0.clone())
        }
    }

    fn written(description: Description) -> (tempfile::TempDir, anyhow::Result<()>) {
        let folder = tempfile::tempdir().unwrap();
        let ended = describe(&mut Says(description), folder.path());
        (folder, ended)
    }

    fn beginning(values: ArrayD<f32>) -> Description {
        Description { initial: [("w".to_owned(), values)].into(), ..Description::default() }
    }

    #[test]
    fn initial_values_are_written_row_by_row_however_they_lie() {
        let turned =
            Array2::from_shape_fn((2, 3), |(row, column)| (10 * row + column) as f32).reversed_axes();
        let (folder, ended) = written(beginning(turned.into_dyn()));
        ended.unwrap();
        let bytes = std::fs::read(folder.path().join(INITIAL)).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let tensor = file.tensor("w").unwrap();
        let values: Vec<f32> =
            tensor.data().as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        assert_eq!((tensor.shape(), values), (&[3, 2][..], vec![0.0, 10.0, 1.0, 11.0, 2.0, 12.0]));
        let said = std::fs::read(folder.path().join(FILE)).unwrap();
        assert_eq!(ProgramDescription::parse(&said), Ok(ProgramDescription::default()));
    }

    #[test]
    fn who_has_nothing_to_say_writes_nothing_and_who_knows_records_only_their_numbers() {
        let (folder, ended) = written(Description::default());
        ended.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let (folder, ended) = written(Description { records: Some(9), ..Description::default() });
        ended.unwrap();
        assert_eq!(
            std::fs::read_to_string(folder.path().join(FILE)).unwrap(),
            "{\"records\":9,\"version\":1}\n"
        );
        assert!(!folder.path().join(INITIAL).exists());
    }

    #[test]
    fn what_no_job_could_begin_with_is_refused_before_anything_is_written() {
        for (said, words) in [
            (
                beginning(ndarray::arr1(&[1.0, f32::NAN]).into_dyn()),
                "parameter \"w\" would begin at NaN (element 1)",
            ),
            (Description { eval_records: Some(0), ..Description::default() }, "eval_records are none"),
        ] {
            let (folder, ended) = written(said);
            assert!(ended.unwrap_err().to_string().contains(words), "{words}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
