//! What a program predicts, written part by part: one RecordIO file for each microbatch, named by its place in the order of
//! records, before the microbatch counts as done.
//!
//! A part has the same name and the same content whoever computes it and however often, so that each is there once in the
//! end; other content under its name is a fault, never overwritten. A place is one job's: parts of two are never mixed.

use crate::error::TrainError;
use bytes::Bytes;
use shoal_recordio::{Writer, WriterOptions};
use shoal_runtime::cluster::{JobSettings, Microbatch};
use shoal_runtime::host::storage::{Storage, StorageError};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// Between two attempts to write a part.
const PAUSE: Duration = Duration::from_millis(500);

/// Names whose prediction is in a place: written before the first part is.
const CLAIM: &str = ".prediction";
/// A claim is no longer than this, in bytes: a job's name.
const CLAIM_BYTES_MAX: u64 = 1024;

/// Where outputs go.
#[derive(Debug)]
pub(crate) struct Outputs {
    storage: Storage,
    /// The job's name.
    job: Bytes,
    is_claimed: AtomicBool,
    patience: Duration,
    /// Time in which the master tells a trainer of new exclusions.
    news: Duration,
}

/// Whose a place is.
enum Owner {
    Nobody,
    This,
    Other(String),
}

impl Outputs {
    /// The outputs of a job; `None`: it does not predict. A storage that fails is tried again for `patience`.
    ///
    /// # Errors
    /// A place that cannot be one, or in which another prediction is.
    pub(crate) async fn open(job: &JobSettings, patience: Duration) -> Result<Option<Outputs>, TrainError> {
        let place = job.evaluated.as_ref().and_then(|evaluated| evaluated.outputs.as_deref());
        let Some(place) = place else { return Ok(None) };
        let outputs = Outputs {
            storage: Storage::open(place).await.map_err(fault)?,
            job: Bytes::copy_from_slice(job.job.0.as_bytes()),
            is_claimed: AtomicBool::new(false),
            patience,
            news: Duration::from_millis(job.lease_ttl_millis),
        };
        outputs.patiently(|| outputs.check_place()).await?;
        Ok(Some(outputs))
    }

    /// Refuses a place that is another's, or has parts of nobody knows whom. Nothing is written before there is something.
    async fn check_place(&self) -> Result<(), Failed> {
        if matches!(self.owner().await?, Owner::This) {
            return Ok(());
        }
        let found = self.storage.list("").await?.into_iter().find(|found| is_part(&found.name));
        match (found, self.owner().await?) {
            // Parts of this job's came while nobody looked.
            (_, Owner::This) | (None, Owner::Nobody) => Ok(()),
            (_, Owner::Other(job)) => Err(self.taken(&format!("it has the prediction of the job {job:?}"))),
            (Some(part), Owner::Nobody) => {
                Err(self.taken(&format!("it has {} of an earlier prediction", part.name)))
            }
        }
    }

    async fn owner(&self) -> Result<Owner, StorageError> {
        match self.storage.read(CLAIM, CLAIM_BYTES_MAX).await {
            Ok(job) if job == self.job => Ok(Owner::This),
            Ok(job) => Ok(Owner::Other(String::from_utf8_lossy(&job).into_owned())),
            Err(StorageError::Missing { .. }) => Ok(Owner::Nobody),
            Err(error) => Err(error),
        }
    }

