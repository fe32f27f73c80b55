//! Asking the scalar block: whatever blocks here know of a step is told to its primary, again and again until the
//! decision is there, for either side may have changed or forgotten. Nothing is decided here.

use crate::shard::{Answer, Shard, Undecided};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use shoal_runtime::cluster::{Incarnation, Refusal, RefusalKind};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Dial, PserverClient, pserver_client};
use shoal_runtime::host::signal::Changes;
use shoal_runtime::wire::proto;
use shoal_runtime::wire::{Fault, malformed};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Blocks whose steps become whole within so short a time are told of together.
const TOGETHER: Duration = Duration::from_micros(200);

/// Asks for every decision that blocks here wait for, for ever. Returns only what no repetition can mend.
pub async fn decide(shard: &Shard, dial: &dyn Dial, random: &mut Random) -> Refusal {
    let (mut whole, mut assigned) = (shard.whole(), shard.assigned());
    let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(200));
    let mut connected = None;
    loop {
        whole.mark_heard();
        assigned.mark_heard();
        let undecided = match shard.undecided() {
            Ok(undecided) => undecided,
            Err(refusal) => return refusal,
        };
        if undecided.is_empty() {
            backoff.succeed();
            changed(&mut whole, &mut assigned).await;
            continue;
        }
        if let Err(refusal) = connect(shard, dial, &mut connected) {
            return refusal;
        }
        let asked = tokio::select! {
            biased;
            asked = ask_all(shard, connected.as_ref(), &undecided) => asked,
            // Others wait too, or the scalar block is led by another: all of them are told, there.
            () = changed(&mut whole, &mut assigned) => {
                sleep(TOGETHER).await;
                continue;
            }
        };
        match asked {
            Ok(true) => backoff.succeed(),
            Ok(false) => sleep(backoff.pause(random)).await,
            Err(refusal) => return refusal,
        }
    }
}

async fn changed(whole: &mut Changes, assigned: &mut Changes) {
    tokio::select! {
        biased;
        () = whole.changed() => {}
        () = assigned.changed() => {}
    }
}

/// The scalar block's primary, and a connection to it unless it is here.
struct Connected {
    primary: Incarnation,
    address: String,
    client: PserverClient,
}

/// Follows the scalar block's primary.
fn connect(shard: &Shard, dial: &dyn Dial, connected: &mut Option<Connected>) -> Result<(), Refusal> {
    let Some((primary, address)) = shard.scalar_primary() else {
        *connected = None;
        return Ok(());
    };
    if connected.as_ref().is_none_or(|known| (known.primary, &known.address) != (primary, &address)) {
        let client = pserver_client(dial, &address)
            .map_err(|_| malformed("assignment.pservers", format!("{address:?} is no address")))?;
        *connected = Some(Connected { primary, address, client });
    }
    Ok(())
}

/// Asks until one of the answers is a decision (true), or none can be had (false).
async fn ask_all(
    shard: &Shard,
    connected: Option<&Connected>,
    undecided: &[Undecided],
) -> Result<bool, Refusal> {
    let Some(connected) = connected else { return Ok(false) };
    let mut calls: FuturesUnordered<LocalBoxFuture<'_, Result<bool, Refusal>>> = FuturesUnordered::new();
    for undecided in undecided {
        calls.push(Box::pin(ask(shard, connected, undecided)));
    }
    while let Some(asked) = calls.next().await {
        if asked? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn ask(shard: &Shard, connected: &Connected, undecided: &Undecided) -> Result<bool, Refusal> {
    let Undecided { rewind, step, partials } = undecided;
    let decision = if connected.primary == shard.incarnation() {
        ask_here(shard, undecided).await?
    } else {
        let wait = Duration::from_millis(shard.job().lease_ttl_millis) / 4;
        let request = proto::DecideRequest {
            job: shard.job().job.0.clone(),
            step: step.0,
            rewind: rewind.0,
            partials: partials.iter().map(|partial| (*partial).into()).collect(),
            wait_millis: wait.as_millis() as u32,
        };
        let mut client = connected.client.clone();
        match timeout(wait * 2 + Duration::from_secs(1), client.decide(request)).await {
            Ok(Ok(reply)) => Some(reply.into_inner().decision).filter(|decision| !decision.is_empty()),
            Ok(Err(status)) => match Fault::from(status) {
                Fault::Impossible(why) => return Err(malformed("decide", why)),
                Fault::Refused(refusal) if refusal.kind == RefusalKind::OtherVersion => return Err(refusal),
                // That the job has failed, or that steps differ, the scalar block tells the master.
                _ => None,
            },
            Err(_) => None,
        }
    };
    let Some(decision) = decision else { return Ok(false) };
    shard.decide(*rewind, *step, &decision)?;
    Ok(true)
}

/// The scalar block is here: no call is needed.
async fn ask_here(shard: &Shard, undecided: &Undecided) -> Result<Option<bytes::Bytes>, Refusal> {
    let mut published = shard.published();
    loop {
        published.mark_heard();
        match shard.tell_partials(undecided) {
            Ok(Answer::Decided(decision)) => return Ok(Some(decision)),
            Ok(Answer::NotYet) => published.changed().await,
            // What it refuses it has told the master.
            Ok(Answer::NotHere) | Err(_) => return Ok(None),
        }
    }
}
