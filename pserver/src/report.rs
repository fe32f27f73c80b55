//! The pserver's side of the talk with the master: register, then report and do as assigned.
//!
//! An outage of the master is no reason to stop: blocks are served and the report is sent again until it is heard.
//! Only a refusal that no repetition can mend ends it.

use crate::counters;
use crate::hosting::Assignment;
use crate::shard::{Checkpointing, Shard, Untold};
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::cluster::{BlockId, Incarnation, JobSettings, Refusal, Rewind, Version};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::Masters;
use shoal_runtime::host::signal::Changes;
use shoal_runtime::wire::proto::master_client::MasterClient;
use shoal_runtime::wire::{Fault, malformed, proto};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Reports follow one another at least so far apart, even when versions are published faster.
const PUBLISHED_INTERVAL: Duration = Duration::from_millis(2);
/// Held nodes alone are told less often: they matter only where a lease expires.
const HELD_INTERVAL: Duration = Duration::from_millis(25);
/// An assignment that changed nothing is asked for again after so long.
const UNHEEDED_INTERVAL: Duration = Duration::from_millis(25);
/// Hashes that one report tells, about: 1 MiB of them.
const REPORT_HASHES: usize = 1 << 17;
/// How long an answer to a registration may take.
const REGISTER_DEADLINE: Duration = Duration::from_secs(2);

/// How long master and pserver may not believe one another: time enough to issue a certificate anew. A pserver that was
/// not heard for so long holds nothing that the job still counts on.
const TRUST_PATIENCE: Duration = Duration::from_secs(120);

/// Who registers.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The job, if it was named; otherwise whichever the master runs.
    pub job: Option<String>,
    /// Unique in the job; a later life under it supersedes this one.
    pub name: String,
    /// Drawn once in a life: a repeated registration is known by it.
    pub nonce: u64,
    /// The incarnation before, of a life that a master of an earlier term knew.
    pub previous: Option<Incarnation>,
    /// Where trainers reach this pserver, `host:port`.
    pub address: String,
}

/// Registers, trying again for as long as the master does not answer.
pub async fn register(
    masters: &Masters,
    identity: &Identity,
    random: &mut Random,
) -> Result<(Incarnation, JobSettings, String), Fault> {
    let mut outage = Outage::new();
    loop {
        match register_once(masters, identity).await {
            Ok(registered) => return Ok(registered),
            Err(fault) => outage.survive(fault, random).await?,
        }
    }
}

async fn register_once(
    masters: &Masters,
    identity: &Identity,
) -> Result<(Incarnation, JobSettings, String), Fault> {
    let job = match &identity.job {
        Some(job) => job.clone(),
        None => {
            let describe =
                |mut master: MasterClient<_>| async move { master.describe(proto::DescribeRequest {}).await };
            settings(masters.call(REGISTER_DEADLINE, describe).await?.settings)?.job.0
        }
    };
    let request = proto::RegisterRequest {
        job,
        name: identity.name.clone(),
        address: identity.address.clone(),
        nonce: identity.nonce,
        process: std::process::id(),
        previous: identity.previous.map_or(0, |previous| previous.0),
    };
    let register = |mut master: MasterClient<_>| async move { master.register(request).await };
    let reply = masters.call(REGISTER_DEADLINE, register).await?;
    Ok((Incarnation(reply.incarnation), settings(reply.settings)?, reply.checkpoints))
}

fn settings(wire: Option<proto::JobSettings>) -> Result<JobSettings, Refusal> {
    wire.ok_or_else(|| malformed("settings", "the field is missing"))?.try_into()
}

