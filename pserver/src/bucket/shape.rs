//! What never changes about one bucket: its table, rule and initial values, and which bucket it is.

use shoal_runtime::cluster::initial::RowInitial;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{Parameter, Rule, Table};

/// The lasting facts of one bucket.
#[derive(Clone, Debug)]
pub struct BucketShape {
    /// Elements of an embedding.
    pub dimension: usize,
    /// Elements of an embedding and of the slots beside it.
    pub width: usize,
    /// The table.
    pub parameter: Parameter,
    table: Table,
    bucket: u32,
    initial: RowInitial,
}

impl BucketShape {
    /// Bucket `bucket` of a table that is declared as `parameter`, in a job with that seed. None of a dense parameter.
    pub fn new(seed: u64, parameter: &Parameter, bucket: u32) -> Option<BucketShape> {
        let table = parameter.table?;
        let dimension = parameter.elements() as usize;
        Some(BucketShape {
            dimension,
            width: dimension + parameter.rule.row_slots(dimension),
            parameter: parameter.clone(),
            table,
            bucket,
            initial: parameter.initial.of_rows(seed, &parameter.name),
        })
    }

    /// Which bucket of its table it is.
    pub fn number(&self) -> u32 {
        self.bucket
    }

    /// Whether a key belongs here.
    pub fn has(&self, key: u64) -> bool {
        self.table.bucket_of(key) == self.bucket
    }

    /// The table's rule.
    pub fn rule(&self) -> Rule {
        self.parameter.rule
    }

    /// The embedding of a key that has no row: a function of (seed, table, key).
    pub fn initial(&self, key: u64, embedding: &mut [f32]) {
        self.initial.fill(key, embedding);
    }

    /// Whether a key that has occurred so often without being admitted, and now so often again, gets a row.
    pub(super) fn admits(&self, before: u8, now: u32) -> bool {
        !self.parameter.group.is_frozen
            && u32::from(before).saturating_add(now) >= u32::from(self.table.admission)
    }

    /// Whether keys are counted before they are admitted.
    pub(super) fn counts_candidates(&self) -> bool {
        !self.parameter.group.is_frozen && self.table.admission > 1
    }

    /// The age above which rows are evicted by the update of that number: none by most, for the whole bucket is looked through every
    /// eighth of that age, and buckets take turns. So a row is evicted at most an eighth of the age later.
    pub(super) fn sweeps(&self, update: u64) -> Option<u32> {
        let age_max = self.table.age_max?;
        let period = u64::from(age_max / 8).max(1);
        let turn = u64::from(self.bucket) * period / u64::from(self.table.buckets);
        (update + turn).is_multiple_of(period).then_some(age_max)
    }

    /// The most rows, and what becomes of the next key.
    pub(super) fn ceiling(&self) -> Option<Ceiling> {
        self.table.ceiling
    }

    /// What is left of a row's occurrences after so many updates.
    pub(super) fn score(&self, occurrences: u32, age: u32) -> u32 {
        match self.table.ceiling {
            Some(Ceiling { full: Full::Evict { half_life }, .. }) => {
                occurrences.checked_shr(age / half_life.max(1)).unwrap_or(0)
            }
            _ => occurrences,
        }
    }
}
