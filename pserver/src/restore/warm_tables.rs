//! Rows of tables out of the file that a job begins at. A table's rows lie there in the order of their keys, those of one
//! bucket all over it: so it is read once, from its first row to its last, for all buckets that begin here.

use crate::bucket::beginning::GivenRows;
use crate::bucket::shape::BucketShape;
use shoal_runtime::host::warm_start::{WarmFile, WarmStartError};
use std::collections::{BTreeMap, BTreeSet};

/// What was read for buckets that have not begun yet.
#[derive(Debug, Default)]
pub(super) struct WarmTables {
    /// Tables that were read, by name.
    read: BTreeSet<String>,
    rows: BTreeMap<(String, u32), GivenRows>,
}

impl WarmTables {
    /// The rows that a bucket begins at: it is one of `buckets`, which all begin here now.
    pub(super) async fn take(
        &mut self,
        file: &WarmFile,
        bucket: &BucketShape,
        buckets: impl Iterator<Item = &BucketShape>,
    ) -> Result<GivenRows, WarmStartError> {
        let (parameter, name) = (&bucket.parameter, &bucket.parameter.name);
        if !self.read.contains(name) {
            let wanted: BTreeSet<u32> =
                buckets.filter(|other| other.parameter.name == *name).map(BucketShape::number).collect();
            // Kept once all is read: a file may turn out not to fit at its last row.
            let mut rows: BTreeMap<u32, GivenRows> = BTreeMap::new();
            let take = |key: u64, embedding: &[f32]| {
                let number = parameter.table.map_or(0, |table| table.bucket_of(key));
                if wanted.contains(&number) {
                    rows.entry(number).or_default().push(key, embedding);
                }
            };
            // Said by whoever has its first bucket.
            if !file.read_rows(parameter, take).await?
                && wanted.contains(&0)
                && parameter.rule.begins_anywhere()
            {
                tracing::warn!(table = name, "not in the file of --warm-start: begins without rows");
            }
            self.rows.extend(rows.into_iter().map(|(number, rows)| ((name.clone(), number), rows)));
            self.read.insert(name.clone());
        }
        Ok(self.rows.remove(&(name.clone(), bucket.number())).unwrap_or_default())
    }
}
