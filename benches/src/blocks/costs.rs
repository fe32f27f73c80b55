//! What follows from the seconds: the cost of a block and of a GiB in a step, by role, and how it grows with the number of blocks.
//! Pure.
//!
//! The cost of a GiB cannot stay as it is when blocks become small, for each block has a cost of its own; nor can that of a block,
//! for it has its bytes. So both are said, and what each block *more* costs than the row with fewer blocks of as many bytes: that
//! stays as it is as long as nothing is paid for pairs of blocks.

use super::job::{Cost, Ran};
use super::parts::{Part, Shape};
use crate::measure::Spread;
use serde::Serialize;

/// The roles, in the order in which they are printed.
const ROLES: [&str; 3] = ["pserver", "trainer", "master"];

/// One job, run so many times.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) part: Part,
    #[serde(flatten)]
    pub(crate) shape: Shape,
    /// As they were run.
    pub(crate) runs: Vec<Ran>,
    /// By the wall, of a step; `None` where no step was counted.
    pub(crate) step_seconds: Option<Spread>,
    /// Of each role; none where no step was counted.
    pub(crate) roles: Vec<RoleCosts>,
}

/// What a role costs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RoleCosts {
    pub(crate) role: &'static str,
    /// Microseconds in its own code, for each step and block.
    pub(crate) user_micros_per_block: Spread,
    /// Seconds in its own code, for each step and GiB of parameters.
    pub(crate) user_seconds_per_gib: Spread,
    /// The same in the system's.
    pub(crate) system_seconds_per_gib: Spread,
    /// User seconds for each GiB, in those of the row with the fewest blocks. `None`: that has no figures.
    pub(crate) of_the_fewest: Option<f64>,
    /// Microseconds in its own code that each block costs more than in the row before, of a model as large. `None`: it is the first
    /// of its model, or that has no figures.
    pub(crate) user_micros_of_a_block_more: Option<f64>,
    /// The most that one of its processes had resident.
    pub(crate) peak_mib: f64,
}

impl Row {
    pub(crate) fn new(part: Part, shape: Shape, runs: Vec<Ran>) -> Row {
        let counted: Vec<&Ran> = runs.iter().filter(|ran| ran.steps > 0).collect();
        if counted.is_empty() {
            return Row { part, shape, runs, step_seconds: None, roles: Vec::new() };
        }
        let step_seconds = Spread::of(counted.iter().map(|ran| ran.seconds / ran.steps as f64).collect());
        let roles = ROLES.iter().map(|role| RoleCosts::new(role, &shape, &counted)).collect();
        Row { part, shape, runs, step_seconds: Some(step_seconds), roles }
    }

    /// Whether these rows are compared.
    fn is_beside(&self, other: &Row) -> bool {
        // What is recorded is held against the same model without.
        let model = |row: &Row| Some(row.shape.mib).filter(|_| row.part == Part::Recorded);
        let of = |row: &Row| (row.part, row.shape.followers, row.shape.clips, model(row));
        of(self) == of(other)
    }
}

impl RoleCosts {
    fn new(role: &'static str, shape: &Shape, runs: &[&Ran]) -> RoleCosts {
        let costs =
            || runs.iter().map(|ran| (ran.counted.get(role).copied().unwrap_or_default(), ran.steps as f64));
        let of = |figure: &dyn Fn(Cost, f64) -> f64| {
            Spread::of(costs().map(|(cost, steps)| figure(cost, steps)).collect())
        };
        let (blocks, gib) = (shape.blocks as f64, shape.gib());
        RoleCosts {
            role,
            user_micros_per_block: of(&|cost, steps| 1e6 * cost.user / steps / blocks),
            user_seconds_per_gib: of(&|cost, steps| cost.user / steps / gib),
            system_seconds_per_gib: of(&|cost, steps| cost.system / steps / gib),
            of_the_fewest: None,
            user_micros_of_a_block_more: None,
            peak_mib: of(&|cost, _| cost.peak_bytes as f64 / f64::from(1 << 20)).max,
        }
    }

