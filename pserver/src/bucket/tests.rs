//! Buckets against a model that keeps whole versions in maps and has no slots; copies that are filled while updates go on;
//! layouts that differ.

mod refused;

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{
    BlockCopy, BlockId, Ledger, Parameter, Rewind, Rule, Schedule, StateName, Table, Term, Version,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const DIMENSION: usize = 2;
const RULE: Rule = Rule::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-3 };

fn shape(table: Table) -> BucketShape {
    let initial = Initial::Uniform { limit: 1.0 };
    let parameter = Parameter::new("t", &[DIMENSION as u64], RULE, Schedule::constant(0.1), initial);
    BucketShape::new(7, &parameter.as_table(table), 0).unwrap()
}

fn pass(update: u64) -> Pass {
    Pass { weight: 3.0, rate: 0.1, scale: 1.0, weight_decay: 0.01, update }
}

/// Occurrences of keys, and gradients that differ from update to update.
fn rows(update: u64, keys: &[u64]) -> Rows {
    let mut rows = Rows::zeros(DIMENSION, keys.iter().copied());
    for (at, value) in rows.values_mut().iter_mut().enumerate() {
        *value = libm::sinf(update as f32 + at as f32 * 0.7) * 5.0;
    }
    rows
}

/// A row as bits: embedding and slots, last update, occurrences.
type Bits = (Vec<u32>, u32, u32);

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// All that a bucket's rows are, whatever their slots.
fn content(bucket: &Bucket) -> BTreeMap<u64, Bits> {
    let rows = bucket.arena.rows_from(0);
    rows.map(|(_, row)| (row.key, (bits(row.values), row.last, row.occurrences))).collect()
}

/// The definition, with whole versions.
#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<u64, (Vec<f32>, u32, u32)>,
    candidates: BTreeMap<u64, u32>,
    refused: u32,
}

impl Model {
    fn update(&mut self, table: &Table, shape: &BucketShape, sums: &Rows, update: u64) {
        let now = update as u32;
        let occurs: BTreeSet<u64> = sums.keys().iter().copied().collect();
        let period = table.age_max.map(|age_max| (age_max / 8).max(1));
        if period.is_some_and(|period| update.is_multiple_of(u64::from(period))) {
            let age_max = table.age_max.unwrap();
            self.rows.retain(|key, (_, last, _)| occurs.contains(key) || now - *last <= age_max);
        }
        let is_admitted = |key: &u64, count: &u32| {
            let before = self.candidates.get(key).copied().unwrap_or(0);
            !self.rows.contains_key(key) && before + count >= u32::from(table.admission)
        };
        let counted = sums.keys().iter().zip(sums.counts());
        let mut wanted: Vec<u64> =
            counted.filter(|(key, count)| is_admitted(key, count)).map(|(key, _)| *key).collect();
        self.refused = self.make_room(table, &occurs, &mut wanted, now);
        for (at, (key, count)) in sums.keys().iter().zip(sums.counts()).enumerate() {
            if wanted.contains(key) {
                let mut values = vec![0.0; shape.width];
                shape.initial(*key, &mut values[..DIMENSION]);
                self.rows.insert(*key, (values, now, 0));
                self.candidates.remove(key);
            }
            match self.rows.get_mut(key) {
                Some((values, last, occurrences)) => {
                    let missed = u64::from((now - *last).saturating_sub(1));
                    *occurrences = halved(table, *occurrences, now - *last) + count;
                    *last = now;
                    let (row, slots) = values.split_at_mut(DIMENSION);
                    let mut sum = sums.values()[at * DIMENSION..][..DIMENSION].to_vec();
                    RowPass::new(RULE, pass(update)).run(missed, row, slots, &mut sum);
                }
                None if table.admission > 1 => *self.candidates.entry(*key).or_default() += count,
                None => {}
            }
        }
    }

