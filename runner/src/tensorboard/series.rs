//! Which values a run tells TensorBoard, and when. Pure. Nothing that is no finite number may become a value, and no evaluation is
//! told twice.

use crate::journal::{Evaluated, Seen};
use std::collections::BTreeSet;

/// So long at least two looks at a run lie apart whose values are told. A run that lasts is looked at ever less often.
const EVERY_SECONDS: f64 = 1.0;
/// The factor on the program's learning rates, as evaluations have set it.
const RATE_FACTOR: &str = "rate/learning_rate_factor";

/// One value under its tag.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scalar {
    pub(super) tag: String,
    pub(super) step: u64,
    pub(super) value: f64,
}

/// What a run has told so far.
#[derive(Debug, Default)]
pub(super) struct Series {
    /// The tag, the step and the bits of every value of an evaluation.
    evaluated: BTreeSet<(String, u64, u32)>,
    /// The look that was told last.
    told: Option<Seen>,
    /// A newer one that was not.
    untold: Option<Seen>,
}

impl Series {
    /// A value of an earlier life of the run, read from its file.
    pub(super) fn remember(&mut self, tag: &str, step: u64, value: f32) {
        if is_of_evaluations(tag) {
            self.evaluated.insert((tag.to_owned(), step, value.to_bits()));
        }
    }

    /// What is to be told of a look at the run: members when their number changes, all once in a while, evaluations at the first look after them.
    pub(super) fn see(&mut self, seen: &Seen) -> Vec<Scalar> {
        let mut scalars = Vec::new();
        for evaluated in &seen.evaluated {
            scalars.extend(self.evaluation(evaluated));
        }
        let is_due = self.told.as_ref().is_none_or(|told| seen.at - told.at >= EVERY_SECONDS);
        if is_due {
            scalars.extend(self.state(seen));
            (self.told, self.untold) = (Some(seen.clone()), None);
            return scalars;
        }
        let newest = self.untold.as_ref().or(self.told.as_ref());
        if newest.is_some_and(|newest| members(newest) != members(seen)) {
            scalars.extend(member_scalars(seen));
        }
        self.untold = Some(seen.clone());
        scalars
    }

    /// The last look, where it was not told yet, and when it was taken.
    pub(super) fn close(&mut self) -> Option<(f64, Vec<Scalar>)> {
        let last = self.untold.take()?;
        let scalars = self.state(&last);
        let at = last.at;
        self.told = Some(last);
        Some((at, scalars))
    }

    fn evaluation(&mut self, evaluated: &Evaluated) -> Vec<Scalar> {
        let metrics = evaluated.metrics.iter();
        let values = metrics.filter_map(|(name, value)| Some((format!("metrics/{name}"), (*value)?)));
        let values = values.chain([(RATE_FACTOR.to_owned(), evaluated.rate)]);
        let new = values.filter(|(tag, value)| {
            self.evaluated.insert((tag.clone(), evaluated.step, (*value as f32).to_bits()))
        });
        new.map(|(tag, value)| Scalar { tag, step: evaluated.step, value }).collect()
    }

    /// How the run is. Rates are over the time since they were told last; of none the first time, of a second or more but at the end.
    fn state(&self, seen: &Seen) -> Vec<Scalar> {
        let mut scalars = member_scalars(seen);
        let mut tell = |tag: &str, value: f64| {
            scalars.push(Scalar { tag: tag.to_owned(), step: seen.step, value });
        };
        if let Some(told) = self.told.as_ref().filter(|told| seen.at > told.at) {
            let per_second = |from: u64, to: u64| to.saturating_sub(from) as f64 / (seen.at - told.at);
            tell("rate/records_per_second", per_second(told.records_trained, seen.records_trained));
            tell("rate/steps_per_second", per_second(told.step, seen.step));
        }
        tell("progress/records_trained", seen.records_trained as f64);
        tell("progress/records_excluded", seen.records_excluded as f64);
        tell("progress/rewinds", seen.rewinds as f64);
        tell("waste/records_computed", seen.computed as f64);
        tell("waste/records_wasted", seen.wasted as f64);
        if seen.computed > 0 {
            tell("waste/share", seen.wasted as f64 / seen.computed as f64);
        }
        for (what, share) in seen.time.parts().unwrap_or_default() {
            tell(&format!("time/{what}"), share);
        }
        scalars
    }
}

fn is_of_evaluations(tag: &str) -> bool {
    tag.starts_with("metrics/") || tag == RATE_FACTOR
}

fn members(seen: &Seen) -> (u32, u32) {
    (seen.trainers_live, seen.pservers_live)
}

