//! Any interleaving of calls, losses and silence against a model of the blocks: nothing is stranded.

use super::*;
use block::Blocks;
use event::{Event, event};

#[path = "lease_block_tests.rs"]
mod block;
#[path = "lease_event_tests.rs"]
mod event;

/// A task in a trainer's hands, or its pushes on the way.
#[derive(Clone, Debug)]
struct InHand {
    grant: Grant,
    computed: u32,
    answered: BTreeSet<usize>,
    lies: bool,
}

#[derive(Debug)]
struct Trainer {
    name: Incarnation,
    is_live: bool,
    tasks: Vec<InHand>,
}

/// A small job: lease machine, reports and trainers on one side, the truth (blocks) on the other.
#[derive(Debug)]
struct Job {
    shape: JobShape,
    steps: u64,
    leases: Leases,
    reports: Reports,
    blocks: Blocks,
    trainers: Vec<Trainer>,
    gone: Vec<InHand>,
    /// Reports on their way: of which pserver, the how manieth, what it says.
    sent: Vec<(usize, u64, Vec<BlockProgress>)>,
    /// How many reports were sent.
    calls: u64,
    /// The lowest version over all blocks, as far as reports arrived.
    told: u64,
    served: BTreeSet<(Incarnation, Step)>,
    granted: u64,
    now: Duration,
    names: u64,
}

impl Job {
    fn new(shape: JobShape, epochs: u64, trainers: usize) -> Job {
        let steps = epochs * shape.training().steps();
        let blocks = Blocks::new(shape);
        let trainer = |name| Trainer { name: Incarnation(name), is_live: true, tasks: Vec::new() };
        Job {
            shape,
            steps,
            leases: Leases::new(shape, steps, 1, TTL, LeaseId(1), at(0)),
            reports: Reports::new(shape, &blocks.placed(), None),
            blocks,
            trainers: (1..=trainers as u64).map(trainer).collect(),
            gone: Vec::new(),
            sent: Vec::new(),
            calls: 0,
            told: 0,
            served: BTreeSet::new(),
            granted: 0,
            now: at(0),
            names: trainers as u64,
        }
    }

    fn live(&self) -> u32 {
        self.trainers.iter().filter(|trainer| trainer.is_live).count() as u32
    }

    fn happen(&mut self, event: Event) {
        let count = self.trainers.len();
        match event {
            Event::Call { trainer, want, is_lost } => self.call(trainer % count, want, is_lost),
            Event::Heartbeat { trainer } => self.heartbeat(trainer % count),
            Event::Compute { trainer, task, microbatches } => {
                let published = self.blocks.published();
                if let Some(task) = nth(&mut self.trainers[trainer % count].tasks, task)
                    && task.grant.step.0 <= published
                {
                    task.computed = (task.computed + microbatches).min(task.grant.node.width());
                }
            }
            Event::Push { trainer, task, blocks } => {
                if let Some(task) = nth(&mut self.trainers[trainer % count].tasks, task) {
                    self.blocks.push(task, blocks);
                }
            }
            Event::Work { trainer } => self.work(trainer % count),
            Event::Lie { trainer, task } => {
                if let Some(task) = nth(&mut self.trainers[trainer % count].tasks, task) {
                    task.lies = true;
                }
            }
            Event::Lose { trainer } => {
                self.trainers[trainer % count].is_live = false;
                self.leases.lose(self.trainers[trainer % count].name, &self.reports);
            }
            Event::Return { trainer } => self.trainers[trainer % count].is_live = true,
            Event::Leave { trainer } => self.leave(trainer % count),
            Event::LatePush { task, blocks } => {
                if let Some(task) = nth(&mut self.gone, task) {
                    self.blocks.push(task, blocks);
                }
            }
            Event::Report { pserver } => {
                self.calls += 1;
                self.sent.push((pserver, self.calls, self.blocks.report_of(pserver)));
            }
            Event::Deliver { report } => self.deliver(report),
            Event::DropReport { report } if !self.sent.is_empty() => {
                self.sent.remove(report % self.sent.len());
            }
            Event::DropReport { .. } => {}
            Event::Wait { millis } => self.wait(at(millis)),
            Event::FailOver { block } => self.fail_over(block),
        }
        self.check();
    }