    /// Keeps those of the wanted keys that get a row, and says how many do not.
    fn make_room(&mut self, table: &Table, occurs: &BTreeSet<u64>, wanted: &mut Vec<u64>, now: u32) -> u32 {
        let Some(Ceiling { rows, full }) = table.ceiling else { return 0 };
        let too_many = (self.rows.len() + wanted.len()).saturating_sub(rows as usize);
        if too_many > 0 && full != Full::Refuse {
            let score = |(key, (_, last, occurrences)): (&u64, &(Vec<f32>, u32, u32))| {
                (halved(table, *occurrences, now - *last), *last, *key)
            };
            let mut order: Vec<(u32, u32, u64)> =
                self.rows.iter().filter(|(key, _)| !occurs.contains(key)).map(score).collect();
            order.sort_unstable();
            for (_, _, key) in order.into_iter().take(too_many.max(rows as usize / 16)) {
                self.rows.remove(&key);
            }
        }
        let room = (rows as usize).saturating_sub(self.rows.len());
        let refused = wanted.len().saturating_sub(room);
        wanted.truncate(room);
        refused as u32
    }

    fn content(&self) -> BTreeMap<u64, Bits> {
        self.rows.iter().map(|(key, (values, last, seen))| (*key, (bits(values), *last, *seen))).collect()
    }
}

fn halved(table: &Table, occurrences: u32, age: u32) -> u32 {
    match table.ceiling {
        Some(Ceiling { full: Full::Evict { half_life }, .. }) => {
            (0..age / half_life).fold(occurrences, |occurrences, _| occurrences / 2)
        }
        _ => occurrences,
    }
}

