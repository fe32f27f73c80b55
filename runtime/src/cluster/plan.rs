//! The epoch plan: which records make which microbatch, and which microbatches make which step.
//!
//! A plan is a function of (manifest, settings) alone, never of who computes it.
//!
//! An epoch's *shuffled order* lists the chunks in a permuted order, and inside each chunk its runs of
//! `shuffle_run` records in a permuted order. Microbatch `k` is the `k`-th stretch of `microbatch_records` records
//! of that order. A step takes one microbatch from each of M *lanes*: lane `i` is a contiguous stretch of the
//! order, and step `t` takes the lane's `t`-th microbatch. So a step mixes M distant places of the data set, while
//! a trainer that keeps its lanes reads each chunk about once.
//!
//! Evaluated data follow those that are trained on in the manifest, and are read in the order of their records.

use super::manifest::Manifest;
use super::permutation::{Permutation, key};
use super::task::{Microbatch, Slice};
use super::tree::StepTree;
use super::{JobSettings, JobShape, Pass, Step};

const CHUNK_ORDER: u64 = 1;
const RUN_ORDER: u64 = 2;
/// A prefix sum is stored for every so many chunks; between two of them the permutation is walked.
const CHUNKS_PER_PREFIX: u64 = 16;

/// How one epoch is cut: the same in every epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochShape {
    records: u64,
    microbatch_records: u32,
    slots: u32,
}

impl EpochShape {
    /// The shape of an epoch over `records` records.
    pub fn new(records: u64, microbatch_records: u32, microbatches_per_step: u32) -> EpochShape {
        assert!(microbatch_records >= 1 && microbatches_per_step >= 1, "an empty microbatch or step");
        EpochShape { records, microbatch_records, slots: microbatches_per_step }
    }
    /// Microbatches in an epoch; the last may be short.
    pub fn microbatches(&self) -> u64 {
        self.records.div_ceil(u64::from(self.microbatch_records))
    }
    /// Microbatches in a step (M); the last of an epoch may have fewer.
    pub fn slots(&self) -> u32 {
        self.slots
    }
    /// Steps in an epoch; the last may be short.
    pub fn steps(&self) -> u64 {
        self.microbatches().div_ceil(u64::from(self.slots))
    }
    /// The epoch of a step; there must be one.
    pub fn epoch(&self, step: Step) -> u64 {
        step.0 / self.steps()
    }
    /// The tree of a step: absence is a function of the plan.
    pub fn tree(&self, step: Step) -> StepTree {
        let within = step.0 % self.steps();
        let before = within * u64::from(self.slots);
        let present = (self.microbatches() - before).min(u64::from(self.slots)) as u32;
        StepTree::new(self.slots, present)
    }
    /// The microbatch (index in the epoch's shuffled order) that fills a present slot of a step.
    pub fn microbatch(&self, step: Step, slot: u32) -> u64 {
        debug_assert!(slot < self.tree(step).present());
        let (full, rest) =
            (self.microbatches() / u64::from(self.slots), self.microbatches() % u64::from(self.slots));
        u64::from(slot) * full + u64::from(slot).min(rest) + step.0 % self.steps()
    }
    /// The records of a microbatch, as positions in the epoch's shuffled order.
    pub fn positions(&self, microbatch: u64) -> std::ops::Range<u64> {
        let first = microbatch * u64::from(self.microbatch_records);
        first..(first + u64::from(self.microbatch_records)).min(self.records)
    }
}

/// The plan of a whole job over one data set.
#[derive(Debug)]
pub struct Plan {
    manifest: Manifest,
    settings: JobSettings,
    shape: JobShape,
    /// Two, because leasing looks one step ahead, over an epoch's end.
    orders: [Option<EpochOrder>; 2],
    evaluated: Option<ChunkList>,
}

#[derive(Debug)]
struct EpochOrder {
    epoch: u64,
    chunks: ChunkList,
}

/// The chunks of one pass in their order, with prefix sums of records at every [`CHUNKS_PER_PREFIX`]th place.
#[derive(Debug)]
struct ChunkList {
    order: ListOrder,
    records_before: Vec<u64>,
}

#[derive(Debug)]
enum ListOrder {
    /// The first chunks of the manifest.
    Permuted(Permutation),
    /// From this one on, as they lie.
    From(u32),
}

impl Plan {
    /// The plan of `settings` over `manifest`, whose record count must be the settings'.
    pub fn new(manifest: Manifest, settings: JobSettings) -> Plan {
        assert_eq!(manifest.record_count(), settings.all_records(), "the manifest is another data set's");
        let shape = settings.shape();
        Plan { manifest, settings, shape, orders: [None, None], evaluated: None }
    }
    /// The data set.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
    /// How the job is cut.
    pub fn shape(&self) -> JobShape {
        self.shape
    }

