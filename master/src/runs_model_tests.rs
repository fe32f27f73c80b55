//! Any interleaving of calls, losses, restores and silence against a model of the blocks: nothing is stranded, nothing
//! is applied twice.

use super::*;
use event::{Event, event};

#[path = "runs_event_tests.rs"]
mod event;

const BLOCKS: usize = 3;

/// One block as its pserver has it.
#[derive(Clone, Debug, Default)]
struct Block {
    term: u64,
    /// The term of its last restore.
    rewind: u64,
    ledger: Ledger,
    /// How often each position was applied, on the surviving history.
    times: Vec<u32>,
}

/// A run in a trainer's hands, or its pushes on the way.
#[derive(Clone, Debug)]
struct InHand {
    grant: Grant,
    /// For each microbatch computed, the rewind numbers of the blocks that it was computed from.
    computed: Vec<[u64; BLOCKS]>,
    answered: BTreeSet<(usize, usize)>,
    lies: bool,
}

#[derive(Debug)]
struct Trainer {
    name: Incarnation,
    is_live: bool,
    tasks: Vec<InHand>,
}

#[derive(Debug)]
struct Report {
    block: usize,
    term: u64,
    updates: u32,
    ledger: Ledger,
}

/// What the master knows of one block.
#[derive(Debug, Default)]
struct Heard {
    term: u64,
    newest: Option<(u32, Ledger)>,
    piece: Ledger,
}

#[derive(Debug, Default)]
struct Word([Heard; BLOCKS]);

impl Word {
    fn has(&self, block: usize) -> &Ledger {
        self.0[block].newest.as_ref().map_or(&self.0[block].piece, |(_, ledger)| ledger)
    }
    fn lacks(&self, position: u64) -> bool {
        (0..BLOCKS).any(|block| !self.has(block).contains(position))
    }
}

impl Lacking for Word {
    fn front(&self) -> Option<u64> {
        let is_heard = self.0.iter().all(|heard| heard.newest.is_some());
        is_heard.then(|| (0..BLOCKS).map(|block| self.has(block).low()).min().unwrap())
    }
    fn lacking(&self, range: Range<u64>) -> Option<Range<u64>> {
        assert!(!range.is_empty());
        let both = self.has(0).intersection(self.has(1)).intersection(self.has(2));
        both.missing(range).next()
    }
}

/// A small job: lease machine, the pservers' word and trainers on one side, the truth (blocks) on the other.
#[derive(Debug)]
struct Job {
    positions: u64,
    window: u64,
    runs: Runs,
    word: Word,
    blocks: [Block; BLOCKS],
    pieces: [Block; BLOCKS],
    trainers: Vec<Trainer>,
    gone: Vec<InHand>,
    sent: Vec<Report>,
    granted: u64,
    routing_version: u64,
    now: Duration,
    names: u64,
}

impl Job {
    fn new(positions: u64, window: u64, trainers: u64) -> Job {
        let trainer = |name| Trainer { name: Incarnation(name), is_live: true, tasks: Vec::new() };
        let block = || Block { times: vec![0; positions as usize], ..Block::default() };
        Job {
            positions,
            window,
            runs: Runs::new(course(positions), window, TTL, LeaseId(1)),
            word: Word::default(),
            blocks: std::array::from_fn(|_| block()),
            pieces: std::array::from_fn(|_| block()),
            trainers: (1..=trainers).map(trainer).collect(),
            gone: Vec::new(),
            sent: Vec::new(),
            granted: 0,
            routing_version: 0,
            now: at(0),
            names: trainers,
        }
    }

