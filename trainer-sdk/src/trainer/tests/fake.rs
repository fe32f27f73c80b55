//! A master and pservers in memory that answer by a script, on a clock that tests pause. They know what they were
//! asked and keep no gradient.

use super::services::{Master, Pserver};
use crate::OnDevice;
use crate::chunks::{ChunkSource, ReadError};
use crate::program::Program;
use crate::{
    Batch, Declaration, Gradient, Group, Initial, Job, Keys, Model, Parameter, Parameters, Rule, Schedule,
    Table,
};
use crate::{Ended, TrainError, TrainerSettings, World, train_in};
use shoal_runtime::cluster::routing::{BlockRoute, PserverAddress};
use shoal_runtime::cluster::{
    Incarnation, JobId, JobSettings, Mode, Precision, Rewind, Routing, Slice, Task, Term,
};
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial, answering};
use shoal_runtime::host::shutdown::{Shutdown, ShutdownSender};
use shoal_runtime::wire::WireVersion;
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_runtime::wire::proto::{master_server::MasterServer, pserver_server::PserverServer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

type Call = tonic::codegen::http::Request<tonic::body::Body>;

/// The time to live of leases.
pub(super) const TTL: Duration = Duration::from_secs(8);

/// One push to one block: when, at which pserver, of what.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pushed {
    pub(super) pserver: usize,
    pub(super) block: u32,
    pub(super) step: u64,
    /// The node's index.
    pub(super) index: u32,
    pub(super) position: u64,
    pub(super) rewind: u64,
    pub(super) version: u64,
    pub(super) value: f32,
    /// Bytes of the gradient.
    pub(super) bytes: usize,
    /// The area that has it instead, and where.
    pub(super) area: (u64, u64),
}

/// What a pserver answers to one block's push.
pub(super) type Answers = Box<dyn FnMut(&Pushed) -> PushAnswer + Send>;

/// An area, a byte of it, and what is put there.
pub(super) type Give = Box<dyn FnMut(u64, u64, &[u8]) -> bool + Send>;

/// What the roles know, were asked, and will answer.
pub(super) struct State {
    pub(super) job: JobSettings,
    pub(super) routing: Routing,
    /// What the next calls for tasks are given.
    pub(super) tasks: VecDeque<Task>,
    pub(super) is_done: bool,
    /// The incarnation that the master knows.
    pub(super) knows: u64,
    /// So many answers to joins are lost.
    pub(super) lost_joins: u32,
    /// Which of the masters leads; none answers if there is none.
    pub(super) leader: Option<usize>,
    /// Masters that are dead.
    pub(super) is_dead: [bool; 2],
    /// Pservers that never answer pushes, and pulls.
    pub(super) no_pushes: [bool; 2],
    pub(super) no_pulls: [bool; 2],
    /// Of a block of parameters.
    pub(super) elements: usize,
    pub(super) answer: Answers,
    /// What a trainer that asks for an area is given.
    pub(super) share: Box<dyn FnMut(&proto::ShareRequest) -> proto::ShareReply + Send>,
    /// And how long it waits for that.
    pub(super) share_takes: Duration,
    /// Puts parameters into an area, from a byte on; false if it does not.
    pub(super) give: Option<Give>,
    /// Areas whose process has ended.
    pub(super) gone_areas: Vec<u64>,
    /// Whether a pserver has room for what it is asked about.
    pub(super) has_room: Box<dyn FnMut(&Pushed) -> bool + Send>,
    /// The highest published step, and per block the version and rewind number that the latest parameters are of.
    pub(super) published: u64,
    pub(super) latest: [(u64, u64); 3],
    /// A block that has published nothing yet.
    pub(super) unpublished: Option<u32>,
    pub(super) is_gone: bool,
    pub(super) pservers_speak: WireVersion,
    /// Whether a later process has the trainer's name.
    pub(super) is_superseded: bool,
    pub(super) joins: Vec<proto::JoinRequest>,
    pub(super) leases: Vec<(Instant, proto::LeaseRequest)>,
    pub(super) leaves: Vec<proto::LeaveRequest>,
    pub(super) pushes: Vec<(Instant, Pushed)>,
    /// Of room, without gradients.
    pub(super) questions: Vec<(Instant, Pushed)>,
    pub(super) pulls: Vec<(Instant, usize, proto::PullRequest)>,
    pub(super) shares: Vec<proto::ShareRequest>,
}

