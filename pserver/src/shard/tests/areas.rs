//! Areas of a shard: who is given one, for how long, and what a push that names one is told.

use super::*;
use crate::device::tests::Fake;
use crate::device::{Device, DeviceChoice};
use crate::service::PserverService;
use shoal_runtime::host::cuda::{AREAS_MAX, Context, MapLock, MapWatch, SHARED_BYTES};
use shoal_runtime::wire::proto::{self, pserver_server::Pserver};
use std::time::Duration;
use tonic::Request;

pub(super) const TRAINER: Incarnation = Incarnation(9);

/// Of six values of f32 and a metric.
const GRADIENT_BYTES: u64 = 32 + 16;

pub(super) fn with_device() -> (Fake, tempfile::TempDir, Arc<Shard>) {
    let (fake, folder) = (Fake::driver(), tempfile::tempdir().unwrap());
    fake.set("SHARED", folder.path().to_str().unwrap());
    let device = Device::open(DeviceChoice::Cuda(0)).unwrap();
    let shard = Arc::new(Shard::new(job(5, 2), 16, ME).with_device(device));
    host(&shard, assignment(3, &[0, 1]));
    (fake, folder, shard)
}

/// An area's number, and the lock under which its trainer has it mapped.
pub(super) fn shared(shard: &Arc<Shard>, trainer: Incarnation) -> Option<(u64, MapLock)> {
    let lock = MapLock::hold().unwrap();
    let shared = shard.share(trainer, GRADIENT_BYTES, MapWatch::open(lock.name()).unwrap()).unwrap();
    shared.map(|(number, _)| (number, lock))
}

/// A gradient of block 0 that lies in an area, from this byte of it on.
pub(super) fn from_area((area, at): (u64, u64)) -> proto::BlockGradient {
    proto::BlockGradient { area, at, ..gradient(0, &[]) }
}

fn push_from(shard: &Arc<Shard>, area: (u64, u64)) -> Result<Vec<PushOutcome>, Refusal> {
    let gradients = vec![from_area(area), gradient(1, &bytes(&[1.0]))];
    shard.push(&message(Pushed::Node(Step(0), ROOT), 2, gradients))
}

#[test]
fn a_trainer_has_few_areas_and_is_given_another_once_it_has_one_mapped_no_more() {
    let (_fake, _folder, shard) = with_device();
    let usage = || shard.device().unwrap().usage().area_bytes / SHARED_BYTES as u64;
    let mut mapped: Vec<_> = std::iter::from_fn(|| shared(&shard, TRAINER)).collect();
    assert_eq!((mapped.len(), usage()), (AREAS_MAX, AREAS_MAX as u64));
    let (other, _lock) = shared(&shard, Incarnation(10)).unwrap();
    assert!(mapped.iter().all(|(number, _)| *number != other));
    let gone: Vec<u64> = mapped.drain(1..3).map(|(number, _)| number).collect();
    let (again, _lock) = shared(&shard, TRAINER).unwrap();
    assert_eq!(usage(), 4, "two that are mapped yet, a new one, another trainer's");
    assert!(gone.iter().all(|number| *number != again && !shard.has_area(*number)));
    assert!(mapped.iter().all(|(number, _)| shard.has_area(*number)) && shard.has_area(other));
}

/// The stand-in driver ends the process where memory is freed that is mapped.
#[tokio::test(start_paused = true)]
async fn memory_that_a_trainer_has_mapped_is_not_freed_however_long_it_is_silent() {
    let (_fake, _folder, shard) = with_device();
    let lock = MapLock::hold().unwrap();
    let watch = MapWatch::open(lock.name()).unwrap();
    let (number, area) = shard.share(TRAINER, GRADIENT_BYTES, watch).unwrap().unwrap();
    let mapped = Context::open(0).unwrap().map(area.handle(), area.bytes()).unwrap();
    drop(area);
    let for_seconds = async |seconds| {
        let landed = tokio::time::timeout(Duration::from_secs(seconds), shard.land()).await;
        assert!(landed.is_err());
    };
    for_seconds(86_400).await;
    shared(&shard, Incarnation(10)).unwrap();
    assert!(shard.has_area(number));
    // No other question and no update follows.
    drop((mapped, lock));
    for_seconds(80).await;
    assert_eq!(shard.device().unwrap().usage().area_bytes, 0);
}

