//! Processes that run and take no part: trainers that have not joined, those of which the master hears nothing any more, and whoever is
//! stopped by somebody else.

use super::process::Process;
use super::stops::News;
use super::supervisor::Supervisor;
use shoal_job::Role;
use shoal_job::ends;
use std::time::Duration;
use tokio::time::Instant;

/// A trainer that takes longer to join is told of.
const JOINING: Duration = Duration::from_secs(30);
/// A trainer that the master has lost, and that runs on for so many times to live, is ended: by default after a minute, as a pod is
/// that does not answer its probes.
const SILENT_TTLS: u32 = 12;

/// Why somebody stands still whom this run does not hold.
const STOPPED: &str = "SIGSTOP by somebody, or it waits for a terminal";

impl Supervisor {
    /// Says who runs for long and has not joined the job: its environment may not reach it, or it is no training program.
    pub(super) fn miss_trainers(&mut self) {
        let Supervisor { trainers, counts, notes, .. } = self;
        let is_late =
            |one: &&mut Process| one.started.elapsed() >= JOINING && !one.is_missed && !one.was_told();
        for trainer in trainers.iter_mut().filter(is_late) {
            trainer.is_missed = true;
            if counts.part(Role::Trainer, &trainer.name).0 == ends::Part::NeverJoined {
                notes.push(format!(
                    "warning: {} runs for {} s and has not joined the job: does it train by the SDK, and does its environment \
                     (SHOAL_MASTER, SHOAL_JOB) reach it? see {}",
                    trainer.name,
                    JOINING.as_secs(),
                    trainer.log.display()
                ));
            }
        }
    }

    /// Tells of processes that somebody else has stopped, and of those that go on.
    pub(super) fn tell_stops(&mut self) {
        let Supervisor { trainers, pservers, master, record, notes, .. } = self;
        let all = trainers.iter_mut().chain(pservers).chain([master]).filter(|one| !one.is_over());
        for process in all {
            let (kind, what, note) = match process.news_of_stops() {
                None => continue,
                Some(News::Stopped) => ("stopped", STOPPED, format!("is stopped: {STOPPED}")),
                Some(News::Continues) => ("continues", "SIGCONT", "goes on (SIGCONT)".to_owned()),
            };
            record.fault(kind, process.role, &process.name, what);
            notes.push(format!("{} {note}", process.name));
        }
    }

    /// Ends trainers that run and that the master has not heard of for long: they hang, or are frozen, and keep others from coming.
    pub(super) fn give_up_silent(&mut self) {
        let Supervisor { trainers, status, notes, .. } = self;
        let ttl = status.settings.as_ref().map_or(0, |settings| settings.lease_ttl_millis);
        let patience = Duration::from_millis(ttl) * SILENT_TTLS;
        for trainer in trainers.iter_mut().filter(|one| !one.is_over() && !one.was_told()) {
            let of_name = status.trainers.iter().filter(|one| one.name == trainer.name);
            let newest = of_name.max_by_key(|one| one.incarnation);
            if newest.is_none_or(|newest| newest.state != "lost") {
                trainer.silent_since = None;
            } else if trainer.silent_since.get_or_insert_with(Instant::now).elapsed() >= patience {
                trainer.silent_since = None;
                trainer.give_up();
                notes.push(format!(
                    "warning: {} runs, and the master has heard nothing of it for {} s: it is ended, and another takes its place; see {}",
                    trainer.name,
                    patience.as_secs(),
                    trainer.log.display()
                ));
            }
        }
    }
}
