//! A place for checkpoints, in memory, that a test may stop at any change, make slow, make silent, or damage.

use super::host::Host;
use super::points::{Points, Side};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use shoal_runtime::host::random::Random;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Where in a change everything stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It is not carried out.
    Before,
    /// It is carried out, and nobody learns of it.
    After,
}

/// Every kind of call to a place.
pub const CALLS: [&str; 7] = ["writes", "begins", "sends", "completes", "reads", "lists", "removes"];

/// The place. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Place {
    objects: Arc<InMemory>,
    inner: Arc<Mutex<Inner>>,
    stopped: Arc<Notify>,
    answers: Arc<Notify>,
    user: Option<(Arc<Host>, Points)>,
}

#[derive(Debug)]
struct Inner {
    /// Changes so far, each by the name of the object.
    changes: Vec<String>,
    stop: Option<(usize, Moment)>,
    is_stopped: bool,
    is_silent: bool,
    is_full: bool,
    /// Calls of this kind are not answered.
    hanging: Option<&'static str>,
    pace: Duration,
    /// The hosts whose changes take longer, by name.
    paces: BTreeMap<String, Duration>,
    /// What was damaged, by name: as it is now, and as it was written.
    damaged: BTreeMap<String, [Bytes; 2]>,
}

impl Place {
    /// An empty place.
    pub fn new() -> Place {
        Place::holding(BTreeMap::new())
    }

    /// A place with these objects, by name.
    pub fn holding(objects: BTreeMap<String, Bytes>) -> Place {
        let inner = Inner {
            changes: Vec::new(),
            stop: None,
            is_stopped: false,
            is_silent: false,
            is_full: false,
            hanging: None,
            pace: Duration::ZERO,
            paces: BTreeMap::new(),
            damaged: BTreeMap::new(),
        };
        let memory = Arc::new(InMemory::new());
        let filling = async {
            for (name, content) in objects {
                memory.put(&Path::from(name), content.into()).await.expect("memory takes everything");
            }
        };
        futures_util::FutureExt::now_or_never(filling).expect("memory never waits");
        Place {
            objects: memory,
            inner: Arc::new(Mutex::new(inner)),
            stopped: Arc::default(),
            answers: Arc::default(),
            user: None,
        }
    }

    /// The same place, as the process on `host` has it, which may be killed at any change.
    pub fn used_by(&self, host: &Arc<Host>, points: &Points) -> Place {
        Place { user: Some((Arc::clone(host), points.clone())), ..self.clone() }
    }

    /// All objects by name.
    pub async fn objects(&self) -> BTreeMap<String, Bytes> {
        let mut objects = BTreeMap::new();
        for meta in self.objects.list(None).collect::<Vec<_>>().await {
            let at = meta.expect("memory lists everything").location;
            let content = self.objects.get(&at).await.expect("it was listed").bytes().await;
            objects.insert(at.to_string(), content.expect("memory reads everything"));
        }
        objects
    }

