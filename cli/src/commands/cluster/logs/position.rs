//! Where a reader stands in what a pod says, so that a stream that ended can be opened again there: no line twice, and none left out
//! that the API server still has. Pure.
//!
//! The API server gives lines from a whole second on, each with its time; so those of the newest second come again and are passed over,
//! by their times and how often each was seen. A line is lost where the kubelet has rotated it away meanwhile; one is told twice where
//! its runtime gives lines no times.

use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Times of one second that are kept apart: of a pod that says more, the earlier ones are taken for seen.
const TIMES_MAX: usize = 1 << 16;
/// The pause before a stream is opened again, at first and at most.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long the cluster may not answer before a pod is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What of a pod's lines was seen.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// How many lines were seen of each time, of those in the newest second.
    seen: BTreeMap<Timestamp, u32>,
    /// How many of those the present stream may still give again.
    again: BTreeMap<Timestamp, u32>,
    /// Lines up to this time are seen: how many there were is not kept.
    forgotten: Option<Timestamp>,
    has_untimed: bool,
}

impl Position {
    /// From when on a stream is to be opened: the beginning of the newest second; none to have all lines.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.seen.keys().next_back().map(|newest| second_of(*newest))
    }

    /// Whether lines were seen that have no time, and none that has: then only new lines are to be asked for.
    pub(super) fn is_unknown(&self) -> bool {
        self.has_untimed && self.seen.is_empty()
    }

    /// A stream begins that was opened at [`since`](Self::since).
    pub(super) fn reopen(&mut self) {
        self.again.clone_from(&self.seen);
    }

    /// Takes the next line of the stream as the API server gives it. Returns what the pod has said; none where that was seen before.
    pub(super) fn take<'a>(&mut self, line: &'a str) -> Option<&'a str> {
        let (time, said) = line.split_once(' ').unwrap_or((line, ""));
        let Ok(time) = time.parse::<Timestamp>() else {
            self.has_untimed = true;
            return Some(line);
        };
        if let Some(left) = self.again.get_mut(&time).filter(|left| **left > 0) {
            *left -= 1;
            return None;
        }
        if !self.again.is_empty() && self.forgotten.is_some_and(|forgotten| time <= forgotten) {
            return None;
        }
        *self.seen.entry(time).or_default() += 1;
        if let Some(since) = self.since() {
            self.seen = self.seen.split_off(&since);
        }
        if self.seen.len() > TIMES_MAX {
            self.forgotten = self.seen.pop_first().map(|(time, _)| time);
        }
        Some(said)
    }
}

fn second_of(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself.
    Whole,
    /// The connection was lost, or the cluster does not answer.
    Torn,
}

/// What to do after a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All is read.
    Done,
    /// Open it again, after this pause.
    Again(Duration),
    /// The cluster has not answered for too long.
    GiveUp,
}

/// When a stream that has ended is opened again: soon after it gave something new, ever later while it does not.
#[derive(Debug, Default)]
pub(super) struct Reopening {
    attempts: u32,
    torn_since: Option<Duration>,
}

