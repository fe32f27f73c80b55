//! The schedule of the demo: which faults are injected into the elastic run, and when.

use super::LEASE_TTL_MILLIS;
use crate::hands_on::Hands;
use rustix::process::Signal;
use shoal_job::Role;
use shoal_runner::Supervisor;
use shoal_runner::life::Interference;
use shoal_runner::reading::pserver_totals;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// The longest that one step of the schedule may wait for what it needs.
const STEP_MAX: Duration = Duration::from_secs(15);

fn say(job: &Supervisor, line: &str) {
    note!("   {:>5.1} s  step {:>3}/{}  {line}", job.record.seconds(), job.status.step, job.status.steps);
}

/// Shows what the supervisor has noticed.
pub(super) fn say_notes(job: &mut Supervisor) {
    for note in std::mem::take(&mut job.notes) {
        say(job, &note);
    }
}

/// Lets the job run until `is_reached`, the step's patience is over, or the job is. Returns whether it goes on.
async fn until(
    job: &mut Supervisor,
    hands: &mut Option<Hands>,
    mut is_reached: impl FnMut(&Supervisor) -> bool,
) -> anyhow::Result<bool> {
    let deadline = Instant::now() + STEP_MAX;
    while job.tick().await? {
        hands.tick(job).await;
        say_notes(job);
        if is_reached(job) || Instant::now() >= deadline {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(false)
}

async fn pause(job: &mut Supervisor, hands: &mut Option<Hands>, seconds: f64) -> anyhow::Result<bool> {
    let until_seconds = job.record.seconds() + seconds;
    until(job, hands, |job| job.record.seconds() >= until_seconds).await
}

/// All of it: trainers 2 -> 4 -> 3 -> 1 -> 3.
pub(super) async fn inject(job: &mut Supervisor, hands: &mut Option<Hands>) -> anyhow::Result<()> {
    until(job, hands, |job| job.members().len() == 2 && job.status.step > 2).await?;
    for (name, pid, _) in job.members() {
        say(job, &format!("{name} is process {pid}: kill -9 it yourself, it does no harm"));
    }
    pause(job, hands, 1.0).await?;
    grow(job, hands, 4, "two trainers join").await?;
    pause(job, hands, 1.5).await?;
    leave(job, hands).await?;
    pause(job, hands, 1.0).await?;
    let frozen = freeze(job, hands).await?;
    kill(job, hands).await?;
    pause(job, hands, 2.5 * LEASE_TTL_MILLIS as f64 / 1000.0).await?;
    thaw(job, frozen);
    grow(job, hands, 3, "trainers join again").await?;
    pause(job, hands, 1.0).await?;
    let mut epochs = job.status.epoch;
    while job.tick().await? {
        hands.tick(job).await;
        say_notes(job);
        if job.status.epoch > epochs {
            epochs = job.status.epoch;
            say(job, &format!("{epochs} epochs are trained, {} trainers go on", job.members().len()));
        }
        // Whatever the timing was: a frozen trainer whose work was done by others must have come too late once.
        let is_seen = || {
            let totals = pserver_totals(&job.status);
            totals.duplicates_refused + totals.late_pushes > 0
        };
        if !is_seen() && job.status.step * 10 < job.status.steps * 8 {
            let frozen = freeze(job, hands).await?;
            pause(job, hands, 2.0 * LEASE_TTL_MILLIS as f64 / 1000.0).await?;
            thaw(job, frozen);
            pause(job, hands, 0.5).await?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    say(job, "every step is applied by every block");
    Ok(())
}

async fn grow(
    job: &mut Supervisor,
    hands: &mut Option<Hands>,
    trainers: u32,
    what: &str,
) -> anyhow::Result<()> {
    let before: BTreeSet<u32> = job.trainers.iter().map(|trainer| trainer.pid).collect();
    say(job, &format!("{what}: {} -> {trainers}", before.len()));
    job.client.scale(Some(trainers), None).await?;
    until(job, hands, |job| job.members().len() as u32 >= trainers).await?;
    for (name, pid, _) in job.members().into_iter().filter(|(_, pid, _)| !before.contains(pid)) {
        say(job, &format!("{name} (process {pid}) has joined"));
        job.record.fault("join", Role::Trainer, &name, "joins in mid-training");
    }
    Ok(())
}

async fn leave(job: &mut Supervisor, hands: &mut Option<Hands>) -> anyhow::Result<()> {
    let Some((name, pid, _)) = job.members().pop() else { return Ok(()) };
    say(job, &format!("{name} (process {pid}) is asked to leave, and hands back its tasks"));
    job.record.fault("leave", Role::Trainer, &name, "SIGTERM: hands back its tasks");
    let remaining = (job.members().len() as u32).saturating_sub(1).max(1);
    job.ask_to_leave(pid);
    job.client.scale(Some(remaining), None).await?;
    until(job, hands, |job| job.trainers.iter().all(|trainer| trainer.pid != pid)).await?;
    Ok(())
}

/// Freezes a trainer in mid-task.
async fn freeze(job: &mut Supervisor, hands: &mut Option<Hands>) -> anyhow::Result<Option<(String, u32)>> {
    let Some((name, pid)) = busy_member(job, hands).await? else { return Ok(None) };
    job.signal(pid, Signal::STOP);
    say(job, &format!("{name} (process {pid}) is frozen in mid-task, for longer than its lease"));
    job.record.fault("freeze", Role::Trainer, &name, "SIGSTOP in mid-task, past its lease");
    Ok(Some((name, pid)))
}

fn thaw(job: &mut Supervisor, frozen: Option<(String, u32)>) {
    let Some((name, pid)) = frozen else { return };
    job.signal(pid, Signal::CONT);
    say(job, &format!("{name} (process {pid}) wakes, and pushes what others have done meanwhile"));
    job.record.fault("thaw", Role::Trainer, &name, "SIGCONT: pushes late");
}

/// Kills a trainer in mid-task that is not frozen; its place stays empty.
async fn kill(job: &mut Supervisor, hands: &mut Option<Hands>) -> anyhow::Result<()> {
    let Some((name, pid)) = busy_member(job, hands).await? else { return Ok(()) };
    job.kill(pid).await;
    say(job, &format!("{name} (process {pid}) is killed in mid-task: kill -9"));
    job.record.fault("kill", Role::Trainer, &name, "kill -9 in mid-task");
    let remaining = (job.trainers.len() as u32).saturating_sub(1).max(1);
    job.client.scale(Some(remaining), None).await?;
    until(job, hands, |job| job.trainers.iter().all(|trainer| trainer.pid != pid)).await?;
    Ok(())
}

/// A live trainer that holds a task and is not frozen.
async fn busy_member(
    job: &mut Supervisor,
    hands: &mut Option<Hands>,
) -> anyhow::Result<Option<(String, u32)>> {
    let find = |job: &Supervisor| {
        let is_frozen = |name: &str| {
            let member = job.record.members.iter().rev().find(|member| member.name == name);
            member.is_some_and(|member| member.frozen.last().is_some_and(|freeze| freeze.1.is_infinite()))
        };
        job.members().into_iter().find(|(name, _, in_hand)| *in_hand > 0 && !is_frozen(name))
    };
    until(job, hands, |job| find(job).is_some()).await?;
    Ok(find(job).map(|(name, pid, _)| (name, pid)))
}
