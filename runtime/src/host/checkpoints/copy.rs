//! A checkpoint in another place, where somebody else may go on from it.

use super::super::storage::{Storage, StorageError};
use crate::cluster::CheckpointId;

/// Bytes that are read at a time.
const PART_BYTES: u64 = 8 << 20;

/// Copies the files of a checkpoint, its manifest last, to a place that has none of that number. What it says of earlier checkpoints
/// needs theirs, too. Returns how many bytes were copied.
///
/// # Errors
/// A place cannot be reached, read or written; the checkpoint is not there, or one of that number is there already.
pub async fn copy(from: &Storage, to: &Storage, checkpoint: CheckpointId) -> Result<u64, StorageError> {
    let manifest = checkpoint.manifest_object();
    let listed = from.list(&checkpoint.folder()).await?;
    let named = |name: &str| format!("{}/{name}", checkpoint.folder());
    let files =
        listed.iter().map(|file| (named(&file.name), file.bytes)).filter(|(name, _)| *name != manifest);
    let manifest = (manifest.clone(), from.bytes_of(&manifest).await?);
    let mut copied = 0;
    for (name, bytes) in files.chain([manifest]) {
        let mut upload = to.upload(&name).await?;
        let mut at = 0;
        while at < bytes {
            let end = bytes.min(at + PART_BYTES);
            upload.write(from.read_range(&name, at..end).await?).await?;
            at = end;
        }
        upload.finish().await?;
        copied += bytes;
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use object_store::memory::InMemory;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_copied_checkpoint_has_the_same_files_and_takes_no_others_place() {
        let [from, to] = ["from", "to"].map(|place| Storage::over(Arc::new(InMemory::new()), place));
        let (checkpoint, big) = (CheckpointId(3), Bytes::from(vec![7u8; PART_BYTES as usize + 5]));
        let objects = [("pserver-1.1-1.blocks", big), ("manifest", Bytes::from_static(b"all"))];
        let missing = copy(&from, &to, checkpoint).await.unwrap_err().to_string();
        assert!(missing.contains("from/checkpoint-00000003/manifest"), "{missing}");
        for (name, content) in &objects {
            from.put(&format!("{}/{name}", checkpoint.folder()), content.clone()).await.unwrap();
        }
        assert_eq!(copy(&from, &to, checkpoint).await.unwrap(), PART_BYTES + 8);
        for (name, content) in &objects {
            let name = format!("{}/{name}", checkpoint.folder());
            assert!(to.read(&name, 1 << 30).await.unwrap() == *content, "{name}");
        }
        assert!(matches!(copy(&from, &to, checkpoint).await, Err(StorageError::Taken { .. })));
    }
}