    /// The changes so far, each by the name of the object.
    pub fn changes(&self) -> Vec<String> {
        self.inner().changes.clone()
    }
    /// Stops at the `number`th change from now on, from 0: no change and no answer any more, whoever asks.
    pub fn stop_at(&self, number: usize, moment: Moment) {
        let mut inner = self.inner();
        inner.stop = Some((inner.changes.len() + number, moment));
    }
    /// Waits until it has stopped.
    pub async fn stopped(&self) {
        while !self.inner().is_stopped {
            self.stopped.notified().await;
        }
    }
    /// Goes on. Who was waiting is not answered.
    pub fn go_on(&self) {
        let mut inner = self.inner();
        (inner.stop, inner.is_stopped) = (None, false);
    }
    /// Answers nobody, as an object store that cannot be reached, or everybody again.
    pub fn set_silent(&self, is_silent: bool) {
        self.inner().is_silent = is_silent;
    }
    /// Takes nothing more, as a disk without room, or everything again.
    pub fn set_full(&self, is_full: bool) {
        self.inner().is_full = is_full;
    }
    /// Answers no call of this kind, one of [`CALLS`], nor refuses it; `None`: answers those, too, that wait.
    pub fn set_hanging(&self, call: Option<&'static str>) {
        self.inner().hanging = call;
        self.answers.notify_waiters();
    }
    /// Waits while calls of this kind hang.
    async fn answer(&self, call: &str) {
        loop {
            let answers = self.answers.notified();
            if self.inner().hanging != Some(call) {
                return;
            }
            answers.await;
        }
    }
    /// Changes an object in this folder: a bit is another, its end is missing, or it is what another object is. Which
    /// object, and how, is drawn from `luck`. False where there is nothing.
    pub async fn rot(&self, folder: &str, luck: u64) -> bool {
        let random = &mut Random::seeded(luck);
        let objects: Vec<_> =
            self.objects().await.into_iter().filter(|(name, _)| name.starts_with(folder)).collect();
        if objects.is_empty() {
            return false;
        }
        let (name, content) = &objects[random.below(objects.len() as u64) as usize];
        let (_, other) = &objects[random.below(objects.len() as u64) as usize];
        let mut bytes = content.to_vec();
        match random.below(3) {
            0 => bytes.truncate(random.below(bytes.len().max(1) as u64) as usize),
            1 if other != content => bytes = other.to_vec(),
            _ => {
                let at = random.below(bytes.len().max(1) as u64) as usize;
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << random.below(8));
            }
        }
        let bytes = Bytes::from(bytes);
        let written = match self.inner().damaged.remove(name) {
            Some([damaged, written]) if damaged == *content => written,
            _ => content.clone(),
        };
        self.inner().damaged.insert(name.clone(), [bytes.clone(), written]);
        self.objects.put(&Path::from(name.as_str()), bytes.into()).await.is_ok()
    }

    /// Another place that has the same objects as they were written, those that are damaged here included.
    pub async fn as_written(&self) -> Place {
        let mut objects = self.objects().await;
        for (name, [damaged, written]) in &self.inner().damaged {
            let is_damaged = |content: &&mut Bytes| **content == *damaged;
            objects
                .get_mut(name)
                .filter(is_damaged)
                .into_iter()
                .for_each(|content| *content = written.clone());
        }
        Place::holding(objects)
    }
    /// Each change takes so long.
    pub fn set_pace(&self, pace: Duration) {
        self.inner().pace = pace;
    }
    /// Sets the duration of each change that one host makes.
    pub fn set_pace_of(&self, host: &str, pace: Duration) {
        self.inner().paces.insert(host.to_owned(), pace);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets somebody read, unless everything has stopped.
    async fn read(&self) -> Result<()> {
        let (is_stopped, is_silent) = {
            let inner = self.inner();
            (inner.is_stopped, inner.is_silent)
        };
        match (is_stopped, is_silent) {
            (true, _) => std::future::pending().await,
            (false, true) => Err(Error::Generic { store: "place", source: "no answer".into() }),
            (false, false) => Ok(()),
        }
    }

    /// ENOSPC on Linux, if there is none.
    fn room(&self) -> Result<()> {
        let full = || Box::new(std::io::Error::from_raw_os_error(28));
        if self.inner().is_full { Err(Error::Generic { store: "place", source: full() }) } else { Ok(()) }
    }

    async fn pass(&self, how: &str, name: &str, side: Side) {
        if let Some((host, points)) = &self.user {
            let what = match name {
                _ if name.ends_with("manifest") => "a manifest",
                _ if name.starts_with("hashes/") => "hashes",
                _ => "pieces",
            };
            points.pass(host, || format!("{how} {what}"), side).await;
        }
    }

    async fn change<T>(&self, how: &str, name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.read().await?;
        self.answer(how).await;
        self.pass(how, name, Side::Before).await;
        let (pace, stop) = {
            let mut inner = self.inner();
            let number = inner.changes.len();
            inner.changes.push(name.to_owned());
            let stop = inner.stop.filter(|(at, _)| *at == number).map(|(_, moment)| moment);
            inner.is_stopped = stop.is_some();
            let host = self.user.as_ref().map_or("", |(host, _)| &host.name);
            (inner.paces.get(host).copied().unwrap_or(inner.pace), stop)
        };
        if !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
        let done = if stop == Some(Moment::Before) { None } else { Some(work.await) };
        match (stop, done) {
            (None, Some(done)) => {
                self.pass(how, name, Side::After).await;
                done
            }
            _ => {
                self.stopped.notify_one();
                std::future::pending().await
            }
        }
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::new()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a place of a test")
    }
}

#[async_trait]
impl ObjectStore for Place {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.room()?;
        self.change("writes", at.as_ref(), self.objects.put_opts(at, payload, options)).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.change("begins", at.as_ref(), self.objects.put_multipart_opts(at, options)).await?;
        Ok(Box::new(Upload { inner, place: self.clone(), name: at.to_string() }))
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.read().await?;
        self.answer("reads").await;
        self.objects.get_opts(at, options).await
    }
    fn delete_stream(&self, at: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let place = self.clone();
        at.then(move |path| {
            let place = place.clone();
            async move {
                let path = path?;
                let delete = async { place.objects.delete(&path).await.map(|()| path.clone()) };
                place.change("removes", path.as_ref(), delete).await
            }
        })
        .boxed()
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.read().await?;
        self.answer("lists").await;
        self.objects.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.change("copies", to.as_ref(), self.objects.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    place: Place,
    name: String,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        let (place, name, sent) = (self.place.clone(), self.name.clone(), self.inner.put_part(part));
        Box::pin(async move {
            place.room()?;
            place.change("sends", &name, sent).await
        })
    }
    async fn complete(&mut self) -> Result<PutResult> {
        self.place.room()?;
        self.place.clone().change("completes", &self.name.clone(), self.inner.complete()).await
    }
    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
