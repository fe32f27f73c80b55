//! A whole job in one thread: the real master, pservers and trainers on simulated hosts.

use super::coverage::{Coverage, Overtaken};
use super::data_set::DataSet;
use super::history::{History, Remembered};
use super::host::{Host, HostState};
use super::link::Door;
use super::network::Network;
use super::place::Place;
use super::scenario::Scenario;
use super::seen::Seen;
use super::spoiled::Poisoned;
use super::trace::Trace;
use anyhow::Context;
use shoal_master::document::{Checks, Document, Wanted};
use shoal_master::keeper::Keeper;
use shoal_master::service::MasterService;
use shoal_pserver::life::{leave, live};
use shoal_pserver::report::{Identity, register};
use shoal_pserver::service::PserverService;
use shoal_pserver::shard::Shard;
use shoal_runtime::cluster::permutation::key;
use shoal_runtime::cluster::{JobId, JobSettings};
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Limits, Masters};
use shoal_runtime::host::shutdown::{Shutdown, ShutdownSender};
use shoal_runtime::host::storage::Storage;
use shoal_runtime::host::store::{FileStore, ForgetfulDisk, MemoryStore};
use shoal_runtime::wire::proto::master_server::MasterServer;
use shoal_trainer_sdk::chunks::ChunkSource;
use shoal_trainer_sdk::{Ended, Model, TrainError, TrainerSettings, World as Doors, train_in};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot;

/// Where the master answers, and its host's name.
pub const MASTER: &str = "master";
/// The job's name.
pub const JOB: &str = "sim";

/// One life of a trainer.
#[derive(Debug)]
pub struct Trainer {
    /// The name it joins under.
    pub name: String,
    /// Where it runs; its own name is the trainer's, with a number after it from the second life on.
    pub host: Arc<Host>,
    /// Whether it was asked to leave.
    pub is_asked_to_leave: bool,
    told: oneshot::Receiver<Result<Ended, TrainError>>,
    is_over: Arc<AtomicBool>,
    shutdown: ShutdownSender,
}

/// The job.
#[derive(Debug)]
pub struct World {
    /// What it was made from.
    pub scenario: Scenario,
    /// What carries its calls.
    pub network: Arc<Network>,
    /// Its records.
    pub data: Arc<DataSet>,
    /// Its settings.
    pub job: JobSettings,
    /// The lives of the master; the last is the present one.
    pub masters: Vec<Arc<Host>>,
    /// The lives of pservers.
    pub pservers: Vec<Arc<Host>>,
    /// What outlives the master, where that is no disk.
    pub store: MemoryStore,
    /// The masters' handles of it, one for each life.
    pub stores: Vec<MemoryStore>,
    /// What outlives the master otherwise.
    pub disk: Option<ForgetfulDisk>,
    /// All documents that masters wrote.
    pub history: History,
    /// What pservers said.
    pub seen: Seen,
    /// Where checkpoints lie.
    pub storage: Storage,
    /// The same, in worlds that made it themselves.
    pub place: Option<Place>,
    /// All trainers there were.
    pub trainers: Vec<Trainer>,
    coverage: Coverage,
    overtaken: Overtaken,
}

impl World {
    /// Starts a master and pservers; trainers are still to come. Must be called inside a runtime with paused time.
    pub fn start(scenario: Scenario, keeps_lines: bool) -> World {
        let place = Place::new();
        let storage = Storage::over(Arc::new(place.clone()), "memory");
        World::begin(scenario, MemoryStore::new(), storage, Some(place), keeps_lines)
    }

    /// The same over a store and checkpoints that an earlier world may have left behind.
    pub fn start_over(scenario: Scenario, store: MemoryStore, storage: Storage, keeps_lines: bool) -> World {
        World::begin(scenario, store, storage, None, keeps_lines)
    }

    fn begin(
        scenario: Scenario,
        store: MemoryStore,
        storage: Storage,
        place: Option<Place>,
        keeps_lines: bool,
    ) -> World {
        let network = Network::new(scenario.depth, scenario.seed, scenario.weather, Trace::new(keeps_lines));
        network.let_clocks_drift(scenario.drift_percent);
        let data = Arc::new(DataSet::new(scenario.data, scenario.evaluated_records()));
        let job = job_settings(&scenario, &data);
        let history = History::default();
        let mut world = World {
            overtaken: Overtaken::watch(&network),
            disk: scenario.has_disk.then(ForgetfulDisk::new),
            seen: Seen::watch(&network, &history),
            history,
            place,
            scenario,
            network,
            data,
            job,
            masters: Vec::new(),
            pservers: Vec::new(),
            store,
            stores: Vec::new(),
            storage,
            trainers: Vec::new(),
            coverage: Coverage::new(),
        };
        world.start_master();
        for number in 1..=world.scenario.pservers {
            world.start_pserver(&format!("pserver-{number}"));
        }
        world
    }

