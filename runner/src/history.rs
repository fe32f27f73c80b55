//! A run as its report shows it, from its journal alone. Pure. What the journal does not say is not made up: a process
//! of which no end was written was lost sight of.

use super::journal::{Begun, Entry, Evaluated, Seen};
use super::record::{close_freeze, freeze_or_thaw};
use crate::breakdown::JobScale;
use crate::exclusions::Excluded;
use crate::report::{Fault, Member, Metric, Point, Run, Sample, Time, Verdict};
use crate::rewinds;

/// In less time than this, in seconds, nothing can be said of how fast a job is.
pub const AT_ONCE: f64 = 1e-3;

/// What a journal has told so far.
#[derive(Debug)]
pub struct History {
    /// What was run.
    pub begun: Begun,
    /// How the last supervisor ended, and why; none if it was killed, or still runs.
    pub closed: Option<(String, String)>,
    /// How the job was when it was seen last.
    pub last: Option<Seen>,
    /// How the job was, again and again.
    pub samples: Vec<Sample>,
    members: Vec<Member>,
    faults: Vec<Fault>,
    seconds: f64,
    records_seen: u64,
    excluded: Vec<Excluded>,
    /// Evaluations, with the seconds at which they were told.
    evaluated: Vec<(f64, Evaluated)>,
    /// Supervisors that the run had, one after another.
    lives: u32,
    /// Where the present life's clock begins on the run's.
    since: f64,
}

impl History {
    /// Reads a journal from its beginning to where it breaks off; none where its entries do not tell how the run began.
    pub fn of(entries: Vec<Entry>) -> Option<History> {
        let first = entries.iter().find_map(|entry| match entry {
            Entry::Begun(begun) => Some(begun.clone()),
            _ => None,
        })?;
        let mut history = History::of_run(first);
        entries.into_iter().for_each(|entry| history.follow(entry));
        history.lose_sight("running");
        Some(history)
    }

    /// Before anything was told of a run but what it is; the entry that tells that is to [follow](History::follow), too.
    pub fn of_run(begun: Begun) -> History {
        History {
            begun,
            closed: None,
            last: None,
            samples: Vec::new(),
            members: Vec::new(),
            faults: Vec::new(),
            seconds: 0.0,
            records_seen: 0,
            excluded: Vec::new(),
            evaluated: Vec::new(),
            lives: 0,
            since: 0.0,
        }
    }

    /// The journal's next entry.
    pub fn follow(&mut self, entry: Entry) {
        let since = self.since;
        match entry {
            Entry::Begun(begun) => {
                let apart = begun.wall_seconds.saturating_sub(self.begun.wall_seconds) as f64;
                self.since = f64::max(apart, self.seconds);
                self.lose_sight("killed");
                self.lives += 1;
                (self.closed, self.seconds) = (None, self.since);
            }
            Entry::Joined { at, role, name, process } => {
                let at = self.pass(at + since);
                let (frozen, end) = (Vec::new(), String::new());
                self.members.push(Member {
                    name,
                    role,
                    process,
                    from_seconds: at,
                    to_seconds: at,
                    frozen,
                    end,
                });
            }
            Entry::Ended { at, process, end } => {
                let at = self.pass(at + since);
                let is_it = |member: &&mut Member| member.process == process && member.end.is_empty();
                if let Some(member) = self.members.iter_mut().find(is_it) {
                    (member.to_seconds, member.end) = (at, end);
                    close_freeze(member, at);
                }
            }
            Entry::Fault(fault) => {
                let at_seconds = self.pass(fault.at_seconds + since);
                let fault = Fault { at_seconds, ..fault };
                freeze_or_thaw(&mut self.members, &fault);
                self.faults.push(fault);
            }
            Entry::Seen(seen) => self.see(seen, since),
            Entry::Closed { at, how, why } => {
                self.pass(at + since);
                self.lose_sight("ended");
                self.closed = Some((how, why));
            }
        }
    }

