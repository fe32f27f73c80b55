//! Masters as the operator speaks with them: how a job is, and what it is told. Every call has a deadline, and no job's
//! reconciling waits for it: what a master has said by then counts.
//!
//! Reconcilers ask by a queue, and one loop beside them makes all calls: a call's future is not known to the compiler as
//! one that may go from thread to thread (rust-lang/rust#102211), and those of reconcilers must be.

use super::clients::Clients;
use crate::decide::{Command, MasterView, MemberView};
use crate::manifest::MASTER_PORT;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use shoal_job::spec;
use shoal_runtime::host::rpc::{Channel, Security, TcpDial, master_client};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto::{self, master_client::MasterClient};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// How long a master may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Questions that may wait for the loop to take them; beyond, a job is asked about when it is reconciled next.
const QUEUE: usize = 1024;
/// A master is asked at most so often.
const ASKED_EVERY: Duration = Duration::from_millis(900);
/// Reconciling waits so long for an answer: one that is well takes a millisecond or two.
const MOMENT: Duration = Duration::from_millis(50);
/// What was said so long ago says nothing of now.
const STALE: Duration = Duration::from_secs(10);
/// A job stands still once its front has not advanced for so many times to live.
const STANDS_TTLS: u64 = 3;
/// A connection that nobody has used for so long is closed: its job has ended, or its master is another.
const IDLE: Duration = Duration::from_secs(60);

/// Which master: the address of its pod, and the job that it must be of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Which {
    pub(super) ip: String,
    pub(super) job: String,
    /// The uid of the job's resource: two jobs may have one name in certificates that people give them.
    pub(super) uid: String,
}

/// A question, or a command.
struct Question {
    which: Which,
    ask: Ask,
}

enum Ask {
    /// How the job is, and where the answer goes.
    Status(oneshot::Sender<Result<MasterView, String>>),
    Tell(Command),
}

/// All masters, for those who ask.
#[derive(Clone)]
pub(super) struct Masters(mpsc::Sender<Question>);

/// The other end: what makes the calls.
pub(super) struct Calls(mpsc::Receiver<Question>, Arc<Clients>);

/// A queue of questions.
pub(super) fn masters(clients: Arc<Clients>) -> (Masters, Calls) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Masters(sender), Calls(receiver, clients))
}

impl Masters {
    /// Asks how the job is; none if too many ask already.
    fn ask(&self, which: &Which) -> Option<oneshot::Receiver<Result<MasterView, String>>> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(Question { which: which.clone(), ask: Ask::Status(answer) }).ok()?;
        Some(answered)
    }

    /// Tells it something. Whether it was heard shows in what it says later.
    pub(super) fn tell(&self, which: &Which, command: &Command) {
        let told = Question { which: which.clone(), ask: Ask::Tell(command.clone()) };
        if self.0.try_send(told).is_err() {
            tracing::warn!(job = which.job, ?command, "the master was not told: too many questions wait");
        }
    }
}

/// What one job's master said last, and the question that it has not answered yet.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    master: Option<Which>,
    said: Option<(Instant, Option<MasterView>)>,
    asked: Option<oneshot::Receiver<Result<MasterView, String>>>,
}

impl Dialogue {
    /// Asks, unless that was just done, and takes an answer that is there in a moment.
    pub(super) async fn ask(&mut self, masters: &Masters, master: Option<Which>) {
        if self.master != master {
            *self = Dialogue { master, ..Dialogue::default() };
        }
        let Some(which) = &self.master else { return };
        let was_just_asked = self.said.as_ref().is_some_and(|(at, _)| at.elapsed() < ASKED_EVERY);
        if self.asked.is_none() && !was_just_asked {
            self.asked = masters.ask(which);
        }
        let Some(asked) = &mut self.asked else { return };
        let Ok(answered) = timeout(MOMENT, asked).await else { return };
        let said = answered.unwrap_or_else(|_| Err("this operator is ending".to_owned()));
        if let Err(why) = &said {
            tracing::debug!(job = which.job, why, "the master does not answer");
        }
        (self.said, self.asked) = (Some((Instant::now(), said.ok())), None);
    }

    /// The newest answer, if there is one that still says something.
    pub(super) fn said(&self) -> Option<&MasterView> {
        self.said.as_ref().filter(|(at, _)| at.elapsed() < STALE)?.1.as_ref()
    }

    /// Whom it is with.
    pub(super) fn master(&self) -> Option<&Which> {
        self.master.as_ref()
    }
}

