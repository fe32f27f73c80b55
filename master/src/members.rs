//! Membership: who is there, under which incarnation, and who has fallen silent.
//!
//! State machine of one member: `Live -> Lost -> Live` as it falls silent and speaks again; `Left` and `Superseded`
//! are final. Invariants: at most one incarnation of a name is live or lost; an incarnation is never given twice;
//! the word of a final incarnation changes nothing. Pure: time comes in as an argument.

use shoal_runtime::cluster::{Incarnation, Refusal, RefusalKind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Final and lost members that are remembered, so that late words of theirs get a precise answer.
const REMEMBERED_MAX: usize = 1000;
/// Members that may be live at a time: twice what a master is made for.
pub(crate) const LIVE_MAX: usize = 20_000;
/// The most bytes of a name: members of the document have one.
const NAME_BYTES_MAX: usize = 253;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Heard of within its time to live.
    Live,
    /// Silent for longer; what it held was given to others. It may come back.
    Lost,
    /// It said goodbye.
    Left,
    /// A later process took its name.
    Superseded,
}

/// One life of one process.
#[derive(Clone, Debug)]
pub struct Member {
    /// Unique in the job; a later life takes it over.
    pub name: String,
    /// Drawn by the process: tells a repeated call from a second life.
    pub nonce: u64,
    /// Process id where it runs; for people.
    pub process: u32,
    /// What it is now.
    pub state: State,
    last_heard: Duration,
    /// From when on it is worth asking whether it is still there.
    suspected: Option<Duration>,
    /// The incarnation under which a master counted it first.
    first_counted: Incarnation,
}

impl Member {
    /// Returns the time of its last sign of life, by the master's clock.
    pub fn last_heard(&self) -> Duration {
        self.last_heard
    }
}

/// All members of one role.
#[derive(Debug)]
pub struct Members {
    role: &'static str,
    term: u32,
    next: u64,
    ttl: Duration,
    members: BTreeMap<Incarnation, Member>,
    current: BTreeMap<String, Incarnation>,
    finished: VecDeque<Incarnation>,
    /// Those that are live, and those that are lost, by when they were last heard: what is asked for at every call is
    /// found without a look at them all.
    live: BTreeSet<(Duration, Incarnation)>,
    lost: BTreeSet<(Duration, Incarnation)>,
    forgotten: Vec<Incarnation>,
}

impl Members {
    /// No members yet. `term` is the master's, `ttl` how long one may be silent.
    pub fn new(role: &'static str, term: u32, ttl: Duration) -> Members {
        Members {
            role,
            term,
            next: 1,
            ttl,
            members: BTreeMap::new(),
            current: BTreeMap::new(),
            finished: VecDeque::new(),
            live: BTreeSet::new(),
            lost: BTreeSet::new(),
            forgotten: Vec::new(),
        }
    }

