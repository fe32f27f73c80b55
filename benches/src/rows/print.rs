//! The result as people read it. It must never round a ratio up to 1.

use crate::peers::Told;
use crate::rows::Rows;
use crate::rows::growth::{Cost, PAYLOAD_BYTES, Size};
use crate::rows::soak::Soak;
use crate::rows::wire::{Operation, Wire};
use std::fmt;

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = |load: &Option<String>| load.clone().unwrap_or_else(|| "unknown".to_owned());
        let (before, after) = (load(&self.load_before), load(&self.load_after));
        writeln!(f, "{} rounds; load before {before}, after {after}", self.rounds)?;
        if !self.sizes.is_empty() {
            writeln!(
                f,
                "\nbytes of a row by {PAYLOAD_BYTES} of payload; the worst since the size before in brackets"
            )?;
        }
        self.sizes.iter().try_for_each(|size| write!(f, "{size}"))?;
        self.soaks.iter().try_for_each(|soak| write!(f, "\n{soak}"))?;
        self.wire.iter().try_for_each(|wire| write!(f, "\n{wire}"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payloads = |bytes: f64| bytes / PAYLOAD_BYTES;
        writeln!(
            f,
            "{:>9} rows: resident {:.1} bytes, {:.3} ({:.3}) payloads; reserved {:.1} bytes, {:.3} ({:.3})",
            self.rows,
            self.resident,
            payloads(self.resident),
            payloads(self.resident_worst),
            self.reserved,
            payloads(self.reserved),
            payloads(self.reserved_worst)
        )?;
        let (nanos, longest) = (self.growth_nanos, self.growth_longest_millis);
        writeln!(f, "    grown to at {nanos:.0} ns a row, the longest message {longest:.1} ms")?;
        writeln!(f, "    insert {}\n    update {}\n    lookup {}", self.insert, self.update, self.lookup)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { nanos, limit_nanos, ratio } = self;
        let (median, min, max) = (cut(ratio.median), cut(ratio.min), cut(ratio.max));
        write!(f, "{nanos:>6.0} ns a row, limit {limit_nanos:>4.0} ns, ratio {median:.2} ({min:.2}-{max:.2})")
    }
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_flat { "flat" } else { "GROWS" };
        writeln!(
            f,
            "soak, {}, {} updates: {verdict}, last third / first {:.3}",
            self.name, self.updates, self.growth
        )?;
        for (at, (rows, bytes)) in self.intervals.iter().enumerate() {
            writeln!(f, "    {:>3} {rows:>9} rows {:>8.1} MB", at + 1, *bytes as f64 / 1e6)?;
        }
        Ok(())
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| write!(f, "{operation}"))?;
        for (name, told) in &self.peers {
            match told {
                Told::Version(version) => writeln!(f, "{name}: {version}")?,
                Told::Missing(why) => writeln!(f, "{name} is not there: {why}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { name, millis, processor_millis, limit_millis, ratio, peers } = self;
        let (median, min, max, busy) = (millis.median, millis.min, millis.max, processor_millis.median);
        let ratio = cut(ratio.median);
        writeln!(f, "{name}: {median:.2} ms ({min:.2}-{max:.2}), {busy:.2} ms of processors")?;
        writeln!(f, "    gather or scatter: {limit_millis:.2} ms, ratio {ratio:.2}")?;
        for (name, beside) in peers {
            let (theirs, busy, times) = (beside.millis.median, beside.processor_millis.median, beside.times);
            let (median, min, max) = (cut(times.median), cut(times.min), cut(times.max));
            let processors = cut(beside.processor_times.median);
            write!(f, "    {name}: {theirs:.2} ms, {busy:.2} ms of processors; ")?;
            writeln!(f, "{median:.2} times ours ({min:.2}-{max:.2}), of processors {processors:.2} times")?;
        }
        Ok(())
    }
}

/// Cut, not rounded: 0.998 is not the limit.
fn cut(x: f64) -> f64 {
    (x * 100.0).floor() / 100.0
}
