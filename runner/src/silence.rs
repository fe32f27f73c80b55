//! Processes that run and take no part: those that have not joined, those of which the master hears nothing any more, a master that does
//! not answer, and whoever is stopped by somebody else.

use super::counts::Hearing;
use super::process::Process;
use super::stops::News;
use super::supervisor::Supervisor;
use super::upkeep::Silence;
use shoal_job::Role;
use shoal_job::ends;
use std::path::Path;
use std::time::Duration;

/// A trainer that takes longer to join is told of.
const JOINING: Duration = Duration::from_secs(30);
/// A pserver that takes longer to join is ended: for two minutes it waits for certificates, and a driver that is used for the first time
/// takes its time. A trainer is not ended: what it does before it joins is its program's.
const PSERVER_JOINING: Duration = Duration::from_secs(300);
/// Whoever has joined, and runs on unheard for so many times to live, is ended: by default after a minute, as a pod is that does not
/// answer its probes.
const SILENT_TTLS: u32 = 12;
/// A master that has answered, and then does not for so long, is ended.
const MASTER_SILENT: Duration = Duration::from_secs(60);

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

    /// Ends trainers and pservers that run and take no part: they hang, or are frozen, and keep others from coming.
    pub(super) fn give_up_silent(&mut self) {
        let now = self.started.elapsed();
        let Supervisor { trainers, pservers, counts, status, notes, .. } = self;
        let ttl = status.settings.as_ref().map_or(0, |settings| settings.lease_ttl_millis);
        let of_lost = Duration::from_millis(ttl) * SILENT_TTLS;
        let running = trainers.iter_mut().chain(pservers).filter(|one| !one.is_over() && !one.was_told());
        for process in running {
            let patience = match counts.hearing(process.role, &process.name, status) {
                Hearing::Silent if process.may_be_heard() => of_lost,
                Hearing::NotYet if process.may_be_heard() && process.role == Role::Pserver => PSERVER_JOINING,
                _ => {
                    process.silence = Silence::default();
                    continue;
                }
            };
            let lasted = process.silence.goes_on(now);
            if lasted >= patience {
                process.give_up();
                notes.push(given_up(
                    &process.name,
                    "the master has heard nothing of it",
                    lasted,
                    &process.log,
                ));
            }
        }
    }

    /// What came of a question to the master: one that has answered, runs, and answers no more is ended.
    pub(super) fn listen_to_master(&mut self, has_answered: bool) {
        let now = self.started.elapsed();
        if has_answered || self.is_master_gone || !self.master.may_be_heard() {
            self.answers.begin_again(has_answered);
        } else if self.answers.miss(now) >= MASTER_SILENT {
            self.master.give_up();
            self.outage.begin_again(now);
            let log = &self.master.log;
            self.notes.push(given_up("the master", "it has not answered", MASTER_SILENT, log));
        }
    }
}

fn given_up(name: &str, why: &str, lasted: Duration, log: &Path) -> String {
    let (seconds, log) = (lasted.as_secs_f64(), log.display());
    format!(
        "warning: {name} runs, and {why} for {seconds:.0} s: it is ended, and another takes its place; see {log}"
    )
}
