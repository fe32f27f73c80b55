//! Talking to a running job as a person or a supervisor: finding its master, asking, scaling.

use crate::exit::Exit;
use crate::folder::RunFolder;
use anyhow::Context;
use shoal_runtime::cluster::RefusalKind;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial, Security, TcpDial, master_client};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto::{self, master_client::MasterClient};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a master may take to answer a person.
const ANSWER: Duration = Duration::from_secs(5);

/// Which job is meant.
#[derive(clap::Args, Clone, Debug)]
pub struct JobChoice {
    /// Address of the job's master, or of all its masters with commas; by default the one that the newest local run names
    #[arg(long, env = "SHOAL_MASTER", value_name = "HOST:PORT")]
    pub master: Option<String>,
    /// Folder of a local run (`shoal run` names it)
    #[arg(long, env = "SHOAL_RUN", default_value = "runs/latest", value_name = "DIR")]
    pub run: PathBuf,
    /// Folder with ca.pem, cert.pem and key.pem, made by `shoal certs issue`; by default those of the local run, if it was
    /// started with --tls
    #[arg(long, env = "SHOAL_TLS", value_name = "DIR", conflicts_with = "plaintext")]
    pub tls: Option<PathBuf>,
    /// Speak plaintext with a master on another machine
    #[arg(long, env = "SHOAL_PLAINTEXT")]
    pub plaintext: bool,
}

/// A connection to a master.
#[derive(Clone)]
pub struct Client {
    rpc: MasterClient<Channel>,
    address: String,
    job: String,
    dial: Arc<dyn Dial>,
}

impl JobChoice {
    fn security(&self) -> Result<Security, Exit> {
        let of_run = RunFolder(self.run.clone()).tls_of(Role::Client);
        let of_run = (self.master.is_none() && !self.plaintext && of_run.is_dir()).then_some(of_run);
        let folder = self.tls.clone().or(of_run);
        Security::open(folder.as_deref(), self.plaintext, None).map_err(Exit::Usage)
    }

    /// Connects to the job that is meant.
    pub async fn connect(&self) -> anyhow::Result<Client> {
        let security = self.security()?;
        if let Some(addresses) = &self.master {
            return Client::connect(addresses, &security).await;
        }
        let run = RunFolder(self.run.clone());
        let address = run.master()?;
        match run.job_name()? {
            // Whoever listens there by now: the master of another job will not answer.
            Some(job) => Client::of_job(&address, job, &security),
            None => Client::connect(&address, &security).await,
        }
    }
}

impl Client {
    /// Connects to the first of one or several addresses (with commas) that leads a job, and learns which.
    pub async fn connect(addresses: &str, security: &Security) -> anyhow::Result<Client> {
        let mut addresses = addresses.split(',').peekable();
        loop {
            let connected = Client::connect_to(addresses.next().unwrap_or_default().trim(), security).await;
            if connected.is_ok() || addresses.peek().is_none() {
                return connected;
            }
        }
    }

    async fn connect_to(address: &str, security: &Security) -> anyhow::Result<Client> {
        Client::connect_by(tcp(security), address).await
    }

    /// Connects to the master that `dial` reaches at an address, and learns its job.
    pub async fn connect_by(dial: Arc<dyn Dial>, address: &str) -> anyhow::Result<Client> {
        let mut client = Client::new(dial, address, String::new())?;
        let described = client.rpc.describe(proto::DescribeRequest {});
        let described = tokio::time::timeout(ANSWER, described).await;
        let described = client.answer(described)?;
        client.job = described.settings.unwrap_or_default().job;
        Ok(client)
    }

    /// For the job of this name, whose master is expected at an address: with every call the master is told the name, and
    /// one of another job refuses it. Calls nobody yet.
    pub fn of_job(address: &str, job: String, security: &Security) -> anyhow::Result<Client> {
        Client::new(tcp(security), address, job)
    }

    fn new(dial: Arc<dyn Dial>, address: &str, job: String) -> anyhow::Result<Client> {
        let rpc = master_client(&*dial, address).map_err(Exit::Usage)?;
        Ok(Client { rpc, address: address.to_owned(), job, dial })
    }

