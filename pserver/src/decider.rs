//! Asking the scalar block: what each block here knows of a step is told to its primary once, as soon as it is known, and all of it
//! again whenever a question has gone unanswered, for either side may have changed or forgotten. Nothing is decided here.

use crate::shard::{Decided, DecisionAnswer, Shard, Undecided, Waiters};
use bytes::Bytes;
use futures_util::future::{FutureExt, LocalBoxFuture};
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{BlockId, Incarnation, Partial, Refusal, RefusalKind, Rewind, Step};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Dial, PserverClient, pserver_client};
use shoal_runtime::host::signal::Changes;
use shoal_runtime::host::waits::OpenWait;
use shoal_runtime::wire::{Fault, malformed, proto};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Partial results in one message: a megabyte.
const PARTIALS_MAX: usize = 1 << 15;

/// Blocks here that wait, by history and step, and what they know.
type Waiting = BTreeMap<(Rewind, Step), BTreeMap<BlockId, Partial>>;

/// A question that is kept open.
type Polling<'a> = ((Rewind, Step), LocalBoxFuture<'a, Result<Asked, Refusal>>);

/// Asks for every decision that blocks here wait for, for ever. Returns only what no repetition can mend.
pub async fn decide(shard: &Arc<Shard>, dial: &dyn Dial, random: &mut Random) -> Refusal {
    let mut asking = Asking {
        shard,
        dial,
        random,
        waiters: shard.waiters(),
        assigned: shard.assigned(),
        backoff: Backoff::new(Duration::from_millis(2), Duration::from_millis(200)),
        connected: None,
        failing: None,
    };
    loop {
        if let Err(refusal) = asking.ask_all().await {
            return refusal;
        }
    }
}

struct Asking<'a> {
    shard: &'a Arc<Shard>,
    dial: &'a dyn Dial,
    random: &'a mut Random,
    waiters: Waiters,
    assigned: Changes,
    backoff: Backoff,
    connected: Option<Connected>,
    /// `Some` while the scalar block's primary gives no answer.
    failing: Option<OpenWait>,
}

/// The scalar block's primary, and a connection to it unless it is here.
#[derive(Clone)]
struct Connected {
    primary: Incarnation,
    address: String,
    client: PserverClient,
}

impl Asking<'_> {
    /// Asks the scalar block, wherever it is led now, until a question has come to nothing.
    async fn ask_all(&mut self) -> Result<(), Refusal> {
        self.assigned.mark_heard();
        self.connect()?;
        self.waiters.mark_heard(self.shard);
        // Whoever was told anything may have forgotten it.
        let (mut waiting, mut new) = (Waiting::new(), self.shard.undecided(None).await?);
        let mut polling: Option<Polling<'_>> = None;
        loop {
            let mut comes_to_nothing = !self.tell(&mut waiting, new).await?;
            let first = waiting.first_key_value().map(|(of, _)| *of);
            if polling.as_ref().map(|(of, _)| *of) != first {
                polling = first.map(|of| (of, poll(self.shard, self.connected.clone(), of).boxed_local()));
            }
            let answered = tokio::select! {
                biased;
                () = std::future::ready(()), if comes_to_nothing => None,
                () = self.assigned.changed() => return Ok(()),
                () = self.waiters.changed() => None,
                answered = polled(&mut polling) => Some(answered),
            };
            match answered {
                None => {}
                Some((of, Ok(Asked::Decided(decision)))) => self.decided(&mut waiting, of, &decision).await?,
                Some((_, Ok(Asked::NotYet))) => (comes_to_nothing, self.failing) = (true, None),
                Some((_, Ok(Asked::InVain))) => comes_to_nothing = self.note_failure(),
                Some((_, Err(refusal))) => return Err(refusal),
            }
            if comes_to_nothing {
                sleep(self.backoff.pause(self.random)).await;
                return Ok(());
            }
            new = self.shard.undecided(Some(&mut self.waiters)).await?;
        }
    }

    /// The scalar block's primary has given no answer: true.
    fn note_failure(&mut self) -> bool {
        let address = self.connected.as_ref().map_or("", |connected| &connected.address);
        let begin = || self.shard.waits().begin(WaitKind::Decision, address);
        self.failing.get_or_insert_with(begin);
        true
    }

    /// Follows the scalar block's primary.
    fn connect(&mut self) -> Result<(), Refusal> {
        let Some((primary, address)) = self.shard.scalar_primary() else {
            self.connected = None;
            return Ok(());
        };
        let known = self.connected.as_ref().map(|known| (known.primary, &known.address));
        if known != Some((primary, &address)) {
            let client = pserver_client(self.dial, &address)
                .map_err(|_| malformed("assignment.pservers", format!("{address:?} is no address")))?;
            self.connected = Some(Connected { primary, address, client });
        }
        Ok(())
    }

    /// Tells what is new, and does as was decided meanwhile. False if it could not be told.
    async fn tell(&mut self, waiting: &mut Waiting, new: Vec<Undecided>) -> Result<bool, Refusal> {
        for Undecided { rewind, step, partials } in new {
            waiting.entry((rewind, step)).or_default().extend(partials.iter().copied());
            let Some(connected) = &self.connected else { return Ok(false) };
            let mut decision = None;
            for partials in partials.chunks(PARTIALS_MAX) {
                let said = Undecided { rewind, step, partials: partials.to_vec() };
                match ask(self.shard, connected, &said, Duration::ZERO).await? {
                    Asked::Decided(decided) => decision = Some(decided),
                    Asked::NotYet => {}
                    Asked::InVain => return Ok(!self.note_failure()),
                }
            }
            if let Some(decision) = decision {
                self.decided(waiting, (rewind, step), &decision).await?;
            }
        }
        Ok(true)
    }

    /// A step is decided: all blocks that wait for it go on.
    async fn decided(
        &mut self,
        waiting: &mut Waiting,
        of: (Rewind, Step),
        decision: &[u8],
    ) -> Result<(), Refusal> {
        self.backoff.succeed();
        self.failing = None;
        let blocks = waiting.remove(&of).unwrap_or_default().into_keys().collect();
        match self.shard.decide(of.0, of.1, blocks, decision).await {
            // A peer has said it: it is asked again.
            Err(refusal) if refusal.kind == RefusalKind::Malformed => {
                tracing::error!(%refusal, "what the scalar block has decided is not understood; asking again");
                Ok(())
            }
            done => done,
        }
    }
}

