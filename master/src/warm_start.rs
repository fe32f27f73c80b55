//! The file that a job begins at is pinned once, by the master that makes the document. It must never be pinned anew: a
//! job that has begun goes on with the file it began at, or, once it has a checkpoint, without it.

use crate::document::Document;
use crate::settings::rooted;
use anyhow::{Context, bail};
use shoal_runtime::cluster::WarmStart;
use shoal_runtime::host::store::Store;
use shoal_runtime::host::warm_start::pin;

/// The place of the file that somebody named by `--warm-start`, and its name there. A folder is named from the root,
/// because pservers may run elsewhere.
///
/// # Errors
/// No file is named.
pub(crate) fn located(said: &str) -> anyhow::Result<(String, String)> {
    match rooted("--warm-start", said)?.rsplit_once('/') {
        Some((place, file)) if !place.is_empty() && !place.ends_with('/') && !file.is_empty() => {
            Ok((place.to_owned(), file.to_owned()))
        }
        _ => bail!(
            "--warm-start {said:?}: name a file in a folder or a bucket, such as models/base.safetensors"
        ),
    }
}

/// The file of this place and name, as the job in `store` began at it; of a job that has not begun, as it is now.
///
/// # Errors
/// A file that is not there, cannot be read, or is no sound safetensors file.
pub(crate) async fn pinned(
    asked: Option<(String, String)>,
    store: &dyn Store,
) -> anyhow::Result<Option<WarmStart>> {
    let Some((place, file)) = asked else { return Ok(None) };
    // A store that does not answer or holds something else is met again when this master is elected.
    let begun = store.load().await.ok().flatten().and_then(|(_, bytes)| Document::from_bytes(&bytes).ok());
    let known = begun.filter(Document::has_begun).and_then(|document| document.job.warm_start);
    if let Some(known) = known.filter(|known| known.place == place && known.file == file) {
        return Ok(Some(known));
    }
    let pinned = pin(&place, &file).await.context("the job cannot begin at this file")?;
    tracing::info!(place, file, bytes = pinned.bytes, "the job begins at a file: pinned");
    Ok(Some(pinned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Wanted;
    use crate::fixture;
    use shoal_runtime::cluster::JobSettings;
    use shoal_runtime::host::store::MemoryStore;

    /// A safetensors file without tensors.
    const EMPTY: &[u8] = b"\x02\0\0\0\0\0\0\0{}";

    #[tokio::test]
    async fn a_file_is_pinned_once_and_a_job_that_has_begun_needs_it_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Some((folder.path().display().to_string(), "m".to_owned()));
        std::fs::write(folder.path().join("m"), EMPTY).unwrap();
        let store = MemoryStore::new();
        let first = pinned(asked.clone(), &store).await.unwrap();
        assert_eq!(first.as_ref().map(|pinned| pinned.bytes), Some(10));
        let job = JobSettings { warm_start: first.clone(), ..fixture::settings(8, 1, 4, 1) };
        let document = Document::new(job, Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 0 });
        store.swap(None, document.elected("m1").to_bytes().into()).await.unwrap();
        std::fs::remove_file(folder.path().join("m")).unwrap();
        assert_eq!(pinned(asked, &store).await.unwrap(), first);
    }

    #[test]
    fn a_file_lies_in_a_folder_from_the_root_or_in_a_bucket() {
        let pair = |place: &str, file: &str| (place.to_owned(), file.to_owned());
        let here = std::env::current_dir().unwrap().display().to_string();
        assert_eq!(located("m.safetensors").unwrap(), pair(&here, "m.safetensors"));
        assert_eq!(located("models/m").unwrap(), pair(&format!("{here}/models"), "m"));
        assert_eq!(located("s3://bucket/models/m").unwrap(), pair("s3://bucket/models", "m"));
        assert_eq!(located("file:///models/m").unwrap(), pair("file:///models", "m"));
        for nothing in ["", "models/", "s3://bucket", "s3://bucket/", "/m"] {
            assert!(located(nothing).is_err(), "{nothing:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_refused_before_the_job_begins() {
        let folder = tempfile::tempdir().unwrap();
        let asked = Some((folder.path().display().to_string(), "m".to_owned()));
        let error = format!("{:#}", pinned(asked, &MemoryStore::new()).await.unwrap_err());
        assert!(error.contains("--warm-start") && error.contains("/m: nothing is there"), "{error}");
        assert_eq!(error.matches("nothing is there").count(), 1, "said once: {error}");
        assert_eq!(pinned(None, &MemoryStore::new()).await.unwrap(), None);
    }
}
