//! Following: for each primary that this pserver follows a loop that says how its copies stand and takes in what
//! follows. What is said acknowledges; so there is nothing else to send, to lose or to repeat.

use crate::messages;
use crate::shard::Shard;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use shoal_runtime::cluster::{Incarnation, Refusal, RefusalKind};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Dial, PserverClient, pserver_client};
use shoal_runtime::host::signal::Changes;
use shoal_runtime::wire::proto;
use shoal_runtime::wire::{Fault, malformed};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Follows whoever leads this pserver's copies, for ever. Returns only what no repetition can mend.
pub async fn follow(shard: &Shard, dial: &dyn Dial, random: &mut Random) -> Refusal {
    let mut assigned = shard.assigned();
    let mut followed: BTreeSet<Incarnation> = BTreeSet::new();
    let mut loops: FuturesUnordered<LocalBoxFuture<'_, (Incarnation, Result<(), Refusal>)>> =
        FuturesUnordered::new();
    loop {
        let primaries = match shard.primaries() {
            Ok(primaries) => primaries,
            Err(refusal) => return refusal,
        };
        for (primary, address) in primaries {
            if followed.contains(&primary) {
                continue;
            }
            let Ok(client) = pserver_client(dial, &address) else {
                return malformed("assignment.pservers", format!("{address:?} is no address"));
            };
            let random = Random::seeded(random.bits());
            followed.insert(primary);
            loops.push(Box::pin(async move { (primary, follow_one(shard, primary, client, random).await) }));
        }
        tokio::select! {
            biased;
            Some((primary, ended)) = loops.next(), if !loops.is_empty() => {
                followed.remove(&primary);
                if let Err(refusal) = ended {
                    return refusal;
                }
            }
            () = assigned.changed() => {}
        }
    }
}

/// Follows one primary until nothing here follows it.
async fn follow_one(
    shard: &Shard,
    primary: Incarnation,
    mut client: PserverClient,
    mut random: Random,
) -> Result<(), Refusal> {
    let wait = Duration::from_millis(shard.job().lease_ttl_millis) / 4;
    let mut backoff = Backoff::new(Duration::from_millis(5), wait);
    let mut assigned = shard.assigned();
    loop {
        assigned.mark_heard();
        let following = shard.following(primary)?;
        if following.is_empty() {
            return Ok(());
        }
        let request = proto::FollowRequest {
            job: shard.job().job.0.clone(),
            incarnation: shard.incarnation().0,
            primary: primary.0,
            blocks: following.iter().cloned().map(messages::followed_blocks).collect(),
            wait_millis: wait.as_millis() as u32,
        };
        let called = timeout(wait * 2 + Duration::from_secs(1), client.follow(request));
        let answer = tokio::select! {
            biased;
            answer = called => answer,
            () = until_others_follow(shard, primary, &following, &mut assigned) => continue,
        };
        match answer {
            Ok(Ok(reply)) => {
                backoff.succeed();
                let news = reply.into_inner().blocks.into_iter().map(messages::news);
                shard.hear(news.collect::<Result<Vec<_>, _>>()?)?;
            }
            Ok(Err(status)) => {
                match Fault::from(status) {
                    Fault::Impossible(why) => return Err(malformed("follow", why)),
                    Fault::Refused(refusal) if refusal.kind == RefusalKind::OtherVersion => {
                        return Err(refusal);
                    }
                    Fault::Untrusted(why) if backoff.attempts() % 32 == 5 => {
                        tracing::error!(%primary, why, "a primary is not followed for want of trust; still trying");
                    }
                    _ => {}
                }
                sleep(backoff.pause(&mut random)).await;
            }
            Err(_) => sleep(backoff.pause(&mut random)).await,
        }
    }
}

/// Until other copies than these follow `primary`: a call that is kept open does not speak for them.
async fn until_others_follow(
    shard: &Shard,
    primary: Incarnation,
    known: &[crate::shard::Following],
    assigned: &mut Changes,
) {
    loop {
        assigned.changed().await;
        let is_same = shard.following(primary).is_ok_and(|now| now == known);
        if !is_same {
            return;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
