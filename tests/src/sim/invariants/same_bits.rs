//! P2, of synchronous jobs: parameters and rule state have the bits of the definition, which knows of no trainers, pservers or faults.

use crate::sim::evidence::Evidence;
use crate::sim::reference::{Rows, train};
use std::collections::BTreeSet;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    if !evidence.job.is_sync() {
        return Ok(());
    }
    let trained = evidence.trained.as_ref().map_err(Clone::clone)?;
    let program = evidence.scenario.program();
    let declaration = program.declaration(evidence.job.records);
    let ending = train(program, &evidence.job, &evidence.data, &evidence.exclusions());
    let evaluations = evidence.evaluations();
    if evaluations != ending.evaluations {
        return Err(format!("evaluations came to {evaluations:?}, not {:?}", ending.evaluations));
    }
    let expected = ending.trained;
    for ((parameter, ours), theirs) in declaration.parameters.iter().zip(trained).zip(&expected) {
        let columns = |trained: &crate::sim::reference::Trained| {
            std::iter::once(trained.values.clone()).chain(trained.slots.iter().cloned()).collect::<Vec<_>>()
        };
        for (at, (ours, theirs)) in columns(ours).iter().zip(columns(theirs)).enumerate() {
            if let Some(element) = ours.iter().zip(&theirs).position(|(a, b)| a.to_bits() != b.to_bits()) {
                let (name, ours, theirs) = (&parameter.name, ours[element], theirs[element]);
                return Err(format!(
                    "element {element} of {name:?} (column {at}) is {ours:e}, not {theirs:e}"
                ));
            }
        }
        same_rows(&parameter.name, &ours.rows, &theirs.rows)?;
    }
    Ok(())
}

/// The same keys have rows, with the same bits and counts.
fn same_rows(table: &str, ours: &Rows, theirs: &Rows) -> Result<(), String> {
    let keys: BTreeSet<u64> = ours.rows.keys().chain(theirs.rows.keys()).copied().collect();
    let bits = |rows: &Rows, key: u64| {
        let row = rows.rows.get(&key)?;
        let values: Vec<u32> = row.values.iter().map(|value| value.to_bits()).collect();
        Some((values, row.last, row.occurrences))
    };
    match keys.into_iter().find(|key| bits(ours, *key) != bits(theirs, *key)) {
        None => Ok(()),
        Some(key) => {
            let (ours, theirs) = (ours.rows.get(&key), theirs.rows.get(&key));
            Err(format!("the row of key {key} of {table:?} is {ours:?}, not {theirs:?}"))
        }
    }
}
