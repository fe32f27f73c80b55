//! What a supervisor decides: how many processes to start, which to ask to leave, what they are called, when ends are too many.
//! Pure: it is told the time, and starts and stops nothing.

use super::ends::Meaning;
use super::roles::Role;
use std::collections::BTreeSet;
use std::time::Duration;

/// A process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// Its process id.
    pub(crate) pid: u32,
    /// Whether it was told to leave: it does not count towards what is wanted any more.
    pub(crate) is_leaving: bool,
}

/// What to do about the processes of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Upkeep {
    /// So many are missing.
    pub(crate) start: u32,
    /// These are too many.
    pub(crate) stop: Vec<u32>,
}

/// Trainers: the supervisor decides which of them leave, the newest first.
pub(crate) fn trainers(wanted: u32, running: &[Running]) -> Upkeep {
    let staying: Vec<u32> = running.iter().filter(|one| !one.is_leaving).map(|one| one.pid).collect();
    let count = staying.len() as u32;
    let stop = staying.into_iter().rev().take(count.saturating_sub(wanted) as usize).collect();
    Upkeep { start: wanted.saturating_sub(count), stop }
}

/// Pservers: the master decides which of them leave, and they end by themselves when nothing is left on them.
pub(crate) fn pservers(wanted: u32, running: &[Running]) -> Upkeep {
    let staying = running.iter().filter(|one| !one.is_leaving).count() as u32;
    Upkeep { start: wanted.saturating_sub(staying), stop: Vec::new() }
}

/// How often processes may end without a step made in between, by what their ends mean.
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    /// Trainers that fail.
    trainers_failed: Budget,
    /// Trainers that are taken away, which says nothing against the program.
    trainers_preempted: Budget,
    /// Trainers that are not let into a job that has others.
    trainers_refused: Budget,
    /// Pservers and masters: their program is ours.
    servers: Budget,
}

/// Trainers that fail, without a step made in between, before the run gives up: more than the five by which the master finds a
/// record that ends them.
const TRAINERS_FAILED_MAX: u32 = 8;
/// What somebody else ends, which may be more often than steps are made.
const TAKEN_MAX: u32 = 20;

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets {
            trainers_failed: Budget::of(TRAINERS_FAILED_MAX),
            trainers_preempted: Budget::of(TAKEN_MAX),
            trainers_refused: Budget::endless(REFUSED_PAUSE_MAX),
            servers: Budget::of(TAKEN_MAX),
        }
    }
}

impl Budgets {
    /// The job stands at `step`, having gone back `rewinds` times.
    pub(crate) fn see(&mut self, rewinds: u64, step: u64) {
        for budget in [&mut self.trainers_failed, &mut self.trainers_preempted, &mut self.servers] {
            budget.see(rewinds, step);
        }
    }

    /// Takes an end into account. Returns whether the run gives up.
    pub(crate) fn charge(&mut self, role: Role, meaning: Meaning, now: Duration) -> bool {
        match (role, meaning) {
            (_, Meaning::Hopeless) => true,
            (_, Meaning::Killed) | (Role::Trainer, Meaning::Left) => false,
            (_, Meaning::Left) => {
                self.servers.rest(now);
                false
            }
            (Role::Trainer, Meaning::Preempted) => self.trainers_preempted.fail(now),
            (Role::Trainer, Meaning::Refused) => self.trainers_refused.fail(now),
            (Role::Trainer, Meaning::Failed) => self.trainers_failed.fail(now),
            (Role::Pserver | Role::Master, Meaning::Preempted | Meaning::Refused | Meaning::Failed) => {
                self.servers.fail(now)
            }
        }
    }

    /// Whether the next process of a role may be started.
    pub(crate) fn may_start(&self, role: Role, now: Duration) -> bool {
        match role {
            Role::Trainer => [&self.trainers_failed, &self.trainers_preempted, &self.trainers_refused]
                .iter()
                .all(|budget| budget.may_start(now)),
            Role::Pserver | Role::Master => self.servers.may_start(now),
        }
    }
}

/// The names of one role: `trainer-0` and on. Each is given once, but for those of processes that have never joined the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    role: Role,
    next: u32,
    free: BTreeSet<u32>,
}