/// Reports until this life is over: at once when a version is published, and at least four times in a lease's time to
/// live. Each report tells what the master has not been told yet. Returns what no repetition can mend: that the master has given
/// this incarnation up, for one.
pub async fn report(shard: &Shard, masters: &Masters, random: &mut Random) -> Fault {
    let incarnation = shard.incarnation();
    let mut told = Reported::nothing(shard);
    let mut outage = Outage::new();
    let period = Duration::from_millis(shard.job().lease_ttl_millis) / 4;
    for call in 1.. {
        let started = Instant::now();
        let (message, tells) = match told.message(shard, incarnation, call) {
            Ok(message) => message,
            Err(refusal) => return refusal.into(),
        };
        let tells_of_leaving = message.is_leaving;
        let report = |mut master: MasterClient<_>| async move { master.report(message).await };
        let survived = match masters.call(period.max(PUBLISHED_INTERVAL), report).await {
            Ok(reply) => {
                outage.end();
                told.answered(shard, &reply, &tells);
                if tells_of_leaving {
                    shard.note_leaving_known();
                }
                Ok(())
            }
            Err(fault) => outage.survive(fault, random).await,
        };
        if let Err(fault) = survived {
            return fault;
        }
        told.wait(started, started + period).await;
    }
    Fault::Unreachable(String::from("no number is left for a report"))
}

/// Learns what to hold, as soon as it changes, until this life is over. Returns what no repetition can mend.
pub async fn watch(shard: &Arc<Shard>, masters: &Masters, random: &mut Random) -> Fault {
    let incarnation = shard.incarnation();
    let mut outage = Outage::new();
    let wait = Duration::from_millis(shard.job().lease_ttl_millis) / 2;
    loop {
        let (master_term, routing_version) = shard.routing_version();
        let request = proto::WatchRequest {
            job: shard.job().job.0.clone(),
            incarnation: incarnation.0,
            routing_version,
            master_term,
            wait_millis: wait.as_millis() as u32,
        };
        let ask = |mut master: MasterClient<_>| async move { master.watch(request).await };
        let fault = match masters.call(wait * 2, ask).await {
            Ok(reply) => {
                outage.end();
                let Some(wire) = reply.assignment else { continue };
                let assigned = match Assignment::of(wire, shard.job().is_sync()) {
                    Ok(assignment) => shard.assign(assignment).await,
                    Err(refusal) => Err(refusal),
                };
                if let Err(refusal) = assigned {
                    shard.fail(refusal.to_string());
                }
                if shard.routing_version() == (master_term, routing_version) {
                    // It cannot be done, or a deposed master gave it: it would be given again at once.
                    sleep(UNHEEDED_INTERVAL).await;
                }
                continue;
            }
            Err(fault) => fault,
        };
        if let Err(fault) = outage.survive(fault, random).await {
            return fault;
        }
    }
}

/// What the master has been told. Its memory has a number: one that has forgotten, or another master, answers with another, and
/// is told everything.
struct Reported {
    base: u64,
    untold: Untold,
    urgent: Changes,
    /// Files of the checkpoint under way that it was told of.
    checkpoint: u64,
    written: usize,
    /// Blocks without a piece of it, of which it was told.
    passed: usize,
    /// The number of the first hashes that it was not told.
    recorded: u64,
    /// Whether the last report had no room for all.
    has_more: bool,
}

/// What one report tells.
struct Reporting {
    blocks: BTreeSet<BlockId>,
    written: usize,
    passed: usize,
    recorded: u64,
    has_more: bool,
}

impl Reported {
    fn nothing(shard: &Shard) -> Reported {
        let (urgent, untold) = (shard.urgent(), shard.untold());
        Reported {
            base: 0,
            untold,
            urgent,
            checkpoint: 0,
            written: 0,
            passed: 0,
            recorded: 0,
            has_more: false,
        }
    }

