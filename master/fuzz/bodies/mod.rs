//! What must hold of a master whatever it is sent, and of its document whatever a store holds: nothing panics, and no message
//! ends the master or makes it write what it cannot read. The bodies of the fuzz targets, which an ordinary test runs too.

use prost::Message;
use shoal_job::spec::{self, Spec};
use shoal_master::document::{Document, Wanted};
use shoal_master::keeper::Keeper;
use shoal_master::service::MasterService;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{
    Declaration, Evaluated, JobId, JobSettings, Manifest, Metric, Mode, Parameter, Period, Precision, Rule,
    Schedule,
};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial};
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store::{MemoryStore, Store};
use shoal_runtime::wire::proto::{self, master_server::Master};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Status};

/// The job of the master that is sent to.
pub(crate) const JOB: &str = "j";
/// The routing version at which its blocks are placed.
pub(crate) const PLACED: u64 = 2;

/// A document that is read is written again with the bytes of what was read.
pub(crate) fn document(bytes: &[u8]) {
    let Ok(document) = Document::from_bytes(bytes) else { return };
    let again = document.to_bytes();
    assert_eq!(Document::from_bytes(&again).expect("it was written").to_bytes(), again);
    let _ = (document.routing(), document.newest(), document.rewind(), document.restored_version());
}

/// Nobody can be reached, and nobody is known to be gone.
struct Nobody;

impl Dial for Nobody {
    fn dial(&self, address: &str, _: Option<Role>) -> Result<Channel, String> {
        Err(format!("{address}: a master calls nobody"))
    }
}

/// The first byte says what kind of job it is; then messages, each behind its kind (a byte) and its length (two bytes). A
/// pserver has registered and a trainer has joined before.
pub(crate) fn service(bytes: &[u8]) {
    let _ = told(bytes);
}

/// The same; what each message was told.
pub(crate) fn told(bytes: &[u8]) -> Vec<Result<(), Option<Status>>> {
    let Some((kind, mut rest)) = bytes.split_first() else { return Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let (store, service) = (MemoryStore::new(), MasterService::new());
    let storage = Storage::over(Arc::new(object_store::memory::InMemory::new()), "memory");
    let manifest = manifest();
    let wanted = Wanted { pservers: 1, trainers: 1, replicas: u32::from(kind & 2 != 0), exclude_max: 5 };
    let keeper = Keeper {
        store: &store,
        dial: &Nobody,
        identity: String::from("m"),
        fresh: Document::new(settings(*kind, &manifest), wanted),
        manifest,
        storage: &storage,
        place: String::from("memory"),
        store_place: String::from("memory"),
        spec: spec(*kind),
    };
    let mut random = Random::seeded(1);
    let mut told = Vec::new();
    let messages = async {
        begin(&service).await;
        while let Some((head, after)) = rest.split_first_chunk::<3>() {
            let length = usize::from(u16::from_le_bytes([head[1], head[2]])).min(after.len());
            let (message, after) = after.split_at(length);
            rest = after;
            told.push(send(&service, head[0], message).await);
            // Decisions are swapped in between.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        service.describe(Request::new(proto::DescribeRequest {})).await.expect("it still leads");
        let (_, kept) = store.load().await.expect("memory").expect("it was elected");
        Document::from_bytes(&kept).expect("it reads what it has written");
    };
    runtime.expect("a runtime").block_on(async {
        tokio::select! {
            biased;
            error = keeper.keep(&service, &mut random) => panic!("a message has ended the master: {error:#}"),
            () = messages => {}
        }
    });
    told
}

/// A pserver and a trainer come, and blocks are placed.
async fn begin(service: &MasterService) {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (job, name) = (JOB.to_owned(), String::from("p"));
    let register =
        proto::RegisterRequest { job, name, address: String::from("p:1"), nonce: 1, ..Default::default() };
    service.register(Request::new(register)).await.expect("a pserver");
    let (job, name, declaration) = (JOB.to_owned(), String::from("t"), Some((&declaration()).into()));
    let join = proto::JoinRequest { job, name, nonce: 2, declaration, ..Default::default() };
    service.join(Request::new(join)).await.expect("a trainer");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let status = service
        .status(Request::new(proto::StatusRequest { job: JOB.to_owned(), ..Default::default() }))
        .await;
    let routing = status.expect("it leads").into_inner().routing.expect("blocks are placed");
    assert_eq!(routing.ranges[0].term, PLACED);
}

/// One message; refused or not, the master goes on.
async fn send(service: &MasterService, kind: u8, message: &[u8]) -> Result<(), Option<Status>> {
    fn read<M: Message + Default>(message: &[u8]) -> Result<M, Option<Status>> {
        M::decode(message).map_err(|_| None)
    }
    macro_rules! call {
        ($method:ident, $request:ident) => {{
            let request = proto::$request { job: JOB.to_owned(), ..read(message)? };
            service.$method(Request::new(request)).await.map(drop).map_err(Some)
        }};
    }
    match kind % 11 {
        0 => call!(join, JoinRequest),
        1 => call!(lease, LeaseRequest),
        2 => call!(leave, LeaveRequest),
        3 => call!(register, RegisterRequest),
        4 => call!(report, ReportRequest),
        5 => call!(watch, WatchRequest),
        6 => call!(route, RouteRequest),
        7 => call!(scale, ScaleRequest),
        8 => call!(drain, DrainRequest),
        9 => {
            let request = proto::CheckpointRequest { job: JOB.to_owned() };
            service.checkpoint(Request::new(request)).await.map(drop).map_err(Some)
        }
        _ => {
            let request = proto::StatusRequest { job: JOB.to_owned(), ..Default::default() };
            service.status(Request::new(request)).await.map(drop).map_err(Some)
        }
    }
}

fn manifest() -> Manifest {
    let mut manifest = Manifest::default();
    manifest.push_file(String::from("train.recordio"), 400);
    for _ in 0..4 {
        manifest.push_chunk(0, 100, 6, 1);
    }
    manifest
}

/// The settings that the master goes by when it begins.
fn spec(kind: u8) -> Spec {
    let mode = if kind & 1 == 0 { "sync" } else { "async" };
    let text = format!(
        r#"{{"data":["d"],"mode":"{mode}","checkpoint":{{"everySteps":2,"everySeconds":0,"fullEvery":3}}}}"#
    );
    spec::Document::parse(&text).expect("settings").0
}

fn settings(kind: u8, manifest: &Manifest) -> JobSettings {
    let mode = match kind & 1 {
        0 => Mode::SYNC,
        _ => Mode::Async { staleness_window: 8, scale_by_staleness: true },
    };
    JobSettings {
        job: JobId(JOB.to_owned()),
        seed: 7,
        epochs: 2,
        microbatch_records: 2,
        microbatches_per_step: 4,
        shuffle_run: 2,
        records: 18,
        manifest_fingerprint: manifest.fingerprint(),
        lease_ttl_millis: 1000,
        mode,
        gradients: Precision::F32,
        warm_start: None,
        evaluated: Some(Evaluated { records: 6, every: Period::Epochs(1), outputs: None }),
    }
}

/// Two blocks of a weight, one of a metric.
pub(crate) fn declaration() -> Declaration {
    let weight = Parameter::new("w", &[6], Rule::ADAM, Schedule::constant(0.1), Initial::Zeros);
    let parameters = vec![weight, Parameter::metric("right", Metric::Accuracy)];
    Declaration { parameters, block_elements: 4 }
}
