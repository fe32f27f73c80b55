//! The result as people read it. It must never show a job that was cut short as one that was not.

use super::Report;
use super::costs::{RoleCosts, Row};
use super::decided;
use crate::measure::Spread;
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = |load: &Option<String>| load.clone().unwrap_or_else(|| "unknown".to_owned());
        let (before, after) = (load(&self.load_before), load(&self.load_after));
        writeln!(f, "{} rounds, limit {} s; load before {before}, after {after}", self.rounds, self.limit)?;
        if !self.rows.is_empty() {
            headings(f)?;
        }
        self.rows.iter().try_for_each(|row| write!(f, "{row}"))?;
        if !self.at_once.is_empty() {
            write!(f, "{}", decided::Heading)?;
        }
        self.at_once.iter().try_for_each(|row| write!(f, "{row}"))
    }
}

fn headings(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "user and system seconds of processors, medians (least..greatest) for each step\n")?;
    writeln!(
        f,
        "{:<8} {:>5} {:>7} {:>9} {:>4} {:>8}  {:<8} {:>14} {:>22} {:>22} {:>9} {:>12} {:>9} {:>7}",
        "part",
        "MiB",
        "blocks",
        "followers",
        "clip",
        "recorded",
        "role",
        "user, µs/block",
        "user, s/GiB",
        "system, s/GiB",
        "of fewest",
        "a block more",
        "peak, MiB",
        "s/step"
    )
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = &self.shape;
        let clip = if shape.clips { "yes" } else { "no" };
        let own = format!(
            "{:<8} {:>5} {:>7} {:>9} {clip:>4} {:>8}",
            self.part.to_string(),
            shape.mib,
            shape.blocks,
            shape.followers,
            shape.records
        );
        for costs in &self.roles {
            let seconds =
                self.step_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.4}", seconds.median));
            writeln!(f, "{own}  {costs} {seconds:>7}")?;
        }
        let cut_short = self.runs.iter().filter(|ran| !ran.is_whole());
        cut_short.into_iter().try_for_each(|ran| writeln!(f, "{own}  {ran}"))
    }
}

impl fmt::Display for RoleCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none =
            |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"));
        write!(
            f,
            "{:<8} {:>14.1} {:>22} {:>22} {:>9} {:>12} {:>9.0}",
            self.role,
            self.user_micros_per_block.median,
            spread(&self.user_seconds_per_gib),
            spread(&self.system_seconds_per_gib),
            or_none(self.of_the_fewest),
            or_none(self.user_micros_of_a_block_more),
            self.peak_mib
        )
    }
}

fn spread(spread: &Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.3} ({min:.3}..{max:.3})")
}
