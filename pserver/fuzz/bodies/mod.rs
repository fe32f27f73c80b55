//! What must hold of a pserver whatever it is sent: nothing panics, and what is refused has changed nothing. The body of the
//! fuzz target, which an ordinary test runs too.

use prost::Message;
use shoal_pserver::block::Placement;
use shoal_pserver::block::evaluate::Verdicts;
use shoal_pserver::block::primary::PlacedCopy;
use shoal_pserver::hosting::Assignment;
use shoal_pserver::service::PserverService;
use shoal_pserver::shard::Shard;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{
    BlockId, Decisions, Declaration, Evaluated, Fill, Incarnation, JobId, JobSettings, Layout, Metric, Mode,
    Parameter, Period, Precision, RefusalKind, Rewind, Rule, Schedule, Term,
};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto::{self, pserver_server::Pserver};
use std::sync::Arc;
use tonic::{Request, Status};

/// The job of the pserver that is sent to.
pub(crate) const JOB: &str = "j";
/// Its incarnation, and that of a follower.
pub(crate) const ME: Incarnation = Incarnation(1 << 40 | 1);
pub(crate) const FOLLOWER: Incarnation = Incarnation(1 << 40 | 2);
/// The routing version at which its blocks were placed.
pub(crate) const PLACED: u64 = 3;

/// The first byte says what kind of job it is, and whether the pserver leads or follows; then messages, each behind its kind (a
/// byte) and its length (two bytes).
pub(crate) fn service(bytes: &[u8]) {
    let Some((kind, mut rest)) = bytes.split_first() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let shard = shard(*kind).await;
        let service = PserverService::new(Arc::clone(&shard));
        while let Some((head, after)) = rest.split_first_chunk::<3>() {
            let length = usize::from(u16::from_le_bytes([head[1], head[2]])).min(after.len());
            let (message, after) = after.split_at(length);
            rest = after;
            let (before, failure) = (state(&shard), shard.failure());
            let Err(Some(status)) = send(&shard, &service, head[0], message).await else { continue };
            let fault = Fault::from(status);
            let refused = fault.refusal().expect("a pserver says why").kind;
            assert_eq!(state(&shard), before, "a refused message has changed something");
            let is_fatal = matches!(refused, RefusalKind::Nondeterministic | RefusalKind::JobFailed);
            assert!(is_fatal || shard.failure() == failure, "{refused:?} has failed the job");
        }
    });
}

/// All that a pserver knows, but for what has failed the job and the signal that tells of it.
fn state(shard: &Shard) -> String {
    let all = format!("{shard:?}");
    let (before, rest) = all.split_once("failure: Mutex").expect("a shard has a failure");
    let (_, after) = rest.split_once(" violated: Mutex").expect("a shard has the signal behind it");
    format!("{before}{after}")
}

/// One message. None: it is no message of its kind, or one of which a part may be refused and the rest is taken in.
async fn send(
    shard: &Arc<Shard>,
    service: &PserverService,
    kind: u8,
    message: &[u8],
) -> Result<(), Option<Status>> {
    fn read<M: Message + Default>(message: &[u8]) -> Result<M, Option<Status>> {
        M::decode(message).map_err(|_| None)
    }
    let job = || JOB.to_owned();
    match kind % 6 {
        0 => {
            let request = proto::PushRequest { job: job(), ..read(message)? };
            service.push(Request::new(request)).await.map(drop).map_err(Some)
        }
        1 => {
            let request = proto::PullRequest { job: job(), ..read(message)? };
            service.pull(Request::new(request)).await.map(drop).map_err(Some)
        }
        2 => {
            let request = proto::FollowRequest { job: job(), primary: ME.0, ..read(message)? };
            service.follow(Request::new(request)).await.map(drop).map_err(Some)
        }
        3 => {
            let request = proto::DecideRequest { job: job(), ..read(message)? };
            service.decide(Request::new(request)).await.map(drop).map_err(Some)
        }
        4 => {
            let request = proto::ReadStateRequest { job: job(), ..read(message)? };
            service.read_state(Request::new(request)).await.map(drop).map_err(Some)
        }
        _ => {
            let reply: proto::FollowReply = read(message)?;
            shard.hear(reply.blocks).await.map_err(|_| None)
        }
    }
}

/// A pserver that leads all blocks of a small job, or follows them: synchronous, with a delay, deciding over all blocks,
/// asynchronous, or with rounded gradients.
async fn shard(kind: u8) -> Arc<Shard> {
    let (mode, decides) = match kind % 5 {
        0 | 4 => (Mode::SYNC, false),
        1 => (Mode::Sync { delay: 2 }, false),
        2 => (Mode::SYNC, true),
        _ => (Mode::Async { staleness_window: 8, scale_by_staleness: true }, false),
    };
    let declaration = declaration(decides);
    let gradients = if kind % 5 == 4 { Precision::Bf16 } else { Precision::F32 };
    let shard = Shard::new(settings(mode, gradients), 4, ME);
    let copy = PlacedCopy { pserver: FOLLOWER, fill: Fill(PLACED + 1), is_in_sync: false };
    let leads = (kind / 5).is_multiple_of(2);
    let placement = Placement {
        fill: Fill(PLACED),
        term: Term(PLACED),
        rewind: Rewind(PLACED),
        primary: if leads { ME } else { FOLLOWER },
        copies: if leads { vec![copy] } else { Vec::new() },
        heir: None,
        origin: None,
    };
    let blocks = Layout::new(&declaration).len() as u32;
    let assignment = Assignment {
        master_term: 1,
        routing_version: PLACED + 1,
        declaration,
        blocks: (0..blocks).map(|block| (BlockId(block), placement.clone())).collect(),
        pservers: Vec::new(),
        may_leave: false,
        is_over: false,
        checkpoint: None,
        scalars: decides.then_some(ME),
        exclusions: 0,
        verdicts: Verdicts::default(),
        record_hashes: 0,
    };
    let shard = Arc::new(shard);
    shard.assign(assignment).await.expect("a sound assignment");
    let unrestored = shard.unrestored().expect("nobody panicked").into_iter();
    let unrestored = unrestored.map(|(hosted, term, _)| (hosted, term)).collect();
    shard.restore_initial(unrestored).await.expect("initial values");
    shard
}

fn settings(mode: Mode, gradients: Precision) -> JobSettings {
    JobSettings {
        job: JobId(JOB.to_owned()),
        seed: 1,
        epochs: 2,
        microbatch_records: 2,
        microbatches_per_step: 4,
        shuffle_run: 1,
        records: 21,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 1000,
        mode,
        gradients,
        warm_start: None,
        evaluated: Some(Evaluated { records: 3, every: Period::Epochs(1), outputs: None }),
    }
}

/// Blocks 0 and 1 are of a weight, 2 of a counter, 3 of a metric.
fn declaration(decides: bool) -> Declaration {
    let weight = Parameter::new("w", &[6], Rule::ADAM, Schedule::constant(0.1), Initial::Zeros);
    let metric = Parameter::metric("right", Metric::Accuracy);
    let declaration =
        Declaration { parameters: vec![weight, Parameter::sum("loss", &[1]), metric], block_elements: 4 };
    if decides {
        declaration.deciding(Decisions { clip_norm: Some(1.0), ..Decisions::default() })
    } else {
        declaration
    }
}
