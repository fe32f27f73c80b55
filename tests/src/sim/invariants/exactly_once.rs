//! P1: the counters hold what every record must have given, no more and no less; so do those of the last evaluation.

use crate::sim::evidence::Evidence;
use crate::sim::program::{AUC, COUNTS, QUALITY};
use crate::sim::reference::Rows;
use crate::sim::tables::{OWN, ROW_COUNTS};
use crate::sim::units::counted;
use shoal_runtime::cluster::Step;

pub(super) fn check(evidence: &Evidence) -> Result<(), String> {
    let trained = evidence.trained.as_ref().map_err(Clone::clone)?;
    let program = evidence.scenario.program();
    let declaration = program.declaration(evidence.job.records);
    let skips = evidence.scenario.decisions.is_some_and(|decisions| decisions.takes_non_finite());
    let expected = counts(evidence);
    // Of what was left out at some time the definition says how often it counted before.
    let exclusions = evidence.exclusions();
    let is_left_out = |record: usize| exclusions.excludes(record as u64, Step(u64::MAX));
    let evaluated = evidence.scenario.evaluated_records() as f32;
    for (parameter, trained) in declaration.parameters.iter().zip(trained) {
        let seen = match parameter.name.as_str() {
            QUALITY => trained.values[1],
            AUC => trained.values.iter().sum(),
            _ => evaluated,
        };
        if seen != evaluated && exclusions.list.is_empty() {
            return Err(format!("{:?} was evaluated on {seen} records, not {evaluated}", parameter.name));
        }
        if parameter.name == ROW_COUNTS && !skips && exclusions.list.is_empty() {
            check_rows(&trained.rows, &expected)?;
        }
        // Steps may be skipped, counters included: the definition says which.
        if skips || !COUNTS.contains(&parameter.name.as_str()) {
            continue;
        }
        let mut both = trained.values.iter().zip(&expected).enumerate();
        if let Some((record, (count, expected))) =
            both.find(|(at, (count, expected))| count != expected && !is_left_out(*at))
        {
            return Err(format!("record {record} gave {count} to {:?}, not {expected}", parameter.name));
        }
    }
    Ok(())
}

/// Every record's own row has what the record must have given; there are no others but those that records share.
fn check_rows(rows: &Rows, expected: &[f32]) -> Result<(), String> {
    for (record, expected) in expected.iter().enumerate() {
        let found = rows.rows.get(&(OWN | record as u64)).map_or(0.0, |row| row.values[0]);
        if found != *expected {
            return Err(format!("record {record} gave {found} to its row, not {expected}"));
        }
    }
    let own = rows.rows.keys().filter(|key| **key & OWN != 0).count();
    let counted = expected.iter().filter(|count| **count > 0.0).count();
    if own == counted { Ok(()) } else { Err(format!("{own} records have rows, not {counted}")) }
}

/// What every record must have given: 4^epoch in each epoch that met it before the job's end.
fn counts(evidence: &Evidence) -> Vec<f32> {
    let job = &evidence.job;
    let course = job.course();
    let stopped = evidence.status.as_ref().filter(|status| status.is_stopped_early);
    let last = stopped.map(|status| status.evaluations.len() as u64 - 1);
    let end = last.map_or(course.units(), |last| course.evaluation(last).end);
    let mut counts = vec![0.0; job.records as usize];
    let given = counted(job, &evidence.data, end).into_iter().flatten();
    given.for_each(|(record, count)| counts[record] += count);
    counts
}
