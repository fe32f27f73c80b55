//! The pserver's side of the talk with the master: register once, then report for ever and do as assigned.
//!
//! An outage of the master is no reason to stop: blocks are served and the report is sent again until it is heard.
//! Only a refusal that no repetition can mend ends it.

use crate::hosting::{Assignment, Construction};
use crate::shard::{Progress, Shard};
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::cluster::{BlockId, Declaration, Incarnation, JobSettings, Refusal};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::Channel;
use shoal_runtime::wire::proto::master_client::MasterClient;
use shoal_runtime::wire::{Fault, malformed, proto};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// Reports follow one another at least so far apart, even when versions are published faster.
const PUBLISHED_INTERVAL: Duration = Duration::from_millis(2);
/// Held nodes alone are told less often: they matter only where a lease expires.
const HELD_INTERVAL: Duration = Duration::from_millis(25);
/// While there is nothing to host, the master is asked this often at least.
const UNASSIGNED_PERIOD: Duration = Duration::from_millis(200);
/// How long an answer to a registration may take.
const REGISTER_DEADLINE: Duration = Duration::from_secs(2);

/// Who registers.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The job, if it was named; otherwise whichever the master runs.
    pub job: Option<String>,
    /// Unique in the job; a later life under it supersedes this one.
    pub name: String,
    /// Drawn once in a life: a repeated registration is known by it.
    pub nonce: u64,
    /// Where trainers reach this pserver, `host:port`.
    pub address: String,
}

/// Registers, trying again for as long as the master does not answer.
pub async fn register(
    mut master: MasterClient<Channel>,
    identity: &Identity,
    random: &mut Random,
) -> Result<(Incarnation, JobSettings), Fault> {
    let mut outage = Outage::new();
    loop {
        match timeout(REGISTER_DEADLINE, register_once(&mut master, identity)).await {
            Ok(Ok(registered)) => return Ok(registered),
            Ok(Err(fault)) => outage.survive(fault, random).await?,
            Err(_) => outage.survive(no_answer(), random).await?,
        }
    }
}

async fn register_once(
    master: &mut MasterClient<Channel>,
    identity: &Identity,
) -> Result<(Incarnation, JobSettings), Fault> {
    let job = match &identity.job {
        Some(job) => job.clone(),
        None => settings(master.describe(proto::DescribeRequest {}).await?.into_inner().settings)?.job.0,
    };
    let request = proto::RegisterRequest {
        job,
        name: identity.name.clone(),
        address: identity.address.clone(),
        nonce: identity.nonce,
        process: std::process::id(),
    };
    let reply = master.register(request).await?.into_inner();
    Ok((Incarnation(reply.incarnation), settings(reply.settings)?))
}

fn settings(wire: Option<proto::JobSettings>) -> Result<JobSettings, Refusal> {
    wire.ok_or_else(|| malformed("settings", "the field is missing"))?.try_into()
}

/// Reports for ever: at once when a version is published, and at least four times in a lease's time to live.
/// Returns only what no repetition can mend.
pub async fn report(
    shard: &Shard,
    mut master: MasterClient<Channel>,
    incarnation: Incarnation,
    random: &mut Random,
) -> Fault {
    let mut changes = Changes { published: shard.published(), held: shard.held() };
    let mut construction = None;
    let mut outage = Outage::new();
    let period = Duration::from_millis(shard.job().lease_ttl_millis) / 4;
    loop {
        let started = Instant::now();
        changes.forget();
        let answer = match message(shard, incarnation) {
            Ok(message) => timeout(period.max(PUBLISHED_INTERVAL), master.report(message)).await,
            Err(refusal) => return refusal.into(),
        };
        let survived = match answer {
            Ok(Ok(reply)) => {
                outage.end();
                obey(shard, reply.into_inner().assignment, &mut construction);
                Ok(())
            }
            Ok(Err(status)) => outage.survive(status.into(), random).await,
            Err(_) => outage.survive(no_answer(), random).await,
        };
        if let Err(fault) = survived {
            return fault;
        }
        let is_unassigned = shard.routing_version() == 0;
        let latest = started + if is_unassigned { period.min(UNASSIGNED_PERIOD) } else { period };
        construct(shard, &mut construction, latest).await;
        changes.wait(started, latest).await;
    }
}

