//! Leases per second of the bare lease machine, and how the cost of one grows with the trainers.
//! No members, no plan, no wire: what is counted is `master::lease` alone, called as the master calls it.

use crate::measure::{Spread, in_turn};
use crate::paths::leases::Job;
use crate::report::Row;

const TRAINERS: [u32; 4] = [10, 100, 1000, 10_000];
/// In each round, whatever the number of trainers.
const LEASES: u32 = 20_000;

/// A row for each number of trainers, and the cost of a lease among the most in costs among the fewest.
pub(crate) fn rows(rounds: u32) -> anyhow::Result<(Vec<Row>, Spread)> {
    let [mut a, mut b, mut c, mut d] = TRAINERS.map(Job::new);
    for job in [&mut a, &mut b, &mut c, &mut d] {
        job.begin()?;
    }
    let steps = TRAINERS.map(|trainers| LEASES / trainers);
    let measured = in_turn(
        rounds,
        [&mut || a.steps(steps[0]), &mut || b.steps(steps[1]), &mut || c.steps(steps[2]), &mut || {
            d.steps(steps[3])
        }],
    )?;
    let row = |(which, trainers): (usize, &u32)| {
        let rates = measured.iter().map(|round| f64::from(LEASES) / round[which]).collect();
        Row::alone(format!("leases, {trainers} trainers"), "leases/s", rates)
    };
    let growth = Spread::of(measured.iter().map(|[few, .., many]| many / few).collect());
    Ok((TRAINERS.iter().enumerate().map(row).collect(), growth))
}