fn member_scalars(seen: &Seen) -> Vec<Scalar> {
    let members = [("members/trainers", seen.trainers_live), ("members/pservers", seen.pservers_live)];
    let scalar = |(tag, number): (&str, u32)| Scalar {
        tag: tag.to_owned(),
        step: seen.step,
        value: f64::from(number),
    };
    members.map(scalar).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breakdown::Breakdown;
    use shoal_runtime::cluster::RewindCauses;
    use shoal_runtime::wire::proto::TrainerCounters;

    fn seen(at: f64, step: u64, trainers_live: u32) -> Seen {
        let counters = TrainerCounters { compute_micros: 3, wait_micros: 1, ..Default::default() };
        Seen {
            at,
            step,
            steps: 10,
            trainers_live,
            pservers_live: 1,
            records_trained: 20 * step,
            rewinds: 2,
            rewind_causes: RewindCauses::new(),
            records_excluded: 3,
            excluded: Vec::new(),
            evaluated: Vec::new(),
            master_term: 1,
            computed: 40 * step,
            wasted: 10 * step,
            time: Breakdown::of(&counters),
        }
    }
    fn evaluated(step: u64, value: Option<f64>) -> Seen {
        let metrics = vec![("auc".to_owned(), value), ("none".to_owned(), None)];
        Seen { evaluated: vec![Evaluated { step, metrics, rate: 0.5 }], ..seen(1.25, 4, 1) }
    }
    fn of<'s>(scalars: &'s [Scalar], tag: &str) -> Vec<(u64, f64)> {
        let named = |scalar: &&'s Scalar| scalar.tag == tag;
        scalars.iter().filter(named).map(|scalar| (scalar.step, scalar.value)).collect()
    }

    #[test]
    fn what_is_told_of_a_look_is_what_was_seen() {
        let mut series = Series::default();
        let first = series.see(&seen(1.0, 2, 3));
        assert!(of(&first, "rate/steps_per_second").is_empty(), "nobody knows since when");
        let scalars = series.see(&seen(3.0, 8, 3));
        for (tag, value) in [
            ("members/trainers", 3.0),
            ("members/pservers", 1.0),
            ("rate/records_per_second", 60.0),
            ("rate/steps_per_second", 3.0),
            ("progress/records_trained", 160.0),
            ("progress/records_excluded", 3.0),
            ("progress/rewinds", 2.0),
            ("waste/records_computed", 320.0),
            ("waste/records_wasted", 80.0),
            ("waste/share", 0.25),
            ("time/compute", 0.75),
            ("time/wait", 0.25),
        ] {
            assert_eq!(of(&scalars, tag), [(8, value)], "{tag}");
        }
        assert_eq!(scalars.len(), 12, "{scalars:?}");
    }

    #[test]
    fn between_seconds_only_a_change_of_members_is_told_and_the_end_tells_the_rest() {
        let mut series = Series::default();
        assert_eq!(series.close(), None);
        series.see(&seen(1.0, 2, 3));
        assert_eq!(series.see(&seen(1.5, 3, 3)), []);
        let changed = series.see(&seen(1.6, 3, 2));
        assert_eq!((of(&changed, "members/trainers"), changed.len()), (vec![(3, 2.0)], 2));
        assert_eq!(series.see(&seen(1.7, 4, 2)), []);
        let (at, scalars) = series.close().unwrap();
        assert_eq!((at, of(&scalars, "progress/records_trained")), (1.7, vec![(4, 80.0)]));
        assert_eq!(series.close(), None, "it was told");
    }

    #[test]
    fn an_evaluation_is_told_at_once_and_once_and_no_value_where_there_is_none() {
        let mut series = Series::default();
        series.see(&seen(1.0, 2, 1));
        let scalars = series.see(&evaluated(4, Some(0.75)));
        assert_eq!(of(&scalars, "metrics/auc"), [(4, 0.75)]);
        assert_eq!((of(&scalars, RATE_FACTOR), scalars.len()), (vec![(4, 0.5)], 2));
        assert_eq!(series.see(&evaluated(4, Some(0.75))), []);
        assert_eq!(
            of(&series.see(&evaluated(4, Some(0.5))), "metrics/auc"),
            [(4, 0.5)],
            "another value is another"
        );
        assert_eq!(of(&series.see(&evaluated(6, None)), "metrics/auc"), []);
    }

    #[test]
    fn what_an_earlier_life_has_told_is_not_told_again() {
        let mut series = Series::default();
        for tag in ["metrics/auc", RATE_FACTOR] {
            series.remember(tag, 4, if tag == RATE_FACTOR { 0.5 } else { 0.1 });
        }
        series.see(&seen(1.0, 2, 1));
        assert_eq!(series.see(&evaluated(4, Some(0.1))), [], "in the precision of the file");
        assert_eq!(series.see(&evaluated(6, Some(0.1))).len(), 2);
    }
}
