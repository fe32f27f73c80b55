//! Masters as the operator speaks with them: how a job is, and what it is told. Every call has a deadline.
//!
//! Looks at jobs ask by a queue, and one loop beside them makes all calls: a call's future is not known to the compiler as
//! one that may go from thread to thread (rust-lang/rust#102211), and those of looks must be.

use crate::decide::{Command, MasterView, MemberView};
use crate::manifest::MASTER_PORT;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use shoal_runtime::host::rpc::{Channel, Security, TcpDial, master_client};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto::{self, master_client::MasterClient};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a master may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Questions that may wait for the loop to take them.
const QUEUE: usize = 64;

/// Which master: the address of its pod, and the job that it must be of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Which {
    pub(super) ip: String,
    pub(super) job: String,
}

/// A question, and where its answer goes; none for a command that was heard.
struct Question {
    which: Which,
    command: Option<Command>,
    answer: oneshot::Sender<Result<Option<MasterView>, String>>,
}

/// All masters, for those who ask.
#[derive(Clone)]
pub(super) struct Masters(mpsc::Sender<Question>);

/// The other end: what makes the calls.
pub(super) struct Calls(mpsc::Receiver<Question>);

/// A queue of questions.
pub(super) fn masters() -> (Masters, Calls) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Masters(sender), Calls(receiver))
}

impl Masters {
    /// How the job is.
    pub(super) async fn status(&self, which: &Which) -> Result<MasterView, String> {
        self.ask(which, None).await?.ok_or_else(|| "it said nothing".to_owned())
    }

    /// Tells it something.
    pub(super) async fn tell(&self, which: &Which, command: &Command) -> Result<(), String> {
        self.ask(which, Some(command.clone())).await.map(drop)
    }

    async fn ask(&self, which: &Which, command: Option<Command>) -> Result<Option<MasterView>, String> {
        let (answer, answered) = oneshot::channel();
        let is_gone = |_| "this operator is ending".to_owned();
        self.0.send(Question { which: which.clone(), command, answer }).await.map_err(|_| is_gone(()))?;
        answered.await.map_err(|_| is_gone(()))?
    }
}

impl Calls {
    /// Makes all calls that are asked for.
    pub(super) async fn make(mut self, security: Security) -> Infallible {
        let mut clients: BTreeMap<Which, MasterClient<Channel>> = BTreeMap::new();
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(question) = self.0.recv() => {
                    let client = match clients.get(&question.which) {
                        Some(client) => Ok(client.clone()),
                        None => connect(&question.which, &security),
                    };
                    match client {
                        Err(why) => drop(question.answer.send(Err(why))),
                        Ok(client) => {
                            clients.insert(question.which.clone(), client.clone());
                            under_way.push(call(client, question));
                        }
                    }
                }
                Some(failed) = under_way.next(), if !under_way.is_empty() => {
                    // Its pod may be gone: the next question connects anew.
                    if let Some(which) = failed {
                        clients.remove(&which);
                    }
                }
            }
        }
    }
}

fn connect(which: &Which, security: &Security) -> Result<MasterClient<Channel>, String> {
    let dial = TcpDial { security: security.clone(), ..TcpDial::default() };
    let host = if which.ip.contains(':') { format!("[{}]", which.ip) } else { which.ip.clone() };
    master_client(&dial, &format!("{host}:{MASTER_PORT}"))
}

/// Makes one call. Returns whose it was if it failed.
async fn call(mut rpc: MasterClient<Channel>, question: Question) -> Option<Which> {
    let Question { which, command, answer: to } = question;
    let job = which.job.clone();
    let said = match command {
        None => {
            let asked = rpc.status(proto::StatusRequest { job, without_model: true });
            answer(tokio::time::timeout(ANSWER, asked).await).map(|status| Some(view(status)))
        }
        Some(Command::Scale { trainers, pservers }) => {
            let request = proto::ScaleRequest { job, trainers: Some(trainers), pservers };
            answer(tokio::time::timeout(ANSWER, rpc.scale(request)).await).map(|_| None)
        }
        Some(Command::Drain { pserver, is_replaced }) => {
            let request = proto::DrainRequest { job, pserver, replace: is_replaced };
            answer(tokio::time::timeout(ANSWER, rpc.drain(request)).await).map(|_| None)
        }
        Some(Command::Checkpoint) => {
            let request = proto::CheckpointRequest { job };
            answer(tokio::time::timeout(ANSWER, rpc.checkpoint(request)).await).map(|_| None)
        }
    };
    let is_failed = said.is_err();
    let _ = to.send(said);
    is_failed.then_some(which)
}

type Answered<T> = Result<Result<tonic::Response<T>, tonic::Status>, tokio::time::error::Elapsed>;

fn answer<T>(answered: Answered<T>) -> Result<T, String> {
    match answered {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(Fault::from(status).to_string()),
        Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
    }
}

fn view(status: proto::StatusReply) -> MasterView {
    let trainer = |one: proto::TrainerStatus| MemberView {
        name: one.name,
        is_live: one.state == "live",
        is_leaving: one.state == "leaving",
        has_left: one.state == "left",
        tasks: one.tasks_in_hand,
        work: one.counters.map_or(0, |counters| counters.microbatches + counters.tasks),
        ..MemberView::default()
    };
    let pserver = |one: proto::PserverStatus| MemberView {
        name: one.name,
        is_live: !one.lost,
        is_leaving: one.is_leaving,
        processor_micros: one.counters.map_or(0, |counters| counters.processor_micros),
        ..MemberView::default()
    };
    MasterView {
        phase: status.phase,
        failure: status.failure,
        is_progress_known: status.is_progress_known,
        step: status.step,
        steps: status.steps,
        epoch: status.epoch,
        records: status.records_trained,
        excluded: status.records_excluded,
        trainers_wanted: status.trainers_wanted,
        pservers_wanted: status.pservers_wanted,
        pservers: status.pservers.into_iter().map(pserver).collect(),
        trainers: status.trainers.into_iter().map(trainer).collect(),
        checkpoint: status.checkpoint,
        checkpoint_version: status.checkpoint_version,
        checkpoint_place: status.checkpoints,
    }
}