    /// The microbatch that fills `slot` of `step`, as slices of chunks.
    ///
    /// The orders of two neighbouring epochs are kept; asking for another costs one pass over the chunk counts.
    pub fn microbatch(&mut self, step: Step, slot: u32) -> Microbatch {
        let (pass, index) = self.shape.microbatch(step, slot);
        self.of_pass(pass, index)
    }

    /// The microbatch at a position of the job, as slices of chunks.
    pub fn microbatch_at(&mut self, position: u64) -> Microbatch {
        let (pass, index) = self.shape.microbatch_at(position);
        self.of_pass(pass, index)
    }

    fn of_pass(&mut self, pass: Pass, index: u64) -> Microbatch {
        let trained = self.manifest.chunks_before(self.settings.records);
        let slices = match pass {
            Pass::Epoch(epoch) => {
                let kept = self.orders[(epoch % 2) as usize].take().filter(|order| order.epoch == epoch);
                let order = kept.unwrap_or_else(|| {
                    let key = key(&[self.settings.seed, epoch, CHUNK_ORDER]);
                    let permuted = ListOrder::Permuted(Permutation::new(trained.into(), key));
                    EpochOrder { epoch, chunks: ChunkList::new(&self.manifest, permuted, trained) }
                });
                let slices = order.chunks.slices(&self.manifest, self.shape.training().positions(index));
                self.orders[(epoch % 2) as usize] = Some(order);
                slices
            }
            Pass::Evaluation(_) => {
                let rest = self.manifest.chunk_count() - trained;
                let chunks = self.evaluated.take();
                let chunks =
                    chunks.unwrap_or_else(|| ChunkList::new(&self.manifest, ListOrder::From(trained), rest));
                let slices = chunks.slices(&self.manifest, self.shape.evaluation().positions(index));
                self.evaluated = Some(chunks);
                slices
            }
        };
        Microbatch { index, slices }
    }
}

impl ChunkList {
    fn new(manifest: &Manifest, order: ListOrder, count: u32) -> ChunkList {
        let mut records_before = Vec::with_capacity((u64::from(count) / CHUNKS_PER_PREFIX + 1) as usize);
        let mut before = 0;
        for place in 0..count.into() {
            if place % CHUNKS_PER_PREFIX == 0 {
                records_before.push(before);
            }
            before += u64::from(manifest.chunk(order.chunk(place)).records);
        }
        ChunkList { order, records_before }
    }

    fn slices(&self, manifest: &Manifest, positions: std::ops::Range<u64>) -> Vec<Slice> {
        let prefix = self.records_before.partition_point(|before| *before <= positions.start) - 1;
        let mut place = prefix as u64 * CHUNKS_PER_PREFIX;
        let mut before = self.records_before[prefix];
        let mut slices = Vec::new();
        while before < positions.end {
            let index = self.order.chunk(place);
            let chunk = manifest.chunk(index);
            let after = before + u64::from(chunk.records);
            let (from, to) = (positions.start.max(before), positions.end.min(after));
            if from < to {
                slices.push(Slice {
                    chunk: index,
                    file: chunk.file.to_owned(),
                    chunk_offset: chunk.offset,
                    chunk_bytes: chunk.bytes,
                    chunk_records: chunk.records,
                    chunk_checksum: chunk.checksum,
                    chunk_first_record: chunk.first_record,
                    first_position: (from - before) as u32,
                    records: (to - from) as u32,
                });
            }
            before = after;
            place += 1;
        }
        slices
    }
}

impl ListOrder {
    fn chunk(&self, place: u64) -> u32 {
        match self {
            ListOrder::Permuted(permutation) => permutation.at(place) as u32,
            ListOrder::From(first) => first + place as u32,
        }
    }
}

/// The order of the records inside one chunk in one pass: runs of `shuffle_run` records, permuted; as they lie where it is
/// evaluated.
///
/// The short last run, where there is one, keeps a permuted place like any other.
#[derive(Clone, Copy, Debug)]
pub struct ChunkOrder {
    records: u64,
    run: u64,
    runs: Permutation,
}

impl ChunkOrder {
    /// The order of chunk `chunk` of `records` records in one pass.
    pub fn new(settings: &JobSettings, pass: Pass, chunk: u32, records: u32) -> ChunkOrder {
        let records = u64::from(records);
        let (run, epoch) = match pass {
            Pass::Epoch(epoch) => (u64::from(settings.shuffle_run.max(1)), epoch),
            Pass::Evaluation(_) => (records.max(1), 0),
        };
        let key = key(&[settings.seed, epoch, RUN_ORDER, u64::from(chunk)]);
        ChunkOrder { records, run, runs: Permutation::new(records.div_ceil(run), key) }
    }

