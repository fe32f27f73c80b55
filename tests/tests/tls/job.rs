//! A job in this process: the real master, pservers and trainers over real sockets, each with credentials of its own.

use crate::shown::{Issuers, JOB};
use clap::Parser;
use shoal_master::settings::MasterSettings;
use shoal_pserver::PserverSettings;
use shoal_recordio::{Writer, WriterOptions};
use shoal_runtime::cluster::{Declaration, Routing};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Security, TcpDial, master_client, pserver_client};
use shoal_runtime::host::shutdown::{Shutdown, ShutdownSender};
use shoal_runtime::wire::proto::{self, StatusReply, master_client::MasterClient};
use shoal_trainer_sdk::program::Program;
use shoal_trainer_sdk::{
    Batch, Ended, Gradient, Model, Parameter, Parameters, TrainError, TrainerSettings, World, chunks,
    train_in,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Records of the job's data.
pub(crate) const RECORDS: u64 = 96;
const MICROBATCH: u64 = 2;

#[derive(Parser)]
struct Master {
    #[command(flatten)]
    settings: MasterSettings,
}

#[derive(Parser)]
struct Pserver {
    #[command(flatten)]
    settings: PserverSettings,
}

/// Counts every record once an epoch, in three parameters: record *i* adds `4^epoch` to element *i* of each.
pub(crate) struct Count;

impl Count {
    const NAMES: [&str; 3] = ["count.a", "count.b", "count.c"];

    pub(crate) fn declaration(records: u64) -> Declaration {
        let parameters = Count::NAMES.map(|name| Parameter::sum(name, &[records]));
        Declaration { parameters: parameters.to_vec(), block_elements: 0 }
    }
}

impl Model for Count {
    fn declare(&mut self, job: &shoal_trainer_sdk::Job) -> anyhow::Result<Declaration> {
        Ok(Count::declaration(job.records))
    }

    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        for name in Count::NAMES {
            let counts = gradient.slice_mut(name)?;
            for record in batch.records {
                counts[record.index as usize] += (1u32 << (2 * batch.epoch)) as f32;
            }
        }
        Ok(())
    }
}

/// A job whose master and pservers run in tasks of this thread.
pub(crate) struct Job {
    pub(crate) master: String,
    pub(crate) pservers: Vec<JoinHandle<anyhow::Result<()>>>,
    pub(crate) master_ends: JoinHandle<anyhow::Result<()>>,
    stop: ShutdownSender,
    stopped: Shutdown,
}

fn words(more: &[&str]) -> Vec<String> {
    std::iter::once("role").chain(more.iter().copied()).map(str::to_owned).collect()
}

/// Settings of a master of the job, with `tls`.
pub(crate) fn master_settings(folder: &Path, tls: &Path, more: &[&str]) -> MasterSettings {
    let data = folder.join("data.recordio");
    if !data.exists() {
        let options = WriterOptions { chunk_bytes: 16, ..Default::default() };
        let mut writer = Writer::new(Vec::new(), options);
        (0..RECORDS).for_each(|record| writer.write(&record.to_le_bytes()).unwrap());
        std::fs::write(&data, writer.finish().unwrap()).unwrap();
    }
    let (data, state) = (data.display().to_string(), folder.join("state").display().to_string());
    let microbatch = MICROBATCH.to_string();
    let common = ["--job", JOB, "--data", &data, "--store", &state, "--listen", "127.0.0.1:0"];
    let common = [&common[..], &["--lease-ttl-millis", "1000", "--microbatch-records", &microbatch]].concat();
    let tls = ["--tls", tls.to_str().unwrap()];
    Master::try_parse_from(words(&[&common[..], &tls, more].concat())).unwrap().settings
}

pub(crate) fn pserver_settings(master: &str, name: &str, tls: &Path) -> PserverSettings {
    let words = words(&["--master", master, "--name", name, "--tls", tls.to_str().unwrap()]);
    Pserver::try_parse_from(words).unwrap().settings
}

