//! Places of checkpoints that hang or fail: nothing that is decided waits for them, and what is to be removed is, by whoever leads then.

use super::*;
use crate::decide::Admission;
use crate::document::{KeptCheckpoint, NamedCheckpoint};
use crate::machine::PserverWord;
use crate::reports::BlockProgress;
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use shoal_runtime::cluster::block_copy::WHOLE;
use shoal_runtime::cluster::checkpoint::{FileRecord, WrittenFile};
use shoal_runtime::cluster::{BlockId, Ledger, ManifestRecord, PieceRef, Rewind, StateName, Version};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// A place that answers nothing while it hangs, and lets so many deletions fail or take their time.
#[derive(Debug, Default)]
pub(super) struct Frail {
    inner: InMemory,
    hangs: AtomicBool,
    hangs_at_writes: AtomicBool,
    swallows: AtomicBool,
    failing: AtomicU64,
    deletions_take: Duration,
    waiting: AtomicU64,
}

impl Frail {
    pub(super) fn with_slow_deletions(deletions_take: Duration) -> Frail {
        Frail { deletions_take, ..Frail::default() }
    }

    /// Leaves all later calls unanswered for ever, or answers again.
    pub(super) fn swallow(&self, swallows: bool) {
        self.swallows.store(swallows, SeqCst);
    }

    async fn answer(&self, is_write: bool) {
        if self.swallows.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        self.waiting.fetch_add(1, SeqCst);
        while self.hangs.load(SeqCst) || (is_write && self.hangs_at_writes.load(SeqCst)) {
            sleep(Duration::from_millis(10)).await;
        }
        self.waiting.fetch_sub(1, SeqCst);
    }
}

impl std::fmt::Display for Frail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frail")
    }
}

