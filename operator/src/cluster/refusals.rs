//! What the API server has refused of one job, by object, and when each is tried again: after a pause that grows, and at once
//! after the job has changed. Is told the time and asks nobody.

use crate::decide::QUOTA;
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::random::Random;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause, in the eyes of somebody who has just mended what was wrong.
const FIRST: Duration = Duration::from_secs(2);
/// The longest pause: one call a minute is no burden on a server that keeps refusing.
const LONGEST: Duration = Duration::from_secs(60);
/// A quota is made room in by pods that end, which may be any moment: nobody is to wait a minute for that.
const LONGEST_OF_A_QUOTA: Duration = Duration::from_secs(8);

/// Objects of which a message says why they were refused; of others, how many there are.
const TOLD: usize = 4;

/// A refusal, in one word and for people.
pub(super) type Reason = (&'static str, String);

#[derive(Debug)]
struct Refused {
    pauses: Backoff,
    again: Instant,
    reason: Reason,
}

/// All refusals of one job that hold.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_object: BTreeMap<String, Refused>,
    generation: Option<i64>,
}

impl Refusals {
    /// Forgets what no act asks for any more, and lets everything be tried at once if the job has another generation.
    pub(super) fn keep(&mut self, generation: Option<i64>, now: Instant, is_wanted: impl Fn(&str) -> bool) {
        self.by_object.retain(|object, _| is_wanted(object));
        if self.generation != generation {
            self.generation = generation;
            self.by_object.values_mut().for_each(|refused| refused.again = now);
        }
    }

    /// Whether an object may be tried now.
    pub(super) fn is_due(&self, object: &str, now: Instant) -> bool {
        self.by_object.get(object).is_none_or(|refused| now >= refused.again)
    }

    /// Whether a quota has no room for pods, and is not to be asked again yet.
    pub(super) fn waits_for_quota(&self, now: Instant) -> bool {
        let mut pods = self.by_object.iter().filter(|(object, _)| object.starts_with("Pod "));
        pods.any(|(_, refused)| refused.reason.0 == QUOTA && now < refused.again)
    }

    /// Notes that an object was refused.
    pub(super) fn note(&mut self, object: &str, reason: Reason, now: Instant, random: &mut Random) {
        let longest = if reason.0 == QUOTA { LONGEST_OF_A_QUOTA } else { LONGEST };
        let refused = self.by_object.entry(object.to_owned()).or_insert_with(|| Refused {
            pauses: Backoff::new(FIRST, LONGEST),
            again: now,
            reason: reason.clone(),
        });
        refused.again = now + refused.pauses.pause(random).min(longest);
        refused.reason = reason;
    }

    /// Notes that an object is there.
    pub(super) fn forgive(&mut self, object: &str) {
        self.by_object.remove(object);
    }

    /// What a quota says of pods.
    pub(super) fn quota_of_pods(&self) -> Option<&str> {
        let mut pods = self.by_object.iter().filter(|(object, _)| object.starts_with("Pod "));
        pods.find(|(_, refused)| refused.reason.0 == QUOTA).map(|(_, refused)| refused.reason.1.as_str())
    }

    /// What is to be said: what somebody has to mend before what is only waited for; of that, all that has the same reason.
    pub(super) fn told(&self, is_waited_for: impl Fn(&str) -> bool) -> Option<Reason> {
        let all = || self.by_object.values().map(|refused| &refused.reason);
        let (word, first) = all().find(|(word, _)| !is_waited_for(word)).or_else(|| all().next())?;
        if *word == QUOTA {
            return Some((word, first.clone()));
        }
        let alike: Vec<&str> =
            all().filter(|(other, _)| other == word).map(|(_, why)| why.as_str()).collect();
        let mut why = joined(&alike[..alike.len().min(TOLD)]);
        if alike.len() > TOLD {
            why += &format!("; and {} more", alike.len() - TOLD);
        }
        Some((word, why))
    }
}

