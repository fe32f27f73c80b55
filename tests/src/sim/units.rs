//! What each step or position of a job's plan makes records count for, by the definition.

use super::data_set::DataSet;
use shoal_runtime::cluster::plan::ChunkOrder;
use shoal_runtime::cluster::{JobSettings, Microbatch, Pass, Plan, Step};

/// Records and what they give to a counter, for each step or position of the plan up to `end`: `4^epoch`, and nothing in evaluations.
pub fn counted(job: &JobSettings, data: &DataSet, end: u64) -> Vec<Vec<(usize, f32)>> {
    let shape = job.shape();
    let mut plan = Plan::new(data.manifest().clone(), job.clone());
    let given = |pass: Pass, microbatch: Microbatch, counts: &mut Vec<(usize, f32)>| {
        let Pass::Epoch(epoch) = pass else { return };
        for slice in microbatch.slices {
            let order = ChunkOrder::new(job, pass, slice.chunk, slice.chunk_records);
            for position in slice.first_position..slice.first_position + slice.records {
                let record = slice.chunk_first_record + u64::from(order.record(position));
                counts.push((record as usize, (1u32 << (2 * epoch)) as f32));
            }
        }
    };
    let unit = |unit: u64| {
        let mut counts = Vec::new();
        if job.is_sync() {
            for slot in 0..shape.tree(Step(unit)).present() {
                let pass = shape.microbatch(Step(unit), slot).0;
                given(pass, plan.microbatch(Step(unit), slot), &mut counts);
            }
        } else {
            given(shape.microbatch_at(unit).0, plan.microbatch_at(unit), &mut counts);
        }
        counts
    };
    (0..end).map(unit).collect()
}