    /// A report of everything until now that the master was not told of, as far as it fits.
    fn message(
        &mut self,
        shard: &Shard,
        incarnation: Incarnation,
        call: u64,
    ) -> Result<(proto::ReportRequest, Reporting), Refusal> {
        self.urgent.mark_heard();
        let (_, routing_version) = shard.routing_version();
        let ((progress, copies, admissions), blocks) = shard.standing(&mut self.untold)?;
        let checkpoint = shard.named().map_or(0, |named| named.checkpoint.0);
        if checkpoint != self.checkpoint {
            (self.checkpoint, self.written, self.passed) = (checkpoint, 0, 0);
        }
        let Checkpointing { written, passed, .. } = shard.checkpointing(self.written, self.passed);
        let (hashes, recorded) = shard.recorder().after(self.recorded, REPORT_HASHES);
        let (recorded_rewind, recorded_below) = shard.recorder().settled();
        let request = proto::ReportRequest {
            job: shard.job().job.0.clone(),
            incarnation: incarnation.0,
            routing_version,
            progress,
            copies,
            admissions,
            counters: Some(counters::all(shard).into()),
            failure: shard.failure().unwrap_or_default(),
            call,
            is_leaving: shard.is_leaving(),
            checkpoint,
            written: written.iter().map(Into::into).collect(),
            has_passed: !passed.is_empty(),
            damaged: shard.damage()?.iter().map(Into::into).collect(),
            evaluated: shard.evaluated()?,
            staleness: Some((&shard.staleness()).into()).filter(|_| !shard.job().is_sync()),
            base: self.base,
            recorded: hashes.into_iter().map(Into::into).collect(),
            passed: passed.iter().map(|block| block.0).collect(),
            recorded_rewind: recorded_rewind.0,
            recorded_below: recorded_below.0,
            waits: shard.waits().report().iter().map(Into::into).collect(),
            ..Default::default()
        };
        let (written, passed) = (self.written + written.len(), self.passed + passed.len());
        let has_more = self.untold.has_more_than(&blocks)
            || shard.has_more_than(written, passed)
            || shard.recorder().has_after(recorded);
        Ok((request, Reporting { blocks, written, passed, recorded, has_more }))
    }

    /// The master has heard a report, and its memory has a number; 0 while it remembers nothing.
    fn answered(&mut self, shard: &Shard, reply: &proto::ReportReply, tells: &Reporting) {
        let proto::ReportReply { base, recorded_rewind, recorded_below } = *reply;
        self.has_more = tells.has_more && base != 0;
        if base != 0 && base == self.base {
            self.untold.told(&tells.blocks);
            (self.written, self.passed, self.recorded) = (tells.written, tells.passed, tells.recorded);
        } else if base != 0 {
            (self.base, self.has_more) = (base, true);
            (self.written, self.passed, self.recorded) = (0, 0, 0);
            self.untold.forget(shard);
        }
        shard.recorder().settle(Rewind(recorded_rewind), Version(recorded_below), self.recorded);
    }

    /// Waits for a change, but not so long that reports are too far apart, nor so short that they are too close.
    async fn wait(&mut self, last: Instant, latest: Instant) {
        let Reported { untold, urgent, has_more, .. } = self;
        sleep_until(last + PUBLISHED_INTERVAL).await;
        if *has_more {
            return;
        }
        let any = async {
            untold.changed().await;
            sleep_until(last + HELD_INTERVAL).await;
        };
        let change = async {
            tokio::select! {
                biased;
                () = urgent.changed() => {}
                () = any => {}
            }
        };
        // Either a change or the passing of time: both make the report due.
        let _ = timeout_at(latest, change).await;
    }
}

/// A stretch of time in which the master does not answer: logged when it begins and when it ends.
pub(crate) struct Outage {
    backoff: Backoff,
    /// Since when the last words were that there is no trust.
    untrusted: Option<Instant>,
}

impl Outage {
    pub(crate) fn new() -> Outage {
        Outage { backoff: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)), untrusted: None }
    }

    /// Pauses before the next attempt, or gives the fault back where no attempt can help.
    pub(crate) async fn survive(&mut self, fault: Fault, random: &mut Random) -> Result<(), Fault> {
        if fault.next_move() != NextMove::Retry {
            return Err(fault);
        }
        if matches!(fault, Fault::Untrusted(_)) {
            if self.untrusted.get_or_insert_with(Instant::now).elapsed() > TRUST_PATIENCE {
                return Err(fault);
            }
        } else {
            self.untrusted = None;
        }
        if self.backoff.attempts() == 0 {
            tracing::warn!(%fault, "the master does not answer; trying again until it does");
        }
        sleep(self.backoff.pause(random)).await;
        Ok(())
    }

    pub(crate) fn end(&mut self) {
        if self.backoff.attempts() > 0 {
            tracing::info!("the master answers again");
        }
        self.backoff.succeed();
        self.untrusted = None;
    }
}

#[cfg(test)]
pub(crate) mod tests;