impl Names {
    /// Those from this number on.
    pub(crate) fn from(role: Role, next: u32) -> Names {
        Names { role, next, free: BTreeSet::new() }
    }

    /// The next one, and its number.
    pub(crate) fn take(&mut self) -> (String, u32) {
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        (format!("{}-{number}", self.role), number)
    }

    /// Nobody in the job has heard of the process of that name: the next may have it, and its log.
    pub(crate) fn give_back(&mut self, name: &str) {
        let number = name.strip_prefix(self.role.word()).and_then(|rest| rest.strip_prefix('-'));
        self.free.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
}

/// How often processes may fail without a step made in between.
#[derive(Clone, Debug)]
struct Budget {
    max: u32,
    /// The longest pause before the next start.
    pause_max: Duration,
    failures: u32,
    /// The furthest point that was seen: how often the job has gone back, and its step.
    furthest: (u64, u64),
    /// The end of the pause after the last failure.
    paused_until: Duration,
    not_before: Duration,
}

/// The pause after one that was told to leave.
const REST: Duration = Duration::from_millis(500);
/// The longest pause before the next start.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The same where the one before was not let into the job, whatever steps it has made: only another command or another machine
/// would do better.
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(60);

impl Budget {
    /// So many failures end the job.
    fn of(max: u32) -> Budget {
        Budget {
            max,
            pause_max: PAUSE_MAX,
            failures: 0,
            furthest: (0, 0),
            paused_until: Duration::ZERO,
            not_before: Duration::ZERO,
        }
    }

    /// No number of failures ends the job.
    fn endless(pause_max: Duration) -> Budget {
        Budget { pause_max, ..Budget::of(u32::MAX) }
    }

    /// The job stands at `step`, having gone back `rewinds` times.
    fn see(&mut self, rewinds: u64, step: u64) {
        let (rewinds_before, step_before) = self.furthest;
        if rewinds == rewinds_before && step > step_before {
            self.failures = 0;
        }
        // Going back is no step made. A master that has just come back shows step 0 for a moment.
        self.furthest = self.furthest.max((rewinds, step));
    }

    /// A process failed. Returns whether that was one too many. The next start is put off, the longer the more failed.
    fn fail(&mut self, now: Duration) -> bool {
        if now < self.paused_until {
            // What struck many at once struck once.
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let pause = Duration::from_millis(25) * 2u32.pow(self.failures.min(12)) - Duration::from_millis(50);
        self.paused_until = now + pause.min(self.pause_max);
        self.not_before = self.not_before.max(self.paused_until);
        self.failures >= self.max
    }

    /// A process was told to leave, and left: what is wanted may look otherwise in a moment, and a supervisor that goes
    /// by what it saw last would start one after another.
    fn rest(&mut self, now: Duration) {
        self.not_before = self.not_before.max(now + REST);
    }

    /// Whether the next process may be started.
    fn may_start(&self, now: Duration) -> bool {
        now >= self.not_before
    }
}

/// How long the master has not answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outage {
    since: Option<Duration>,
    is_told: bool,
    misses: u32,
}

/// What there is to say of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageNews {
    /// Nothing new.
    Nothing,
    /// It lasts long enough to be mentioned.
    Lasts,
    /// It lasted longer than patience does.
    Over(Duration),
}

impl Outage {
    /// An outage is mentioned once it has lasted so long.
    const MENTIONED: Duration = Duration::from_secs(3);

    /// How long the next question may go without an answer: long enough on a loaded machine, short enough for other
    /// things not to be late.
    pub(crate) fn question(&self) -> Duration {
        (Duration::from_millis(250) * 2u32.pow(self.misses.min(2))).min(Duration::from_secs(1))
    }

    /// The master did not answer.
    pub(crate) fn miss(&mut self, now: Duration, patience: Duration) -> OutageNews {
        let since = *self.since.get_or_insert(now);
        self.misses += 1;
        let lasted = now - since;
        if lasted >= patience {
            return OutageNews::Over(lasted);
        }
        if lasted >= Self::MENTIONED && !std::mem::replace(&mut self.is_told, true) {
            return OutageNews::Lasts;
        }
        OutageNews::Nothing
    }

