//! What follows from evaluations for a job's updates: how far they may go, and at what rates. Pure.
//!
//! The master judges evaluations and lets updates beyond one only then; a block that has not heard of it takes none. So
//! sums of an evaluation stay until they are known, and no block makes an update at another rate than its peers.

use super::state::Update;
use super::{Block, Role};
use bytes::Bytes;
use shoal_runtime::cluster::{Course, Ledger, Mode, Stage, Term, Version};

/// What the master has judged so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    /// How many evaluations.
    pub judged: u64,
    /// From which evaluation on learning rates are multiplied, and with what; in order.
    pub rates: Vec<(u64, f32)>,
}

/// An evaluation's sums, whole and published.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluatedBlock {
    /// The block's term.
    pub term: Term,
    /// Which evaluation.
    pub number: u64,
    /// The sums, little-endian f32.
    pub sums: Bytes,
}

/// What an update is for a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricTurn {
    /// It trains, or is of an evaluation before the newest: the sums stay as they are.
    Idle,
    /// The first of its evaluation: sums begin at zero.
    First,
    /// Another one.
    Later,
}

impl Verdicts {
    /// The first unit that may not be made yet.
    pub fn open_until(&self, course: &Course) -> u64 {
        if self.judged < course.evaluations() { course.evaluation(self.judged).end } else { u64::MAX }
    }

    /// What learning rates are multiplied with in a unit.
    pub fn rate(&self, course: &Course, unit: u64) -> f32 {
        let evaluated = if self.rates.is_empty() { 0 } else { course.evaluated(unit) };
        let last = self.rates.iter().rev().find(|(number, _)| *number < evaluated);
        last.map_or(1.0, |(_, rate)| *rate)
    }
}

/// What the update of `version` is for metrics; `ledger` has what was applied before, in asynchronous jobs.
pub(super) fn turn(course: &Course, version: Version, ledger: &Ledger, update: &Update) -> MetricTurn {
    let unit = update.position.unwrap_or(version.0);
    let Some(Stage::Evaluation { number, unit: within }) = course.stage(unit) else {
        return MetricTurn::Idle;
    };
    if update.position.is_none() {
        return if within == 0 { MetricTurn::First } else { MetricTurn::Later };
    }
    // A block that has gone back may be given microbatches of two evaluations in any order.
    let later = (number + 1..course.evaluations()).map(|number| course.evaluation(number));
    if later.take_while(|range| range.start < ledger.end()).any(|range| ledger.holds_any(range)) {
        return MetricTurn::Idle;
    }
    if ledger.holds_any(course.evaluation(number)) { MetricTurn::Later } else { MetricTurn::First }
}

impl Block {
    /// The master has judged so much.
    pub fn learn(&mut self, verdicts: &Verdicts) {
        self.verdicts.clone_from(verdicts);
    }

    /// Whether a unit may be made by what is judged.
    pub(super) fn is_open(&self, unit: u64) -> bool {
        unit < self.verdicts.open_until(&self.job.course)
    }

    /// What learning rates are multiplied with in a unit.
    pub(super) fn rate(&self, unit: u64) -> f32 {
        self.verdicts.rate(&self.job.course, unit)
    }

    /// The sums of the evaluation that is to be judged next, once they are whole and published.
    pub fn evaluated(&self) -> Option<EvaluatedBlock> {
        let (Role::Primary(primary), Some(state), true) = (&self.role, &self.state, self.shape.is_metric)
        else {
            return None;
        };
        let number = self.verdicts.judged;
        let end = self.verdicts.open_until(&self.job.course);
        let is_whole = match self.job.mode {
            Mode::Sync { .. } => self.published.0 >= end,
            Mode::Async { .. } => primary.ledger.as_ref().is_some_and(|ledger| ledger.is_full(end)),
        };
        let sums = state.parameters(self.published).filter(|_| is_whole)?.bytes()?;
        Some(EvaluatedBlock { term: self.placement.term, number, sums })
    }
}

#[cfg(test)]
mod tests {
    use super::super::reduce::Sum;
    use super::*;
    use shoal_runtime::cluster::StateName;

    fn update(position: Option<u64>) -> Update {
        let follows = StateName { term: Term(1), version: Version(0) };
        Update { position, ..Update::new(follows, Term(1), 1, Sum::Dense(Vec::new().into())) }
    }

    #[test]
    fn updates_are_open_to_the_end_of_the_evaluation_that_is_not_judged_yet() {
        // tt e tt e t e
        let course = Course::new(5, 2, 1);
        let until = |judged| Verdicts { judged, rates: Vec::new() }.open_until(&course);
        assert_eq!([until(0), until(1), until(2), until(3)], [3, 6, 8, u64::MAX]);
        assert_eq!(Verdicts::default().open_until(&Course::new(5, 2, 0)), u64::MAX);
    }

    #[test]
    fn a_rate_holds_from_the_evaluation_that_it_follows_from_to_the_next_change() {
        let course = Course::new(5, 2, 1);
        let verdicts = Verdicts { judged: 2, rates: vec![(0, 0.5), (1, 0.25)] };
        let rates: Vec<f32> = (0..8).map(|unit| verdicts.rate(&course, unit)).collect();
        assert_eq!(rates, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]);
    }

    #[test]
    fn the_first_microbatch_of_an_evaluation_to_come_begins_it_and_an_older_one_is_not_of_it() {
        // tt ee tt ee
        let course = Course::new(4, 2, 2);
        let (mut ledger, mut seen) = (Ledger::default(), Vec::new());
        for position in [0, 1, 3, 2, 4, 7, 6] {
            seen.push(turn(&course, Version(9), &ledger, &update(Some(position))));
            ledger.insert(position);
        }
        use MetricTurn::{First, Idle, Later};
        assert_eq!(seen, [Idle, Idle, First, Later, Idle, First, Later]);
        let gone_back = Ledger::from_parts(2, std::iter::once(6..7)).unwrap();
        assert_eq!(turn(&course, Version(3), &gone_back, &update(Some(3))), Idle);
        assert_eq!(turn(&course, Version(3), &gone_back, &update(Some(7))), Later);
        let steps: Vec<MetricTurn> =
            (0..5).map(|step| turn(&course, Version(step), &Ledger::default(), &update(None))).collect();
        assert_eq!(steps, [Idle, Idle, First, Later, Idle]);
    }
}