/// What a read of keys says of each: its row as bits, if it has one.
fn read(shape: &BucketShape, bucket: &Bucket, back: usize, keys: &[u64]) -> Vec<Option<Vec<u32>>> {
    let mut bytes = vec![0xee];
    bucket.read(shape, back, keys, &mut bytes);
    let (has_row, rows) = bytes[1..].split_at(keys.len().div_ceil(8));
    let mut rows = rows.chunks_exact(4 * DIMENSION);
    let read = (0..keys.len()).map(|at| {
        let row = (has_row[at / 8] >> (at % 8) & 1 == 1).then(|| rows.next().unwrap())?;
        Some(row.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    });
    let read = read.collect();
    assert!(rows.next().is_none());
    read
}

/// One update of a bucket, by the entry that a follower is given.
fn follow(shape: &BucketShape, bucket: &mut Bucket, sums: &Rows, plan: &Plan, update: u64) {
    let mut bytes = Vec::new();
    plan.encode(&mut bytes);
    let heard = Plan::decode(&bytes, sums.len()).unwrap();
    assert_eq!(&heard, plan);
    bucket.check(shape, sums, &heard).unwrap();
    bucket.apply(shape, sums.clone(), &heard, pass(update));
}

#[derive(Clone, Debug)]
enum Turn {
    Update(Vec<u64>),
    /// Idle, with `n` earlier versions kept.
    Rest(usize),
    /// The follower is given a segment of so many bytes; or it begins anew.
    Fill(usize),
    Anew,
    /// The present version begins to be given out, or its next segment is given.
    Give(usize),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let keys = proptest::collection::vec(0u64..24, 0..10);
    let turn = prop_oneof![
        6 => keys.prop_map(Turn::Update),
        1 => (0usize..4).prop_map(Turn::Rest),
        3 => (1usize..200).prop_map(Turn::Fill),
        1 => Just(Turn::Anew),
        3 => (1usize..200).prop_map(Turn::Give),
    ];
    proptest::collection::vec(turn, 1..60)
}

fn tables() -> impl Strategy<Value = Table> {
    let full = prop_oneof![Just(Full::Refuse), (1u32..6).prop_map(|half_life| Full::Evict { half_life })];
    let ceiling = (1u32..20, full).prop_map(|(rows, full)| Ceiling { rows, full });
    let parts = (1u8..5, proptest::option::of(1u32..20), proptest::option::of(ceiling));
    parts.prop_map(|(admission, age_max, ceiling)| Table { buckets: 1, admission, age_max, ceiling })
}

/// A bucket, what it should be, and those that are given of it.
struct Play {
    table: Table,
    shape: BucketShape,
    bucket: Bucket,
    follower: Option<Bucket>,
    /// Of what is given out the version, how many before it are kept, and what was given so far.
    giving: Option<(usize, usize, Option<Bucket>)>,
    /// Every version so far, the newest last.
    versions: Vec<Model>,
    update: u64,
}

impl Play {
    fn new(table: Table) -> Play {
        let shape = shape(table);
        let (bucket, versions) = (Bucket::new(&shape), vec![Model::default()]);
        Play { table, bucket, follower: None, giving: None, versions, update: 0, shape }
    }

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Update(keys) => self.update(&keys),
            Turn::Rest(earlier) => {
                self.update += 1;
                self.versions.push(self.versions.last().unwrap().clone());
                for bucket in std::iter::once(&mut self.bucket).chain(&mut self.follower) {
                    bucket.rest();
                    bucket.release(earlier);
                }
            }
            Turn::Anew => self.follower = None,
            Turn::Fill(bytes) => {
                let from = self.follower.as_ref().map_or(0, Bucket::filled);
                if from != WHOLE {
                    let segment = self.bucket.segment(&self.shape, head(), from, bytes, 9);
                    take(&self.shape, &mut self.follower, &segment);
                }
            }
            Turn::Give(bytes) => self.give(bytes),
        }
    }

    fn update(&mut self, keys: &[u64]) {
        self.update += 1;
        let sums = rows(self.update, keys);
        let mut next = self.versions.last().unwrap().clone();
        next.update(&self.table, &self.shape, &sums, self.update);
        let plan = self.bucket.plan(&self.shape, &sums, &pass(self.update));
        assert_eq!(plan.refused, next.refused);
        for bucket in std::iter::once(&mut self.bucket).chain(&mut self.follower) {
            follow(&self.shape, bucket, &sums, &plan, self.update);
        }
        self.versions.push(next);
    }

    fn give(&mut self, bytes: usize) {
        let Some((version, earlier, given)) = &mut self.giving else {
            self.bucket.begin_giving(None, None, 2);
            self.giving = Some((self.versions.len() - 1, self.bucket.earlier().min(2), None));
            return;
        };
        let segment = self.bucket.give_segment(&self.shape, &head(), bytes).unwrap();
        take(&self.shape, given, &segment);
        let Some(given) = given.take_if(|given| given.is_whole()) else { return };
        assert_eq!((self.bucket.give_segment(&self.shape, &head(), 1), self.bucket.saved_bytes()), (None, 0));
        assert_eq!(given.earlier(), *earlier);
        let version = *version;
        self.check_versions(&given, version);
        self.giving = None;
    }

    /// A bucket is that version, and its earlier ones are those before it.
    fn check_versions(&self, bucket: &Bucket, version: usize) {
        let keys: Vec<u64> = (0..26).collect();
        assert_eq!(content(bucket), self.versions[version].content());
        let counted = keys.iter().map(|key| (*key, u32::from(bucket.candidates.count(*key))));
        let counted: BTreeMap<u64, u32> = counted.filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, self.versions[version].candidates);
        for back in 0..=bucket.earlier().min(version).min(9) {
            let then = &self.versions[version - back];
            let row = |key: &u64| then.rows.get(key).map(|row| bits(&row.0[..DIMENSION]));
            let expected: Vec<Option<Vec<u32>>> = keys.iter().map(row).collect();
            assert_eq!(read(&self.shape, bucket, back, &keys), expected, "{back} back");
        }
    }

    fn check(&self) {
        let slots = |bucket: &Bucket| -> Vec<(Slot, u64)> {
            bucket.arena.rows_from(0).map(|(slot, row)| (slot, row.key)).collect()
        };
        let whole = self.follower.as_ref().filter(|follower| follower.is_whole());
        for bucket in std::iter::once(&self.bucket).chain(whole) {
            self.check_versions(bucket, self.versions.len() - 1);
            assert_eq!(slots(bucket), slots(&self.bucket));
        }
    }
}

