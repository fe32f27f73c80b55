//! Rows of updates that fall due at once, as people read them.

use super::Row;
use crate::measure::Spread;
use std::fmt;

/// What stands over the rows.
pub(crate) struct Heading;

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nseconds from the last push, or the follower's going on, until all is published")?;
        writeln!(
            f,
            "{:<9} {:>11} {:>5} {:>7}  {:>22} {:>9} {:>12} {:>15} {:>20}",
            "part",
            "elements",
            "cores",
            "TTL, ms",
            "seconds",
            "of fewest",
            "processor, s",
            "busiest thread",
            "longest /healthz, ms"
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { elements, cores, ttl_millis, .. } = self;
        let own = format!("{:<9} {elements:>11} {cores:>5} {ttl_millis:>7}", self.part.to_string());
        if let Some(Spread { median, min, max }) = self.seconds {
            let seconds = format!("{median:.3} ({min:.3}..{max:.3})");
            let or_none = |figure: Option<f64>, digits| {
                figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
            };
            let middle = |spread: &Option<Spread>| or_none(spread.map(|spread| spread.median), 3);
            let (processor, busiest) = (middle(&self.processor_seconds), middle(&self.busiest_seconds));
            let (of_fewest, longest) =
                (or_none(self.of_the_fewest, 2), or_none(self.healthz_longest_millis, 0));
            writeln!(f, "{own}  {seconds:>22} {of_fewest:>9} {processor:>12} {busiest:>15} {longest:>20}")?;
        }
        self.cut_short.iter().try_for_each(|why| writeln!(f, "{own}  {why}"))
    }
}
