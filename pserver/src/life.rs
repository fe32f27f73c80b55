//! What a pserver does beside serving: reports, does as assigned, follows, restores, writes checkpoints. When a master
//! of a later term does not know its incarnation, the next begins, empty.

use crate::decider::decide;
use crate::follower::follow;
use crate::report::{Identity, register, report, watch};
use crate::restore::restore;
use crate::shard::Shard;
use crate::writer::write;
use anyhow::anyhow;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Dial, Masters};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::wire::Fault;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Who asks a pserver to leave may have heard of the job's end just before the pserver does: the word comes within so long. For so long, too,
/// one that was never used waits for its master to hear that it goes: until then the master takes it for one of those that it wants, and
/// may let another go in its place.
const LATE_WORD: Duration = Duration::from_secs(1);

/// Lives one incarnation after another. Returns only what no repetition can mend.
pub async fn live(
    shard: &Arc<Shard>,
    dial: &dyn Dial,
    masters: &Masters,
    storage: &Storage,
    identity: &mut Identity,
    random: &mut Random,
) -> Fault {
    let storage = &storage.clone().watched_by(shard.waits());
    loop {
        let fault = live_once(shard, dial, masters, storage, random).await;
        // One that was superseded ends: its name is another's now.
        if fault.next_move() != NextMove::Rejoin {
            return fault;
        }
        tracing::warn!(incarnation = %shard.incarnation(), %fault, "given up by the master: beginning anew");
        identity.nonce = random.bits();
        identity.previous = Some(shard.incarnation());
        let begun = match register(masters, identity, random).await {
            Ok((incarnation, ..)) => shard.begin_anew(incarnation),
            Err(fault) => return fault,
        };
        if let Err(refusal) = begun {
            return refusal.into();
        }
    }
}

/// Until nothing is left here and nothing will come. Once `leave` is due the master is told; its answer is waited for
/// no longer than `grace`, and not at all where nothing will be moved from here. A job that ends while blocks are moved ends no
/// pserver: who has just heard of the end reads the model there.
///
/// # Errors
/// The grace is over, and blocks are still here.
pub async fn leave(shard: &Shard, mut leave: Shutdown, grace: Duration) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        () = until(shard, Shard::may_leave) => {
            tracing::info!("nothing is left here: leaving");
            return Ok(());
        }
        () = leave.wait() => {}
    }
    tracing::info!(?grace, "asked to leave: staying until all blocks are elsewhere, unless the job is over");
    let asked = Instant::now();
    shard.leave();
    let is_free = |shard: &Shard| shard.may_leave() || shard.is_at_rest();
    if timeout_at(asked + grace.min(LATE_WORD), until(shard, is_free)).await.is_ok() || shard.is_unused() {
        return Ok(());
    }
    let left = timeout_at(asked + grace, until(shard, Shard::may_leave)).await;
    left.map_err(|_| anyhow!("the grace of {grace:?} is over: leaving although blocks are still here"))
}

async fn until(shard: &Shard, is_so: impl Fn(&Shard) -> bool) {
    let mut assigned = shard.assigned();
    while !is_so(shard) {
        assigned.changed().await;
    }
}

async fn live_once(
    shard: &Arc<Shard>,
    dial: &dyn Dial,
    masters: &Masters,
    storage: &Storage,
    random: &mut Random,
) -> Fault {
    let mut randoms = [(); 6].map(|()| Random::seeded(random.bits()));
    let [reporting, watching, following, restoring, writing, deciding] = &mut randoms;
    tokio::select! {
        biased;
        fault = watch(shard, masters, watching) => fault,
        fault = report(shard, masters, reporting) => fault,
        refusal = restore(shard, storage, restoring) => refusal.into(),
        refusal = write(shard, storage, writing) => refusal.into(),
        refusal = follow(shard, dial, following) => refusal.into(),
        refusal = decide(shard, dial, deciding) => refusal.into(),
        refusal = shard.feed() => refusal.into(),
        refusal = shard.land() => refusal.into(),
    }
}

#[cfg(test)]
mod tests;