/// What copies of a bucket have in common, before a segment is put in.
fn head() -> BlockCopy {
    let name = StateName { term: Term(1), version: Version(0) };
    BlockCopy {
        block: BlockId(0),
        rewind: Rewind(1),
        name,
        published: Version(0),
        parameters: Bytes::new(),
        earlier: Vec::new(),
        slots: Vec::new(),
        ledger: Ledger::default(),
        segment: None,
    }
}

/// A copy takes in the segment that comes next.
fn take(shape: &BucketShape, copy: &mut Option<Bucket>, segment: &BlockCopy) {
    match copy {
        None => *copy = Some(Bucket::begin(shape, segment).unwrap()),
        Some(copy) => copy.fill(shape, segment).unwrap(),
    }
}

/// Rows as short as they get, a sweep by age and one for room in the same update.
#[test]
fn an_update_evicts_by_age_and_by_score_together_no_more_than_its_entry_may_name() {
    const ROWS: u64 = 600_000;
    let ceiling = Some(Ceiling { rows: ROWS as u32, full: Full::Evict { half_life: 3 } });
    let table = Table { buckets: 1, age_max: Some(8), ceiling, ..Table::default() };
    let initial = Initial::Zeros;
    let parameter = Parameter::new("t", &[1], Rule::Sgd, Schedule::constant(0.1), initial);
    let shape = BucketShape::new(7, &parameter.as_table(table), 0).unwrap();
    let mut bucket = Bucket::new(&shape);
    let mut update = |number: u64, keys: Range<u64>| {
        let rows = Rows::zeros(1, keys);
        let plan = bucket.plan(&shape, &rows, &pass(number));
        let mut entry = Vec::new();
        shoal_runtime::wire::rows::encode(&rows, &mut entry);
        plan.encode(&mut entry);
        let most = bucket.evicts_at_most(&shape, number, rows.len());
        let evicted = plan.evicted.len();
        assert!(evicted <= most, "{evicted} of {most}");
        bucket.apply(&shape, rows, &plan, pass(number));
        (evicted, entry.len())
    };
    update(1, 0..ROWS);
    let (evicted, bytes) = update(20, ROWS..ROWS + 700_000);
    assert_eq!(evicted, 1 << 18);
    assert!(bytes < 20 << 20, "{bytes}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn a_bucket_and_its_copies_are_what_the_definition_says(table in tables(), turns in turns()) {
        let mut play = Play::new(table);
        for turn in turns {
            play.turn(turn);
            play.check();
        }
    }

    #[test]
    fn where_rows_lie_decides_nothing_about_them(table in tables(), updates in proptest::collection::vec(proptest::collection::vec(0u64..24, 0..10), 2..40)) {
        let shape = shape(table);
        let (mut straight, mut moved) = (Bucket::new(&shape), None);
        for (keys, update) in updates.iter().zip(1..) {
            if update == 1 + updates.len() as u64 / 2 {
                moved = Some(turned_over(&shape, &straight));
            }
            for bucket in std::iter::once(&mut straight).chain(&mut moved) {
                let sums = rows(update, keys);
                let plan = bucket.plan(&shape, &sums, &pass(update));
                bucket.apply(&shape, sums, &plan, pass(update));
            }
        }
        if let Some(moved) = moved {
            prop_assert_eq!(content(&moved), content(&straight));
            prop_assert_eq!(moved.candidates, straight.candidates);
        }
    }
}

/// The same rows in slots that descend where they ascended, with gaps.
fn turned_over(shape: &BucketShape, bucket: &Bucket) -> Bucket {
    let mut turned = Bucket { candidates: bucket.candidates.clone(), ..Bucket::new(shape) };
    for (slot, row) in bucket.arena.rows_from(0) {
        let moved = turned.arena.insert(300 - 3 * slot, row.key).unwrap();
        (*moved.last, *moved.occurrences) = (row.last, row.occurrences);
        moved.values.copy_from_slice(row.values);
    }
    turned
}