impl Reopening {
    /// A stream has ended. `was_over`: the container had ended before the stream was opened, so that it held all there is;
    /// `has_said`: the stream gave new lines.
    pub(super) fn next(&mut self, ended: Ended, was_over: bool, has_said: bool, now: Duration) -> Next {
        if ended == Ended::Whole && was_over {
            return Next::Done;
        }
        if has_said {
            *self = Reopening::default();
        }
        match ended {
            Ended::Whole => self.torn_since = None,
            Ended::Torn if now - *self.torn_since.get_or_insert(now) >= PATIENCE => return Next::GiveUp,
            Ended::Torn => {}
        }
        let pause = PAUSE * 2u32.pow(self.attempts.min(6));
        self.attempts += 1;
        Next::Again(pause.min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(nanos: u64, said: &str) -> String {
        format!("2026-11-24T12:00:{:02}.{:09}Z {said}", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }

    /// What an API server gives of a log from a whole second on.
    fn since(log: &[String], since: Option<Timestamp>) -> Vec<String> {
        let time = |line: &String| line.split_once(' ').unwrap().0.parse::<Timestamp>().unwrap();
        log.iter().filter(|line| since.is_none_or(|since| time(line) >= since)).cloned().collect()
    }

    fn read(position: &mut Position, stream: &[String]) -> Vec<String> {
        stream.iter().filter_map(|line| position.take(line)).map(str::to_owned).collect()
    }

    #[test]
    fn a_stream_that_is_opened_again_repeats_no_line_and_loses_none() {
        let log: Vec<String> = [
            (900_000_000, "one"),
            (1_100_000_000, "two"),
            (1_200_000_000, "three"),
            (1_200_000_000, "three"),
            (1_200_000_001, "four five"),
            (2_000_000_000, ""),
        ]
        .map(|(nanos, said)| line(nanos, said))
        .into();
        for cut in 0..=log.len() {
            let mut position = Position::default();
            let mut told = read(&mut position, &log[..cut]);
            position.reopen();
            let rest = since(&log, position.since());
            told.extend(read(&mut position, &rest));
            assert_eq!(told, ["one", "two", "three", "three", "four five", ""], "cut after {cut}");
        }
    }

    #[test]
    fn what_was_rotated_away_hides_nothing_that_is_new() {
        let mut position = Position::default();
        read(&mut position, &[line(1_100_000_000, "old"), line(1_200_000_000, "old")]);
        assert_eq!(position.since(), Some("2026-11-24T12:00:01Z".parse().unwrap()));
        position.reopen();
        let rest = [line(1_300_000_000, "new"), line(1_400_000_000, "new")];
        assert_eq!(read(&mut position, &rest), ["new", "new"]);
    }

    #[test]
    fn a_line_without_a_time_is_told_as_it_is() {
        let mut position = Position::default();
        assert_eq!(position.take("no time here"), Some("no time here"));
        assert!(position.is_unknown() && position.since().is_none());
        assert_eq!(position.take("2026-11-24T14:00:00+02:00 said"), Some("said"));
        assert!(!position.is_unknown());
    }

    #[test]
    fn a_stream_is_opened_again_ever_later_until_its_container_has_ended() {
        let at = Duration::from_secs;
        let mut reopening = Reopening::default();
        let pauses: Vec<u128> = (0..8)
            .map(|_| match reopening.next(Ended::Whole, false, false, at(0)) {
                Next::Again(pause) => pause.as_millis(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert_eq!(reopening.next(Ended::Torn, false, true, at(1)), Next::Again(PAUSE), "it goes on");
        assert_eq!(reopening.next(Ended::Torn, true, false, at(60)), Next::Again(PAUSE * 2), "not all of it");
        assert_eq!(reopening.next(Ended::Torn, true, false, at(61)), Next::GiveUp);
        assert_eq!(reopening.next(Ended::Whole, true, false, at(62)), Next::Done);
    }

    proptest! {
        #[test]
        fn wherever_streams_are_cut_every_line_is_told_once(
            steps in proptest::collection::vec(0u64..400_000_000, 1..60), cuts in proptest::collection::vec(0usize..60, 0..6)
        ) {
            let mut now = 0;
            let log: Vec<String> = steps.iter().enumerate().map(|(at, step)| {
                now += step / 100_000_000 * 100_000_000;
                line(now, &at.to_string())
            }).collect();
            let (mut position, mut told) = (Position::default(), Vec::new());
            for cut in cuts.iter().copied().chain([log.len()]) {
                position.reopen();
                let stream = since(&log[..cut.min(log.len())], position.since());
                told.extend(read(&mut position, &stream));
            }
            told.sort_by_key(|said| said.parse::<usize>().unwrap());
            prop_assert_eq!(told, (0..log.len()).map(|at| at.to_string()).collect::<Vec<_>>());
        }
    }
}