impl Calls {
    /// Makes all calls that are asked for. There is at most one question of each job under way, so that they are bounded as jobs
    /// are; commands end within their deadline.
    pub(super) async fn make(mut self) -> Infallible {
        let mut clients: BTreeMap<Which, (MasterClient<Channel>, Instant)> = BTreeMap::new();
        let mut under_way = FuturesUnordered::new();
        let mut sweep = tokio::time::interval(IDLE);
        loop {
            tokio::select! {
                Some(question) = self.0.recv() => {
                    let client = match clients.get(&question.which) {
                        Some((client, _)) => Ok(client.clone()),
                        None => self.1.of(&question.which.uid).and_then(|security| connect(&question.which, security)),
                    };
                    match client {
                        Err(why) => answer_with(&question.which, question.ask, Err(why)),
                        Ok(client) => {
                            clients.insert(question.which.clone(), (client.clone(), Instant::now()));
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
                _ = sweep.tick() => {
                    clients.retain(|_, (_, used)| used.elapsed() < IDLE);
                    self.1.forget_after(IDLE);
                }
            }
        }
    }
}

/// Gives an answer to whoever asked; a command's failure is nobody's to hear but the log's.
fn answer_with(which: &Which, ask: Ask, said: Result<Option<MasterView>, String>) {
    match (ask, said) {
        (Ask::Status(to), said) => {
            // Nobody may be waiting any more.
            let _ = to.send(said.and_then(|said| said.ok_or_else(|| "it said nothing".to_owned())));
        }
        (Ask::Tell(command), Err(why)) => {
            tracing::warn!(job = which.job, ?command, why, "the master was not told");
        }
        (Ask::Tell(_), Ok(_)) => {}
    }
}

fn connect(which: &Which, security: Security) -> Result<MasterClient<Channel>, String> {
    let dial = TcpDial { security, ..TcpDial::default() };
    let host = if which.ip.contains(':') { format!("[{}]", which.ip) } else { which.ip.clone() };
    master_client(&dial, &format!("{host}:{MASTER_PORT}"))
}

/// Makes one call. Returns whose it was if it failed.
async fn call(mut rpc: MasterClient<Channel>, question: Question) -> Option<Which> {
    let Question { which, ask } = question;
    let job = which.job.clone();
    let said = match &ask {
        Ask::Status(_) => {
            let asked = rpc.status(proto::StatusRequest { job, without_model: true });
            answer(timeout(ANSWER, asked).await).map(|status| Some(view(status)))
        }
        Ask::Tell(Command::GoBy { spec }) => {
            let request = proto::ScaleRequest { job, spec: Some(spec.clone()), ..Default::default() };
            answer(timeout(ANSWER, rpc.scale(request)).await).map(|_| None)
        }
        Ask::Tell(Command::Scale { trainers, pservers }) => {
            let (trainers, pservers) = (Some(*trainers), *pservers);
            let request = proto::ScaleRequest { job, trainers, pservers, spec: None };
            answer(timeout(ANSWER, rpc.scale(request)).await).map(|_| None)
        }
        Ask::Tell(Command::Drain { pserver, is_replaced }) => {
            let request = proto::DrainRequest { job, pserver: pserver.clone(), replace: *is_replaced };
            answer(timeout(ANSWER, rpc.drain(request)).await).map(|_| None)
        }
        Ask::Tell(Command::Checkpoint) => {
            let request = proto::CheckpointRequest { job };
            answer(timeout(ANSWER, rpc.checkpoint(request)).await).map(|_| None)
        }
    };
    let is_failed = said.is_err();
    answer_with(&which, ask, said);
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
    let ttl_millis = status.settings.as_ref().map_or(0, |settings| settings.lease_ttl_millis);
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
        standstill: status.standstill.and_then(|one| standstill(one, ttl_millis)),
        live: spec::Document::parse(&status.spec).ok().map(|read| read.0),
    }
}

/// Keeps a standstill that is idle and has lasted for [`STANDS_TTLS`]: a shorter one may pass.
fn standstill(one: proto::Standstill, ttl_millis: u64) -> Option<(String, String)> {
    (one.is_idle && one.front_millis >= STANDS_TTLS * ttl_millis)
        .then(|| (one.reason, format!("{}; {}", one.cause, one.way_out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn which(ip: &str) -> Which {
        Which { ip: ip.to_owned(), job: "j".to_owned(), uid: "u".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_master_that_does_not_answer_is_waited_for_a_moment_and_asked_once_until_it_does() {
        let (masters, mut calls) = masters(Arc::default());
        let mut dialogue = Dialogue::default();
        let began = Instant::now();
        for _ in 0..10 {
            dialogue.ask(&masters, Some(which("a"))).await;
        }
        assert!(began.elapsed() < Duration::from_secs(1) && dialogue.said().is_none(), "of ten reconciles");
        let Ok(Question { ask: Ask::Status(answer), .. }) = calls.0.try_recv() else { panic!("not asked") };
        assert!(calls.0.try_recv().is_err(), "asked more than once");
        answer.send(Ok(MasterView { step: 7, ..MasterView::default() })).unwrap();
        dialogue.ask(&masters, Some(which("a"))).await;
        assert_eq!(dialogue.said().map(|said| said.step), Some(7));
        dialogue.ask(&masters, Some(which("a"))).await;
        assert!(calls.0.try_recv().is_err(), "just asked");
        tokio::time::advance(STALE).await;
        assert!(dialogue.said().is_none(), "that was long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_master_said_is_not_taken_for_the_word_of_the_next() {
        let (masters, mut calls) = masters(Arc::default());
        let mut dialogue = Dialogue::default();
        dialogue.ask(&masters, Some(which("a"))).await;
        let Ok(Question { ask: Ask::Status(answer), .. }) = calls.0.try_recv() else { panic!("not asked") };
        answer.send(Ok(MasterView::default())).unwrap();
        dialogue.ask(&masters, Some(which("a"))).await;
        assert!(dialogue.said().is_some());
        dialogue.ask(&masters, Some(which("b"))).await;
        assert!(dialogue.said().is_none());
        dialogue.ask(&masters, None).await;
        assert_eq!(dialogue.master(), None);
    }
}
