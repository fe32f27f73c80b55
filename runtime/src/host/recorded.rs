//! Hashes of steps in storage, beside the checkpoints: `hashes/…` holds some steps each, one JSON object a line, all of them sealed by a
//! checksum. A step that the job has made twice, because it went back between, counts as it was made last.

use super::storage::{Storage, StorageError};
use crate::cluster::{Rewind, StepHashes, Version};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The folder, no checkpoint's.
const FOLDER: &str = "hashes";
/// The format. It is raised when an older build would misread one.
const FORMAT: u32 = 1;
/// Bytes of one object, at most: whoever reads it takes no more.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// One line.
#[derive(Serialize, Deserialize)]
struct Line {
    format: u32,
    job: String,
    /// Absent in lines of a job that began under a build that knew names alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    version: u64,
    step: u64,
    rewind: u64,
    /// CRC-32 of what follows, each hash as 8 bytes, little-endian.
    crc32: u32,
    /// Of each block one after the other, in 16 hexadecimal digits each.
    blocks: Vec<String>,
}

/// Who writes, for the how-manieth time: no two attempts have the same name.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The job.
    pub job: String,
    /// The job's random identity, if it has one.
    pub identity: Option<String>,
    /// The term of its master.
    pub master_term: u32,
    /// Counted by that master.
    pub attempt: u64,
}

/// Writes the hashes of some steps into one object; durable when it returns.
///
/// # Errors
/// The place cannot be reached or written.
pub async fn write(storage: &Storage, by: &Writer, steps: &[StepHashes]) -> Result<(), StorageError> {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return Ok(()) };
    let Writer { job, identity, master_term, attempt } = by;
    let (from, to) = (first.version.0, last.version.0);
    // By the job as well: another may have begun here before, and left no checkpoint.
    let which = identity.as_ref().map_or_else(String::new, |identity| format!(".{identity}"));
    let name = format!("{FOLDER}/{from:010}-{to:010}.{master_term}-{attempt}.{job}{which}.jsonl");
    let mut content = Vec::new();
    for step in steps {
        let hex = |hashes: &Vec<u64>| hashes.iter().map(|hash| format!("{hash:016x}")).collect::<String>();
        let line = Line {
            format: FORMAT,
            job: job.clone(),
            identity: identity.clone(),
            version: step.version.0,
            step: step.step,
            rewind: step.rewind.0,
            crc32: crc32(&step.blocks),
            blocks: step.blocks.iter().map(hex).collect(),
        };
        // A line of numbers and digits can always be written.
        serde_json::to_writer(&mut content, &line).unwrap_or_default();
        content.push(b'\n');
    }
    storage.put(&name, Bytes::from(content)).await
}

/// The recorded steps of a job, by step.
///
/// # Errors
/// As [`Recorded::look`].
pub async fn read(
    storage: &Storage,
    job: &str,
    identity: Option<&str>,
) -> Result<BTreeMap<u64, StepHashes>, StorageError> {
    let mut recorded = Recorded::of(job, identity, 0..=u64::MAX);
    recorded.look(storage).await?;
    Ok(recorded.take())
}

/// The recorded steps of a job, to which more of them come.
#[derive(Clone, Debug)]
pub struct Recorded {
    job: (String, Option<String>),
    range: RangeInclusive<u64>,
    steps: BTreeMap<u64, StepHashes>,
    /// The last there is, whether or not it is in the range.
    last: Option<u64>,
    /// Objects that were read.
    objects: BTreeSet<String>,
}

impl Recorded {
    /// Selects the steps of a range. A job without an identity owns the lines without one.
    pub fn of(job: &str, identity: Option<&str>, range: RangeInclusive<u64>) -> Recorded {
        let (steps, objects) = (BTreeMap::new(), BTreeSet::new());
        let job = (job.to_owned(), identity.map(str::to_owned));
        Recorded { job, range, steps, last: None, objects }
    }

    /// What was read since this was asked last, by step.
    pub fn take(&mut self) -> BTreeMap<u64, StepHashes> {
        std::mem::take(&mut self.steps)
    }

    /// The last step that is recorded.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Reads what has come since.
    ///
    /// # Errors
    /// The place cannot be reached; an object is damaged, or another build's.
    pub async fn look(&mut self, storage: &Storage) -> Result<(), StorageError> {
        for object in storage.list(FOLDER).await? {
            if self.objects.contains(&object.name) {
                continue;
            }
            let name = format!("{FOLDER}/{}", object.name);
            let content = storage.read(&name, OBJECT_BYTES_MAX).await?;
            let mut offset = 0;
            for line in content.split_inclusive(|byte| *byte == b'\n') {
                let damaged = |what| StorageError::Damaged { at: storage.at(&name), offset, what };
                let (job, step) = parsed(line).map_err(damaged)?;
                offset += line.len() as u64;
                if job == self.job {
                    self.add(step);
                }
            }
            self.objects.insert(object.name);
        }
        Ok(())
    }