    /// Makes the place this job's.
    async fn claim(&self) -> Result<(), Failed> {
        if self.is_claimed.load(Relaxed) {
            return Ok(());
        }
        match self.storage.put(CLAIM, self.job.clone()).await {
            Ok(()) => {
                self.is_claimed.store(true, Relaxed);
                Ok(())
            }
            Err(StorageError::Taken { .. }) => {
                Err(self.taken("another job began to predict into it meanwhile"))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn taken(&self, why: &str) -> Failed {
        let place = self.storage.place();
        Failed::ForGood(format!("{place}: {why}: name an empty place, or remove what is there, {CLAIM} too"))
    }

    /// Writes a part that was computed under the exclusions of number `list`; durable on return. `newest` returns the number of the newest
    /// known exclusions. A part of an older list is not written: pservers refuse its sums, and it is computed again.
    ///
    /// # Errors
    /// The place fails for longer than `patience`, is another job's, or has other content for the part under the same exclusions.
    pub(crate) async fn write(
        &self,
        part: u64,
        content: Bytes,
        list: u64,
        newest: impl Fn() -> u64,
    ) -> Result<(), TrainError> {
        let (name, content, newest) = (&name(part), &content, &newest);
        self.patiently(|| async move {
            if newest() > list {
                return Ok(());
            }
            self.claim().await?;
            match self.storage.put(name, content.clone()).await {
                // Its writer may know of exclusions that this trainer has yet to receive.
                Err(StorageError::Taken { .. }) if self.hears_of_newer(list, newest).await => Ok(()),
                Err(StorageError::Taken { .. }) if list > 0 => {
                    self.storage.delete(name).await?;
                    Ok(self.storage.put(name, content.clone()).await?)
                }
                Err(taken @ StorageError::Taken { .. }) => {
                    let way_out =
                        "`predict` is no function of its arguments alone, or somebody else has written it";
                    Err(Failed::ForGood(format!("{taken}; {way_out}")))
                }
                put => Ok(put?),
            }
        })
        .await
    }

    /// Waits for newer exclusions than `list`. False if there are none within a time to live.
    async fn hears_of_newer(&self, list: u64, newest: &impl Fn() -> u64) -> bool {
        let until = Instant::now() + self.news;
        while newest() <= list && Instant::now() < until {
            tokio::time::sleep(self.news / 16).await;
        }
        newest() > list
    }

    /// Tries until it is done, for so long as a storage that fails is worth it.
    async fn patiently<F: Future<Output = Result<(), Failed>>>(
        &self,
        attempt: impl Fn() -> F,
    ) -> Result<(), TrainError> {
        let since = Instant::now();
        loop {
            match attempt().await {
                Ok(()) => return Ok(()),
                Err(Failed::Storage(_)) if since.elapsed() < self.patience => tokio::time::sleep(PAUSE).await,
                Err(failed) => return Err(fault(failed)),
            }
        }
    }
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{0}")]
    ForGood(String),
}

fn fault(why: impl std::fmt::Display) -> TrainError {
    TrainError::Settings(format!("--predict: {why}"))
}

/// Whether an object of that name is, or was, a part.
fn is_part(name: &str) -> bool {
    name.starts_with("part-") && name.ends_with(".recordio")
}

/// The name of a part: those of a job are in the order of its records.
fn name(part: u64) -> String {
    format!("part-{part:010}.recordio")
}

/// One output for each record of a microbatch, in its order: an empty one for a record that was left out.
pub(crate) fn encode(
    microbatch: &Microbatch,
    predicted: &[u64],
    outputs: &[Vec<u8>],
) -> Result<Bytes, shoal_recordio::Error> {
    let mut left = predicted.iter().zip(outputs).peekable();
    let mut writer = Writer::new(Vec::new(), WriterOptions::default());
    for slice in &microbatch.slices {
        let first = slice.chunk_first_record + u64::from(slice.first_position);
        for record in first..first + u64::from(slice.records) {
            let output = left.next_if(|(predicted, _)| **predicted == record);
            writer.write(output.map_or(&[][..], |(_, output)| output))?;
        }
    }
    writer.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_recordio::{Limits, decode_chunk};
    use shoal_runtime::cluster::{Evaluated, JobId, Mode, Period, Precision, Slice};
    use std::path::Path;

    fn slice(first_record: u64, first_position: u32, records: u32) -> Slice {
        Slice {
            chunk: 0,
            file: String::from("f"),
            chunk_offset: 0,
            chunk_bytes: 0,
            chunk_records: 9,
            chunk_checksum: 0,
            chunk_first_record: first_record,
            first_position,
            records,
        }
    }

    #[test]
    fn a_part_has_one_output_for_each_record_and_an_empty_one_for_what_was_left_out() {
        let microbatch = Microbatch { index: 3, slices: vec![slice(10, 7, 2), slice(19, 0, 3)] };
        let outputs = [b"a".to_vec(), b"b".to_vec(), b"".to_vec(), b"d".to_vec()];
        let part = encode(&microbatch, &[17, 18, 20, 21], &outputs).unwrap();
        let chunk = decode_chunk(Path::new("part"), &part[..], 0, 0, &Limits::default()).unwrap();
        let records: Vec<&[u8]> = (0..chunk.len()).map(|at| chunk.record(at)).collect();
        assert_eq!(records, [&b"a"[..], b"b", b"", b"", b"d"]);
    }

    #[test]
    fn parts_are_in_the_order_of_their_names() {
        let names: Vec<String> = [0, 9, 10, 100, 1_000_000_000].map(name).to_vec();
        assert!(names.is_sorted());
    }

    async fn open(folder: &Path, job: &str) -> Result<Outputs, TrainError> {
        let outputs = Some(folder.display().to_string());
        let evaluated = Some(Evaluated { records: 10, every: Period::Epochs(1), outputs });
        let settings = JobSettings {
            job: JobId(job.to_owned()),
            seed: 1,
            epochs: 0,
            microbatch_records: 2,
            microbatches_per_step: 2,
            shuffle_run: 1,
            records: 0,
            manifest_fingerprint: [0; 32],
            lease_ttl_millis: 1000,
            mode: Mode::SYNC,
            gradients: Precision::F32,
            warm_start: None,
            evaluated,
        };
        Outputs::open(&settings, Duration::ZERO).await.map(Option::unwrap)
    }

    #[tokio::test]
    async fn a_part_is_written_once_however_often_it_comes_and_another_in_its_place_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = open(folder.path(), "a").await.unwrap();
        for _ in 0..2 {
            outputs.write(4, Bytes::from_static(b"same"), 0, || 0).await.unwrap();
        }
        let other = outputs.write(4, Bytes::from_static(b"other"), 0, || 0).await.unwrap_err();
        assert!(other.to_string().contains("function of its arguments"), "{other}");
        assert_eq!(&outputs.storage.read(&name(4), 100).await.unwrap()[..], b"same");
        outputs.write(4, Bytes::from_static(b"other"), 1, || 1).await.unwrap();
        assert_eq!(&outputs.storage.read(&name(4), 100).await.unwrap()[..], b"other");
    }

    /// One trainer has computed a part before a record was left out, and another since.
    #[tokio::test]
    async fn a_part_of_fewer_exclusions_never_takes_the_place_of_one_of_more() {
        let folder = tempfile::tempdir().unwrap();
        let [early, late] =
            [open(folder.path(), "a").await.unwrap(), open(folder.path(), "a").await.unwrap()];
        late.write(4, Bytes::from_static(b"new"), 1, || 1).await.unwrap();
        // It knows of the exclusion by now.
        early.write(4, Bytes::from_static(b"old"), 0, || 1).await.unwrap();
        // It hears of it while it wonders.
        let asked = std::cell::Cell::new(0);
        let newest = || {
            asked.set(asked.get() + 1);
            u64::from(asked.get() > 3)
        };
        early.write(4, Bytes::from_static(b"old"), 0, newest).await.unwrap();
        assert_eq!(&early.storage.read(&name(4), 100).await.unwrap()[..], b"new");
    }

    #[tokio::test]
    async fn a_place_is_one_jobs_from_its_first_part_on_and_that_job_may_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let [first, beside, other] = [
            open(folder.path(), "a").await.unwrap(),
            open(folder.path(), "a").await.unwrap(),
            open(folder.path(), "b").await.unwrap(),
        ];
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "nothing is written before there is something"
        );
        first.write(0, Bytes::from_static(b"0"), 0, || 0).await.unwrap();
        beside.write(1, Bytes::from_static(b"1"), 0, || 0).await.unwrap();
        let late = other.write(2, Bytes::from_static(b"2"), 0, || 0).await.unwrap_err().to_string();
        assert!(late.contains("another job") && late.contains("empty place"), "{late}");
        assert!(!folder.path().join(name(2)).exists(), "nothing of it is among the others'");
        let again = open(folder.path(), "b").await.unwrap_err().to_string();
        assert!(again.contains("\"a\"") && again.contains("empty place"), "{again}");
        open(folder.path(), "a").await.unwrap();
    }

    #[tokio::test]
    async fn parts_of_nobody_knows_whom_are_refused_and_other_files_are_nobodys_business() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("README"), "about").unwrap();
        open(folder.path(), "a").await.unwrap();
        std::fs::write(folder.path().join("part-0000000007.recordio"), "").unwrap();
        let refused = open(folder.path(), "a").await.unwrap_err().to_string();
        assert!(refused.contains("part-0000000007.recordio of an earlier prediction"), "{refused}");
        let file = open(&folder.path().join("README"), "a").await.unwrap_err().to_string();
        assert!(file.contains("--predict") && file.contains("not a file"), "{file}");
    }
}