impl State {
    /// Whether the answer is lost.
    pub(super) fn hear_join(&mut self, request: proto::JoinRequest) -> bool {
        self.joins.push(request);
        let is_lost = self.lost_joins > 0;
        self.lost_joins = self.lost_joins.saturating_sub(1);
        is_lost
    }
}

/// The whole of it. Clones are the same one.
#[derive(Clone)]
pub(super) struct Fake(Arc<Mutex<State>>);

/// A routing of three blocks: (primary, term, rewind number) of each.
pub(super) fn routing(version: u64, blocks: [(u32, u64, u64); 3]) -> Routing {
    let pserver =
        |at: u64| PserverAddress { incarnation: Incarnation(at + 1), address: format!("pserver-{at}") };
    let blocks = blocks.map(|(primary, term, rewind)| BlockRoute {
        primary,
        term: Term(term),
        rewind: Rewind(rewind),
    });
    Routing { version, pservers: vec![pserver(0), pserver(1)], blocks: blocks.to_vec() }
}

impl Fake {
    pub(super) fn new(mode: Mode) -> Fake {
        let job = JobSettings {
            job: JobId("fake".to_owned()),
            seed: 1,
            epochs: 100,
            microbatch_records: 1,
            microbatches_per_step: 4,
            shuffle_run: 1,
            records: 4,
            manifest_fingerprint: [0; 32],
            lease_ttl_millis: TTL.as_millis() as u64,
            mode,
            gradients: Precision::F32,
            warm_start: None,
            evaluated: None,
        };
        Fake(Arc::new(Mutex::new(State {
            job,
            routing: routing(1, [(0, 1, 1), (1, 1, 1), (1, 1, 1)]),
            tasks: VecDeque::new(),
            is_done: false,
            knows: 0,
            lost_joins: 0,
            leader: Some(0),
            is_dead: [false; 2],
            no_pushes: [false; 2],
            no_pulls: [false; 2],
            elements: 1,
            answer: Box::new(|_| PushAnswer::Held),
            share: Box::new(|_| proto::ShareReply::default()),
            share_takes: Duration::ZERO,
            give: None,
            gone_areas: Vec::new(),
            has_room: Box::new(|_| true),
            published: 1000,
            latest: [(0, 1); 3],
            unpublished: None,
            is_gone: false,
            pservers_speak: WireVersion::PRESENT,
            is_superseded: false,
            joins: Vec::new(),
            leases: Vec::new(),
            leaves: Vec::new(),
            pushes: Vec::new(),
            questions: Vec::new(),
            pulls: Vec::new(),
            shares: Vec::new(),
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Waits until something is so, at most a minute.
    pub(super) async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        for _ in 0..60_000 {
            if is_so(&self.state()) {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
        panic!("never so: {what}");
    }

    /// A trainer at this cluster beside a script that ends it; the script says what it has found.
    pub(super) async fn train(
        &self,
        settings: TrainerSettings,
        model: Slope,
        script: impl AsyncFnOnce(&Fake, ShutdownSender),
    ) -> Option<Result<Ended, TrainError>> {
        self.train_on(Arc::new(NoChunks), settings, model, script).await
    }

    /// The same of any program, on records.
    pub(super) async fn train_on(
        &self,
        source: Arc<dyn ChunkSource>,
        settings: TrainerSettings,
        model: impl Model + Send + 'static,
        script: impl AsyncFnOnce(&Fake, ShutdownSender),
    ) -> Option<Result<Ended, TrainError>> {
        self.train_program(source, settings, Program::in_place(model), script).await
    }

    /// The same, wherever the program runs.
    pub(super) async fn train_program(
        &self,
        source: Arc<dyn ChunkSource>,
        settings: TrainerSettings,
        program: Program,
        script: impl AsyncFnOnce(&Fake, ShutdownSender),
    ) -> Option<Result<Ended, TrainError>> {
        let (sender, shutdown) = Shutdown::pair();
        let world = World { dial: Arc::new(self.clone()), source, random: Random::seeded(3), shutdown };
        let trainer = train_in(program, settings, world);
        let mut ended = None;
        tokio::pin!(trainer);
        tokio::select! {
            biased;
            outcome = &mut trainer => ended = Some(outcome),
            () = script(self, sender) => {}
        }
        ended
    }
}

/// Settings that name the masters and compute in place.
pub(super) fn settings() -> TrainerSettings {
    TrainerSettings {
        master: "master-0,master-1".to_owned(),
        name: "t".to_owned(),
        processors: Processors::in_place(),
        ..TrainerSettings::default()
    }
}

impl Dial for Fake {
    fn dial(&self, address: &str, _: Option<Role>) -> Result<Channel, String> {
        let (role, at) = address.rsplit_once('-').ok_or("no such role")?;
        let at = at.parse().map_err(|_| "no number")?;
        let fake = self.clone();
        Ok(match role {
            "master" => {
                let server = answering(MasterServer::new(Master { fake, at }), WireVersion::PRESENT);
                BoxCloneSyncService::new(ServiceExt::<Call>::map_err(
                    server,
                    |never: Infallible| match never {},
                ))
            }
            _ => {
                let version = fake.state().pservers_speak;
                let server = answering(PserverServer::new(Pserver { fake, at }), version);
                BoxCloneSyncService::new(ServiceExt::<Call>::map_err(
                    server,
                    |never: Infallible| match never {},
                ))
            }
        })
    }
}

/// Two parameters in a block each, and a metric in a third. The gradient tells which parameters it is of.
#[derive(Clone, Default)]
pub(super) struct Slope {
    pub(super) computed: Arc<AtomicU32>,
    /// Elements of a block less one.
    pub(super) more_elements: usize,
    /// Keys of a table in a block of its own; the parameters are in one block then.
    pub(super) keys: u64,
    /// Whether the two parameters are on a device.
    pub(super) is_on_device: bool,
    /// Whether they are frozen.
    pub(super) is_frozen: bool,
    /// All parameters that it was given; `None`: it keeps none.
    pub(super) kept: Option<Arc<Mutex<Vec<Parameters>>>>,
}

impl Slope {
    pub(super) fn computed(&self) -> u32 {
        self.computed.load(Ordering::Relaxed)
    }
}

impl Model for Slope {
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        let elements = self.more_elements as u64 + 1;
        let w = Parameter::new("w", &[2 * elements], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
        let group = Group { is_frozen: self.is_frozen, ..Group::default() };
        let (mut parameters, mut block_elements) =
            (vec![w.in_group(group), Parameter::sum("loss", &[1])], elements);
        if self.keys > 0 {
            let t = Parameter::new("t", &[1], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
            parameters.push(t.as_table(Table { buckets: 1, ..Table::default() }));
            block_elements = 2 * elements;
        }
        Ok(Declaration { parameters, block_elements })
    }
    fn keys(&mut self, _: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
        Ok(keys.extend("t", 0..self.keys)?)
    }
    fn on_device(&mut self) -> Option<OnDevice> {
        self.is_on_device.then(|| OnDevice { ordinal: 0, parameters: vec!["w".to_owned()] })
    }
    fn step(
        &mut self,
        _: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        self.computed.fetch_add(1, Ordering::Relaxed);
        self.kept.iter().for_each(|kept| kept.lock().unwrap().push(parameters.clone()));
        match self.is_on_device {
            false => gradient.add("w", parameters.slice("w")?)?,
            true => gradient.on_device_mut("w")?.write(&parameters.on_device("w")?.read()?)?,
        }
        gradient.set_weight(1);
        Ok(())
    }
}

/// Microbatches of no records need no chunk.
pub(super) struct NoChunks;

impl ChunkSource for NoChunks {
    fn read<'a>(
        &'a self,
        _: &'a Slice,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, ReadError>> + Send + 'a>> {
        unreachable!("no task has a slice")
    }
}