fn message(shard: &Shard, incarnation: Incarnation) -> Result<proto::ReportRequest, Refusal> {
    // The routing version first: if blocks come between the two readings, the next report is the one that counts.
    let routing_version = shard.routing_version();
    Ok(proto::ReportRequest {
        job: shard.job().job.0.clone(),
        incarnation: incarnation.0,
        routing_version,
        progress: shard.progress()?.into_iter().map(group).collect(),
        counters: Some(counters(shard)),
        failure: shard.failure().unwrap_or_default(),
    })
}

fn group(progress: Progress) -> proto::BlockProgress {
    proto::BlockProgress {
        blocks: progress.blocks.into_iter().map(|id| id.0).collect(),
        version: progress.version.0,
        held: progress.held.into_iter().map(Into::into).collect(),
    }
}

fn counters(shard: &Shard) -> proto::PserverCounters {
    let counters = shard.counters();
    proto::PserverCounters {
        pushes: counters.pushes,
        duplicates_refused: counters.duplicates_refused,
        late_pushes: counters.late_pushes,
        records_refused: counters.records_refused,
        replaced_by_ancestor: counters.replaced_by_ancestor,
        busy: counters.busy,
        short_steps: counters.short_steps,
        bytes_in: counters.bytes_in,
        bytes_out: counters.bytes_out,
        levels: counters.levels,
    }
}

/// Takes the master's assignment, if it gave one. What cannot be done is told to the master as the job's failure.
fn obey(shard: &Shard, wire: Option<proto::Assignment>, construction: &mut Option<Construction>) {
    let Some(wire) = wire else { return };
    if construction.as_ref().is_some_and(|under_way| under_way.routing_version() == wire.routing_version) {
        return;
    }
    match assignment(wire).and_then(|assignment| shard.assign(assignment)) {
        Ok(Some(begun)) => *construction = Some(begun),
        Ok(None) => {}
        Err(refusal) => shard.fail(refusal.to_string()),
    }
}

fn assignment(wire: proto::Assignment) -> Result<Assignment, Refusal> {
    let declaration =
        wire.declaration.ok_or_else(|| malformed("assignment.declaration", "the field is missing"))?;
    Ok(Assignment {
        routing_version: wire.routing_version,
        declaration: Declaration::try_from(declaration)?,
        blocks: wire.blocks.into_iter().map(BlockId).collect(),
    })
}

/// Makes blocks until all are there or the next report is due, letting others run between two blocks.
async fn construct(shard: &Shard, construction: &mut Option<Construction>, until: Instant) {
    while let Some(under_way) = construction.take() {
        *construction = shard.make_next(under_way);
        tokio::task::yield_now().await;
        if Instant::now() >= until {
            return;
        }
    }
}

/// What makes the next report due.
struct Changes {
    published: watch::Receiver<()>,
    held: watch::Receiver<()>,
}

impl Changes {
    /// The report that is about to be made tells everything until now.
    fn forget(&mut self) {
        self.published.mark_unchanged();
        self.held.mark_unchanged();
    }

    /// Waits for a change, but not so long that reports are too far apart, nor so short that they are too close.
    async fn wait(&mut self, last: Instant, latest: Instant) {
        let Changes { published, held } = self;
        sleep_until(last + PUBLISHED_INTERVAL).await;
        let held = async {
            let changed = held.changed().await;
            sleep_until(last + HELD_INTERVAL).await;
            changed
        };
        let change = async {
            tokio::select! {
                biased;
                changed = published.changed() => changed,
                changed = held => changed,
            }
        };
        // Either a change or the passing of time: both make the report due.
        let _ = timeout_at(latest, change).await;
    }
}

/// A stretch of time in which the master does not answer: logged when it begins and when it ends.
struct Outage {
    backoff: Backoff,
}

impl Outage {
    fn new() -> Outage {
        Outage { backoff: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)) }
    }

    /// Pauses before the next attempt, or gives the fault back where no attempt can help.
    async fn survive(&mut self, fault: Fault, random: &mut Random) -> Result<(), Fault> {
        if fault.next_move() != NextMove::Retry {
            return Err(fault);
        }
        if self.backoff.attempts() == 0 {
            tracing::warn!(%fault, "the master does not answer; trying again until it does");
        }
        sleep(self.backoff.pause(random)).await;
        Ok(())
    }

    fn end(&mut self) {
        if self.backoff.attempts() > 0 {
            tracing::info!("the master answers again");
        }
        self.backoff.succeed();
    }
}

fn no_answer() -> Fault {
    Fault::Unreachable(String::from("no answer in time"))
}

#[cfg(test)]
mod tests;