#[async_trait]
impl ObjectStore for Frail {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.answer(true).await;
        self.inner.put_opts(at, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.answer(false).await;
        self.inner.get_opts(at, options).await
    }
    fn delete_stream(&self, at: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let source = std::io::Error::other("no such luck").into();
        if self.failing.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            let error = object_store::Error::Generic { store: "frail", source };
            return futures_util::stream::iter([Err(error)]).boxed();
        }
        let (takes, deleted) = (self.deletions_take, self.inner.delete_stream(at));
        let late = async move {
            sleep(takes).await;
            deleted
        };
        futures_util::stream::once(late).flatten().boxed()
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.answer(false).await;
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn over<'a>(store: &'a dyn Store, wire: &'a Wire, place: &Arc<Frail>) -> Keeper<'a> {
    let storage = Box::leak(Box::new(Storage::over(place.clone(), "frail")));
    Keeper { storage, fresh: fresh(2, 1), ..keeper(store, wire, "m1") }
}

fn says(service: &MasterService, pserver: Incarnation, call: &mut u64, word: PserverWord) {
    *call += 1;
    let word = PserverWord { call: *call, ..word };
    service.with(|machine, now| machine.report(pserver, word, now)).unwrap().unwrap();
    service.changed().notify_waiters();
}

/// What a pserver leads stands at `version`.
fn standing(document: &Document, pserver: Incarnation, version: u64) -> PserverWord {
    let led = (0..).map(BlockId).zip(&document.blocks).filter(|(_, block)| block.primary == pserver);
    let word = led.map(|(id, block)| BlockProgress {
        blocks: vec![id],
        term: block.term,
        version: Version(version),
        held: vec![],
        ledger: Ledger::default(),
    });
    PserverWord { progress: word.collect(), ..PserverWord::default() }
}

/// Two pservers with in-sync copies of each other's blocks, and a checkpoint under way.
async fn copied(service: &MasterService, call: &mut u64) -> [Incarnation; 2] {
    until(|| term(service).is_some()).await;
    join(service);
    let pservers = ["p0", "p1"].map(|name| register(service, name, 1));
    for pserver in pservers {
        service.with(|machine, now| machine.attend_pserver(pserver, now)).unwrap().unwrap();
    }
    until(|| is_placed(service)).await;
    until(|| told(service).unwrap().blocks.iter().all(|block| block.copies.len() == 2)).await;
    for (block, id) in told(service).unwrap().blocks.iter().zip((0..).map(BlockId)) {
        let copy = block.copies.iter().find(|copy| copy.pserver != block.primary).unwrap();
        let (primary, term) = (block.primary, block.term);
        let asked =
            Admission { block: id, pserver: copy.pserver, fill: copy.fill, term, primary, is_heir: false };
        says(service, primary, call, PserverWord { admissions: vec![asked], ..PserverWord::default() });
    }
    let is_level = |document: Document| document.blocks.iter().all(|block| block.in_sync().count() == 2);
    until(|| is_level(told(service).unwrap())).await;
    service.with(|machine, _| machine.demand_checkpoint());
    for pserver in pservers {
        says(service, pserver, call, standing(&told(service).unwrap(), pserver, 0));
    }
    until(|| told(service).unwrap().named.is_some()).await;
    pservers
}

/// One pserver has written all pieces of the checkpoint under way.
fn written(document: &Document) -> PserverWord {
    let named = document.named.unwrap();
    let piece = |(at, block): (u64, &crate::document::PlacedBlock)| PieceRef {
        block: BlockId(at as u32),
        rewind: block.rewind,
        name: StateName { term: block.term, version: named.version },
        slots: WHOLE,
        is_delta: false,
        file: 0,
        offset: 1000 * (at + 1),
        bytes: 100,
        crc32: 0,
    };
    let pieces: Vec<PieceRef> = (0..).zip(&document.blocks).map(piece).collect();
    let (checkpoint, bytes) = (named.checkpoint, 1000 * (pieces.len() as u64 + 2));
    let file = FileRecord { checkpoint, name: String::from("pserver-1.1-1.blocks"), bytes, crc32: 0 };
    let written = vec![WrittenFile { file, pieces }];
    PserverWord { checkpoint: checkpoint.0, written, ..PserverWord::default() }
}

/// A pserver is lost, `after` storage has begun to hang for a minute. Milliseconds until the other leads all blocks.
async fn failover(is_removal: bool, after: Duration) -> u64 {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let place = Arc::new(Frail::default());
    let keeper = over(&store, &wire, &place);
    beside(&[(&keeper, &service)], async {
        let mut call = 0;
        let [p0, p1] = copied(&service, &mut call).await;
        place.hangs.store(true, SeqCst);
        let document = told(&service).unwrap();
        let passed = PserverWord { has_passed: true, checkpoint: 1, ..PserverWord::default() };
        let word = if is_removal { passed } else { written(&document) };
        says(&service, p0, &mut call, word);
        until(|| place.waiting.load(SeqCst) > 0).await;
        sleep(after).await;
        service.with(|machine, _| machine.lose_pserver(p1));
        service.changed().notify_waiters();
        let ends = async {
            sleep(Duration::from_secs(60)).await;
            place.hangs.store(false, SeqCst);
            std::future::pending().await
        };
        let is_led = || told(&service).unwrap().blocks.iter().all(|block| block.primary == p0);
        tokio::select! {
            millis = until(is_led) => millis,
            never = ends => never,
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_lost_pserver_are_promoted_while_storage_hangs() {
    for is_removal in [false, true] {
        let mut took = Vec::new();
        for trial in 0..100 {
            took.push(failover(is_removal, Duration::from_millis(7 * trial)).await);
        }
        took.sort_unstable();
        println!("removal {is_removal}: p50 {} ms, p99 {} ms", took[50], took[98]);
        assert!(took[99] <= TTL_MILLIS / 16 + 1, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_comes_once_storage_answers_counts_or_goes_again_with_its_checkpoint() {
    for is_given_up in [false, true] {
        let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
        let place = Arc::new(Frail::default());
        let keeper = over(&store, &wire, &place);
        beside(&[(&keeper, &service)], async {
            let mut call = 0;
            let [p0, _] = copied(&service, &mut call).await;
            let word = written(&told(&service).unwrap());
            let file = &word.written[0].file;
            keeper.storage.put(&file.object(), vec![0; file.bytes as usize].into()).await.unwrap();
            place.hangs_at_writes.store(true, SeqCst);
            says(&service, p0, &mut call, word);
            until(|| place.waiting.load(SeqCst) > 0).await;
            if is_given_up {
                let passed = PserverWord { has_passed: true, checkpoint: 1, ..PserverWord::default() };
                says(&service, p0, &mut call, passed);
                until(|| told(&service).unwrap().named.is_none_or(|named| named.checkpoint.0 > 1)).await;
                sleep(Duration::from_secs(1)).await;
                assert_eq!(
                    keeper.storage.folders().await.unwrap(),
                    Vec::<String>::new(),
                    "removed before it came"
                );
            }
            place.hangs_at_writes.store(false, SeqCst);
            sleep(Duration::from_secs(1)).await;
            let kept: Vec<_> =
                told(&service).unwrap().checkpoints.iter().map(|kept| kept.record.checkpoint.0).collect();
            let folders = keeper.storage.folders().await.unwrap();
            let expected = if is_given_up {
                (vec![], vec![])
            } else {
                (vec![1], vec!["checkpoint-00000001".to_owned()])
            };
            assert_eq!((kept, folders), expected);
        })
        .await;
    }
}

/// A document of a job that has named six checkpoints: the third, which rests on the second, is kept, the sixth under way.
fn with_history() -> Document {
    let record = ManifestRecord { checkpoint: CheckpointId(3), bytes: 1, crc32: 1 };
    let oldest = Some(CheckpointId(2));
    let kept = KeptCheckpoint { record, version: Version(9), rewind: Rewind(1), oldest };
    let (checkpoint, version) = (CheckpointId(6), Version(18));
    let named = NamedCheckpoint { checkpoint, version, since: None, named_at: 1 };
    Document { named: Some(named), checkpoints_named: 6, checkpoints: vec![kept], ..fresh(2, 1) }
}

#[tokio::test(start_paused = true)]
async fn what_masters_have_left_is_removed_by_the_next_though_it_takes_many_attempts_and_nothing_else_is() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let place = Arc::new(Frail::default());
    let keeper = over(&store, &wire, &place);
    put(&store, None, &with_history().elected("m0")).await;
    let folder = |number: u64| CheckpointId(number).folder();
    for number in 1..=7 {
        let name = format!("{}/pserver-1.1-1.blocks", folder(number));
        keeper.storage.put(&name, "pieces".into()).await.unwrap();
    }
    // What cannot be read may be anybody's.
    keeper.storage.put(&format!("{}/manifest", folder(4)), "of another build".into()).await.unwrap();
    keeper.storage.put("notes/of-mine", "text".into()).await.unwrap();
    place.failing.store(5, SeqCst);
    beside(&[(&keeper, &service)], sleep(Duration::from_secs(120))).await;
    let stays: Vec<String> = [2, 3, 4, 6, 7].map(folder).into_iter().chain(["notes".to_owned()]).collect();
    assert_eq!(keeper.storage.folders().await.unwrap(), stays);
    assert_eq!(place.failing.load(SeqCst), 0);
}

/// Two jobs of one name in one place whose claim was removed by hand: neither removes the other's checkpoints.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_another_job_of_this_name_is_not_removed() {
    for is_own in [true, false] {
        let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
        let keeper = over(&store, &wire, &Arc::new(Frail::default()));
        beside(&[(&keeper, &service)], async {
            let mut call = 0;
            let [p0, _] = copied(&service, &mut call).await;
            let word = written(&told(&service).unwrap());
            let file = &word.written[0].file;
            keeper.storage.put(&file.object(), vec![0; file.bytes as usize].into()).await.unwrap();
            says(&service, p0, &mut call, word);
            until(|| !told(&service).unwrap().checkpoints.is_empty()).await;
        })
        .await;
        let identity = if is_own { stored(&store).await.1.identity } else { Some(String::from("1f")) };
        let (others_store, service) = (MemoryStore::new(), MasterService::new());
        let document = Document { identity, checkpoints_named: 1, ..fresh(2, 1) };
        put(&others_store, None, &document.elected("m0")).await;
        let other = Keeper { store: &others_store, ..keeper };
        beside(&[(&other, &service)], sleep(Duration::from_secs(5))).await;
        assert_eq!(other.storage.folders().await.unwrap().is_empty(), is_own);
    }
}