    /// All hosts: the master's, the pservers', then the trainers' that are alive.
    pub fn hosts(&self) -> impl Iterator<Item = &Arc<Host>> {
        let living = self.trainers.iter().filter(|trainer| trainer.is_alive());
        self.masters
            .last()
            .into_iter()
            .chain(self.living_pservers())
            .chain(living.map(|trainer| &trainer.host))
    }
    /// Everybody is killed at once.
    pub fn crash_all(&self) {
        let trainers = self.trainers.iter().map(|trainer| &trainer.host);
        self.masters.iter().chain(&self.pservers).chain(trainers).for_each(|host| host.crash());
    }
    /// The pservers that were not killed.
    pub fn living_pservers(&self) -> impl Iterator<Item = &Arc<Host>> {
        self.pservers.iter().filter(|host| host.state() != HostState::Crashed)
    }
    /// Counts something that the run has met.
    pub fn met(&mut self, what: &'static str) {
        self.coverage.add(what, 1);
    }
    /// Counts something that the run has met so many times.
    pub fn met_times(&mut self, what: &'static str, times: u64) {
        self.coverage.add(what, times);
    }
    /// What the run has met, as far as the hosts know.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage.clone();
        coverage.add("calls for tasks overtaken", self.overtaken.count());
        coverage.count_documents(&self.history.documents());
        coverage
    }

    /// A master is started: the first, or one that takes over after a crash.
    pub fn start_master(&mut self) {
        let life = self.masters.len();
        let host = Host::new(&if life == 0 { MASTER.to_owned() } else { format!("{MASTER}#{}", life + 1) });
        let wanted = Wanted {
            pservers: self.scenario.pservers,
            trainers: self.scenario.trainers,
            replicas: self.scenario.replicas,
            exclude_max: self.scenario.exclude_max,
        };
        let (store, door) = (self.remembered_store(&host), Door::of(&host, &self.network));
        let storage = self.storage_of(&host);
        let spec = self.scenario.spec();
        let checks = Checks::of(&spec, &self.job);
        let fresh = Document { checks, ..Document::new(self.job.clone(), wanted) };
        let manifest = self.data.manifest().clone();
        let mut random = Random::seeded(key(&[self.scenario.seed, 1, life as u64]));
        let (network, identity) = (Arc::clone(&self.network), host.name.clone());
        let on = Arc::clone(&host);
        self.network.run(&host, async move {
            // Here, for its clock is that of its host.
            let service = MasterService::new();
            let storage = storage.watched_by(service.waits());
            network.serve(&on, MASTER, MasterServer::new(service.clone()));
            let keeper = Keeper {
                store: &store,
                dial: &door,
                identity,
                manifest,
                fresh,
                storage: &storage,
                place: String::from("memory"),
                store_place: String::from("the store"),
                spec,
            };
            let error = keeper.keep(&service, &mut random).await;
            network.note(9, format_args!("{} gives up: {error:#}", keeper.identity));
            on.crash();
        });
        self.masters.push(host);
    }

    /// A handle of what outlives the master.
    fn remembered_store(&mut self, host: &Arc<Host>) -> Remembered {
        let points = &self.network.points;
        if let Some(disk) = &self.disk {
            return self.history.of(FileStore::over(disk.clone()), host, points);
        }
        let store = self.store.another();
        self.stores.push(store.clone());
        self.history.of(store, host, points)
    }

    /// Where checkpoints lie, without what damaged them since they were written.
    pub async fn storage_as_written(&self) -> Storage {
        match &self.place {
            Some(place) => Storage::over(Arc::new(place.as_written().await), "memory"),
            None => self.storage.clone(),
        }
    }

    /// Where checkpoints lie, as a host has it.
    fn storage_of(&self, host: &Arc<Host>) -> Storage {
        let used = self.place.as_ref().map(|place| place.used_by(host, &self.network.points));
        used.map_or_else(|| self.storage.clone(), |place| Storage::over(Arc::new(place), "memory"))
    }

    /// A pserver is started under a name, which is also where it answers.
    pub fn start_pserver(&mut self, address: &str) {
        let lives = self.pservers.iter().filter(|host| host.name.split('#').next() == Some(address)).count();
        let host =
            Host::new(&if lives == 0 { address.to_owned() } else { format!("{address}#{}", lives + 1) });
        let (network, window) = (Arc::clone(&self.network), self.scenario.window);
        let memory = self.scenario.checkpoint_memory;
        let segments = self.scenario.tables.map_or(1 << 20, |tables| tables.segment_bytes);
        let mut random = Random::seeded(key(&[self.scenario.seed, 2, self.pservers.len() as u64 + 1]));
        let (address, storage) = (address.to_owned(), self.storage_of(&host));
        let door = Door::of(&host, &network);
        let on = Arc::clone(&host);
        self.network.run(&host, async move {
            let name = address;
            let mut identity = Identity {
                job: None,
                name: name.clone(),
                nonce: random.bits(),
                previous: None,
                address: name.clone(),
            };
            let masters = Masters::new(MASTER, &door).expect("any address will do");
            let registered = register(&masters, &identity, &mut random).await;
            let Ok((incarnation, job, _)) = registered else { return on.crash() };
            let shard = Shard::new(job, window, incarnation);
            let shard = shard.with_checkpoint_memory(memory).with_segments(segments);
            let shard = Arc::new(shard);
            let server = PserverService::new(Arc::clone(&shard)).server(Limits::default());
            network.serve(&on, &name, server);
            // Nobody asks it to leave but the master.
            let (_asks, asked) = Shutdown::pair();
            tokio::select! {
                biased;
                fault = live(&shard, &door, &masters, &storage, &mut identity, &mut random) => {
                    network.note(9, format_args!("{name} gives up: {fault}"));
                }
                _ = leave(&shard, asked, Duration::ZERO) => network.note(9, format_args!("{name} has left")),
            }
            on.crash();
        });
        self.pservers.push(host);
    }

    /// A trainer joins under `name` with the scenario's program. Returns its index.
    pub fn start_trainer(&mut self, name: &str) -> usize {
        let number = self.trainers.len();
        let (program, pace) = (self.scenario.program_of(number), self.scenario.pace(number));
        match self.scenario.poison_of(number) {
            None => self.start_trainer_with(name, pace, program),
            Some(record) => {
                let model = Poisoned { program, records: vec![record], evaluated: None, panics: false };
                self.start_trainer_with(name, pace, model)
            }
        }
    }

    /// A trainer joins under `name` with a model and a pace of its own. Returns its index.
    pub fn start_trainer_with(
        &mut self,
        name: &str,
        pace: Duration,
        model: impl Model + Send + 'static,
    ) -> usize {
        let source = self.data.clone();
        self.start_trainer_over(name, pace, model, source)
    }

    /// A trainer joins under `name` with a model, a pace and a way of reading of its own. Returns its index.
    pub fn start_trainer_over(
        &mut self,
        name: &str,
        pace: Duration,
        model: impl Model + Send + 'static,
        source: Arc<dyn ChunkSource>,
    ) -> usize {
        let lives = self.trainers.iter().filter(|trainer| trainer.name == name).count();
        let host = Host::new(&if lives == 0 { name.to_owned() } else { format!("{name}#{}", lives + 1) });
        let (sender, shutdown) = Shutdown::pair();
        let doors = Doors {
            dial: Arc::new(Door::of(&host, &self.network)),
            source,
            random: Random::seeded(key(&[self.scenario.seed, 3, self.trainers.len() as u64])),
            shutdown,
        };
        let settings = TrainerSettings {
            master: MASTER.to_owned(),
            name: name.to_owned(),
            attempt: Some(self.scenario.attempt),
            pace,
            processors: Processors::in_place(),
            ..TrainerSettings::default()
        };
        let (telling, told) = oneshot::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        self.network.run(&host, async move {
            let ended = train_in(shoal_trainer_sdk::program::Program::in_place(model), settings, doors).await;
            over.store(true, Relaxed);
            // Whoever started it may be gone.
            let _ = telling.send(ended);
        });
        self.network.note(3, format_args!("{} starts", host.name));
        self.trainers.push(Trainer {
            name: name.to_owned(),
            host,
            is_asked_to_leave: false,
            told,
            is_over,
            shutdown: sender,
        });
        self.trainers.len() - 1
    }
}

