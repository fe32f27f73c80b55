//! Trainers of different speeds on one virtual clock: who is slow has its share, and nobody waits for it for long.

use super::*;
use std::collections::VecDeque;

/// A fast trainer's microbatch, in microseconds.
const FAST: u64 = 1000;
/// How old the pservers' word is at most, and how soon an idle trainer asks again.
const REPORT: u64 = 200;
const ASK_AGAIN: u64 = 250;

struct Trainer {
    /// Microseconds for one microbatch.
    pace: u64,
    tasks: VecDeque<(Grant, u32)>,
    /// Told with the next call.
    finished: Vec<Progress>,
    applied: u64,
    chunks: BTreeSet<u64>,
}

/// What a job made of its trainers.
struct Outcome {
    /// Microbatches applied per trainer.
    applied: Vec<u64>,
    /// Microbatches computed that were applied already.
    in_vain: u64,
    /// Applied in all, over what the trainers could have computed.
    throughput: f64,
    /// Times that a trainer took up a chunk it did not have, over the chunks that were begun.
    chunk_reads: f64,
}

impl Outcome {
    /// A trainer's part of what was applied, over its part of the trainers' speed.
    fn share(&self, trainer: usize, paces: &[u64]) -> f64 {
        let speed: f64 = paces.iter().map(|pace| 1.0 / *pace as f64).sum();
        let applied: u64 = self.applied.iter().sum();
        self.applied[trainer] as f64 / applied as f64 * speed * paces[trainer] as f64
    }
}

/// Runs an endless job for `time` microseconds; chunks have `chunk` microbatches.
fn simulate(paces: &[u64], window: u64, chunk: u64, time: u64) -> Outcome {
    let mut runs = Runs::new(course(u64::MAX), window, Duration::from_secs(3600), LeaseId(1));
    let (mut applied, mut word, mut in_vain) = (Ledger::default(), Said::of(&Ledger::default()), 0);
    let mut trainers: Vec<Trainer> = paces
        .iter()
        .map(|pace| Trainer {
            pace: *pace,
            tasks: VecDeque::new(),
            finished: Vec::new(),
            applied: 0,
            chunks: BTreeSet::new(),
        })
        .collect();
    let mut agenda: BTreeSet<(u64, usize)> = (0..paces.len()).map(|at| (at as u64 * 13, at)).collect();
    agenda.insert((REPORT, usize::MAX));
    while let Some((now, at)) = agenda.pop_first().filter(|(now, _)| *now < time) {
        if at == usize::MAX {
            word = Said::of(&applied);
            agenda.insert((now + REPORT, at));
            continue;
        }
        let trainer = &mut trainers[at];
        // What it was computing since it was last on the agenda is done, and pushed.
        if let Some((grant, done)) = trainer.tasks.front_mut() {
            let position = grant.first + u64::from(*done);
            *done += 1;
            trainer.chunks.insert(position / chunk);
            let is_new = applied.insert(position);
            trainer.applied += u64::from(is_new);
            in_vain += u64::from(!is_new);
            if *done == grant.count {
                let word = Progress { lease: grant.lease, microbatches: *done, pushed: true, waits: false };
                trainer.finished.push(word);
                trainer.tasks.pop_front();
            }
        }
        let name = Incarnation(at as u64);
        let in_hand = trainer.tasks.iter();
        let mut words: Vec<Progress> = in_hand
            .map(|(grant, done)| Progress {
                lease: grant.lease,
                microbatches: *done,
                pushed: false,
                waits: false,
            })
            .collect();
        words.append(&mut trainer.finished);
        let clock = Duration::from_micros(now);
        runs.progress(name, &words, clock);
        runs.forget_unknown(name, &words, &word);
        let grants = runs.lease(name, paces.len() as u32, 2, clock, &word);
        trainer.tasks.extend(grants.into_iter().map(|grant| (grant, 0)));
        let wait = if trainer.tasks.is_empty() { ASK_AGAIN } else { trainer.pace };
        agenda.insert((now + wait, at));
    }
    let total: u64 = trainers.iter().map(|trainer| trainer.applied).sum();
    let speed: f64 = paces.iter().map(|pace| 1.0 / *pace as f64).sum();
    let begun = applied.ranges().last().map_or(applied.low(), |last| last.end).div_ceil(chunk);
    Outcome {
        applied: trainers.iter().map(|trainer| trainer.applied).collect(),
        in_vain,
        throughput: total as f64 / (time as f64 * speed),
        chunk_reads: trainers.iter().map(|trainer| trainer.chunks.len() as f64).sum::<f64>() / begun as f64,
    }
}

/// `fast` trainers and one that is so many times slower.
fn one_slow(fast: usize, slower: u64) -> Vec<u64> {
    let mut paces = vec![FAST; fast];
    paces.push(slower * FAST);
    paces
}