    fn happen(&mut self, event: Event) {
        let count = self.trainers.len();
        match event {
            Event::Call { trainer, want, is_lost } => self.call(trainer % count, want, is_lost),
            Event::Heartbeat { trainer } => self.heartbeat(trainer % count),
            Event::Compute { trainer, task, microbatches } => {
                let rewinds = self.rewinds();
                if let Some(task) = nth(&mut self.trainers[trainer % count].tasks, task) {
                    task.compute(microbatches, rewinds);
                }
            }
            Event::Push { trainer, task, blocks } => {
                if let Some(task) = nth(&mut self.trainers[trainer % count].tasks, task) {
                    task.push(&mut self.blocks, blocks, true);
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
                self.runs.lose(self.trainers[trainer % count].name, &self.word);
            }
            Event::Return { trainer } => self.trainers[trainer % count].is_live = true,
            Event::Leave { trainer } => self.leave(trainer % count),
            Event::LatePush { task, blocks } => {
                if let Some(task) = nth(&mut self.gone, task) {
                    task.push(&mut self.blocks, blocks, false);
                }
            }
            Event::Report { block } => self.report(block % BLOCKS),
            Event::Deliver { report } => self.deliver(report),
            Event::DropReport { report } if !self.sent.is_empty() => {
                self.sent.remove(report % self.sent.len());
            }
            Event::DropReport { .. } => {}
            Event::Save { block } => {
                self.pieces[block] = self.blocks[block].clone();
                self.word.0[block].piece = self.blocks[block].ledger.clone();
            }
            Event::Restore { block } => {
                self.blocks[block] = self.pieces[block].clone();
                self.blocks[block].rewind = self.new_term(block);
            }
            Event::Promote { block } => {
                self.new_term(block);
            }
            Event::Wait { millis } => self.wait(at(millis)),
        }
        self.check();
    }

    fn rewinds(&self) -> [u64; BLOCKS] {
        std::array::from_fn(|block| self.blocks[block].rewind)
    }

    /// A block's term changes, and the master forgets its ledger.
    fn new_term(&mut self, block: usize) -> u64 {
        self.routing_version += 1;
        self.blocks[block].term = self.routing_version;
        self.word.0[block].term = self.routing_version;
        self.word.0[block].newest = None;
        self.runs.relack();
        self.routing_version
    }

    fn report(&mut self, block: usize) {
        let Block { term, ledger, times, .. } = &self.blocks[block];
        let updates = times.iter().sum();
        self.sent.push(Report { block, term: *term, updates, ledger: ledger.clone() });
    }

    /// Words of another term count for nothing, nor do overtaken ones.
    fn deliver(&mut self, report: usize) {
        if self.sent.is_empty() {
            return;
        }
        let Report { block, term, updates, ledger } = self.sent.remove(report % self.sent.len());
        let heard = &mut self.word.0[block];
        if term == heard.term && heard.newest.as_ref().is_none_or(|(newest, _)| *newest <= updates) {
            heard.newest = Some((updates, ledger));
        }
    }

    /// Time passes; as the master does, leases are expired when they are due.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        let (before, due) = (format!("{:?}", self.runs), self.runs.next_deadline());
        let count = self.runs.leases.len();
        self.runs.expire(self.now, &self.word);
        if due.is_some_and(|due| due <= self.now) {
            assert!(self.runs.leases.len() < count, "a deadline was due and nothing was done");
        } else {
            assert_eq!(format!("{:?}", self.runs), before, "expiry acts before its deadline {due:?}");
        }
        assert!(self.runs.next_deadline().is_none_or(|due| due > self.now));
    }

    /// A trainer says how far it is and which leases it knows, as every call does.
    fn heartbeat(&mut self, trainer: usize) {
        let Trainer { name, is_live, tasks } = &mut self.trainers[trainer];
        if !*is_live {
            return;
        }
        let words: Vec<Progress> = tasks.iter().map(InHand::word).collect();
        self.runs.progress(*name, &words, self.now);
        self.runs.forget_unknown(*name, &words, &self.word);
        tasks.retain(|task| !task.word().pushed);
    }

    fn call(&mut self, trainer: usize, want: u32, is_lost: bool) {
        self.heartbeat(trainer);
        let (name, is_live) = (self.trainers[trainer].name, self.trainers[trainer].is_live);
        if !is_live {
            return;
        }
        let front = self.word.front();
        let window = front.map_or(0..0, |front| front..self.positions.min(front + self.window));
        let is_leased = |at: &u64| self.runs.leases.values().any(|lease| lease.run.contains(at));
        let mut free: BTreeSet<u64> =
            window.filter(|at| self.word.lacks(*at)).filter(|at| !is_leased(at)).collect();
        let live = self.trainers.iter().filter(|trainer| trainer.is_live).count();
        let grants = self.runs.lease(name, live as u32, want, self.now, &self.word);
        self.granted += grants.len() as u64;
        for grant in &grants {
            assert!(grant.count >= 1 && u64::from(grant.count) <= RUN_MAX, "{grant:?}");
            for position in grant.first..grant.first + u64::from(grant.count) {
                assert!(free.remove(&position), "{grant:?} was not free at {position}");
            }
        }
        let in_hand = self.runs.in_hand(name);
        assert!(grants.len() <= want as usize && in_hand <= IN_HAND_MAX);
        let is_idle = want > 0 && in_hand == 0;
        assert!(!is_idle || free.is_empty(), "{free:?} stay free although an idle trainer asks");
        if !is_lost {
            let fresh = |grant| InHand { grant, computed: vec![], answered: BTreeSet::new(), lies: false };
            self.trainers[trainer].tasks.extend(grants.into_iter().map(fresh));
        }
    }

    fn work(&mut self, trainer: usize) {
        let rewinds = self.rewinds();
        for task in &mut self.trainers[trainer].tasks {
            task.compute(u32::MAX, rewinds);
            // What is refused the first time is computed anew.
            task.push(&mut self.blocks, u8::MAX, true);
            task.push(&mut self.blocks, u8::MAX, true);
        }
    }

    fn leave(&mut self, trainer: usize) {
        self.heartbeat(trainer);
        self.names += 1;
        let next = Trainer { name: Incarnation(self.names), is_live: true, tasks: Vec::new() };
        let left = std::mem::replace(&mut self.trainers[trainer], next);
        self.runs.hand_back(left.name, &self.word);
        assert_eq!(self.runs.in_hand(left.name), 0);
        self.gone.extend(left.tasks);
    }