#[tokio::test]
async fn nothing_is_shared_with_who_holds_no_lock() {
    let (_fake, _folder, shard) = with_device();
    let service = PserverService::new(Arc::clone(&shard));
    let lock = MapLock::hold().unwrap();
    let share = async |lock: &str| {
        let (job, machine) = ("test".to_owned(), shoal_runtime::host::cuda::machine());
        let (incarnation, bytes, lock) = (TRAINER.0, GRADIENT_BYTES, lock.to_owned());
        let request = proto::ShareRequest { job, incarnation, machine, bytes, lock, keeps: Vec::new() };
        service.share(Request::new(request)).await.unwrap().into_inner().area
    };
    assert_eq!((share("").await, share("shoal-map-0").await), (0, 0));
    assert!(shard.has_area(share(lock.name()).await));
    drop(lock);
    shard.give_areas_back();
    assert_eq!(shard.device().unwrap().usage().area_bytes, 0);
}

#[test]
fn a_trainer_that_asks_many_times_at_once_has_no_more_areas_than_one_that_asks_in_turn() {
    let (_fake, _folder, shard) = with_device();
    for _ in 0..50 {
        let _mapped: Vec<_> = (1..AREAS_MAX).map(|_| shared(&shard, TRAINER).unwrap()).collect();
        let together = std::sync::Barrier::new(4);
        let ask = || {
            together.wait();
            shared(&shard, TRAINER)
        };
        let _more: Vec<_> = std::thread::scope(|threads| {
            let asking: Vec<_> = (0..4).map(|_| threads.spawn(ask)).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).collect()
        });
        assert!(shard.device().unwrap().usage().area_bytes <= (AREAS_MAX * SHARED_BYTES) as u64);
    }
}

#[test]
fn without_a_device_or_its_memory_there_is_no_area_and_for_more_than_a_gradient_never() {
    let alone = shard();
    assert!(shared(&alone, TRAINER).is_none());
    let (fake, _folder, shard) = with_device();
    let lock = MapLock::hold().unwrap();
    let watch = MapWatch::open(lock.name()).unwrap();
    let refused = shard.share(TRAINER, GRADIENT_BYTES + 1, watch).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Malformed);
    fake.set("MEMORY", "0");
    assert!(shared(&shard, TRAINER).is_none());
    fake.set("MEMORY", "1073741824");
    fake.set("SHARED", "");
    assert!(shared(&shard, TRAINER).is_none(), "the driver shares nothing");
    assert!(shard.device().unwrap().failure().is_none());
}

fn pull_into(area: Option<(u64, Vec<u64>)>, blocks: &[u32], without_data: &[u32]) -> proto::PullRequest {
    let (area, places) = area.unwrap_or_default();
    let (blocks, without_data) = (blocks.to_vec(), without_data.to_vec());
    proto::PullRequest { step: 1, rewind: 3, blocks, area, places, without_data, ..Default::default() }
}

/// Looks until a pull is answered, as the service does; `not_yet` sees what it found before.
async fn answered(shard: &Arc<Shard>, pull: &proto::PullRequest, not_yet: impl Fn(&Pulled)) -> Pulled {
    let mut published = shard.told(Kind::Published);
    loop {
        shard.note_done_now(&shard.device().unwrap().take_finished()).unwrap();
        let pulled = shard.pull(pull, true).unwrap();
        if pulled.is_final {
            return pulled;
        }
        not_yet(&pulled);
        let _ = tokio::time::timeout(Duration::from_millis(5), published.changed()).await;
    }
}