#[test]
fn one_trainer_ten_times_slower_has_its_share_and_holds_the_others_up_only_where_the_window_is_narrow() {
    // Positions of the window for each trainer, and what is left of the trainers' speed.
    for (each, least) in [(2, 0.3), (4, 0.6), (8, 0.95), (16, 0.98), (64, 0.98)] {
        for fast in [1, 3, 9, 20] {
            let paces = one_slow(fast, 10);
            let outcome = simulate(&paces, each * paces.len() as u64, 32, 400 * FAST);
            let (share, throughput) = (outcome.share(fast, &paces), outcome.throughput);
            assert!(share >= 0.9, "{fast} fast, {each} each: the slow one has {share} of its share");
            assert!(throughput >= least, "{fast} fast, {each} each: {throughput} of the speed");
            assert_eq!(outcome.in_vain, 0);
        }
    }
}

#[test]
fn a_trainer_forty_times_slower_does_not_have_the_front_wait_for_a_lane_of_its_own() {
    let paces = one_slow(1, 40);
    let outcome = simulate(&paces, 32, 32, 1000 * FAST);
    assert!(outcome.throughput >= 0.9, "{}", outcome.throughput);
}

#[test]
fn in_a_wide_window_trainers_stay_in_their_chunks() {
    // Four runs to a chunk: in turn, four trainers would read each.
    let outcome = simulate(&[FAST; 8], 8 * 512, 64, 1000 * FAST);
    assert!(outcome.chunk_reads <= 1.5, "each chunk is read by {} trainers", outcome.chunk_reads);
    let narrow = simulate(&[FAST; 8], 8 * 4, 64, 1000 * FAST);
    assert!(narrow.chunk_reads >= 6.0, "the same measure is worse where it must be: {}", narrow.chunk_reads);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn whatever_their_speeds_every_trainer_has_its_share_of_what_is_applied(
        paces in proptest::collection::vec(FAST..10 * FAST, 1..12), each in 8u64..64
    ) {
        let outcome = simulate(&paces, each * paces.len() as u64, 32, 400 * FAST);
        for trainer in 0..paces.len() {
            let share = outcome.share(trainer, &paces);
            prop_assert!(share >= 0.8, "trainer {} of {:?} has {} of its share", trainer, paces, share);
        }
        // In so short a time the first runs, which show the pace, count.
        prop_assert!(outcome.throughput >= 0.75 && outcome.in_vain == 0, "{}", outcome.throughput);
    }
}

/// Questions to the pservers' word for each lease call, and what is kept, in an undisturbed job that has begun at
/// `begin`: `trainers` of equal speed, each of which has finished a run whenever it asks.
fn costs(begin: u64, window: u64, trainers: u64) -> (f64, usize) {
    let mut runs = Runs::new(course(u64::MAX), window, TTL, LeaseId(1));
    let mut ledger = Ledger::from_parts(begin, []).unwrap();
    let mut held: Vec<VecDeque<Grant>> = vec![VecDeque::new(); trainers as usize];
    let (mut asked, mut calls, mut kept) = (0, 0, 0);
    for round in 1..20 {
        for (name, held) in (1..).map(Incarnation).zip(&mut held) {
            if let Some(done) = held.pop_front() {
                (done.first..done.first + u64::from(done.count)).for_each(|at| assert!(ledger.insert(at)));
                runs.progress(name, &[pushed(done)], at(100 * round));
            }
            let said = Said::of(&ledger);
            held.extend(runs.lease(name, trainers as u32, 2, at(100 * round), &said));
            (asked, calls) = (asked + said.asked.get(), calls + 1);
        }
        kept = kept.max(runs.leases.len() + runs.leased_before.ranges().count());
    }
    (asked as f64 / calls as f64, kept)
}

#[test]
fn a_lease_call_costs_the_same_in_any_data_set_and_hardly_more_in_a_wider_window_or_among_more_trainers() {
    assert_eq!(costs(1 << 10, 256, 16), costs(1 << 20, 256, 16));
    assert_eq!(costs(1 << 10, 256, 16), costs(1 << 40, 256, 16));
    for (window, trainers) in [(128, 16), (1024, 16), (8192, 16), (1024, 128), (8192, 128), (8192, 1024)] {
        let (asked, kept) = costs(0, window, trainers);
        assert!(asked <= 4.0, "{asked} questions in a window of {window} among {trainers}");
        assert!(kept as u64 <= window / 4 + 4 * trainers, "{kept} kept of {window} among {trainers}");
    }
}

#[test]
fn an_idle_trainer_costs_no_search() {
    let mut runs = Runs::new(course(u64::MAX), 2000, TTL, LeaseId(1));
    let said = applied(0, (0..1000).map(|at| 2 * at + 1));
    let leased = (1..=1000).filter_map(|trainer| take(&mut runs, Incarnation(trainer), 1000, 0, &said));
    assert_eq!(leased.count(), 1000);
    assert_eq!(take(&mut runs, Incarnation(0), 1000, 0, &said), None);
    said.asked.set(0);
    assert_eq!(take(&mut runs, Incarnation(0), 1000, 0, &said), None);
    assert!(said.asked.get() <= 2, "{}", said.asked.get());
}
