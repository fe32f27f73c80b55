//! Writing a large object in parts, with no more than one part in memory. It must never show an object that is not
//! whole.

use super::{Storage, StorageError};
use bytes::Bytes;
use object_store::{MultipartUpload, PutPayload};

/// Bytes of a part: a bucket takes 10,000 of them, so that an object may have 160 GB.
pub(super) const PART_BYTES: usize = 16 << 20;

/// An object in the making. Nobody sees it before [`finish`](Upload::finish); dropped before, it leaves nothing that is
/// listed.
#[derive(Debug)]
pub struct Upload {
    storage: Storage,
    name: String,
    upload: Box<dyn MultipartUpload>,
    part: Vec<Bytes>,
    part_bytes: usize,
}

impl Upload {
    pub(super) async fn begin(storage: &Storage, name: &str) -> Result<Upload, StorageError> {
        match storage.bytes_of(name).await {
            Err(StorageError::Missing { .. }) => {}
            Ok(_) => return Err(StorageError::Taken { at: storage.at(name) }),
            Err(error) => return Err(error),
        }
        let options = Default::default();
        let _call = storage.call("write", name);
        let upload = storage.store.put_multipart_opts(&storage.path(name), options).await;
        let upload = upload.map_err(|error| storage.sort(name, error))?;
        Ok(Upload {
            storage: storage.clone(),
            name: name.to_owned(),
            upload,
            part: Vec::new(),
            part_bytes: 0,
        })
    }

    /// The next bytes.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), StorageError> {
        while self.part_bytes + bytes.len() >= PART_BYTES {
            let fitting = bytes.split_to(PART_BYTES - self.part_bytes);
            self.part.push(fitting);
            self.send().await?;
        }
        self.part_bytes += bytes.len();
        self.part.push(bytes);
        Ok(())
    }

    /// Ends the object; it is there and durable when this returns.
    pub async fn finish(mut self) -> Result<(), StorageError> {
        if self.part_bytes > 0 {
            self.send().await?;
        }
        let _call = self.storage.call("write", &self.name);
        match self.upload.complete().await {
            Ok(_) => self.storage.settle(&self.name).await,
            Err(error) => Err(self.abandon(error).await),
        }
    }

    async fn send(&mut self) -> Result<(), StorageError> {
        let _call = self.storage.call("write", &self.name);
        self.part_bytes = 0;
        let part = PutPayload::from_iter(std::mem::take(&mut self.part));
        match self.upload.put_part(part).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.abandon(error).await),
        }
    }

    async fn abandon(&mut self, error: object_store::Error) -> StorageError {
        // What cannot be taken back either is cleared away with the folder, or by the bucket's lifecycle rule.
        let _ = self.upload.abort().await;
        self.storage.sort(&self.name, error)
    }
}
