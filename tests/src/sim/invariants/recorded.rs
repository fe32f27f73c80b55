//! Of synchronous jobs: the hashes that were recorded of a step are those of the model that the definition has after it, and where
//! nothing was lost, every step has some.

use crate::sim::evidence::Evidence;
use crate::sim::reference::{Trained, train_seen};
use shoal_runtime::cluster::layout::{BlockLayout, Layout};
use shoal_runtime::cluster::recording::{self, pieces_of_hash, recorded_step};
use shoal_runtime::cluster::{Declaration, Step, StepHashes, Version};
use twox_hash::XxHash3_64;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    let recorded = evidence.recorded.as_ref().map_err(Clone::clone)?;
    let (every, exclusions) = (evidence.scenario.record_hashes, evidence.exclusions());
    let number = evidence.history.documents().last().map_or(0, |document| document.exclusions.number);
    let declaration = evidence.scenario.program().declaration(evidence.job.records);
    let layout = Layout::new(&declaration);
    let course = evidence.job.course();
    let mut found = Ok(());
    let until = Step(evidence.job.steps());
    let program = evidence.scenario.program();
    train_seen(program, &evidence.job, &evidence.data, &exclusions, until, |version, trained| {
        let Some(step) = recorded_step(&course, every, version) else { return };
        let Some(recorded) = recorded.get(&step) else { return };
        // Before records were left out it may have been made with them.
        let is_of_it =
            recorded.rewind.0 >= number || exclusions.list.iter().all(|one| version.0 <= one.from.0);
        let expected = expected(&declaration, &layout, trained, recorded);
        if found.is_ok() && is_of_it && expected != *recorded {
            let difference = recording::difference(&declaration, &expected, recorded);
            found = Err(format!("those of step {step}, version {version}, differ: {difference:?}"));
        }
    });
    // Nobody was lost with what only it knew.
    let is_whole = evidence.status.as_ref().is_some_and(|status| {
        let of_one_master = status.master_term == 1 && status.rewind == 0;
        status.phase == "done" && of_one_master && status.steps_unrecorded == 0 && !status.is_stopped_early
    });
    let wanted =
        (0..=evidence.job.steps()).filter_map(|version| recorded_step(&course, every, Version(version)));
    if let Some(step) = wanted.filter(|_| is_whole).find(|step| !recorded.contains_key(step)) {
        return Err(format!("step {step} was not recorded, and is counted as none that was lost"));
    }
    if let Some(step) = recorded.keys().find(|step| every == 0 || *step % every != 0) {
        return Err(format!("step {step} was recorded, of every {every}"));
    }
    found
}

/// As the definition has them.
fn expected(
    declaration: &Declaration,
    layout: &Layout,
    trained: &[Trained],
    recorded: &StepHashes,
) -> StepHashes {
    let blocks = layout.iter().map(|(_, block)| match block.bucket {
        Some(bucket) => {
            let table = declaration.parameters[bucket.parameter].table;
            let is_in_it = |key: &u64| table.is_some_and(|table| table.bucket_of(*key) == bucket.number);
            let rows = trained[bucket.parameter].rows.rows.iter().filter(|(key, _)| is_in_it(key));
            let hash = rows.map(|(key, row)| {
                let mut bytes = key.to_le_bytes().to_vec();
                bytes.extend([row.last, row.occurrences].iter().flat_map(|word| word.to_le_bytes()));
                bytes.extend(row.values.iter().flat_map(|value| value.to_le_bytes()));
                XxHash3_64::oneshot(&bytes)
            });
            vec![hash.fold(0, u64::wrapping_add)]
        }
        None => of_dense(block, trained),
    });
    StepHashes { blocks: blocks.collect(), ..recorded.clone() }
}

fn of_dense(block: &BlockLayout, trained: &[Trained]) -> Vec<u64> {
    let bytes = |first: u64, parameter: usize, count: usize| {
        let values = &trained[parameter].values[first as usize..][..count];
        values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
    };
    let together = block.pieces.chunks(pieces_of_hash(block.pieces.len()));
    let hash = together.map(|pieces| {
        let each = pieces.iter().flat_map(|piece| bytes(piece.first, piece.parameter, piece.range.len()));
        XxHash3_64::oneshot(&each.collect::<Vec<u8>>())
    });
    hash.collect()
}