#[tokio::test]
async fn a_pull_that_names_an_area_has_its_parameters_put_there_once_it_is_answered() {
    let (_fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    push_from(&shard, (area, 0)).unwrap();
    let given = || shard.device().unwrap().usage().parameter_bytes;
    let not_yet = |_: &Pulled| assert_eq!(given(), 0, "nothing is put there before");
    let pulled = answered(&shard, &pull_into(Some((area, vec![16])), &[0], &[1]), not_yet).await;
    shard.given(&pulled.given).await.unwrap();
    let [block, metric] = &pulled.blocks[..] else { panic!("{pulled:?}") };
    assert_eq!((block.is_in_area, block.parameters.len(), block.version), (true, 0, 1));
    assert!(!metric.is_in_area && given() == 24);
    let there = shard.area(area).unwrap().words(16, 6).unwrap().bring().unwrap();
    // An area that is not here, and none, are as good as one another.
    for area in [None, Some((area + 1, vec![0]))] {
        let here = answered(&shard, &pull_into(area, &[0], &[1]), |_| {}).await;
        assert_eq!((here.blocks[0].is_in_area, &here.blocks[0].parameters), (false, &there));
    }
}

#[test]
fn a_push_from_an_area_that_is_not_here_is_told_so_and_one_beyond_its_end_is_refused() {
    let (_fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    let standing = || format!("{:?} {:?}", shard.whole_standing().unwrap(), shard.counters());
    let before = standing();
    for (at, wrong) in [(SHARED_BYTES as u64 - 16, "beyond"), (8, "unaligned"), (u64::MAX - 7, "far")] {
        let refused = push_from(&shard, (area, at)).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Malformed, "{wrong}");
    }
    let metric = vec![from_area((area, 0))];
    let what = Pushed::Node(Step(0), Node { level: 9, index: 0 });
    assert!(shard.push(&message(what, 2, metric)).is_err());
    assert_eq!(standing(), before);
    let told = push_from(&shard, (area + 1, 0)).unwrap();
    assert_eq!(told[0], PushOutcome::NoArea);
    assert!(matches!(told[1], PushOutcome::Applied { .. }), "the other block is given what it lacks");
    let told = push_from(&shard, (area, 0)).unwrap();
    assert!(matches!(told[0], PushOutcome::Applied { .. }), "{told:?}");
}

/// Waits until block 0 has published step 1, which came in an area of its own.
async fn updated(shard: &Arc<Shard>, area: u64) {
    let gradients = vec![from_area((area, 0))];
    shard.push(&message(Pushed::Node(Step(0), ROOT), 2, gradients)).unwrap();
    while shard.hosting().unwrap().block(BlockId(0)).unwrap().locked().published() < Version(1) {
        shard.note_done_now(&shard.device().unwrap().take_finished()).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn who_waits_no_longer_has_put_into_an_area_what_is_there() {
    let (fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    updated(&shard, area).await;
    let given = || shard.device().unwrap().usage().parameter_bytes;
    let (pull, copied_out) = (pull_into(Some((area, vec![16])), &[0], &[1]), fake.counts()[2]);
    let waiting = shard.pull(&pull, true).unwrap();
    assert!(!waiting.is_final && given() == 0, "the metric has published nothing");
    let pulled = shard.pull(&pull, false).unwrap();
    shard.given(&pulled.given).await.unwrap();
    assert!(pulled.blocks.len() == 1 && pulled.blocks[0].is_in_area);
    assert_eq!(fake.counts()[2], copied_out, "nothing is brought here");
    let there = shard.area(area).unwrap().words(16, 6).unwrap().bring().unwrap();
    let here = answered(&shard, &pull_into(None, &[0], &[]), |_| {}).await;
    assert_eq!((here.blocks[0].is_in_area, &here.blocks[0].parameters), (false, &there));
}

#[tokio::test]
async fn who_wants_no_parameters_has_none_brought() {
    let (_fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    updated(&shard, area).await;
    let pulled = shard.pull(&pull_into(None, &[], &[0]), true).unwrap();
    assert!(pulled.is_final && pulled.blocks[0].version == 1, "{pulled:?}");
}

#[tokio::test]
async fn whoever_is_put_something_into_an_area_is_answered_with_it() {
    let (_fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    updated(&shard, area).await;
    let given = || shard.device().unwrap().usage().parameter_bytes;
    // The second cannot lie there: it has to be brought here first.
    let pulled = shard.pull(&pull_into(Some((area, vec![16, 8])), &[0, 0], &[]), true).unwrap();
    assert!(pulled.is_final || given() == 0, "{pulled:?}");
}

#[tokio::test]
async fn a_pull_is_answered_once_its_parameters_are_in_the_area_and_not_before() {
    let (fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    updated(&shard, area).await;
    let service = PserverService::new(shard);
    let pull = || {
        let (job, blocks, places) = ("test".to_owned(), vec![0], vec![16]);
        let (step, rewind, wait_millis) = (1, 3, 1);
        Request::new(proto::PullRequest {
            job,
            step,
            rewind,
            blocks,
            area,
            places,
            wait_millis,
            ..Default::default()
        })
    };
    fake.set("STALL_AFTER", "0");
    let early = tokio::time::timeout(Duration::from_millis(100), service.pull(pull())).await;
    assert!(early.is_err(), "{early:?}");
    fake.set("STALL_AFTER", "");
    let answer = service.pull(pull()).await.unwrap().into_inner();
    assert!(answer.blocks[0].is_in_area);
}

#[tokio::test]
async fn whoever_asks_for_something_else_is_answered_while_a_copy_waits_for_the_device() {
    let (fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    updated(&shard, area).await;
    // On threads of its own, as it is outside of tests.
    let shard = Arc::into_inner(shard).unwrap().with_processors(Processors::all());
    let service = PserverService::new(Arc::new(shard));
    let read =
        proto::ReadStateRequest { job: "test".to_owned(), version: 1, blocks: vec![0], ..Default::default() };
    let decide = proto::DecideRequest { job: "test".to_owned(), ..Default::default() };
    fake.set("STALL_AFTER", "0");
    let read = service.read_state(Request::new(read));
    tokio::pin!(read);
    for _ in 0..20 {
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut read).await.is_err(), "it waits");
        let _ = service.decide(Request::new(decide.clone())).await;
    }
    fake.set("STALL_AFTER", "");
    assert_eq!(read.await.unwrap().into_inner().blocks[0].slots.len(), 2);
}

/// Whoever gave a call up does not wait any more, but its thread does: the next are not given more threads meanwhile.
#[tokio::test]
async fn calls_that_were_given_up_are_counted_until_their_threads_are_done() {
    let (fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    updated(&shard, area).await;
    let shard = Arc::new(Arc::into_inner(shard).unwrap().with_processors(Processors::all()));
    fake.set("STALL_AFTER", "0");
    let read = |shard: &Shard| shard.read_state(Version(1), &[BlockId(0)], 0).unwrap().len();
    for _ in 0..3 {
        let given_up = tokio::time::timeout(Duration::from_millis(20), shard.beside(read)).await;
        assert!(given_up.is_err(), "it waits");
    }
    assert_eq!(shard.waiters.available_permits(), WAITERS_MAX - 3);
    fake.set("STALL_AFTER", "");
    let all = shard.waiters.acquire_many(WAITERS_MAX as u32);
    let back = tokio::time::timeout(Duration::from_secs(30), all).await;
    assert!(back.is_ok(), "each is given back once its thread is done");
}

#[tokio::test]
async fn a_pull_hears_of_what_is_published_and_of_what_is_brought() {
    let (_fake, _folder, shard) = with_device();
    let (area, _lock) = shared(&shard, TRAINER).unwrap();
    let shard = Arc::new(shard);
    let service = PserverService::new(Arc::clone(&shard));
    let request = proto::PullRequest {
        job: "test".to_owned(),
        step: 1,
        rewind: 3,
        blocks: vec![0],
        wait_millis: 10_000,
        ..Default::default()
    };
    let pushed = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let gradients = vec![from_area((area, 0))];
        shard.push(&message(Pushed::Node(Step(0), ROOT), 2, gradients)).unwrap();
    };
    let pulled = async { tokio::join!(service.pull(Request::new(request)), pushed).0 };
    let answer = tokio::select! {
        refusal = shard.land() => panic!("{refusal}"),
        answer = tokio::time::timeout(Duration::from_secs(5), pulled) => answer.expect("it is told").unwrap(),
    };
    assert_eq!(answer.into_inner().blocks[0].parameters.len(), 24);
}