    fn add(&mut self, step: StepHashes) {
        self.last = self.last.max(Some(step.step));
        let known = self.steps.get(&step.step).map(|known| known.rewind);
        if self.range.contains(&step.step) && known.is_none_or(|known| known < step.rewind) {
            self.steps.insert(step.step, step);
        }
    }
}

fn parsed(line: &[u8]) -> Result<((String, Option<String>), StepHashes), String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if line.format != FORMAT {
        return Err(format!("it is of format {}, this build reads {FORMAT}", line.format));
    }
    let hash = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 16)?;
        u64::from_str_radix(digits, 16).ok()
    };
    let hashes = |block: &String| block.as_bytes().chunks(16).map(hash).collect::<Option<Vec<u64>>>();
    let blocks: Option<Vec<Vec<u64>>> = line.blocks.iter().map(hashes).collect();
    let blocks = blocks.ok_or_else(|| format!("the hashes of step {} are no hashes", line.step))?;
    if crc32(&blocks) != line.crc32 {
        return Err(format!("the hashes of step {} are not what was written", line.step));
    }
    let (version, rewind) = (Version(line.version), Rewind(line.rewind));
    Ok(((line.job, line.identity), StepHashes { version, step: line.step, rewind, blocks }))
}

fn crc32(blocks: &[Vec<u64>]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    blocks.iter().flatten().for_each(|hash| hasher.update(&hash.to_le_bytes()));
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use std::sync::Arc;

    fn step(step: u64, rewind: u64, hash: u64) -> StepHashes {
        let blocks = vec![vec![hash, u64::MAX], vec![], vec![7]];
        StepHashes { version: Version(step + 3), step, rewind: Rewind(rewind), blocks }
    }

    fn by(job: &str, attempt: u64) -> Writer {
        Writer { job: job.to_owned(), identity: None, master_term: 1, attempt }
    }

    #[tokio::test]
    async fn what_is_written_is_read_and_of_a_step_that_was_made_twice_the_later() {
        let storage = Storage::over(Arc::new(InMemory::new()), "memory");
        assert!(read(&storage, "a", None).await.unwrap().is_empty());
        write(&storage, &by("a", 1), &[step(10, 5, 1), step(20, 5, 2)]).await.unwrap();
        write(&storage, &by("a", 2), &[step(20, 9, 3)]).await.unwrap();
        write(&storage, &by("a", 3), &[step(20, 5, 2)]).await.unwrap();
        // Of another job in this place.
        write(&storage, &by("b", 1), &[step(10, 7, 8)]).await.unwrap();
        let steps: Vec<StepHashes> = read(&storage, "a", None).await.unwrap().into_values().collect();
        assert_eq!(steps, [step(10, 5, 1), step(20, 9, 3)]);
        let mut recorded = Recorded::of("a", None, 0..=15);
        recorded.look(&storage).await.unwrap();
        assert_eq!((recorded.take().into_keys().collect::<Vec<_>>(), recorded.last()), (vec![10], Some(20)));
        write(&storage, &by("a", 4), &[step(15, 9, 3)]).await.unwrap();
        recorded.look(&storage).await.unwrap();
        assert_eq!(
            recorded.take().into_keys().collect::<Vec<_>>(),
            [15],
            "what was taken does not come again"
        );
    }

    #[tokio::test]
    async fn of_jobs_of_one_name_each_reads_its_own_steps_and_names_of_objects_never_meet() {
        let storage = Storage::over(Arc::new(InMemory::new()), "memory");
        let jobs = [None, Some("1f"), Some("2e")];
        for (identity, hash) in jobs.into_iter().zip(1..) {
            let by = Writer { identity: identity.map(str::to_owned), ..by("a", 1) };
            write(&storage, &by, &[step(10, 4 - hash, hash)]).await.unwrap();
        }
        for (identity, hash) in jobs.into_iter().zip(1..) {
            let steps = read(&storage, "a", identity).await.unwrap();
            assert_eq!(steps.into_values().collect::<Vec<_>>(), [step(10, 4 - hash, hash)], "{identity:?}");
        }
    }

    #[tokio::test]
    async fn what_is_not_what_was_written_is_named_by_its_object() {
        let store = Arc::new(InMemory::new());
        let storage = Storage::over(store, "memory");
        write(&storage, &by("a", 1), &[step(10, 5, 1)]).await.unwrap();
        let name = format!("{FOLDER}/{}", storage.list(FOLDER).await.unwrap()[0].name);
        let whole = storage.read(&name, OBJECT_BYTES_MAX).await.unwrap();
        let text = String::from_utf8(whole.to_vec()).unwrap();
        for (from, to, words) in [
            ("ffffffffffffffff", "fffffffffffffff0", "not what was written"),
            ("\"0000000000000007\"", "\"00000007\"", "no hashes"),
            ("\"format\":1", "\"format\":9", "format 9"),
            ("}\n", "\n", "EOF"),
        ] {
            storage.delete(&name).await.unwrap();
            storage.put(&name, text.replace(from, to).into()).await.unwrap();
            let error = read(&storage, "a", None).await.unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(&name), "{from}: {error}");
        }
    }
}