    /// The master answered. Returns how long it was away, if that was mentioned.
    pub(crate) fn end(&mut self, now: Duration) -> Option<Duration> {
        let ended = std::mem::take(self);
        ended.since.filter(|_| ended.is_told).map(|since| now - since)
    }

    /// Whether the master is away.
    pub(crate) fn is_on(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    fn running(leaving: &[bool]) -> Vec<Running> {
        leaving.iter().zip(1..).map(|(is_leaving, pid)| Running { pid, is_leaving: *is_leaving }).collect()
    }

    #[test]
    fn who_is_leaving_does_not_count_and_the_newest_trainer_leaves_first() {
        let four = running(&[false, true, false, false]);
        assert_eq!(trainers(3, &four), Upkeep::default());
        assert_eq!(trainers(5, &four), Upkeep { start: 2, stop: vec![] });
        assert_eq!(trainers(1, &four), Upkeep { start: 0, stop: vec![4, 3] });
        assert_eq!(pservers(3, &four), Upkeep::default());
        assert_eq!(pservers(4, &four), Upkeep { start: 1, stop: vec![] });
        assert_eq!(pservers(1, &four), Upkeep::default(), "the master chooses who leaves");
    }

    #[test]
    fn failures_without_a_step_between_them_use_the_budget_up() {
        let mut budget = Budget::of(3);
        budget.see(0, 4);
        assert!(!budget.fail(at(0)) && !budget.fail(at(1000)));
        budget.see(0, 4);
        assert!(budget.clone().fail(at(2000)), "no step was made");
        budget.see(0, 5);
        assert!(!budget.fail(at(3000)) && !budget.fail(at(4000)) && budget.fail(at(5000)));
    }

    #[test]
    fn what_strikes_many_at_once_strikes_twice_at_most() {
        let mut budget = Budget::of(3);
        assert!((0..100).all(|_| !budget.fail(at(1000))));
        assert!(!budget.may_start(at(1049)) && budget.may_start(at(1050)));
        assert!(budget.fail(at(1050)));
    }

    #[test]
    fn an_end_costs_what_it_means() {
        let is_over_after = |role, meaning| {
            let mut budgets = Budgets::default();
            (1..100).find(|second| budgets.charge(role, meaning, at(second * 1000)))
        };
        let table = [
            (Role::Trainer, Meaning::Left, None),
            (Role::Trainer, Meaning::Killed, None),
            (Role::Trainer, Meaning::Preempted, Some(20)),
            (Role::Trainer, Meaning::Refused, None),
            (Role::Trainer, Meaning::Failed, Some(8)),
            (Role::Trainer, Meaning::Hopeless, Some(1)),
            (Role::Pserver, Meaning::Left, None),
            (Role::Pserver, Meaning::Killed, None),
            (Role::Pserver, Meaning::Preempted, Some(20)),
            (Role::Pserver, Meaning::Failed, Some(20)),
            (Role::Master, Meaning::Failed, Some(20)),
            (Role::Master, Meaning::Hopeless, Some(1)),
        ];
        for (role, meaning, after) in table {
            assert_eq!(is_over_after(role, meaning), after, "{role} {meaning:?}");
        }
    }

    #[test]
    fn who_is_taken_away_again_and_again_comes_back_after_a_pause() {
        for meaning in [Meaning::Preempted, Meaning::Failed] {
            let mut budgets = Budgets::default();
            budgets.charge(Role::Trainer, meaning, at(1000));
            assert!(budgets.may_start(Role::Trainer, at(1000)), "the first is made good at once");
            budgets.charge(Role::Trainer, meaning, at(1000));
            assert!(
                !budgets.may_start(Role::Trainer, at(1049)) && budgets.may_start(Role::Trainer, at(1050))
            );
            assert!(budgets.may_start(Role::Pserver, at(1000)), "a pserver is none of it");
        }
    }

    #[test]
    fn who_is_not_let_in_comes_again_ever_more_slowly_however_many_steps_are_made() {
        let mut budgets = Budgets::default();
        let (mut now, mut pauses) = (at(0), Vec::new());
        for step in 0..14 {
            budgets.see(0, step);
            assert!(!budgets.charge(Role::Trainer, Meaning::Refused, now));
            let began = now;
            while !budgets.may_start(Role::Trainer, now) {
                now += at(50);
            }
            pauses.push((now - began).as_millis());
            now += at(1);
        }
        assert_eq!(
            pauses,
            [0, 50, 150, 350, 750, 1550, 3150, 6350, 12750, 25550, 51150, 60000, 60000, 60000]
        );
    }

    #[test]
    fn a_name_is_given_once_but_for_those_who_never_joined() {
        let mut names = Names::from(Role::Trainer, 3);
        assert_eq!([names.take().0, names.take().0], ["trainer-3", "trainer-4"]);
        names.give_back("trainer-3");
        assert_eq!([names.take(), names.take()], [("trainer-3".to_owned(), 3), ("trainer-5".to_owned(), 5)]);
        names.give_back("pserver-4");
        assert_eq!(names.take().1, 6, "another role's name is none of these");
    }

    #[test]
    fn going_back_is_no_step_made_nor_is_coming_where_one_was() {
        let mut budget = Budget::of(2);
        budget.see(0, 9);
        assert!(!budget.fail(at(0)));
        budget.see(1, 2);
        assert!(budget.clone().fail(at(1000)), "it went back");
        budget.see(0, 0);
        budget.see(1, 2);
        assert!(budget.clone().fail(at(1000)), "a new master's first word is step 0");
        budget.see(1, 3);
        assert!(!budget.fail(at(1000)));
    }

    #[test]
    fn the_first_failure_is_mended_at_once_and_later_ones_after_a_pause() {
        let mut budget = Budget::of(20);
        budget.fail(at(1000));
        assert!(budget.may_start(at(1000)));
        budget.fail(at(1000));
        assert!(!budget.may_start(at(1049)) && budget.may_start(at(1050)));
        for second in 2..19 {
            budget.fail(at(second * 1000));
        }
        assert!(!budget.may_start(at(18_999)) && budget.may_start(at(19_000)));
    }

    #[test]
    fn nobody_takes_the_place_of_who_was_told_to_leave_before_one_has_looked_again() {
        let mut budget = Budget::of(2);
        budget.rest(at(1000));
        assert!(!budget.may_start(at(1499)) && budget.may_start(at(1500)));
        assert!(!budget.fail(at(1500)), "it was no failure");
    }

    #[test]
    fn an_outage_is_mentioned_once_and_its_end_too() {
        let (mut outage, patience) = (Outage::default(), at(10_000));
        assert_eq!(outage.miss(at(500), patience), OutageNews::Nothing);
        assert!(outage.is_on());
        assert_eq!(outage.end(at(900)), None, "too short to mention");
        outage.miss(at(1000), patience);
        assert_eq!(outage.miss(at(3999), patience), OutageNews::Nothing);
        assert_eq!(outage.miss(at(4000), patience), OutageNews::Lasts);
        assert_eq!(outage.miss(at(5000), patience), OutageNews::Nothing);
        assert_eq!(outage.clone().miss(at(11_000), patience), OutageNews::Over(at(10_000)));
        assert_eq!(outage.end(at(6000)), Some(at(5000)));
        assert!(!outage.is_on());
    }

    #[test]
    fn questions_get_more_time_while_none_is_answered() {
        let mut outage = Outage::default();
        let asked: Vec<Duration> = (0..4)
            .map(|miss| {
                let question = outage.question();
                outage.miss(at(miss), at(1000));
                question
            })
            .collect();
        assert_eq!(asked, [at(250), at(500), at(1000), at(1000)]);
    }

    proptest! {
        #[test]
        fn afterwards_as_many_stay_as_are_wanted(wanted in 0u32..9, leaving in proptest::collection::vec(any::<bool>(), 0..9)) {
            let running = running(&leaving);
            let staying = running.iter().filter(|one| !one.is_leaving).count() as u32;
            let upkeep = trainers(wanted, &running);
            prop_assert_eq!(staying + upkeep.start - upkeep.stop.len() as u32, wanted);
            let is_staying = |pid: &u32| running.iter().any(|one| one.pid == *pid && !one.is_leaving);
            prop_assert!(upkeep.stop.iter().all(is_staying));
            prop_assert_eq!(pservers(wanted, &running).start + staying, wanted.max(staying));
        }
    }
}