    /// Microseconds in its own code, of a step.
    fn user_micros(&self, shape: &Shape) -> f64 {
        self.user_micros_per_block.median * shape.blocks as f64
    }
}

/// The rows, each beside the first and the last of those before it that it is compared with.
pub(crate) fn beside_the_first(rows: Vec<Row>) -> Vec<Row> {
    let mut done: Vec<Row> = Vec::new();
    for mut row in rows {
        let mut others = done.iter().filter(|other| other.is_beside(&row));
        let first = others.next().cloned();
        let before = others.next_back().cloned().or_else(|| first.clone());
        for costs in &mut row.roles {
            let of = |other: &Option<Row>| {
                let other = other.as_ref()?;
                let costs = other.roles.iter().find(|costs_of| costs_of.role == costs.role)?;
                Some((other.shape, costs.clone()))
            };
            let own = costs.user_seconds_per_gib.median;
            costs.of_the_fewest = match (&first, of(&first)) {
                (None, _) => Some(1.0),
                (_, fewest) => fewest
                    .map(|(_, fewest)| own / fewest.user_seconds_per_gib.median)
                    .filter(|of| of.is_finite()),
            };
            let before = of(&before)
                .filter(|(shape, _)| shape.mib == row.shape.mib && shape.blocks < row.shape.blocks);
            costs.user_micros_of_a_block_more = before.map(|(shape, before)| {
                let blocks = (row.shape.blocks - shape.blocks) as f64;
                (costs.user_micros(&row.shape) - before.user_micros(&shape)) / blocks
            });
        }
        done.push(row);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn row(blocks: u64, clips: bool, users: &[f64]) -> Row {
        let shape = Shape { mib: 512, blocks, followers: 0, clips, records: 0, steps: 4 };
        let ran = |user: &f64| {
            let cost = Cost { user: *user, system: 1.0, peak_bytes: 3 << 20 };
            let counted = BTreeMap::from([("pserver".to_owned(), cost)]);
            Ran { cut_short: None, steps: 4, seconds: 2.0, counted, whole: BTreeMap::new() }
        };
        Row::new(Part::Count, shape, users.iter().map(ran).collect())
    }

    #[test]
    fn costs_are_of_a_step_and_of_a_block_or_a_gib_and_medians_of_the_runs() {
        let costs = &row(500, false, &[2.0, 4.0, 9.0]).roles[0];
        assert_eq!(costs.user_micros_per_block, Spread { median: 2000.0, min: 1000.0, max: 4500.0 });
        assert_eq!((costs.user_seconds_per_gib.median, costs.system_seconds_per_gib.median), (2.0, 0.5));
        assert_eq!(costs.peak_mib, 3.0);
    }

    #[test]
    fn a_row_stands_beside_the_fewest_blocks_of_its_own_kind_and_a_block_more_beside_the_row_before() {
        let rows = vec![
            row(1000, false, &[4.0]),
            row(2000, false, &[5.0]),
            row(4000, false, &[7.0]),
            row(1000, true, &[1.0]),
        ];
        let rows = beside_the_first(rows);
        let of_the_fewest: Vec<_> = rows.iter().map(|row| row.roles[0].of_the_fewest.unwrap()).collect();
        assert_eq!(of_the_fewest, [1.0, 1.25, 1.75, 1.0]);
        let more: Vec<_> = rows.iter().map(|row| row.roles[0].user_micros_of_a_block_more).collect();
        assert_eq!(
            more,
            [None, Some(250.0), Some(250.0), None],
            "linear: a block more costs what one more did before"
        );
    }

    #[test]
    fn a_job_without_a_counted_step_has_no_figures_and_nothing_stands_beside_it() {
        let none =
            Row { runs: Vec::new(), roles: Vec::new(), step_seconds: None, ..row(1000, false, &[1.0]) };
        let rows = beside_the_first(vec![none, row(2000, false, &[5.0])]);
        let costs = &rows[1].roles[0];
        assert_eq!((costs.of_the_fewest, costs.user_micros_of_a_block_more), (None, None));
    }
}
