//! Following: for each channel to each primary that this pserver follows a loop that says how its copies stand and takes in what
//! follows. What is said acknowledges; so there is nothing else to send, to lose or to repeat.

use crate::shard::{Channel, Shard, Stand, grouped};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{BlockId, Refusal, RefusalKind};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Dial, PserverClient, pserver_client};
use shoal_runtime::host::signal::Changes;
use shoal_runtime::host::waits::OpenWait;
use shoal_runtime::wire::proto;
use shoal_runtime::wire::{Fault, malformed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Follows whoever leads this pserver's copies, for ever. Returns only what no repetition can mend.
pub async fn follow(shard: &Arc<Shard>, dial: &dyn Dial, random: &mut Random) -> Refusal {
    let mut assigned = shard.assigned();
    let mut followed: BTreeSet<Channel> = BTreeSet::new();
    let mut loops: FuturesUnordered<LocalBoxFuture<'_, (Channel, Result<(), Refusal>)>> =
        FuturesUnordered::new();
    loop {
        let channels = match shard.channels() {
            Ok(channels) => channels,
            Err(refusal) => return refusal,
        };
        for (channel, address) in channels {
            if !followed.insert(channel) {
                continue;
            }
            let Ok(client) = pserver_client(dial, &address) else {
                return malformed("assignment.pservers", format!("{address:?} is no address"));
            };
            let random = Random::seeded(random.bits());
            let followed =
                async move { (channel, follow_channel(shard, channel, (client, address), random).await) };
            loops.push(Box::pin(followed));
        }
        tokio::select! {
            biased;
            Some((channel, ended)) = loops.next(), if !loops.is_empty() => {
                followed.remove(&channel);
                if let Err(refusal) = ended {
                    return refusal;
                }
            }
            () = assigned.changed() => {}
        }
    }
}

/// How copies stand.
type Said = BTreeMap<BlockId, Stand>;

/// What this pserver has said to a primary that it follows, in one session.
struct Session {
    id: u64,
    /// Of the next request.
    number: u64,
    said: Said,
    /// Blocks of which the last answer told something.
    answered: Vec<BlockId>,
}

/// Follows by one channel, until it has no copies.
async fn follow_channel(
    shard: &Arc<Shard>,
    channel: Channel,
    (mut client, address): (PserverClient, String),
    mut random: Random,
) -> Result<(), Refusal> {
    let wait = Duration::from_millis(shard.job().lease_ttl_millis) / 4;
    let mut backoff = Backoff::new(Duration::from_millis(5), wait);
    let mut assigned = shard.assigned();
    let mut session: Option<Session> = None;
    let mut failing: Option<OpenWait> = None;
    loop {
        let known = session.take().filter(|_| !assigned.has_changed());
        assigned.mark_heard();
        let was_answered = known.as_ref().is_some_and(|session| !session.answered.is_empty());
        let Some((mut open, new)) = speak(shard, channel, known, &mut random)? else { return Ok(()) };
        if was_answered && new.is_empty() {
            // Nothing can follow the copies that the answer was about, until the master has them filled anew.
            sleep(backoff.pause(&mut random)).await;
        }
        let request = proto::FollowRequest {
            job: shard.job().job.0.clone(),
            incarnation: shard.incarnation().0,
            primary: channel.primary.0,
            blocks: grouped(&new),
            wait_millis: wait.as_millis() as u32,
            session: open.id,
            number: open.number,
            channel: channel.number,
        };
        let called = timeout(wait * 2 + Duration::from_secs(1), client.follow(request));
        let answer = tokio::select! {
            biased;
            answer = called => answer,
            () = until_others_follow(shard, channel, &open.said, &mut assigned) => continue,
        };
        let heard = match answer {
            Ok(Ok(reply)) => hear(shard, reply.into_inner()).await,
            Ok(Err(status)) => Err(Fault::from(status)),
            Err(_) => Err(Fault::Unreachable(String::from("no answer in time"))),
        };
        match heard {
            Ok(Some(answered)) => {
                failing = None;
                backoff.succeed();
                (open.number, open.answered) = (open.number + 1, answered);
                session = Some(open);
            }
            // Another is begun, at once unless this one was not begun there either.
            Ok(None) if open.number > 0 => {}
            Ok(None) => sleep(backoff.pause(&mut random)).await,
            Err(Fault::Refused(refusal)) if is_final(&refusal) => return Err(refusal),
            Err(fault) => {
                if backoff.attempts() % 32 == 5 {
                    tracing::error!(primary = %channel.primary, %fault, "a primary is not followed; still trying");
                }
                let begin = || shard.waits().begin(WaitKind::Primary, address.clone());
                failing.get_or_insert_with(begin).failed(fault);
                sleep(backoff.pause(&mut random)).await;
            }
        }
    }
}

/// No repetition mends it: the two are of different builds, or this process cannot go on. What a peer has said never ends it.
fn is_final(refusal: &Refusal) -> bool {
    matches!(refusal.kind, RefusalKind::OtherVersion | RefusalKind::JobFailed)
}

/// What is to be said next, in a session that goes on or in a new one; none if nothing here follows.
fn speak(
    shard: &Shard,
    channel: Channel,
    known: Option<Session>,
    random: &mut Random,
) -> Result<Option<(Session, Said)>, Refusal> {
    if let Some(mut session) = known {
        let new = shard.following_of(channel.primary, &session.answered)?;
        session.said.extend(new.iter().map(|(block, stand)| (*block, *stand)));
        return Ok(Some((session, new)));
    }
    let said = shard.following(channel)?;
    let session = Session { id: random.bits(), number: 0, said: said.clone(), answered: Vec::new() };
    Ok((!said.is_empty()).then_some((session, said)))
}

/// Takes in an answer. Returns the blocks that it is about; none if the session is not known there.
async fn hear(shard: &Arc<Shard>, reply: proto::FollowReply) -> Result<Option<Vec<BlockId>>, Fault> {
    if reply.is_unknown {
        return Ok(None);
    }
    let blocks = reply.blocks.iter().map(|said| BlockId(said.block)).collect();
    shard.hear(reply.blocks).await?;
    Ok(Some(blocks))
}

/// Until a channel has other copies than these: a call that is kept open does not speak for them.
async fn until_others_follow(shard: &Shard, channel: Channel, said: &Said, assigned: &mut Changes) {
    loop {
        assigned.changed().await;
        let is_same = shard.following(channel).is_ok_and(|now| now == *said);
        if !is_same {
            return;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
