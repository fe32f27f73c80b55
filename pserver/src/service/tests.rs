//! The service over messages: jobs, long polls, answers.

use super::*;
use crate::block::primary::PlacedCopy;
use crate::block::tests::{ME, alone, async_job, job};
use crate::block::{NamedCheckpoint, Placement};
use crate::hosting::Assignment;
use crate::shard::tests::{assigned, assignment, empty, host};
use shoal_runtime::cluster::{CheckpointId, Fill, JobSettings, Version};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto::pserver_server::Pserver;

fn service() -> PserverService {
    let shard = empty(job(5, 2), 0, ME);
    host(&shard, assignment(3, &[0, 1]));
    PserverService::new(shard)
}

fn push(step: u64, node: (u32, u32), weight: u64) -> Request<proto::PushRequest> {
    let gradient = |block, elements| proto::BlockGradient {
        block,
        gradient: 1.0f32.to_le_bytes().repeat(elements).into(),
        rewind: 3,
        ..Default::default()
    };
    Request::new(proto::PushRequest {
        job: "test".into(),
        incarnation: 9,
        step,
        node: Some(proto::Node { level: node.0, index: node.1 }),
        weight,
        blocks: vec![gradient(0, 6), gradient(1, 1)],
        position: 0,
        exclusions: 0,
        ..Default::default()
    })
}

fn pull(step: u64, wait_millis: u32) -> Request<proto::PullRequest> {
    Request::new(proto::PullRequest {
        job: "test".into(),
        incarnation: 9,
        step,
        blocks: vec![0],
        without_data: vec![1],
        wait_millis,
        rewind: 3,
        ..Default::default()
    })
}