/// What came of a question.
enum Asked {
    Decided(Bytes),
    NotYet,
    /// It was not answered, or is not answered there.
    InVain,
}

/// Asks for the decision of a step, without telling anything, as long as the scalar block keeps the call open.
async fn poll(shard: &Shard, connected: Option<Connected>, of: (Rewind, Step)) -> Result<Asked, Refusal> {
    let Some(connected) = connected else { return Ok(Asked::InVain) };
    let said = Undecided { rewind: of.0, step: of.1, partials: Vec::new() };
    let wait = Duration::from_millis(shard.job().lease_ttl_millis) / 4;
    ask(shard, &connected, &said, wait).await
}

/// The answer to the question that is kept open, which is open no more then; without one it never comes.
async fn polled(polling: &mut Option<Polling<'_>>) -> ((Rewind, Step), Result<Asked, Refusal>) {
    let Some((of, answer)) = polling else { return std::future::pending().await };
    let answered = (*of, answer.await);
    *polling = None;
    answered
}

/// Tells the scalar block something, and waits so long for what it decides.
async fn ask(
    shard: &Shard,
    connected: &Connected,
    said: &Undecided,
    wait: Duration,
) -> Result<Asked, Refusal> {
    if connected.primary == shard.incarnation() {
        return Ok(timeout(wait, ask_here(shard, said, shard.decided(), wait))
            .await
            .unwrap_or(Asked::NotYet));
    }
    let request = proto::DecideRequest {
        job: shard.job().job.0.clone(),
        step: said.step.0,
        rewind: said.rewind.0,
        partials: said.partials.iter().map(|partial| (*partial).into()).collect(),
        wait_millis: wait.as_millis() as u32,
    };
    let mut client = connected.client.clone();
    let patience = Duration::from_millis(shard.job().lease_ttl_millis) / 4 + Duration::from_secs(1);
    Ok(match timeout(wait + patience, client.decide(request)).await {
        Ok(Ok(reply)) => match reply.into_inner() {
            proto::DecideReply { moved: true, .. } => Asked::InVain,
            proto::DecideReply { decision, .. } if decision.is_empty() => Asked::NotYet,
            proto::DecideReply { decision, .. } => Asked::Decided(decision),
        },
        Ok(Err(status)) => match Fault::from(status) {
            Fault::Refused(refusal) if refusal.kind == RefusalKind::OtherVersion => return Err(refusal),
            // That the job has failed, or that steps differ, the scalar block tells the master.
            fault => {
                tracing::debug!(%fault, "the scalar block does not answer");
                Asked::InVain
            }
        },
        Err(_) => Asked::InVain,
    })
}

/// The scalar block is here: no call is needed.
async fn ask_here(shard: &Shard, said: &Undecided, mut decided: Decided, wait: Duration) -> Asked {
    loop {
        match shard.tell_partials(said) {
            Ok(DecisionAnswer::Decided(decision)) => return Asked::Decided(decision),
            Ok(DecisionAnswer::NotYet) if wait.is_zero() => return Asked::NotYet,
            Ok(DecisionAnswer::NotYet) => decided.changed(shard).await,
            // What it refuses it has told the master.
            Ok(DecisionAnswer::NotHere) | Err(_) => return Asked::InVain,
        }
    }
}
