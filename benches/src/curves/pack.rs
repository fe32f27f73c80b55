//! A set's files as RecordIO: packed into a folder of the bench's own, and cut to the records that are trained on. It must never
//! change the user's files.

use super::arguments::Plan;
use super::programs::Programs;
use super::sets::{Form, Part, Set};
use anyhow::{Context, bail, ensure};
use shoal_recordio::{Reader, Writer, WriterOptions};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A set, ready to be trained on.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Has the files.
    _folder: TempDir,
    pub(crate) train: PathBuf,
    pub(crate) test: PathBuf,
    pub(crate) records: u64,
    pub(crate) held_out: u64,
}

/// Packs a set.
pub(crate) fn packed(plan: &Plan, programs: &Programs) -> anyhow::Result<Packed> {
    let folder = programs.scratch()?;
    let part = |part: Part, name: &str, records_max: u64| -> anyhow::Result<(PathBuf, u64)> {
        let (all, cut) = (folder.path().join(format!("all-{name}")), folder.path().join(name));
        match form(plan, part)? {
            Form::Idx { images, labels } => pack_idx(programs, &images, &labels, &all)?,
            Form::Binary(files) => pack_binary(&files, &all)?,
        }
        let records = first(&all, &cut, records_max).with_context(|| format!("cutting {}", all.display()))?;
        ensure!(records > 0, "{}: has no records", plan.folder.display());
        std::fs::remove_file(all)?;
        Ok((cut, records))
    };
    let (train, records) = part(Part::Train, "train.recordio", plan.records)?;
    let (test, held_out) = part(Part::HeldOut, "test.recordio", u64::MAX)?;
    Ok(Packed { _folder: folder, train, test, records, held_out })
}

/// The form in which a part is there.
fn form(plan: &Plan, part: Part) -> anyhow::Result<Form> {
    let forms = plan.set.forms(&plan.folder, part);
    let lacks = |form: &Form| form.files().into_iter().find(|file| !file.exists()).map(Path::to_owned);
    if let Some(form) = forms.iter().find(|form| lacks(form).is_none()) {
        return Ok(form.clone());
    }
    let missing = forms.first().and_then(lacks).unwrap_or_default();
    let or = if forms.len() > 1 { " (nor with .gz)" } else { "" };
    bail!("{}: {} is not there{or}: {}", plan.set, missing.display(), plan.set.way_out(&plan.folder))
}

fn pack_idx(programs: &Programs, images: &Path, labels: &Path, output: &Path) -> anyhow::Result<()> {
    let mut shoal = programs.shoal();
    shoal.args(["recordio", "pack", "idx", "--images"]).arg(images).arg("--labels").arg(labels);
    let done = shoal.arg("--output").arg(output).output().context("cannot start shoal")?;
    ensure!(done.status.success(), "packing failed: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Records of one length, file after file.
fn pack_binary(files: &[PathBuf], output: &Path) -> anyhow::Result<()> {
    let mut writer = Writer::new(BufWriter::new(File::create(output)?), WriterOptions::default());
    let mut record = vec![0; Set::CIFAR_RECORD];
    for file in files {
        let bytes = std::fs::metadata(file)?.len();
        ensure!(
            bytes % Set::CIFAR_RECORD as u64 == 0,
            "{}: {bytes} bytes are no whole number of records of {}: is it the binary version?",
            file.display(),
            Set::CIFAR_RECORD
        );
        let mut source = BufReader::new(File::open(file)?);
        for _ in 0..bytes / Set::CIFAR_RECORD as u64 {
            source.read_exact(&mut record).with_context(|| file.display().to_string())?;
            writer.write(&record)?;
        }
    }
    writer.finish()?;
    Ok(())
}

/// Copies at most so many records from the beginning, and returns how many.
fn first(from: &Path, to: &Path, records_max: u64) -> anyhow::Result<u64> {
    let reader = Reader::open(from)?;
    let mut writer = Writer::new(BufWriter::new(File::create(to)?), WriterOptions::default());
    let mut copied = 0;
    for index in 0..reader.index().chunks.len() {
        let chunk = reader.chunk(index)?;
        for record in 0..chunk.len() {
            if copied == records_max {
                break;
            }
            writer.write(chunk.record(record))?;
            copied += 1;
        }
    }
    writer.finish()?;
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::super::changes::Changes;
    use super::*;

    fn plan(set: Set, folder: &Path) -> Plan {
        let changes = Changes::evenly(4);
        let folder = folder.to_owned();
        Plan { set, folder, records: 3, epochs: 1, seeds: 1, modes: Vec::new(), changes, seconds_max: 1 }
    }

    #[test]
    fn binary_files_are_packed_one_after_another_and_cut() {
        let folder = tempfile::tempdir().unwrap();
        let here = |name: &str| folder.path().join(name);
        std::fs::write(here("a"), [vec![1; Set::CIFAR_RECORD], vec![2; Set::CIFAR_RECORD]].concat()).unwrap();
        std::fs::write(here("b"), vec![3; 2 * Set::CIFAR_RECORD]).unwrap();
        pack_binary(&[here("a"), here("b")], &here("all")).unwrap();
        assert_eq!(first(&here("all"), &here("cut"), 3).unwrap(), 3);
        let chunk = Reader::open(here("cut")).unwrap().chunk(0).unwrap();
        let firsts: Vec<u8> = (0..chunk.len()).map(|record| chunk.record(record)[0]).collect();
        assert_eq!(firsts, [1, 2, 3]);
        std::fs::write(here("b"), vec![3; 100]).unwrap();
        let error = pack_binary(&[here("b")], &here("all")).unwrap_err().to_string();
        assert!(error.contains("binary version"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = form(&plan(Set::FashionMnist, folder.path()), Part::HeldOut).unwrap_err().to_string();
        assert!(error.contains("t10k-images-idx3-ubyte is not there (nor with .gz)"), "{error}");
        assert!(error.contains("fetch.py fashion-mnist"), "{error}");
        let error = form(&plan(Set::Cifar10, folder.path()), Part::Train).unwrap_err().to_string();
        assert!(error.contains("data_batch_1.bin is not there: give the folder"), "{error}");
    }

    #[test]
    fn gzipped_files_do_as_well() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let form = form(&plan(Set::Mnist, folder.path()), Part::Train).unwrap();
        assert!(matches!(form, Form::Idx { images, .. } if images.ends_with("train-images-idx3-ubyte.gz")));
    }
}