    fn see(&mut self, seen: Seen, since: f64) {
        let at = self.pass(seen.at + since);
        let passed = at - self.samples.last().map_or(0.0, |last| last.at_seconds);
        // What was there at the beginning was made before: by a job that is looked at from elsewhere.
        let is_at_once = passed < AT_ONCE;
        let gained = if is_at_once { 0 } else { seen.records_trained.saturating_sub(self.records_seen) };
        self.records_seen = seen.records_trained;
        self.samples.push(Sample {
            at_seconds: at,
            step: seen.step,
            trainers_live: seen.trainers_live,
            loss: None,
            records_per_second: gained as f64 / passed.max(AT_ONCE),
        });
        // Each life of the run tells of all.
        let new = seen.excluded.iter().filter(|excluded| !self.excluded.contains(excluded));
        let new: Vec<Excluded> = new.cloned().collect();
        self.excluded.extend(new);
        for evaluated in &seen.evaluated {
            if !self.evaluated.iter().any(|(_, known)| known == evaluated) {
                self.evaluated.push((at, evaluated.clone()));
            }
        }
        self.last = Some(seen);
    }

    /// Seconds from the run's beginning to what was told last.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// When a moment of the present supervisor's life was, in seconds since the run's beginning.
    pub fn since_beginning(&self, at: f64) -> f64 {
        at + self.since
    }

    /// The processes that the run has had, in the order in which they were started. Of one that has not ended the end is empty.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// It is so late now.
    fn pass(&mut self, at: f64) -> f64 {
        self.seconds = self.seconds.max(at);
        at
    }

    /// Nothing more is heard of those who have not ended.
    fn lose_sight(&mut self, end: &str) {
        for member in self.members.iter_mut().filter(|member| member.end.is_empty()) {
            member.to_seconds = self.seconds;
            member.end = end.to_owned();
            close_freeze(member, self.seconds);
        }
    }

    /// The page's content; `more` are verdicts beside how it ended, `facts` come first.
    pub fn into_run(self, more: Vec<Verdict>, mut facts: Vec<(String, String)>) -> Run {
        let verdicts = std::iter::once(self.verdict()).chain(more).collect();
        facts.extend(self.facts());
        let last = self.last.as_ref();
        let trainers = self.samples.iter().map(|sample| sample.trainers_live).max().unwrap_or(0);
        let scale = JobScale {
            is_async: self.begun.mode == "async",
            per_step: self.begun.microbatches_per_step.into(),
            trainers: trainers.into(),
        };
        let time =
            last.and_then(|last| Some(Time { shares: last.time.parts()?, advice: last.time.advice(scale) }));
        Run {
            title: format!("Shoal run: {}", self.program()),
            job: self.begun.job.clone(),
            seconds: self.seconds,
            steps: last.map_or(0, |last| last.step),
            epochs: self.begun.epochs,
            metrics: metrics(&self.evaluated),
            samples: self.samples,
            members: self.members,
            faults: self.faults,
            excluded: self.excluded,
            verdicts,
            facts,
            time,
        }
    }

