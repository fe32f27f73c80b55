//! The service over messages: jobs, long polls, answers.

use super::*;
use crate::block::tests::job;
use crate::shard::tests::{assignment, host};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto::pserver_server::Pserver;

fn service() -> PserverService {
    let shard = Shard::new(job(5, 2), 0);
    host(&shard, assignment(1, &[0, 1]));
    PserverService::new(Arc::new(shard))
}

fn push(step: u64, node: (u32, u32), weight: u64) -> Request<proto::PushRequest> {
    let gradient = |block, elements| proto::BlockGradient {
        block,
        gradient: 1.0f32.to_le_bytes().repeat(elements).into(),
    };
    Request::new(proto::PushRequest {
        job: "test".into(),
        incarnation: 9,
        routing_version: 1,
        step,
        node: Some(proto::Node { level: node.0, index: node.1 }),
        weight,
        blocks: vec![gradient(0, 6), gradient(1, 1)],
    })
}

fn pull(step: u64, wait_millis: u32) -> Request<proto::PullRequest> {
    Request::new(proto::PullRequest {
        job: "test".into(),
        incarnation: 9,
        routing_version: 1,
        step,
        blocks: vec![0],
        without_data: vec![1],
        wait_millis,
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

#[tokio::test]
async fn the_job_is_looked_at_first() {
    let service = service();
    let (mut push, mut pull) = (push(0, (77, 0), 2).into_inner(), pull(99, 0).into_inner());
    (push.job, pull.job) = ("other".into(), "other".into());
    let state = proto::ReadStateRequest { job: "other".into(), version: 9, blocks: vec![7] };
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
    let request = proto::ReadStateRequest { job: "test".into(), version: 1, blocks: vec![0, 1] };
    let blocks = service.read_state(Request::new(request)).await.unwrap().into_inner().blocks;
    let lengths: Vec<(usize, Vec<usize>)> = blocks
        .iter()
        .map(|block| (block.parameters.len(), block.slots.iter().map(Bytes::len).collect()))
        .collect();
    assert_eq!(lengths, [(24, vec![24, 24]), (4, vec![])]);
}