    /// What holds at all times.
    fn check(&self) {
        let Runs { leases, by_first, by_renewal, workers, lanes, .. } = &self.runs;
        assert!(lanes.count() <= workers.len());
        assert_eq!(self.runs.counters().leased, self.granted);
        assert!(self.blocks.iter().flat_map(|block| &block.times).all(|times| *times <= 1), "applied twice");
        let mut silent = self.trainers.iter().filter(|trainer| !trainer.is_live);
        assert!(silent.all(|trainer| self.runs.in_hand(trainer.name) == 0), "the silent hold nothing");
        let mut end = 0;
        for id in by_first.values() {
            assert!(leases[id].run.start >= end, "two leases share a position");
            end = leases[id].run.end;
        }
        let renewals: BTreeSet<_> = leases.iter().map(|(id, lease)| (lease.renewed, *id)).collect();
        assert_eq!((by_first.len(), by_renewal), (leases.len(), &renewals));
        let in_hand: BTreeSet<_> = workers.values().flat_map(|worker| worker.in_hand.clone()).collect();
        let not_pushed = leases.iter().filter(|(_, lease)| !lease.pushed).map(|(id, _)| *id).collect();
        assert_eq!(in_hand, not_pushed);
        assert!(workers.keys().all(|name| self.trainers.iter().any(|trainer| trainer.name == *name)));
    }

    /// From here on one trainer lives, asks, computes and pushes; the others are silent. The job must end (P4).
    fn finish(&mut self) {
        let (silent, ttl_over) = (1..self.trainers.len(), self.now + TTL);
        self.trainers[0].is_live = true;
        self.trainers[0].tasks.iter_mut().for_each(|task| task.lies = false);
        self.sent.clear();
        let (mut calls, mut since, mut front) = (0, self.now, None);
        while !self.runs.is_done(&self.word) {
            if self.now >= ttl_over {
                silent.clone().for_each(|trainer| self.happen(Event::Lose { trainer }));
            }
            self.happen(Event::Call { trainer: 0, want: 2, is_lost: false });
            self.happen(Event::Work { trainer: 0 });
            for block in 0..BLOCKS {
                self.happen(Event::Report { block });
                self.happen(Event::Deliver { report: 0 });
            }
            calls += 1;
            if self.word.front() > front {
                (since, front) = (self.now, self.word.front());
            } else if self.trainers[0].tasks.is_empty() {
                self.happen(Event::Wait { millis: 100 });
            }
            assert!(self.now <= since + 2 * TTL + at(100), "front {front:?} stands still: {self:#?}");
            assert!(calls <= 2 * self.positions + 100, "{calls} calls for {} positions", self.positions);
        }
        for block in &self.blocks {
            assert!(block.ledger.is_full(self.positions) && block.times.iter().all(|times| *times == 1));
        }
    }
}

impl InHand {
    fn word(&self) -> Progress {
        let pushed = self.lies || self.answered.len() == BLOCKS * self.grant.count as usize;
        Progress { lease: self.grant.lease, microbatches: self.computed.len() as u32, pushed, waits: false }
    }

    fn compute(&mut self, microbatches: u32, rewinds: [u64; BLOCKS]) {
        let computed = (self.computed.len() as u32).saturating_add(microbatches).min(self.grant.count);
        self.computed.resize(computed as usize, rewinds);
    }

    /// What is computed reaches the blocks of `mask`. A block that has it answers all the same; one that was restored
    /// since it was computed refuses it, and then a live trainer computes it anew.
    fn push(&mut self, blocks: &mut [Block; BLOCKS], mask: u8, computes_anew: bool) {
        let rewinds: [u64; BLOCKS] = std::array::from_fn(|block| blocks[block].rewind);
        for (offset, computed_from) in self.computed.iter_mut().enumerate() {
            let position = self.grant.first + offset as u64;
            let masked = blocks.iter_mut().enumerate().filter(|(at, _)| mask & (1 << at) != 0);
            let mut is_refused = false;
            for (at, block) in masked {
                if computed_from[at] != block.rewind {
                    is_refused = true;
                    continue;
                }
                self.answered.insert((offset, at));
                if block.ledger.insert(position) {
                    block.times[position as usize] += 1;
                }
            }
            if is_refused && computes_anew {
                *computed_from = rewinds;
            }
        }
    }
}

fn nth<T>(of: &mut [T], at: usize) -> Option<&mut T> {
    let count = of.len();
    of.get_mut(at % count.max(1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_happens_nothing_is_stranded_and_one_honest_trainer_finishes_the_job(
        positions in 1u64..80, window in 1u64..40, trainers in 1u64..6,
        events in proptest::collection::vec(event(), 0..160)
    ) {
        let mut job = Job::new(positions, window, trainers);
        for event in events {
            job.happen(event);
        }
        job.finish();
    }
}