impl Trainer {
    /// Whether it is still at it, paused or not.
    pub fn is_alive(&self) -> bool {
        self.host.state() != HostState::Crashed && !self.is_over.load(Relaxed)
    }
    /// Asks it to leave, as SIGTERM does.
    pub fn ask_to_leave(&mut self) {
        self.is_asked_to_leave = true;
        self.shutdown.send();
    }
    /// How it ended; nothing if it crashed. Waits for the end.
    ///
    /// # Errors
    /// A panic in the trainer.
    pub async fn ended(&mut self) -> anyhow::Result<Option<Result<Ended, TrainError>>> {
        if self.host.state() == HostState::Crashed {
            return Ok(None);
        }
        match (&mut self.told).await {
            Err(_) if self.host.state() == HostState::Crashed => Ok(None),
            ended => Ok(Some(ended.context("it panicked")?)),
        }
    }
}

/// The settings of a job over a data set.
pub fn job_settings(scenario: &Scenario, data: &DataSet) -> JobSettings {
    JobSettings {
        job: JobId(JOB.to_owned()),
        seed: scenario.seed,
        epochs: scenario.epochs,
        microbatch_records: scenario.microbatch_records,
        microbatches_per_step: scenario.microbatches_per_step,
        shuffle_run: scenario.shuffle_run,
        records: scenario.data.records,
        manifest_fingerprint: data.manifest().fingerprint(),
        lease_ttl_millis: scenario.ttl.as_millis() as u64,
        mode: scenario.mode,
        gradients: scenario.gradients,
        warm_start: None,
        evaluated: scenario.evaluations.map(|evaluations| evaluations.settings()),
    }
}