fn refusal<T>(answer: Answer<T>) -> RefusalKind {
    match answer.map(|_| ()).map_err(Fault::from) {
        Err(Fault::Refused(refusal)) => refusal.kind,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_pull_waits_for_its_step_and_no_longer_than_asked() {
    let service = service();
    let started = Instant::now();
    let empty = service.pull(pull(1, 300)).await.unwrap().into_inner();
    assert_eq!((empty.blocks.len(), started.elapsed()), (0, Duration::from_millis(300)));
    let pulled = async { (service.pull(pull(1, 5000)).await.unwrap().into_inner(), started.elapsed()) };
    let pushed = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        service.push(push(0, (1, 0), 2)).await.unwrap().into_inner()
    };
    let ((pulled, waited), pushed) = tokio::join!(pulled, pushed);
    assert_eq!(pushed.answers, [proto::PushAnswer::Applied as i32; 2]);
    assert_eq!(waited, Duration::from_millis(400));
    let lengths: Vec<usize> = pulled.blocks.iter().map(|block| block.parameters.len()).collect();
    assert_eq!(lengths, [24, 0]);
    assert_eq!(service.shard.counters().bytes_out, 24);
}

#[tokio::test(start_paused = true)]
async fn a_pull_is_not_kept_open_for_longer_than_the_service_allows() {
    let started = Instant::now();
    service().pull(pull(1, u32::MAX)).await.unwrap();
    assert_eq!(started.elapsed(), WAIT_MAX);
}

#[tokio::test]
async fn a_push_is_answered_busy_held_or_applied() {
    let service = service();
    let mut answers = Vec::new();
    for node in [(0, 1), (0, 0), (0, 0), (0, 1), (1, 0)] {
        let reply = service.push(push(0, node, 1 << node.0)).await.unwrap().into_inner();
        assert_eq!(reply.answers[0], reply.answers[1]);
        answers.push(reply.answers[0]);
    }
    let (held, applied, busy) =
        (proto::PushAnswer::Held, proto::PushAnswer::Applied, proto::PushAnswer::Busy);
    assert_eq!(answers, [busy, held, held, applied, applied].map(i32::from));
}

/// Whether there is room in block 1 for a leaf of step 0.
fn question(leaf: u32, wait_millis: u32) -> proto::PushRequest {
    let blocks = vec![proto::BlockGradient { block: 1, rewind: 3, ..Default::default() }];
    proto::PushRequest { blocks, asks: true, wait_millis, ..push(0, (0, leaf), 0).into_inner() }
}

async fn told(service: &PserverService, question: proto::PushRequest) -> proto::PushAnswer {
    let reply = service.push(Request::new(question)).await.unwrap().into_inner();
    assert_eq!(reply.answers.len(), 1);
    reply.answers().next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_question_for_room_is_kept_open_until_there_is_some() {
    let service = service();
    let started = Instant::now();
    assert_eq!(told(&service, question(1, 300)).await, proto::PushAnswer::Busy);
    assert_eq!(started.elapsed(), Duration::from_millis(300));
    assert_eq!(told(&service, question(0, 300)).await, proto::PushAnswer::Credit);
    let waiting = async { (told(&service, question(1, 5000)).await, started.elapsed()) };
    let pushed = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        service.push(push(0, (0, 0), 1)).await.unwrap();
    };
    let ((answer, waited), ()) = tokio::join!(waiting, pushed);
    assert_eq!((answer, waited), (proto::PushAnswer::Credit, Duration::from_millis(400)));
    assert_eq!(told(&service, question(0, 0)).await, proto::PushAnswer::Held, "it is there");
    assert_eq!(service.shard.counters().pushes, 1, "questions are none");
    service.push(push(0, (0, 1), 1)).await.unwrap();
    assert_eq!(told(&service, question(1, 0)).await, proto::PushAnswer::Applied);
}

/// What is still to be written of a checkpoint may hold nothing: the question waits until it is.
#[tokio::test(start_paused = true)]
async fn a_question_waits_for_a_checkpoints_memory() {
    let shard = Arc::new(Shard::new(job(5, 2), 0, ME).with_checkpoint_memory(0));
    let named =
        NamedCheckpoint { checkpoint: CheckpointId(1), version: Some(Version(0)), since: None, named_at: 1 };
    host(&shard, Assignment { checkpoint: Some(named), ..assignment(3, &[0, 1]) });
    let service = PserverService::new(shard);
    let started = Instant::now();
    assert_eq!(told(&service, question(0, 300)).await, proto::PushAnswer::Busy);
    let waiting = async { (told(&service, question(0, 5000)).await, started.elapsed()) };
    let written = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut pieces = service.shard.pieces();
        assert!(service.shard.give_pieces(&mut pieces, usize::MAX).await.unwrap().is_some());
        service.shard.go_on().await.unwrap();
    };
    let ((answer, waited), ()) = tokio::join!(waiting, written);
    assert_eq!((answer, waited), (proto::PushAnswer::Credit, Duration::from_millis(400)));
    assert_eq!(service.shard.counters().throttled, 2);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_waits_for_any_more_keeps_no_place() {
    let service = service();
    let gone = tokio::time::timeout(Duration::from_millis(50), told(&service, question(1, 5000))).await;
    assert!(gone.is_err());
    assert!(service.shard.is_credit_queue_empty());
    assert_eq!(told(&service, question(0, 0)).await, proto::PushAnswer::Credit);
}

#[tokio::test]
async fn a_question_of_an_older_history_for_a_block_elsewhere_or_without_sense_is_told_so() {
    let service = service();
    let mut older = question(0, 5000);
    older.blocks[0].rewind = 2;
    assert_eq!(told(&service, older).await, proto::PushAnswer::Rewound);
    let nowhere = PserverService::new(empty(job(5, 2), 0, ME));
    assert_eq!(told(&nowhere, question(0, 5000)).await, proto::PushAnswer::Moved);
    let unknown = |block| {
        let mut question = question(0, 0);
        question.blocks[0].block = block;
        question
    };
    for senseless in [
        proto::PushRequest { node: None, ..question(0, 0) },
        proto::PushRequest { blocks: Vec::new(), ..question(0, 0) },
        push(0, (0, 0), 1).into_inner(),
    ] {
        let senseless = proto::PushRequest { asks: true, ..senseless };
        assert_eq!(refusal(service.push(Request::new(senseless)).await), RefusalKind::Malformed);
    }
    let far = proto::PushRequest { step: 99, ..question(0, 0) };
    assert_eq!(refusal(service.push(Request::new(far)).await), RefusalKind::OutOfRange);
    assert_eq!(refusal(service.push(Request::new(question(2, 0))).await), RefusalKind::OutOfRange);
    assert_eq!(refusal(service.push(Request::new(unknown(77))).await), RefusalKind::OutOfRange);
}

#[tokio::test]
async fn the_job_is_looked_at_first() {
    let service = service();
    let (mut push, mut pull) = (push(0, (77, 0), 2).into_inner(), pull(99, 0).into_inner());
    (push.job, pull.job) = ("other".into(), "other".into());
    let state = proto::ReadStateRequest { job: "other".into(), version: 9, blocks: vec![7], from: 0 };
    assert_eq!(refusal(service.push(Request::new(push.clone())).await), RefusalKind::WrongJob);
    assert_eq!(refusal(service.pull(Request::new(pull)).await), RefusalKind::WrongJob);
    assert_eq!(refusal(service.read_state(Request::new(state)).await), RefusalKind::WrongJob);
    push.job = "test".into();
    assert_eq!(refusal(service.push(Request::new(push.clone())).await), RefusalKind::Malformed);
    push.node = None;
    assert_eq!(refusal(service.push(Request::new(push)).await), RefusalKind::Malformed);
}

#[tokio::test]
async fn state_has_the_parameters_and_every_slot() {
    let service = service();
    service.push(push(0, (1, 0), 2)).await.unwrap();
    let request = proto::ReadStateRequest { job: "test".into(), version: 1, blocks: vec![0, 1], from: 0 };
    let blocks = service.read_state(Request::new(request)).await.unwrap().into_inner().blocks;
    let lengths: Vec<(usize, Vec<usize>)> = blocks
        .iter()
        .map(|block| (block.parameters.len(), block.slots.iter().map(bytes::Bytes::len).collect()))
        .collect();
    assert_eq!(lengths, [(24, vec![24, 24]), (4, vec![4])]);
}

fn answers(reply: proto::PushReply) -> Vec<proto::PushAnswer> {
    reply.answers().collect()
}

#[tokio::test]
async fn a_push_is_answered_moved_or_rewound_block_by_block() {
    let shard = empty(job(5, 2), 0, ME);
    host(&shard, assignment(3, &[1]));
    let service = PserverService::new(shard);
    let mut request = push(0, (1, 0), 2).into_inner();
    request.blocks[1].rewind = 2;
    let reply = service.push(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(answers(reply), [proto::PushAnswer::Moved, proto::PushAnswer::Rewound]);
    let pulled = service.pull(pull(0, 10_000)).await.unwrap().into_inner();
    let blocks: Vec<_> =
        pulled.blocks.iter().map(|block| (block.block, block.version, block.rewind)).collect();
    assert_eq!((pulled.moved, blocks), (vec![0], vec![(1, 0, 3)]));
}

/// Block 0 is led here, with an in-sync follower of fill 4 on pserver 2.
fn followed(job: JobSettings) -> (Arc<Shard>, PserverService) {
    let shard = empty(job, 0, ME);
    let copy = PlacedCopy { pserver: Incarnation(2), fill: Fill(4), is_in_sync: true };
    host(&shard, assigned(1, 4, [(0, Placement { copies: vec![copy], ..alone(3) })]));
    (Arc::clone(&shard), PserverService::new(shard))
}

fn follow(primary: u64, held: Option<(u64, u64)>, wait_millis: u32) -> Request<proto::FollowRequest> {
    let name = held.map(|(term, version)| proto::StateName { term, version });
    Request::new(proto::FollowRequest {
        job: "test".into(),
        incarnation: 2,
        primary,
        blocks: vec![proto::FollowedBlocks { blocks: vec![0], term: 3, fill: 4, name, filled: 0 }],
        wait_millis,
        session: 0,
        number: 0,
        channel: 0,
    })
}

#[tokio::test(start_paused = true)]
async fn a_follower_is_answered_as_soon_as_there_is_something_and_waits_no_longer_than_asked() {
    let (_, service) = followed(job(5, 2));
    let news = |reply: Response<proto::FollowReply>| reply.into_inner().blocks;
    let filled = news(service.follow(follow(1, None, 300)).await.unwrap());
    let Some(proto::followed_block::News::Copy(copy)) = &filled[0].news else { panic!("{filled:?}") };
    assert_eq!((filled[0].block, filled[0].term, filled[0].fill, filled[0].published), (0, 3, 4, 0));
    assert_eq!((copy.name, copy.rewind), (Some(proto::StateName { term: 3, version: 0 }), 3));
    let started = Instant::now();
    assert!(news(service.follow(follow(1, Some((3, 0)), 300)).await.unwrap()).is_empty());
    assert_eq!(started.elapsed(), Duration::from_millis(300));
    let pushed = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        service.push(push(0, (1, 0), 2)).await.unwrap().into_inner()
    };
    let (followed, pushed) = tokio::join!(service.follow(follow(1, Some((3, 0)), 300)), pushed);
    assert_eq!(started.elapsed(), Duration::from_millis(400));
    assert_eq!(answers(pushed)[0], proto::PushAnswer::Held, "the copy has yet to say that it has it");
    let entry = news(followed.unwrap()).remove(0).news;
    let Some(proto::followed_block::News::Entry(entry)) = entry else { panic!("{entry:?}") };
    assert_eq!((entry.follows, entry.term), (copy.name, 3));
    assert_eq!((entry.weight, entry.gradient.len(), entry.position), (2, 24, None));
    service.follow(follow(1, Some((3, 1)), 0)).await.unwrap();
    assert_eq!(
        answers(service.push(push(0, (1, 0), 2)).await.unwrap().into_inner())[0],
        proto::PushAnswer::Applied
    );
    let broken = news(service.follow(follow(1, Some((2, 7)), 300)).await.unwrap());
    assert_eq!(broken[0].news, Some(proto::followed_block::News::IsBroken(true)));
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_means_another_life_or_another_job_is_given_nothing() {
    let (shard, service) = followed(job(5, 2));
    let reply = service.follow(follow(9, None, u32::MAX)).await.unwrap().into_inner();
    assert_eq!((reply.blocks.len(), reply.is_unknown), (0, true));
    service.follow(follow(9, Some((3, 0)), 0)).await.unwrap();
    push_held(&service).await;
    assert_eq!(shard.whole_standing().unwrap().0[0].version, 0, "it was not heard");
    let mut other = follow(1, None, 0).into_inner();
    other.job = "other".into();
    assert_eq!(refusal(service.follow(Request::new(other)).await), RefusalKind::WrongJob);
}

async fn push_held(service: &PserverService) {
    let reply = service.push(push(0, (1, 0), 2)).await.unwrap().into_inner();
    assert_eq!(answers(reply)[0], proto::PushAnswer::Held);
}

fn position(position: u64, blocks: &[u32]) -> Request<proto::PushRequest> {
    let mut request = push(0, (0, 0), 1).into_inner();
    (request.node, request.position) = (None, position);
    request.blocks.retain(|gradient| blocks.contains(&gradient.block));
    Request::new(request)
}

#[tokio::test(start_paused = true)]
async fn an_asynchronous_push_waits_a_little_for_the_copies_and_says_what_they_have() {
    let (_, service) = followed(async_job(10, 2, false));
    let push = || async { answers(service.push(position(4, &[0])).await.unwrap().into_inner()) };
    let started = Instant::now();
    assert_eq!(push().await, [proto::PushAnswer::Held]);
    assert_eq!(started.elapsed(), COPIES_WAIT);
    // Again, and this time the copy comes to have it.
    let copied = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        service.follow(follow(1, Some((3, 1)), 0)).await.unwrap();
    };
    let (answer, ()) = tokio::join!(push(), copied);
    assert_eq!(
        (answer, started.elapsed()),
        (vec![proto::PushAnswer::AlreadyApplied], COPIES_WAIT + Duration::from_millis(50))
    );
    assert_eq!(push().await, [proto::PushAnswer::AlreadyApplied]);
    let request = proto::PullRequest { rewind: 0, without_data: Vec::new(), ..pull(0, 0).into_inner() };
    let pulled = service.pull(Request::new(request)).await.unwrap().into_inner();
    assert_eq!((pulled.blocks[0].version, pulled.blocks[0].rewind), (1, 3));
    let beyond = service.push(position(30, &[0])).await;
    assert_eq!(refusal(beyond), RefusalKind::OutOfRange);
}

#[tokio::test(start_paused = true)]
async fn of_two_pushes_of_one_position_only_that_which_was_applied_is_told_so() {
    let (_, service) = followed(async_job(10, 2, false));
    let push = || async { answers(service.push(position(4, &[0])).await.unwrap().into_inner()) };
    let copied = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        service.follow(follow(1, Some((3, 1)), 0)).await.unwrap();
    };
    let (first, second, ()) = tokio::join!(push(), push(), copied);
    assert_eq!((first[0], second[0]), (proto::PushAnswer::Applied, proto::PushAnswer::AlreadyApplied));
}

#[tokio::test(start_paused = true)]
async fn an_asynchronous_push_of_many_blocks_waits_until_all_of_them_are_published() {
    let shard = empty(async_job(10, 2, false), 0, ME);
    let copy = |pserver| PlacedCopy { pserver: Incarnation(pserver), fill: Fill(4), is_in_sync: true };
    let placed = |pserver| Placement { copies: vec![copy(pserver)], ..alone(3) };
    host(&shard, assigned(1, 4, [(0, placed(2)), (1, placed(5))]));
    let service = PserverService::new(shard);
    let mut other = follow(1, Some((3, 1)), 0).into_inner();
    (other.incarnation, other.blocks[0].blocks) = (5, vec![1]);
    let copied = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        service.follow(follow(1, Some((3, 1)), 0)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        service.follow(Request::new(other)).await.unwrap();
    };
    let started = Instant::now();
    let (reply, ()) = tokio::join!(service.push(position(4, &[0, 1])), copied);
    assert_eq!(answers(reply.unwrap().into_inner()), [proto::PushAnswer::Applied; 2]);
    assert_eq!(started.elapsed(), Duration::from_millis(100));
}
