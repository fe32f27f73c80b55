//! What a pserver does beside serving: reports, does as assigned, follows, restores, writes checkpoints. When a master
//! of a later term does not know its incarnation, the next begins, empty.

use crate::decider::decide;
use crate::follower::follow;
use crate::report::{Identity, register, report, watch};
use crate::restore::restore;
use crate::shard::Shard;
use crate::writer::write;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Dial, Masters};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::storage::Storage;
use shoal_runtime::wire::Fault;
use std::sync::Arc;
use std::time::Duration;

/// Lives one incarnation after another. Returns only what no repetition can mend.
pub async fn live(
    shard: &Arc<Shard>,
    dial: &dyn Dial,
    masters: &Masters,
    storage: &Storage,
    identity: &mut Identity,
    random: &mut Random,
) -> Fault {
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
/// no longer than `grace`.
///
/// # Errors
/// The grace is over, and blocks are still here.
pub async fn leave(shard: &Shard, mut leave: Shutdown, grace: Duration) -> anyhow::Result<()> {
    let asked = async {
        leave.wait().await;
        tracing::info!(?grace, "asked to leave: staying until all blocks are elsewhere");
        shard.leave();
        tokio::time::sleep(grace).await;
    };
    let let_go = async {
        let mut assigned = shard.assigned();
        while !shard.may_leave() {
            assigned.changed().await;
        }
    };
    tokio::select! {
        biased;
        () = let_go => {
            tracing::info!("nothing is left here: leaving");
            Ok(())
        }
        () = asked => anyhow::bail!("the grace of {grace:?} is over: leaving although blocks are still here"),
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