/// All of them in one sentence, in which those that go on alike after their first colon, as with one way out, are told together.
fn joined(whys: &[&str]) -> String {
    let mut groups: Vec<(Vec<&str>, Option<&str>)> = Vec::new();
    for why in whys {
        let (what, rest) = why.split_once(": ").map_or((*why, None), |(what, rest)| (what, Some(rest)));
        match groups.iter_mut().find(|(_, other)| rest.is_some() && *other == rest) {
            Some((alike, _)) => alike.push(what),
            None => groups.push((vec![what], rest)),
        }
    }
    let told = |(alike, rest): &(Vec<&str>, Option<&str>)| {
        let rest = rest.map_or_else(String::new, |rest| format!(": {rest}"));
        format!("{}{rest}", alike.join("; "))
    };
    groups.iter().map(told).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(reason: &'static str) -> Vec<Duration> {
        let (mut refusals, mut random) = (Refusals::default(), Random::seeded(3));
        let mut now = Instant::now();
        let mut all = Vec::new();
        for _ in 0..9 {
            refusals.note("a", (reason, String::new()), now, &mut random);
            let mut later = now;
            while !refusals.is_due("a", later) {
                later += Duration::from_millis(1);
            }
            all.push(later - now);
            now = later;
        }
        all
    }

    #[test]
    fn what_is_refused_again_and_again_is_tried_less_and_less_but_a_quota_often_enough() {
        let of_a_webhook = pauses("Refused");
        assert!(of_a_webhook[0] <= FIRST && of_a_webhook[8] >= LONGEST / 2 && of_a_webhook[8] <= LONGEST);
        assert!(pauses(QUOTA).iter().all(|pause| *pause <= LONGEST_OF_A_QUOTA));
    }

    #[test]
    fn a_job_that_was_changed_is_tried_at_once_and_what_it_wants_no_more_is_forgotten() {
        let (mut refusals, mut random, now) = (Refusals::default(), Random::seeded(3), Instant::now());
        refusals.keep(Some(1), now, |_| true);
        refusals.note("a", ("Refused", "a".to_owned()), now, &mut random);
        refusals.note("b", (QUOTA, "b".to_owned()), now, &mut random);
        assert!(!refusals.is_due("a", now) && refusals.is_due("c", now));
        refusals.keep(Some(1), now, |object| object != "a");
        assert!(refusals.is_due("a", now) && !refusals.is_due("b", now));
        refusals.keep(Some(2), now, |_| true);
        assert!(refusals.is_due("b", now) && refusals.told(|_| false).is_some());
        refusals.forgive("b");
        assert_eq!(refusals.told(|_| false), None);
    }

    #[test]
    fn what_somebody_has_to_mend_is_said_before_what_is_waited_for() {
        let (mut refusals, mut random, now) = (Refusals::default(), Random::seeded(3), Instant::now());
        let first = |refusals: &Refusals| refusals.told(|word| word == QUOTA).map(|(word, _)| word);
        assert_eq!(first(&refusals), None);
        refusals.note("a", (QUOTA, String::new()), now, &mut random);
        assert_eq!(first(&refusals), Some(QUOTA));
        refusals.note("b", ("Refused", "1".to_owned()), now, &mut random);
        assert_eq!(first(&refusals), Some("Refused"));
        for number in 2..7 {
            refusals.note(&format!("b{number}"), ("Refused", number.to_string()), now, &mut random);
        }
        let told = refusals.told(|word| word == QUOTA).map(|(_, why)| why);
        assert_eq!(told.as_deref(), Some("1; 2; 3; 4; and 2 more"));
    }

    #[test]
    fn a_way_out_that_several_have_is_told_once() {
        assert_eq!(
            joined(&["a is taken: go", "b is taken: go", "c: no"]),
            "a is taken; b is taken: go; c: no"
        );
        assert_eq!(joined(&["a", "b", "a: b: c", "d: b: c"]), "a; b; a; d: b: c");
        assert_eq!(joined(&[]), "");
    }
}