    /// A process joins. The same life asking again gets the same incarnation; a new life supersedes the old one,
    /// which is returned second.
    pub fn join(
        &mut self,
        name: &str,
        nonce: u64,
        process: u32,
        previous: Option<Incarnation>,
        now: Duration,
    ) -> Result<(Incarnation, Option<Incarnation>), Refusal> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let detail = format!("a name has 1 to {NAME_BYTES_MAX} bytes and no control characters");
            return Err(Refusal::new(RefusalKind::Malformed, format!("{}'s name", self.role), detail));
        }
        if let Some((incarnation, state)) = self.life(name, nonce) {
            if matches!(state, State::Left | State::Superseded) {
                return Err(self.stale(incarnation));
            }
            self.hear(incarnation, now)?;
            return Ok((incarnation, None));
        }
        // A life that an earlier master counted: of two, the one that was counted last is the name's.
        let current = self.current.get(name).and_then(|current| self.members.get(current));
        if let (Some(previous), Some(current)) = (previous, current)
            && current.first_counted > previous
        {
            let detail = "a later process has taken its name: give each process a name of its own";
            return Err(Refusal::new(
                RefusalKind::StaleIncarnation,
                format!("{} {name:?}", self.role),
                detail,
            ));
        }
        if self.live.len() >= LIVE_MAX && !self.current.contains_key(name) {
            let detail = format!("{LIVE_MAX} are here, which is all that may be: let some leave first");
            return Err(Refusal::new(RefusalKind::NotReady, format!("{} {name:?}", self.role), detail));
        }
        let incarnation = Incarnation::new(self.term, self.next);
        self.next += 1;
        let superseded = self.current.insert(name.to_owned(), incarnation);
        if let Some(old) = superseded {
            self.finish(old, State::Superseded);
        }
        let first_counted = previous.unwrap_or(incarnation);
        let (name, state) = (name.to_owned(), State::Live);
        let member = Member { name, nonce, process, state, last_heard: now, suspected: None, first_counted };
        self.members.insert(incarnation, member);
        self.live.insert((now, incarnation));
        Ok((incarnation, superseded))
    }

    /// The incarnation of a life that was counted before, and what it is now.
    fn life(&self, name: &str, nonce: u64) -> Option<(Incarnation, State)> {
        let current = self.current.get(name).into_iter();
        let lives = current.chain(self.finished.iter().rev());
        let known = lives.filter_map(|who| Some((*who, self.members.get(who)?)));
        let mut this = known.filter(|(_, member)| member.name == name && member.nonce == nonce);
        this.next().map(|(who, member)| (who, member.state))
    }

    /// A member is now this, and was last heard then.
    fn turn(&mut self, incarnation: Incarnation, state: State, last_heard: Duration) {
        let Some(member) = self.members.get_mut(&incarnation) else { return };
        let before = (member.last_heard, incarnation);
        self.live.remove(&before);
        self.lost.remove(&before);
        (member.state, member.last_heard) = (state, last_heard);
        match state {
            State::Live => self.live.insert((last_heard, incarnation)),
            State::Lost => self.lost.insert((last_heard, incarnation)),
            State::Left | State::Superseded => false,
        };
    }

    /// Members that are remembered no more since this was asked last: what others keep of them may go.
    pub fn take_forgotten(&mut self) -> Vec<Incarnation> {
        std::mem::take(&mut self.forgotten)
    }

    /// A member that the document knows, from before this master's time. Of one name the later comes after the earlier,
    /// and supersedes it.
    pub fn remember(&mut self, incarnation: Incarnation, name: &str, now: Duration) {
        let member = Member {
            name: name.to_owned(),
            nonce: 0,
            process: 0,
            state: State::Live,
            last_heard: now,
            suspected: None,
            first_counted: incarnation,
        };
        self.members.insert(incarnation, member);
        self.live.insert((now, incarnation));
        if let Some(old) = self.current.insert(name.to_owned(), incarnation) {
            self.finish(old, State::Superseded);
        }
    }

    /// A member has no call open, whose breaking off would tell its end: from `from` on it is worth asking whether it is
    /// still there, until it [attends](Self::attend).
    pub fn suspect(&mut self, incarnation: Incarnation, from: Duration) {
        if let Some(member) = self.members.get_mut(&incarnation).filter(|member| member.state == State::Live)
        {
            member.suspected = Some(member.suspected.map_or(from, |already| already.min(from)));
        }
    }

    /// A member has a call open.
    pub fn attend(&mut self, incarnation: Incarnation) {
        if let Some(member) = self.members.get_mut(&incarnation) {
            member.suspected = None;
        }
    }

    /// Live members of whom it is worth asking.
    pub fn suspects(&self, now: Duration) -> impl Iterator<Item = Incarnation> {
        let is_due = move |member: &Member| member.suspected.is_some_and(|from| from <= now);
        self.live().filter(move |(_, member)| is_due(member)).map(|(incarnation, _)| incarnation)
    }

    /// A member is known to be gone. Returns whether it was live.
    pub fn lose(&mut self, incarnation: Incarnation) -> bool {
        let live = self.members.get(&incarnation).filter(|member| member.state == State::Live);
        let Some(last_heard) = live.map(|member| member.last_heard) else { return false };
        self.turn(incarnation, State::Lost, last_heard);
        self.forget_long_lost();
        true
    }

    /// Whether a member may speak: it is live, or lost and not replaced.
    pub fn is_current(&self, incarnation: Incarnation) -> bool {
        let state = self.members.get(&incarnation).map(|member| member.state);
        matches!(state, Some(State::Live | State::Lost))
    }

    /// A member said something; a lost one is live again.
    pub fn hear(&mut self, incarnation: Incarnation, now: Duration) -> Result<(), Refusal> {
        match self.members.get(&incarnation) {
            Some(member) if matches!(member.state, State::Live | State::Lost) => {
                let last_heard = member.last_heard.max(now);
                self.turn(incarnation, State::Live, last_heard);
                Ok(())
            }
            _ => Err(self.stale(incarnation)),
        }
    }

    /// A member says goodbye. Saying so twice is harmless.
    pub fn leave(&mut self, incarnation: Incarnation) -> Result<(), Refusal> {
        match self.members.get(&incarnation).map(|member| member.state) {
            Some(State::Left) => Ok(()),
            Some(State::Live | State::Lost) => {
                if let Some(name) = self.members.get(&incarnation).map(|member| member.name.clone()) {
                    self.current.remove(&name);
                }
                self.finish(incarnation, State::Left);
                Ok(())
            }
            _ => Err(self.stale(incarnation)),
        }
    }

    /// Marks as lost who has been silent for longer than the time to live, and names them.
    pub fn expire(&mut self, now: Duration) -> Vec<Incarnation> {
        let silent = self.live.iter().take_while(|(last_heard, _)| now >= *last_heard + self.ttl);
        let silent: Vec<(Duration, Incarnation)> = silent.copied().collect();
        for (last_heard, incarnation) in &silent {
            self.turn(*incarnation, State::Lost, *last_heard);
        }
        if !silent.is_empty() {
            self.forget_long_lost();
        }
        silent.into_iter().map(|(_, incarnation)| incarnation).collect()
    }

    /// Keeps the memory of crashed processes that never come back bounded.
    fn forget_long_lost(&mut self) {
        while self.lost.len() > REMEMBERED_MAX
            && let Some((_, incarnation)) = self.lost.pop_first()
        {
            if let Some(member) = self.members.remove(&incarnation) {
                self.current.remove(&member.name);
                self.forgotten.push(incarnation);
            }
        }
    }

    /// When the next member may be lost.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.live.first().map(|(last_heard, _)| *last_heard + self.ttl)
    }

    /// How many are live.
    pub fn live_count(&self) -> usize {
        self.live.len()
    }

    /// The live members.
    pub fn live(&self) -> impl Iterator<Item = (Incarnation, &Member)> {
        self.iter().filter(|(_, member)| member.state == State::Live)
    }

    /// All members, the finished that are remembered among them.
    pub fn iter(&self) -> impl Iterator<Item = (Incarnation, &Member)> {
        self.members.iter().map(|(incarnation, member)| (*incarnation, member))
    }

    /// One member.
    pub fn get(&self, incarnation: Incarnation) -> Option<&Member> {
        self.members.get(&incarnation)
    }

    fn finish(&mut self, incarnation: Incarnation, state: State) {
        if let Some(last_heard) = self.members.get(&incarnation).map(|member| member.last_heard) {
            self.turn(incarnation, state, last_heard);
            self.finished.push_back(incarnation);
        }
        if self.finished.len() > REMEMBERED_MAX
            && let Some(oldest) = self.finished.pop_front()
        {
            self.members.remove(&oldest);
            self.forgotten.push(oldest);
        }
    }

    fn stale(&self, incarnation: Incarnation) -> Refusal {
        if !self.members.contains_key(&incarnation) && incarnation.term() < self.term {
            let detail = "a master of an earlier term counted it: join again, naming it";
            let subject = format!("{} {incarnation}", self.role);
            return Refusal::new(RefusalKind::UnknownIncarnation, subject, detail);
        }
        if incarnation.term() > self.term {
            let detail = "a master of a later term counted it, so another leads: ask the next address";
            return Refusal::new(RefusalKind::NotLeader, format!("{} {incarnation}", self.role), detail);
        }
        let (subject, what) = match self.members.get(&incarnation) {
            Some(member) if member.state == State::Superseded => (
                member.name.clone(),
                "a later process has taken its name: give each process a name of its own",
            ),
            Some(member) => (member.name.clone(), "it has left the job: start a new process to join again"),
            None => (String::from("unknown"), "this master never gave it: join first"),
        };
        Refusal::new(
            RefusalKind::StaleIncarnation,
            format!("{} {subject:?}", self.role),
            format!("incarnation {incarnation}: {what}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(1);
    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    fn members() -> Members {
        Members::new("trainer", 1, TTL)
    }

    #[test]
    fn the_same_life_asking_again_gets_the_same_incarnation() {
        let mut members = members();
        let (first, _) = members.join("a", 7, 1, None, at(0)).unwrap();
        assert_eq!(members.join("a", 7, 1, None, at(1)).unwrap(), (first, None));
    }

    #[test]
    fn a_later_life_supersedes_and_the_older_one_is_refused_by_name() {
        let mut members = members();
        let (old, _) = members.join("a", 7, 1, None, at(0)).unwrap();
        let (new, superseded) = members.join("a", 8, 2, None, at(1)).unwrap();
        assert_eq!(superseded, Some(old));
        assert!(members.hear(old, at(2)).unwrap_err().to_string().contains("\"a\""));
        members.hear(new, at(2)).unwrap();
    }

    #[test]
    fn a_late_duplicate_of_an_older_lifes_join_does_not_supersede_the_new_one() {
        let mut members = members();
        members.join("a", 7, 1, None, at(0)).unwrap();
        let (new, _) = members.join("a", 8, 2, None, at(1)).unwrap();
        assert!(members.join("a", 7, 1, None, at(2)).is_err());
        members.hear(new, at(3)).unwrap();
    }

    #[test]
    fn a_silent_member_is_lost_and_comes_back_when_it_speaks() {
        let mut members = members();
        let (a, _) = members.join("a", 7, 1, None, at(0)).unwrap();
        assert_eq!(members.next_deadline(), Some(at(1000)));
        assert_eq!(members.expire(at(999)), []);
        assert_eq!(members.expire(at(1000)), [a]);
        assert_eq!(members.expire(at(1001)), []);
        members.hear(a, at(1002)).unwrap();
        assert_eq!(members.live().count(), 1);
    }

    #[test]
    fn who_left_is_refused_and_may_leave_twice() {
        let mut members = members();
        let (a, _) = members.join("a", 7, 1, None, at(0)).unwrap();
        members.leave(a).unwrap();
        members.leave(a).unwrap();
        assert!(members.hear(a, at(1)).is_err() && members.join("a", 7, 1, None, at(1)).is_err());
    }

    #[test]
    fn of_two_lives_the_later_counted_keeps_the_name_in_any_order_of_joining() {
        let [first, second, third] = [1, 2, 3].map(|counter| Incarnation::new(1, counter));
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for order in orders {
            let mut members = Members::new("trainer", 2, TTL);
            let mut last = Incarnation(0);
            for (at_, life) in order.into_iter().enumerate() {
                let previous = [first, second, third][life];
                let joined = members.join("a", life as u64 + 1, 0, Some(previous), at(at_ as u64));
                assert_eq!(joined.is_ok(), previous > last, "{order:?}: only a later life takes the name");
                last = last.max(previous);
            }
            let current: Vec<u64> = members.live().map(|(_, member)| member.nonce).collect();
            assert_eq!(current, [3], "{order:?}");
        }
    }

    #[test]
    fn a_life_that_no_master_counted_before_is_later_than_all_that_were() {
        let mut members = Members::new("trainer", 2, TTL);
        let (new, _) = members.join("a", 3, 0, None, at(0)).unwrap();
        let refusal = members.join("a", 2, 0, Some(Incarnation::new(1, 9)), at(1)).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::StaleIncarnation);
        let (newer, superseded) = members.join("a", 4, 0, None, at(2)).unwrap();
        assert_eq!(superseded, Some(new));
        members.leave(newer).unwrap();
        members.join("a", 2, 0, Some(Incarnation::new(1, 9)), at(3)).unwrap();
    }

    #[test]
    fn who_is_remembered_is_live_from_now_on_and_of_one_name_only_the_later() {
        let mut members = Members::new("pserver", 2, TTL);
        let [old, new, other] = [1, 2, 3].map(|counter| Incarnation::new(1, counter));
        for (who, name) in [(old, "a"), (new, "a"), (other, "b")] {
            members.remember(who, name, at(5000));
        }
        assert_eq!(members.live().map(|(who, _)| who).collect::<Vec<_>>(), [new, other]);
        assert_eq!(members.hear(old, at(5001)).unwrap_err().kind, RefusalKind::StaleIncarnation);
        assert_eq!(members.expire(at(5999)), []);
        members.hear(new, at(5999)).unwrap();
        assert_eq!(members.expire(at(6000)), [other]);
        let (again, superseded) = members.join("a", 7, 0, None, at(6001)).unwrap();
        assert_eq!((again, superseded), (Incarnation::new(2, 1), Some(new)));
    }

    #[test]
    fn whom_nobody_counted_is_told_apart_by_the_term_that_it_names() {
        let mut members = Members::new("trainer", 2, TTL);
        let kinds = [1, 2, 3].map(|term| members.hear(Incarnation::new(term, 1), at(0)).unwrap_err().kind);
        let [of_before, of_ours, of_later] = kinds;
        assert_eq!(of_before, RefusalKind::UnknownIncarnation, "join again");
        assert_eq!(of_ours, RefusalKind::StaleIncarnation);
        assert_eq!(of_later, RefusalKind::NotLeader, "ask the next");
    }

    #[test]
    fn suspicion_is_for_the_live_and_ends_when_they_attend() {
        let mut members = members();
        let [a, b, c] = ["a", "b", "c"].map(|name| members.join(name, 7, 1, None, at(0)).unwrap().0);
        for (who, from) in [(a, 5), (b, 1), (c, 9), (c, 4), (c, 8)] {
            members.suspect(who, at(from));
        }
        let suspects = |members: &Members, now| members.suspects(at(now)).collect::<Vec<_>>();
        assert_eq!((suspects(&members, 3), suspects(&members, 4)), (vec![b], vec![b, c]), "the earliest");
        members.attend(a);
        members.hear(c, at(5)).unwrap();
        assert!(members.lose(b) && !members.lose(b), "once");
        assert_eq!(suspects(&members, 9), [c], "its words come another way");
        members.expire(at(1005));
        assert_eq!(suspects(&members, 1005), [], "the lost are not asked");
        members.leave(a).unwrap();
        assert!(!members.lose(a) && !members.is_current(a), "what is final stays so");
    }

    #[test]
    fn a_late_word_does_not_shorten_the_time_to_live() {
        let mut members = members();
        let (a, _) = members.join("a", 7, 1, None, at(0)).unwrap();
        members.hear(a, at(800)).unwrap();
        members.hear(a, at(300)).unwrap();
        assert_eq!(members.next_deadline(), Some(at(1800)));
    }

    #[test]
    fn those_that_are_known_to_be_gone_are_forgotten_in_the_end() {
        let mut members = members();
        for name in 0..2 * REMEMBERED_MAX as u64 {
            let (who, _) = members.join(&name.to_string(), name, 0, None, at(name)).unwrap();
            members.lose(who);
        }
        assert_eq!((members.members.len(), members.current.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }

    #[test]
    fn more_than_there_may_be_are_refused_and_who_is_here_may_come_back() {
        let mut members = members();
        for name in 0..LIVE_MAX as u64 {
            members.join(&name.to_string(), name, 0, None, at(0)).unwrap();
        }
        let refused = members.join("one more", 1, 0, None, at(1)).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::NotReady, "{refused}");
        assert!(
            members.join("7", 1000, 0, None, at(1)).unwrap().1.is_some(),
            "a new life of one that is here"
        );
        members.join("8", 8, 0, None, at(1)).unwrap();
        members.leave(members.current["9"]).unwrap();
        members.join("one more", 1, 0, None, at(1)).unwrap();
        assert_eq!(members.live_count(), LIVE_MAX);
    }

    #[test]
    fn crashed_processes_that_never_come_back_are_forgotten_in_the_end() {
        let mut members = members();
        for name in 0..3 * REMEMBERED_MAX as u64 {
            members.join(&name.to_string(), name, 0, None, at(2000 * name)).unwrap();
            members.expire(at(2000 * name + 1000));
        }
        assert_eq!((members.members.len(), members.current.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }

    proptest! {
        #[test]
        fn under_any_calls_one_incarnation_of_a_name_is_current_and_memory_is_bounded(
            calls in proptest::collection::vec((0u8..4, 0u8..4, 0u64..6, 0u64..3000), 0..300)
        ) {
            let mut members = members();
            let mut given: Vec<Incarnation> = Vec::new();
            let mut now = 0;
            for (call, name, nonce, wait) in calls {
                now += wait;
                match call {
                    0 => if let Ok((incarnation, _)) = members.join(&format!("t{name}"), nonce, 0, None, at(now))
                        && !given.contains(&incarnation)
                    {
                            prop_assert!(given.iter().all(|old| *old < incarnation));
                            given.push(incarnation);
                    },
                    1 => { let _ = given.get(nonce as usize).map(|i| members.hear(*i, at(now))); }
                    2 => { let _ = given.get(nonce as usize).map(|i| members.leave(*i)); }
                    _ => { members.expire(at(now)); }
                }
                for name in 0..4 {
                    let name = format!("t{name}");
                    let current = members.iter().filter(|(_, m)| m.name == name)
                        .filter(|(_, m)| matches!(m.state, State::Live | State::Lost)).count();
                    prop_assert!(current <= 1);
                }
                let of = |state| members.iter().filter(move |(_, m)| m.state == state)
                    .map(|(who, m)| (m.last_heard, who)).collect::<BTreeSet<_>>();
                prop_assert_eq!((&members.live, &members.lost), (&of(State::Live), &of(State::Lost)));
            }
            prop_assert!(members.members.len() <= REMEMBERED_MAX + 4);
        }
    }
}