    /// The program without its folders.
    pub fn program(&self) -> String {
        let mut words = self.begun.program.iter().map(String::as_str);
        let program = words.next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or(program);
        std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// How it ended.
    fn verdict(&self) -> Verdict {
        let (step, steps) = self.last.as_ref().map_or((0, 0), |last| (last.step, last.steps));
        let text = match &self.closed {
            Some((how, _)) if how == "done" => {
                format!("done: {step} of {steps} steps are applied by every block")
            }
            Some((how, why)) => {
                let why = why.lines().next().unwrap_or_default();
                format!("{how} at step {step} of {steps}: {why}")
            }
            None => format!(
                "no end was written at step {step} of {steps}: it still runs, or its supervisor was killed"
            ),
        };
        Verdict { holds: self.closed.as_ref().is_some_and(|(how, _)| how == "done"), text }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let begun = &self.begun;
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut facts = vec![
            fact("Mode", begun.mode.clone()),
            fact("Gradients", begun.gradients.as_deref().unwrap_or("f32").to_owned()),
            fact("Seed", begun.seed.to_string()),
            fact("Records", begun.records.to_string()),
            fact("Microbatch", format!("{} records", begun.microbatch_records)),
            fact("Microbatches per step", begun.microbatches_per_step.to_string()),
            fact("Copies of each block", begun.replicas.to_string()),
        ];
        if let Some(last) = &self.last {
            let rate = last.records_trained as f64 / self.seconds.max(1e-3);
            facts.push(fact("Records trained", format!("{}, {rate:.0} per second", last.records_trained)));
            let percent = 100.0 * last.wasted as f64 / last.computed.max(1) as f64;
            let wasted = format!("{} of {} records computed ({percent:.1} %)", last.wasted, last.computed);
            facts.push(fact("Wasted work", wasted));
            facts.push(fact("Records left out", last.records_excluded.to_string()));
            facts.push(fact("Went back", rewinds::text(last.rewinds, &last.rewind_causes)));
            facts.push(fact("Masters elected", last.master_term.to_string()));
        }
        if self.lives > 1 {
            facts.push(fact("Resumed", format!("{} times", self.lives - 1)));
        }
        facts
    }
}

/// The metrics in the order in which they were declared, each with a point for every evaluation.
fn metrics(evaluated: &[(f64, Evaluated)]) -> Vec<Metric> {
    let Some((_, first)) = evaluated.first() else { return Vec::new() };
    let points = |name: &String| {
        let point = |(at_seconds, evaluated): &(f64, Evaluated)| {
            let value =
                evaluated.metrics.iter().find(|(known, _)| known == name).and_then(|(_, value)| *value);
            Point { at_seconds: *at_seconds, step: evaluated.step, value }
        };
        evaluated.iter().map(point).collect()
    };
    first.metrics.iter().map(|(name, _)| Metric { name: name.clone(), points: points(name) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breakdown::Breakdown;
    use shoal_runtime::cluster::{RewindCause, RewindCauses};
    use shoal_runtime::wire::proto::{StatusReply, TrainerCounters};

    fn begun(wall_seconds: u64) -> Entry {
        Entry::Begun(Begun::of(
            &["target/digits".into(), "--fast".into()],
            &StatusReply::default(),
            wall_seconds,
        ))
    }
    fn joined(at: f64, name: &str, process: u32) -> Entry {
        Entry::Joined { at, role: "trainer".to_owned(), name: name.to_owned(), process }
    }
    fn ended(at: f64, process: u32, end: &str) -> Entry {
        Entry::Ended { at, process, end: end.to_owned() }
    }
    fn fault(at_seconds: f64, kind: &str, name: &str) -> Entry {
        let (role, what) = ("trainer".to_owned(), String::new());
        Entry::Fault(Fault { kind: kind.to_owned(), role, name: name.to_owned(), at_seconds, what })
    }
    fn closed(at: f64, how: &str) -> Entry {
        Entry::Closed { at, how: how.to_owned(), why: "why\nand where".to_owned() }
    }
    fn seen(at: f64, step: u64, records_trained: u64) -> Entry {
        let counters = TrainerCounters { compute_micros: 3, wait_micros: 1, ..Default::default() };
        Entry::Seen(Seen {
            at,
            step,
            steps: 10,
            trainers_live: 1,
            pservers_live: 1,
            records_trained,
            rewinds: 0,
            rewind_causes: RewindCauses::new(),
            records_excluded: 0,
            excluded: Vec::new(),
            evaluated: Vec::new(),
            master_term: 1,
            computed: records_trained + 5,
            wasted: 5,
            time: Breakdown::of(&counters),
        })
    }
    fn run(entries: Vec<Entry>) -> Run {
        History::of(entries).unwrap().into_run(Vec::new(), Vec::new())
    }
    fn lives(run: &Run) -> Vec<(u32, f64, f64, &str)> {
        let life = |member: &Member| (member.process, member.from_seconds, member.to_seconds);
        run.members
            .iter()
            .map(|member| (life(member), member.end.as_str()))
            .map(|((p, f, t), e)| (p, f, t, e))
            .collect()
    }

    #[test]
    fn a_run_that_is_done_shows_who_lived_when_and_how_fast_it_was() {
        let entries = vec![
            begun(100),
            joined(0.5, "trainer-0", 7),
            joined(0.5, "trainer-1", 8),
            seen(1.0, 2, 40),
            fault(1.5, "freeze", "trainer-1"),
            ended(2.0, 7, "left"),
            fault(2.5, "thaw", "trainer-1"),
            seen(3.0, 10, 200),
            closed(3.0, "done"),
        ];
        let run = run(entries);
        assert_eq!(lives(&run), [(7, 0.5, 2.0, "left"), (8, 0.5, 3.0, "ended")]);
        assert_eq!(run.members[1].frozen, [(1.5, 2.5)]);
        let rates: Vec<f64> = run.samples.iter().map(|sample| sample.records_per_second).collect();
        assert_eq!((rates, run.steps, run.seconds), (vec![40.0, 80.0], 10, 3.0));
        assert!(run.verdicts[0].holds && run.title == "Shoal run: digits --fast");
        assert_eq!(run.time.unwrap().shares, [("compute", 0.75), ("wait", 0.25)]);
    }

    #[test]
    fn a_run_that_failed_says_why_in_one_line() {
        let run = run(vec![begun(1), seen(1.0, 4, 40), closed(2.0, "failed")]);
        assert_eq!((run.verdicts[0].holds, run.seconds), (false, 2.0));
        assert_eq!(run.verdicts[0].text, "failed at step 4 of 10: why");
    }

    #[test]
    fn who_was_left_out_and_why_the_job_went_back_is_told_once_over_all_lives() {
        let excluded =
            |record: u32| Excluded { what: format!("record {record}"), why: "bad".to_owned(), from: 3 };
        let told = |at, of: &[u32]| {
            let Entry::Seen(mut seen) = seen(at, 4, 40) else { unreachable!() };
            (seen.rewinds, seen.records_excluded) = (1, 2);
            seen.rewind_causes = RewindCauses::from([(RewindCause::RecordsExcluded, 1)]);
            seen.excluded = of.iter().map(|record| excluded(*record)).collect();
            Entry::Seen(seen)
        };
        let run = run(vec![begun(1), told(1.0, &[5]), told(2.0, &[6]), begun(9), told(1.0, &[5, 6])]);
        assert_eq!(run.excluded, [excluded(5), excluded(6)]);
        let fact =
            |name: &str| run.facts.iter().find(|(fact, _)| fact == name).map(|(_, value)| value.as_str());
        assert_eq!(fact("Records left out"), Some("2"));
        assert_eq!(fact("Went back"), Some("once: records were left out"));
    }

    #[test]
    fn every_metric_has_a_curve_with_each_evaluation_once_over_all_lives() {
        let told = |at, evaluations: &[(u64, Option<f64>)]| {
            let Entry::Seen(mut seen) = seen(at, 4, 40) else { unreachable!() };
            seen.evaluated = evaluations
                .iter()
                .map(|(step, value)| Evaluated {
                    step: *step,
                    metrics: vec![("auc".to_owned(), *value), ("loss".to_owned(), Some(2.0))],
                    rate: 1.0,
                })
                .collect();
            Entry::Seen(seen)
        };
        let (first, second, third) = ((2, Some(0.5)), (4, None), (6, Some(0.75)));
        let run = run(vec![
            begun(1),
            told(1.0, &[first]),
            told(2.0, &[second]),
            begun(9),
            told(1.0, &[first, second, third]),
        ]);
        let [auc, loss] = &run.metrics[..] else { panic!("{:?}", run.metrics) };
        assert_eq!((auc.name.as_str(), loss.name.as_str()), ("auc", "loss"));
        let points: Vec<_> =
            auc.points.iter().map(|point| (point.at_seconds, (point.step, point.value))).collect();
        assert_eq!(points, [(1.0, first), (2.0, second), (9.0, third)]);
        assert!(loss.points.iter().all(|point| point.value == Some(2.0)));
    }

    #[test]
    fn of_a_supervisor_that_was_killed_no_end_is_made_up() {
        let run = run(vec![begun(1), joined(0.5, "trainer-0", 7), seen(1.5, 4, 40)]);
        assert_eq!(lives(&run), [(7, 0.5, 1.5, "running")]);
        assert!(!run.verdicts[0].holds && run.verdicts[0].text.contains("no end was written at step 4"));
    }

    #[test]
    fn a_run_that_was_taken_up_again_goes_on_where_the_wall_clock_was() {
        let entries = vec![
            begun(100),
            joined(0.5, "trainer-0", 7),
            seen(3.0, 4, 40),
            begun(160),
            joined(0.5, "trainer-1", 9),
            seen(2.0, 10, 100),
            closed(2.5, "done"),
        ];
        let run = run(entries);
        assert_eq!(lives(&run), [(7, 0.5, 3.0, "killed"), (9, 60.5, 62.5, "ended")]);
        assert!(run.verdicts[0].holds && run.facts.contains(&("Resumed".to_owned(), "1 times".to_owned())));
    }
}
