//! Trainers of different speeds on one virtual clock: how long a step takes when one of them is slow.

use super::*;
use std::collections::VecDeque;

/// A fast trainer's microbatch, in microseconds.
const FAST: u64 = 1000;
/// How soon an idle trainer asks again.
const ASK_AGAIN: u64 = 250;
/// Which are not counted: the first shows who is slow.
const FIRST_STEPS: u64 = 2;
const STEPS: u64 = 20;

/// What of it is done, and what of that was told.
struct Task {
    grant: Grant,
    done: u32,
    told: u32,
}

struct Trainer {
    /// Microseconds for one microbatch, and when the one under way is done.
    pace: u64,
    done_at: u64,
    tasks: VecDeque<Task>,
    /// Told with the next call.
    finished: Vec<Progress>,
}

impl Trainer {
    fn words(&self) -> Vec<Progress> {
        self.tasks.iter().map(|task| done(task.grant.lease, task.told)).collect()
    }
}

/// Microbatches' times of a fast trainer that a step takes in the mean, and leases for each trainer in a step.
fn simulate(paces: &[u64], microbatches: u32) -> (f64, f64) {
    simulate_words(paces, microbatches, None)
}

/// The same, where each tells how far it is with what it has in hand only every so many microseconds, if stated.
fn simulate_words(paces: &[u64], microbatches: u32, every: Option<u64>) -> (f64, f64) {
    let steps = FIRST_STEPS + STEPS;
    let shape = shape(u64::from(microbatches) * (steps + 2), microbatches);
    let mut leases = Leases::new(shape, steps + 2, 1, Duration::from_secs(5), LeaseId(1), at(0));
    let trainer = |pace: &u64| Trainer { pace: *pace, done_at: 0, tasks: VecDeque::new(), finished: vec![] };
    let mut trainers: Vec<Trainer> = paces.iter().map(trainer).collect();
    let (mut held, mut begun) = (Held::default(), None);
    let mut agenda: BTreeSet<(u64, usize, bool)> =
        (0..paces.len()).map(|at| (at as u64 * 13, at, false)).collect();
    // Not at the same times.
    let first = |at: usize, every: u64| every + at as u64 * every / paces.len() as u64;
    agenda.extend(
        every.into_iter().flat_map(|every| (0..paces.len()).map(move |at| (first(at, every), at, true))),
    );
    let mut end = 0;
    while let Some((now, at, is_word)) = agenda.pop_first() {
        end = now;
        let (trainer, clock) = (&mut trainers[at], Duration::from_micros(now));
        if is_word {
            trainer.tasks.iter_mut().for_each(|task| task.told = task.done);
            leases.progress(Incarnation(at as u64), &trainer.words(), clock);
            agenda.insert((now + every.unwrap_or(1), at, true));
            continue;
        }
        // What it was computing is done; what was published meanwhile is worth nothing.
        if let Some(Task { grant, done, told }) = trainer.tasks.front_mut().filter(|_| trainer.done_at == now)
        {
            *done += 1;
            *told = if every.is_some() { *told } else { *done };
            if *done == grant.node.width() {
                held.0
                    .extend((grant.node.first()..grant.node.end()).filter(|_| grant.step == leases.front()));
                trainer.finished.push(Progress {
                    lease: grant.lease,
                    microbatches: *done,
                    pushed: true,
                    waits: false,
                });
                trainer.tasks.pop_front();
            }
        }
        let name = Incarnation(at as u64);
        let mut words = trainer.words();
        words.append(&mut trainer.finished);
        leases.progress(name, &words, clock);
        leases.forget_unknown(name, &words, &held);
        if held.0.len() as u32 == microbatches {
            held.0.clear();
            leases.advance(leases.front().next(), clock);
            if leases.front() == Step(FIRST_STEPS) {
                begun = Some((now, leases.counters().leased));
            } else if leases.front() == Step(steps) {
                break;
            }
        }
        trainer.tasks.retain(|task| task.grant.step >= leases.front());
        let room = 2u32.saturating_sub(trainer.tasks.len() as u32);
        let grants = leases.lease(name, paces.len() as u32, room, clock, &held);
        trainer.tasks.extend(grants.into_iter().map(|grant| Task { grant, done: 0, told: 0 }));
        trainer.tasks.make_contiguous().sort_by_key(|task| task.grant.step);
        let can_begin = trainer.tasks.front().is_some_and(|task| task.grant.step == leases.front());
        trainer.done_at = now + if can_begin { trainer.pace } else { 0 };
        agenda.insert((now + if can_begin { trainer.pace } else { ASK_AGAIN }, at, false));
    }
    let (began, leased) = begun.unwrap();
    let each = (leases.counters().leased - leased) as f64 / (STEPS as f64 * paces.len() as f64);
    ((end - began) as f64 / (STEPS * FAST) as f64, each)
}