    /// The record (index in the chunk) at `position < records` of the shuffled chunk.
    pub fn record(&self, position: u32) -> u32 {
        let position = u64::from(position);
        let short = self.records % self.run;
        if short == 0 {
            return (self.runs.at(position / self.run) * self.run + position % self.run) as u32;
        }
        let last = self.records / self.run;
        let short_place = self.runs.position_of(last);
        let short_start = short_place * self.run;
        let (place, within) = if position < short_start {
            (position / self.run, position % self.run)
        } else if position < short_start + short {
            (short_place, position - short_start)
        } else {
            let past = position - short_start - short;
            (short_place + 1 + past / self.run, past % self.run)
        };
        (self.runs.at(place) * self.run + within) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Evaluated, JobId, Mode, Period, Precision};
    use proptest::prelude::*;

    fn settings(records: u64, microbatch: u32, slots: u32, run: u32) -> JobSettings {
        JobSettings {
            job: JobId("test".into()),
            seed: 7,
            epochs: 2,
            microbatch_records: microbatch,
            microbatches_per_step: slots,
            shuffle_run: run,
            records,
            manifest_fingerprint: [0; 32],
            lease_ttl_millis: 1000,
            mode: Mode::SYNC,
            gradients: Precision::F32,
            warm_start: None,
            evaluated: None,
        }
    }

    fn manifest(chunks: &[u32]) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.push_file("f".into(), 0);
        for (index, records) in chunks.iter().enumerate() {
            manifest.push_chunk(index as u64 * 100, 100, *records, index as u32);
        }
        manifest
    }

    /// Every record of an epoch in the order in which steps and slots meet it, with the step that met it.
    fn walk(plan: &mut Plan, settings: &JobSettings, epoch: u64) -> Vec<(u64, u64)> {
        let shape = settings.shape();
        let mut seen = Vec::new();
        let steps = shape.training().steps();
        for step in (epoch * steps..(epoch + 1) * steps).map(Step) {
            for slot in 0..shape.tree(step).present() {
                for slice in plan.microbatch(step, slot).slices {
                    let order =
                        ChunkOrder::new(settings, Pass::Epoch(epoch), slice.chunk, slice.chunk_records);
                    for position in slice.first_position..slice.first_position + slice.records {
                        seen.push((step.0, slice.chunk_first_record + u64::from(order.record(position))));
                    }
                }
            }
        }
        seen
    }

    proptest! {
        #[test]
        fn every_record_is_in_exactly_one_microbatch_of_every_epoch(
            chunks in proptest::collection::vec(0u32..40, 1..200), microbatch in 1u32..9, slots in 1u32..20, run in 1u32..6
        ) {
            let manifest = manifest(&chunks);
            prop_assume!(manifest.record_count() > 0);
            let settings = settings(manifest.record_count(), microbatch, slots, run);
            let mut plan = Plan::new(manifest, settings.clone());
            for epoch in 0..2 {
                let mut records: Vec<u64> = walk(&mut plan, &settings, epoch).into_iter().map(|(_, r)| r).collect();
                records.sort_unstable();
                prop_assert_eq!(records, (0..settings.records).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn evaluated_records_are_read_in_their_order_and_never_trained_on() {
        let evaluated = Some(Evaluated { records: 30, every: Period::Epochs(1), outputs: None });
        let settings = JobSettings { evaluated, ..settings(50, 4, 3, 2) };
        let mut plan = Plan::new(manifest(&[20, 30, 0, 7, 23]), settings.clone());
        let trained: Vec<u64> = walk(&mut plan, &settings, 0).into_iter().map(|(_, record)| record).collect();
        assert!(trained.len() == 50 && trained.iter().all(|record| *record < 50));
        let course = settings.shape().positions();
        let mut seen = Vec::new();
        for position in course.evaluation(1) {
            for slice in plan.microbatch_at(position).slices {
                let order = ChunkOrder::new(&settings, Pass::Evaluation(1), slice.chunk, slice.chunk_records);
                let places = slice.first_position..slice.first_position + slice.records;
                seen.extend(places.map(|place| slice.chunk_first_record + u64::from(order.record(place))));
            }
        }
        assert_eq!(seen, (50..80).collect::<Vec<u64>>());
    }

    #[test]
    fn epochs_differ_in_order() {
        let settings = settings(100, 4, 4, 1);
        let mut plan = Plan::new(manifest(&[50, 50]), settings.clone());
        assert_ne!(walk(&mut plan, &settings, 0), walk(&mut plan, &settings, 1));
    }

    #[test]
    fn only_the_last_step_of_an_epoch_is_short() {
        let shape = EpochShape::new(100, 4, 8);
        assert_eq!((shape.microbatches(), shape.steps()), (25, 4));
        assert_eq!(
            (0..8).map(|step| shape.tree(Step(step)).present()).collect::<Vec<_>>(),
            [8, 8, 8, 1, 8, 8, 8, 1]
        );
    }

    #[test]
    fn a_lane_walks_through_neighbouring_microbatches() {
        let shape = EpochShape::new(100, 4, 8);
        let lane: Vec<u64> = (0..3).map(|step| shape.microbatch(Step(step), 2)).collect();
        assert_eq!(lane, [lane[0], lane[0] + 1, lane[0] + 2]);
    }
}