pub(crate) fn trainer_settings(master: &str, name: &str, tls: Option<PathBuf>) -> TrainerSettings {
    TrainerSettings {
        master: master.to_owned(),
        name: name.to_owned(),
        patience: Duration::from_secs(20),
        tls,
        ..TrainerSettings::default()
    }
}

/// A trainer's life, as `shoal_trainer_sdk::train` lives it.
pub(crate) async fn train(settings: TrainerSettings, shutdown: Shutdown) -> Result<Ended, TrainError> {
    let world = World {
        dial: Arc::new(TcpDial { security: settings.security()?, ..TcpDial::default() }),
        source: Arc::new(chunks::Stored::default()),
        random: Random::from_os(),
        shutdown,
    };
    train_in(Program::in_place(Count), settings, world).await
}

impl Job {
    /// Starts a master and two pservers. Must be called within a local set.
    pub(crate) async fn start(issuers: &Issuers, more: &[&str]) -> Job {
        let (stop, stopped) = Shutdown::pair();
        let more = [&["--pservers", "2", "--replicas", "1"], more].concat();
        let settings = master_settings(issuers.folder.path(), &issuers.good(Role::Master), &more);
        let (told, address) = tokio::sync::oneshot::channel();
        let running = stopped.clone();
        let master_ends = tokio::task::spawn_local(async move {
            let ready = move |address: std::net::SocketAddr| told.send(address).unwrap();
            shoal_master::run(settings, ready, running).await
        });
        let master = address.await.unwrap().to_string();
        let pservers = (0..2).map(|number| {
            let tls = issuers.good(Role::Pserver);
            let settings = pserver_settings(&master, &format!("pserver-{number}"), &tls);
            let (leave, stop) = (stopped.clone(), stopped.clone());
            tokio::task::spawn_local(shoal_pserver::run(settings, leave, stop))
        });
        let pservers = pservers.collect();
        Job { pservers, master, master_ends, stop, stopped }
    }

    pub(crate) fn stopped(&self) -> Shutdown {
        self.stopped.clone()
    }

    pub(crate) fn client(&self, security: &Security) -> MasterClient<Channel> {
        let dial = TcpDial { security: security.clone(), ..TcpDial::default() };
        master_client(&dial, &self.master).unwrap()
    }

    pub(crate) async fn status(&self, security: &Security) -> Option<StatusReply> {
        let asked = self
            .client(security)
            .status(proto::StatusRequest { job: JOB.to_owned(), ..Default::default() })
            .await;
        asked.ok().map(tonic::Response::into_inner)
    }

    /// Waits until `is` holds of the status.
    pub(crate) async fn until(&self, security: &Security, is: impl Fn(&StatusReply) -> bool) -> StatusReply {
        for _ in 0..1200 {
            if let Some(status) = self.status(security).await.filter(&is) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not so within a minute: {:?}", self.status(security).await);
    }

    /// Every element of every block, from the pservers that lead them.
    pub(crate) async fn elements(&self, security: &Security, status: &StatusReply) -> Vec<f32> {
        let routing = Routing::try_from(status.routing.clone().unwrap()).unwrap();
        let dial = TcpDial { security: security.clone(), ..TcpDial::default() };
        let mut elements = Vec::new();
        for (at, pserver) in routing.pservers.iter().enumerate() {
            let blocks = routing.blocks_of(at).into_iter().map(|block| block.0).collect();
            let request =
                proto::ReadStateRequest { job: JOB.to_owned(), version: status.version, blocks, from: 0 };
            let mut client = pserver_client(&dial, &pserver.address).unwrap();
            for block in client.read_state(request).await.unwrap().into_inner().blocks {
                let (words, _) = block.parameters.as_chunks();
                elements.extend(words.iter().map(|word| f32::from_le_bytes(*word)));
            }
        }
        elements
    }

    pub(crate) async fn stop(self) {
        self.stop.send();
        for role in self.pservers.into_iter().chain([self.master_ends]) {
            role.await.unwrap().unwrap();
        }
    }
}