    /// How the job's members are reached.
    pub fn dial(&self) -> &dyn Dial {
        &*self.dial
    }

    /// How the job is.
    pub async fn status(&mut self) -> anyhow::Result<proto::StatusReply> {
        self.status_within(ANSWER, true).await
    }

    /// How the job is, unless the answer takes longer than `wait`; without its declaration and routing where these are not wanted.
    pub async fn status_within(
        &mut self,
        wait: Duration,
        with_model: bool,
    ) -> anyhow::Result<proto::StatusReply> {
        let request = proto::StatusRequest { job: self.job.clone(), without_model: !with_model };
        let asked = self.rpc.status(request);
        let answered = tokio::time::timeout(wait, asked).await;
        self.answer(answered)
    }

    /// Asks for other numbers of members; what is absent stays as it is.
    pub async fn scale(
        &mut self,
        trainers: Option<u32>,
        pservers: Option<u32>,
    ) -> anyhow::Result<proto::ScaleReply> {
        let asked =
            self.rpc.scale(proto::ScaleRequest { job: self.job.clone(), trainers, pservers, spec: None });
        let answered = tokio::time::timeout(ANSWER, asked).await;
        self.answer(answered)
    }

    /// Asks for a checkpoint as soon as possible; the answer names the newest before.
    pub async fn checkpoint(&mut self) -> anyhow::Result<proto::CheckpointReply> {
        let asked = self.rpc.checkpoint(proto::CheckpointRequest { job: self.job.clone() });
        let answered = tokio::time::timeout(ANSWER, asked).await;
        self.answer(answered)
    }

    /// Tells of a trainer that its process has ended without telling so itself, and how; nothing where somebody wanted it to.
    pub async fn end_trainer(&mut self, trainer: u64, how: &str) -> anyhow::Result<proto::LeaveReply> {
        let request = proto::LeaveRequest {
            job: self.job.clone(),
            incarnation: trainer,
            ended: how.to_owned(),
            ..Default::default()
        };
        let answered = tokio::time::timeout(ANSWER, self.rpc.leave(request)).await;
        self.answer(answered)
    }

    /// Asks for a pserver to be left; with `replace` another is to take its place.
    pub async fn drain(&mut self, pserver: &str, replace: bool) -> anyhow::Result<proto::DrainReply> {
        let request = proto::DrainRequest { job: self.job.clone(), pserver: pserver.to_owned(), replace };
        let answered = tokio::time::timeout(ANSWER, self.rpc.drain(request)).await;
        self.answer(answered)
    }
}

fn tcp(security: &Security) -> Arc<dyn Dial> {
    Arc::new(TcpDial { security: security.clone(), ..TcpDial::default() })
}

type Answered<T> = Result<Result<tonic::Response<T>, tonic::Status>, tokio::time::error::Elapsed>;

impl Client {
    fn answer<T>(&self, answered: Answered<T>) -> anyhow::Result<T> {
        let Client { address, job, .. } = self;
        let silent = |why: &str| format!("the master at {address} does not answer: {why}");
        match answered {
            Err(_) => Err(Exit::Unanswered(silent("no answer in time")).into()),
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => match Fault::from(status) {
                Fault::Unreachable(why) => Err(Exit::Unanswered(silent(&why)).into()),
                // A certificate may be issued anew at any moment: asking again may help.
                fault @ Fault::Untrusted(_) => Err(Exit::Unreachable(silent(&fault.to_string())).into()),
                Fault::Refused(refusal) if refusal.kind == RefusalKind::NotLeader => {
                    Err(Exit::Unreachable(silent(&refusal.to_string())).into())
                }
                Fault::Refused(refusal) if refusal.kind == RefusalKind::WrongJob => {
                    let detail = refusal.detail;
                    let why = format!("job {job:?} has no master at {address}: another job has ({detail})");
                    Err(Exit::Unreachable(why).into())
                }
                fault => Err(fault).with_context(|| format!("the master at {address} refused")),
            },
        }
    }
}