#[test]
fn a_step_hardly_waits_for_one_slow_trainer_however_slow_it_is() {
    for fast in [2, 4, 7, 12, 40] {
        let microbatches = 8 * (fast as u32 + 1);
        let (without, _) = simulate(&vec![FAST; fast], microbatches);
        // Of one that is slower still nothing is seen but that others have done its part.
        for (slower, most) in
            [(2, 1.3), (3, 1.3), (5, 1.3), (10, 1.3), (30, 1.5), (100, 1.5), (1_000_000, 1.5)]
        {
            let mut paces = vec![FAST; fast];
            paces.insert(fast / 2, slower * FAST);
            let (with, leases) = simulate(&paces, microbatches);
            assert!(
                with <= most * without && leases <= 3.5,
                "{fast} fast, one {slower} times slower: {with}, without it {without}; {leases} leases"
            );
        }
    }
}

#[test]
fn trainers_of_one_pace_have_a_task_each_in_a_step() {
    for trainers in 1..9 {
        let (step, leases) = simulate(&vec![FAST; trainers], 8 * trainers as u32);
        assert!(step < 8.5 && leases == 1.0, "{trainers} trainers: {step} for a step, {leases} leases");
    }
}

#[test]
fn what_is_left_after_the_first_shares_goes_out_in_few_pieces() {
    // Each lease is a gradient on the wire: 64 slots among three are 16 + 4 each, and 2 more for two of them. Beside it the time
    // of a step in times of an even share.
    for (trainers, leases, time) in [(3, 8.0, 1.04), (5, 14.0, 1.03), (6, 16.0, 1.05), (7, 15.0, 1.1)] {
        let (step, each) = simulate(&vec![FAST; trainers], 64);
        let (leased, stretched) = (each * trainers as f64, step * trainers as f64 / 64.0);
        let is_close = leased <= leases && stretched <= time;
        assert!(
            is_close,
            "{trainers} trainers: {leased} leases in a step, {stretched} of an even share's time"
        );
    }
}

/// Words that come from the midst of microbatches make nobody seem faster or slower than another, or late.
#[test]
fn trainers_of_about_one_pace_whose_microbatches_take_long_have_a_task_each_in_a_step() {
    for (trainers, millis) in [(2, 100), (3, 333), (3, 700), (4, 450), (6, 150)] {
        let paces: Vec<u64> = (0..trainers).map(|at| 1000 * millis + 10 * millis * at).collect();
        let (step, leases) = simulate_words(&paces, 4 * trainers as u32, Some(1_250_000));
        let step = step * FAST as f64 / (1000 * millis) as f64;
        assert!(
            step < 4.3 && leases < 1.1,
            "{trainers} trainers, {millis} ms: {step} microbatches' time for a step, {leases} leases"
        );
    }
}

/// Four microbatches of 300 ms take three times a quarter of what a lease lives.
#[test]
fn what_takes_long_is_helped_once_its_time_is_over_and_not_before() {
    let mut leases = leases();
    let all = |lease: LeaseId| [Progress { lease, microbatches: 4, pushed: true, waits: false }];
    for trainer in [A, B] {
        let lease = take(&mut leases, trainer, 2, 0).unwrap().lease;
        leases.progress(trainer, &all(lease), at(1200));
    }
    leases.advance(Step(1), at(1200));
    let [first, second] = [A, B].map(|trainer| take(&mut leases, trainer, 2, 1200).unwrap());
    assert_eq!(nodes(&[first, second]), [(1, node(2, 0)), (1, node(2, 1))]);
    leases.progress(A, &all(first.lease), at(2400));
    assert_eq!(take(&mut leases, A, 2, 2400).unwrap().step, Step(2), "there are records to read ahead");
    assert!(leases.next_late(at(2400)).is_some_and(|late| at(2799) < late && late < at(2801)));
    assert_eq!(take(&mut leases, A, 2, 2799), None, "it is about to be done");
    let helped = take(&mut leases, A, 2, 2801).unwrap();
    assert_eq!(nodes(&[helped]), [(1, node(1, 3))]);
}