    /// Time passes; as the master does, leases are expired when they are due.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        let (before, due) = (format!("{:?}", self.leases), self.leases.next_deadline());
        let leases =
            |leases: &Leases| leases.open.iter().map(|open| open.leases.all().count()).sum::<usize>();
        let count = leases(&self.leases);
        self.leases.expire(self.now, &self.reports);
        if due.is_some_and(|due| due <= self.now) {
            assert!(leases(&self.leases) < count, "a deadline was due and nothing was done");
        } else {
            assert_eq!(format!("{:?}", self.leases), before, "expiry acts before its deadline {due:?}");
        }
        assert!(self.leases.next_deadline().is_none_or(|due| due > self.now));
    }

    /// A trainer that has not finished with a task sends it again where it may be lost.
    fn fail_over(&mut self, block: usize) {
        self.blocks.fail_over(block);
        self.reports.place(&self.blocks.placed());
        let tasks = self.trainers.iter_mut().flat_map(|trainer| &mut trainer.tasks).chain(&mut self.gone);
        tasks.for_each(|task| {
            task.answered.remove(&block);
        });
    }

    fn deliver(&mut self, report: usize) {
        if self.sent.is_empty() {
            return;
        }
        let (from, call, progress) = self.sent.remove(report % self.sent.len());
        if !self.blocks.note(from, call, &progress) {
            return;
        }
        self.told = self.told.max(self.blocks.told().unwrap_or(0));
        if self.reports.hear(pserver(from), progress, vec![]) {
            self.leases.reclaim(&self.reports);
        }
        if let Some(lowest) = self.reports.lowest_version() {
            self.leases.advance(Step(lowest.0), self.now);
        }
    }

    /// A trainer says how far it is and which leases it knows, as every call does.
    fn heartbeat(&mut self, trainer: usize) {
        let Trainer { name, is_live, tasks } = &mut self.trainers[trainer];
        if !*is_live {
            return;
        }
        let front = self.leases.front();
        tasks.retain(|task| task.grant.step >= front);
        let words: Vec<Progress> = tasks.iter().map(|task| task.word()).collect();
        self.leases.progress(*name, &words, self.now);
        self.leases.forget_unknown(*name, &words, &self.reports);
        tasks.retain(|task| !task.word().pushed);
    }

    fn call(&mut self, trainer: usize, want: u32, is_lost: bool) {
        self.heartbeat(trainer);
        let (name, is_live) = (self.trainers[trainer].name, self.trainers[trainer].is_live);
        if !is_live {
            return;
        }
        let free: Vec<(Step, Node)> =
            self.leases.open.iter().flat_map(|open| open.free.iter().map(|node| (open.step, node))).collect();
        let held: Vec<(Step, Node, Incarnation)> = self
            .leases
            .open
            .iter()
            .flat_map(|open| open.leases.all().map(|lease| (open.step, lease)))
            .filter(|(_, lease)| !lease.pushed)
            .map(|(step, lease)| (step, lease.node, lease.trainer))
            .collect();
        let (before, live) = (self.leases.counters(), self.live());
        let grants = self.leases.lease(name, live, want, self.now, &self.reports);
        self.granted += grants.len() as u64;
        assert!(grants.len() <= want.min(GRANTS_PER_CALL_MAX) as usize);
        let is_speculative = self.leases.counters().speculative > before.speculative;
        for (at, grant) in grants.iter().enumerate() {
            let is_within = |outer: &[(Step, Node)]| {
                outer.iter().any(|(step, node)| *step == grant.step && node.covers(grant.node))
            };
            let overlaps = |step: Step, node: Node| {
                step == grant.step && (node.covers(grant.node) || grant.node.covers(node))
            };
            assert!(grants[..at].iter().all(|other| !overlaps(other.step, other.node)), "{grants:?}");
            if is_speculative {
                assert_eq!((grants.len(), grant.step), (1, self.leases.front()));
                let has_work =
                    |(step, _, holder): &(Step, Node, Incarnation)| *holder == name && *step == grant.step;
                assert!(!held.iter().any(has_work), "speculation is for the idle");
                assert!(held.iter().any(|(step, node, _)| overlaps(*step, *node)));
            } else {
                assert!(is_within(&free), "{grant:?} was not free");
                assert!(held.iter().all(|(step, node, _)| !overlaps(*step, *node)), "{grant:?} is another's");
            }
            if self.served.insert((name, grant.step)) && !is_speculative {
                let share = self.shape.tree(grant.step).present() / live;
                assert!(grant.node.width() <= share.max(1), "{grant:?} of {live} trainers");
            }
        }
        if !is_lost {
            let fresh = |grant| InHand { grant, computed: 0, answered: BTreeSet::new(), lies: false };
            self.trainers[trainer].tasks.extend(grants.into_iter().map(fresh));
        }
    }

    fn work(&mut self, trainer: usize) {
        let published = self.blocks.published();
        for task in self.trainers[trainer].tasks.iter_mut().filter(|task| task.grant.step.0 <= published) {
            task.computed = task.grant.node.width();
            self.blocks.push(task, u8::MAX);
        }
    }

    fn leave(&mut self, trainer: usize) {
        self.heartbeat(trainer);
        self.names += 1;
        let next = Trainer { name: Incarnation(self.names), is_live: true, tasks: Vec::new() };
        let left = std::mem::replace(&mut self.trainers[trainer], next);
        self.leases.hand_back(left.name, &self.reports);
        assert_eq!(self.leases.in_hand(left.name), 0);
        self.gone.extend(left.tasks);
    }

    /// What holds at all times.
    fn check(&self) {
        let front = self.leases.front();
        assert_eq!(front.0, self.told, "the front follows reports only");
        assert!(front.0 <= self.blocks.published());
        assert_eq!(self.leases.counters().leased, self.granted);
        let mut silent = self.trainers.iter().filter(|trainer| !trainer.is_live);
        assert!(silent.all(|trainer| self.leases.in_hand(trainer.name) == 0), "the silent hold nothing");
        for open in &self.leases.open {
            assert!(open.step == front || open.step == front.next());
            assert!(open.step.0 < self.steps);
            let present = self.shape.tree(open.step).present();
            let mut owners = vec![(0, 0); present as usize];
            for slot in open.free.iter().flat_map(|node| node.first()..node.end()) {
                owners[slot as usize].0 += 1;
            }
            for slot in open.leases.all().flat_map(|lease| lease.node.first()..lease.node.end()) {
                owners[slot as usize].1 += 1;
            }
            for (slot, (free, leased)) in owners.into_iter().enumerate() {
                assert!(free == 0 || leased == 0, "slot {slot} of step {} is free and leased", open.step);
                let is_lost = free + leased == 0 && self.blocks.lacks(open.step, slot as u32);
                assert!(!is_lost, "slot {slot} of step {} is lacked and nobody's", open.step);
            }
        }
    }

    /// From here on one trainer lives, asks, computes and pushes; the others are silent. The job must end (P4).
    fn finish(&mut self) {
        let (silent, ttl_over) = (1..self.trainers.len(), self.now + TTL);
        self.trainers[0].is_live = true;
        self.trainers[0].tasks.iter_mut().for_each(|task| task.lies = false);
        self.sent.clear();
        let (mut calls, mut since, mut front) = (0, self.now, self.leases.front());
        while self.leases.front().0 < self.steps {
            if self.now >= ttl_over {
                silent.clone().for_each(|trainer| self.happen(Event::Lose { trainer }));
            }
            self.happen(Event::Call { trainer: 0, want: 2, is_lost: false });
            self.happen(Event::Work { trainer: 0 });
            for pserver in 0..2 {
                self.happen(Event::Report { pserver });
                self.happen(Event::Deliver { report: 0 });
            }
            calls += 1;
            if self.leases.front() > front {
                (calls, since, front) = (0, self.now, self.leases.front());
            } else if self.trainers[0].tasks.iter().all(|task| task.word().pushed || task.grant.step > front)
            {
                self.happen(Event::Wait { millis: 100 });
            }
            assert!(self.now <= since + 2 * TTL + at(100), "step {front} stands still: {self:#?}");
            assert!(calls <= self.shape.tree(front).present() + 40, "step {front} takes {calls} calls");
        }
        assert_eq!(self.blocks.published(), self.steps);
    }
}

impl InHand {
    fn word(&self) -> Progress {
        let pushed = self.lies || self.answered.len() == 3;
        Progress { lease: self.grant.lease, microbatches: self.computed, pushed, waits: false }
    }
}

fn pserver(at: usize) -> Incarnation {
    Incarnation(100 + at as u64)
}

fn nth<T>(of: &mut [T], at: usize) -> Option<&mut T> {
    let count = of.len();
    of.get_mut(at % count.max(1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_happens_nothing_is_stranded_and_one_honest_trainer_finishes_the_job(
        slots in 1u32..20, records in 1u64..60, trainers in 1usize..7,
        events in proptest::collection::vec(event(), 0..160)
    ) {
        let mut job = Job::new(shape(records, slots), 2, trainers);
        for event in events {
            job.happen(event);
        }
        job.finish();
    }
}
