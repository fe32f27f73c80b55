//! What a supervisor decides: how many processes to start, which to ask to leave, what they are called, when ends are too many.
//! Pure: it is told the time, and starts and stops nothing.

use shoal_job::Role;
use shoal_job::ends::{Account, Meaning, Pauses, Strikes};
use std::collections::{BTreeMap, BTreeSet};
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

/// The pause after one that was told to leave.
const REST: Duration = Duration::from_millis(500);
/// How long the next process waits on one machine, where it is started in a moment.
const PAUSES: Pauses = Pauses { unit: Duration::from_millis(50), most: Duration::from_secs(1) };
/// The same where the one before was not let into the job.
const REFUSED: Pauses = Pauses { most: Duration::from_secs(60), ..PAUSES };

/// How often processes have ended without a step made in between, by what their ends mean.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    strikes: BTreeMap<Account, Strikes>,
    /// The furthest step that the job has made.
    step: u64,
    /// When servers may be started again after one was told to leave.
    rested: Duration,
}

fn pauses(account: Account) -> Pauses {
    if account == Account::TrainersRefused { REFUSED } else { PAUSES }
}

impl Budgets {
    /// The job stands at `step`.
    pub(crate) fn see(&mut self, step: u64) {
        self.step = self.step.max(step);
        for (account, strikes) in &mut self.strikes {
            if account.is_forgiven_by_progress() {
                strikes.see(step);
            }
        }
    }

    /// Takes an end into account. Returns whether the run gives up.
    pub(crate) fn charge(&mut self, role: Role, meaning: Meaning, now: Duration) -> bool {
        let Some(account) = Account::of(role, meaning) else {
            if meaning == Meaning::Left && role != Role::Trainer {
                // What is wanted may look otherwise in a moment: a supervisor that goes by what it saw last would start one after
                // another.
                self.rested = now + REST;
            }
            return false;
        };
        let strikes = self.strikes.entry(account).or_default();
        strikes.strike(pauses(account), self.step, now);
        meaning == Meaning::Hopeless || strikes.is_over(account.limit())
    }

    /// Whether the next process of a role may be started.
    pub(crate) fn may_start(&self, role: Role, now: Duration) -> bool {
        let is_rested = role == Role::Trainer || now >= self.rested;
        let of_role = self.strikes.iter().filter(|(account, _)| account.holds_up(role));
        is_rested && of_role.into_iter().all(|(account, strikes)| strikes.may_start(pauses(*account), now))
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
        let number = name.strip_prefix(self.role.name()).and_then(|rest| rest.strip_prefix('-'));
        self.free.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
}

/// How long nothing was heard of a process, as far as somebody listened: while there is no master, or this process was itself stopped,
/// nobody could have heard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    lasted: Duration,
    listened: Option<Duration>,
}

impl Silence {
    /// So much counts at most from one time to the next: a question takes a second at most.
    const LISTENS: Duration = Duration::from_secs(2);

    /// Somebody listens at `now` and hears nothing. How long that has lasted.
    pub(crate) fn goes_on(&mut self, now: Duration) -> Duration {
        let since = self.listened.replace(now).unwrap_or(now);
        self.lasted += now.saturating_sub(since).min(Self::LISTENS);
        self.lasted
    }
}

/// What is heard of one master: before it has ever answered it reads the data set, and its silence says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers(Option<Silence>);

impl Answers {
    /// It has answered, or could not.
    pub(crate) fn begin_again(&mut self, has_answered: bool) {
        if has_answered || self.0.is_some() {
            self.0 = Some(Silence::default());
        }
    }

    /// It has not answered a question at `now`. How long it has been silent.
    pub(crate) fn miss(&mut self, now: Duration) -> Duration {
        self.0.as_mut().map_or(Duration::ZERO, |silence| silence.goes_on(now))
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

    /// Another master takes the place of one that was there and hung: it has all the time again.
    pub(crate) fn begin_again(&mut self, now: Duration) {
        self.since = Some(now);
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
            budgets.see(step);
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
    fn nobody_takes_the_place_of_a_pserver_that_was_told_to_leave_before_one_has_looked_again() {
        let mut budgets = Budgets::default();
        assert!(!budgets.charge(Role::Pserver, Meaning::Left, at(1000)));
        assert!(!budgets.may_start(Role::Pserver, at(1499)) && budgets.may_start(Role::Pserver, at(1500)));
        assert!(budgets.may_start(Role::Trainer, at(1000)), "a trainer is none of it");
    }

    #[test]
    fn ends_without_a_step_between_them_end_the_run_and_a_step_forgives_them() {
        let fail = |budgets: &mut Budgets, second: u64| {
            budgets.charge(Role::Trainer, Meaning::Failed, at(second * 10_000))
        };
        let mut budgets = Budgets::default();
        budgets.see(4);
        assert!((0..7).all(|second| !fail(&mut budgets, second)));
        assert!(fail(&mut budgets.clone(), 7));
        budgets.see(5);
        assert!((8..15).all(|second| !fail(&mut budgets, second)) && fail(&mut budgets, 15));
        assert!(Budgets::default().charge(Role::Trainer, Meaning::Hopeless, at(0)));
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
    fn silence_counts_while_somebody_listens() {
        let mut silence = Silence::default();
        let lasted: Vec<Duration> =
            [at(7000), at(8000), at(8500), at(100_000), at(101_000)].map(|now| silence.goes_on(now)).into();
        assert_eq!(lasted, [at(0), at(1000), at(1500), at(3500), at(4500)]);
    }

    #[test]
    fn a_master_that_has_never_answered_is_not_silent() {
        let mut answers = Answers::default();
        let miss = |answers: &mut Answers, seconds: u64| answers.miss(Duration::from_secs(seconds));
        assert!((0..3600).all(|second| miss(&mut answers, second).is_zero()));
        answers.begin_again(false);
        assert_eq!([miss(&mut answers, 3600), miss(&mut answers, 3601)], [Duration::ZERO; 2]);
        answers.begin_again(true);
        assert_eq!([miss(&mut answers, 3602), miss(&mut answers, 3603)], [at(0), at(1000)]);
        answers.begin_again(false);
        assert_eq!([miss(&mut answers, 3604), miss(&mut answers, 3605)], [at(0), at(1000)]);
    }

    #[test]
    fn a_master_that_comes_for_one_that_hung_has_all_the_time_again() {
        let (mut outage, patience) = (Outage::default(), at(10_000));
        outage.miss(at(0), patience);
        outage.begin_again(at(9000));
        assert_eq!(outage.miss(at(18_999), patience), OutageNews::Lasts);
        assert_eq!(outage.miss(at(19_000), patience), OutageNews::Over(at(10_000)));
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
