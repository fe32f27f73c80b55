//! The journal of a job that keeps none where we look from: made of what its master says, look after look. Pure.

use shoal_runner::journal::{Begun, Entry, Seen};
use shoal_runner::told::Told;
use shoal_runtime::wire::proto::StatusReply;
use std::collections::BTreeMap;

/// What was told so far.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    /// By role and incarnation: the number that stands for its process, and its name.
    here: BTreeMap<(&'static str, u64), u32>,
    next: u32,
    has_begun: bool,
    sampled: Option<(f64, usize)>,
    told: Told,
}

impl Watcher {
    /// What this look tells that none before has: who came, who went, how the job is. `at` is in seconds since the first look.
    pub(crate) fn look(&mut self, at: f64, status: &StatusReply, wall_seconds: u64) -> Vec<Entry> {
        let mut told = Vec::new();
        if !self.has_begun {
            self.has_begun = true;
            told.push(Entry::Begun(Begun::of(&[], status, wall_seconds)));
        }
        let trainers = status.trainers.iter().filter(|trainer| trainer.state == "live");
        let trainers = trainers.map(|trainer| (("trainer", trainer.incarnation), trainer.name.as_str()));
        let pservers = status.pservers.iter().filter(|pserver| !pserver.lost);
        let pservers = pservers.map(|pserver| (("pserver", pserver.incarnation), pserver.name.as_str()));
        let now: BTreeMap<(&'static str, u64), &str> = trainers.chain(pservers).collect();
        let gone: Vec<_> = self.here.keys().filter(|member| !now.contains_key(member)).copied().collect();
        for member in gone {
            let Some(process) = self.here.remove(&member) else { continue };
            told.push(Entry::Ended { at, process, end: end_of(status, member).to_owned() });
        }
        for (member, name) in now {
            if self.here.contains_key(&member) {
                continue;
            }
            self.next += 1;
            self.here.insert(member, self.next);
            let (role, name) = (member.0.to_owned(), name.to_owned());
            told.push(Entry::Joined { at, role, name, process: self.next });
        }
        // As often as a run's own journal.
        let is_due = self
            .sampled
            .is_none_or(|(last, count)| at - last >= (at / 500.0).max(0.1) || count != self.here.len());
        if is_due && status.is_progress_known {
            self.sampled = Some((at, self.here.len()));
            let mut seen = Seen::of(at, status, status);
            self.told.leave_new(&mut seen);
            told.push(Entry::Seen(seen));
        }
        told
    }
}

/// How somebody ended of whom the master still knows, in a word.
fn end_of(status: &StatusReply, (role, incarnation): (&str, u64)) -> &'static str {
    let trainer = || status.trainers.iter().find(|trainer| trainer.incarnation == incarnation);
    match role {
        "trainer" if trainer().is_none_or(|trainer| trainer.state == "left") => "left",
        "pserver" if !status.pservers.iter().any(|pserver| pserver.incarnation == incarnation) => "left",
        _ => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::{PserverStatus, TrainerStatus, TroubleStatus};

    fn status(trainers: &[(u64, &str)], pservers: &[(u64, bool)]) -> StatusReply {
        let trainer = |(incarnation, state): &(u64, &str)| TrainerStatus {
            name: format!("trainer-{incarnation}"),
            incarnation: *incarnation,
            state: (*state).to_owned(),
            ..Default::default()
        };
        let pserver = |(incarnation, lost): &(u64, bool)| PserverStatus {
            name: format!("pserver-{incarnation}"),
            incarnation: *incarnation,
            lost: *lost,
            ..Default::default()
        };
        StatusReply {
            trainers: trainers.iter().map(trainer).collect(),
            pservers: pservers.iter().map(pserver).collect(),
            is_progress_known: true,
            ..Default::default()
        }
    }

    fn words(told: &[Entry]) -> Vec<String> {
        told.iter()
            .map(|entry| match entry {
                Entry::Begun(_) => "begun".to_owned(),
                Entry::Joined { name, process, .. } => format!("+{name} {process}"),
                Entry::Ended { process, end, .. } => format!("-{process} {end}"),
                Entry::Seen(_) => "seen".to_owned(),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn who_comes_and_goes_is_told_once_with_how_it_went() {
        let mut watcher = Watcher::default();
        let first = watcher.look(0.0, &status(&[(3, "live")], &[(4, false)]), 9);
        assert_eq!(words(&first), ["begun", "+pserver-4 1", "+trainer-3 2", "seen"]);
        let same = watcher.look(0.05, &status(&[(3, "live")], &[(4, false)]), 9);
        assert!(same.is_empty());
        let more = watcher.look(0.06, &status(&[(3, "lost"), (5, "live")], &[(4, true)]), 9);
        assert_eq!(words(&more), ["-1 lost", "-2 lost", "+trainer-5 3", "seen"], "there are fewer");
        let trouble = |step| TroubleStatus { excluded_from: Some(step), ..Default::default() };
        let with = |steps: &[u64]| StatusReply {
            troubles: steps.iter().map(|step| trouble(*step)).collect(),
            ..status(&[(5, "live")], &[])
        };
        let left_out = |told: &[Entry]| match told {
            [Entry::Seen(seen)] => seen.excluded.iter().map(|excluded| excluded.from).collect(),
            _ => Vec::new(),
        };
        assert_eq!(left_out(&watcher.look(5.0, &with(&[3]), 9)), [3]);
        assert_eq!(left_out(&watcher.look(6.0, &with(&[3, 7]), 9)), [7], "each is told once");
        let left = watcher.look(9.0, &status(&[(3, "lost"), (5, "left")], &[]), 9);
        assert_eq!(words(&left), ["-3 left", "seen"]);
    }
}
