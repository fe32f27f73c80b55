//! The committed counts: a text file of `name count unit` lines after a header that says how they were made.
//! What cannot be read is an error that names file and line; nothing is guessed.

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What was counted, and by what.
#[derive(Debug, PartialEq)]
pub(crate) struct Baseline {
    pub(crate) origin: Origin,
    pub(crate) counts: Vec<Count>,
}

/// Instructions of one unit of a path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) instructions: f64,
    pub(crate) unit: String,
}

/// What counts depend on beside the code.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Origin {
    pub(crate) rustc: String,
    pub(crate) target: String,
    pub(crate) libc: String,
    pub(crate) valgrind: String,
}

impl Origin {
    fn entries(&self) -> [(&'static str, &String); 4] {
        let Origin { rustc, target, libc, valgrind } = self;
        [("rustc", rustc), ("target", target), ("libc", libc), ("valgrind", valgrind)]
    }

    fn entry(&mut self, name: &str) -> Option<&mut String> {
        match name {
            "rustc" => Some(&mut self.rustc),
            "target" => Some(&mut self.target),
            "libc" => Some(&mut self.libc),
            "valgrind" => Some(&mut self.valgrind),
            _ => None,
        }
    }

    /// # Errors
    /// The baseline is another target's: its code has nothing to do with this one's.
    pub(crate) fn check_target(&self, here: &Origin) -> anyhow::Result<()> {
        ensure!(self.target == here.target, "counts are of {}, this is {}", self.target, here.target);
        Ok(())
    }

    /// What differs from `here`, a sentence each: counts are compared all the same, but may differ because of it.
    pub(crate) fn differences(&self, here: &Origin) -> Vec<String> {
        let pairs = self.entries().into_iter().zip(here.entries()).filter(|(of, here)| of != here);
        pairs
            .map(|((name, of), (_, here))| format!("the baseline's {name} is {of}, here it is {here}"))
            .collect()
    }
}

impl Baseline {
    pub(crate) fn read(file: &Path) -> anyhow::Result<Baseline> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("{}: cannot be read; --write makes one", file.display()))?;
        Baseline::parse(&text).with_context(|| file.display().to_string())
    }

    fn parse(text: &str) -> anyhow::Result<Baseline> {
        let mut baseline = Baseline { origin: Origin::default(), counts: Vec::new() };
        for (number, line) in (1..).zip(text.lines()) {
            baseline.add(line).with_context(|| format!("line {number}: {line:?}"))?;
        }
        for (name, value) in baseline.origin.entries() {
            ensure!(!value.is_empty(), "there is no line `{name}: ...`");
        }
        Ok(baseline)
    }

    fn add(&mut self, line: &str) -> anyhow::Result<()> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if let Some((name, value)) = line.split_once(": ") {
            let entry = self.origin.entry(name).context("nobody knows this entry")?;
            ensure!(entry.is_empty(), "said before");
            value.clone_into(entry);
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, instructions, unit] = words[..] else { bail!("this is not `name count unit`") };
        let instructions: f64 = instructions.parse().context("the count is not a number")?;
        ensure!(instructions.is_finite() && instructions > 0.0, "the count is not positive");
        ensure!(self.counts.iter().all(|count| count.name != name), "counted before");
        self.counts.push(Count { name: name.to_owned(), instructions, unit: unit.to_owned() });
        Ok(())
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Instructions of one unit of each hot path: benches/README.md tells the story.")?;
        writeln!(f, "# cargo run --release -p shoal-benches --bin instructions -- --write")?;
        for (name, value) in self.origin.entries() {
            writeln!(f, "{name}: {value}")?;
        }
        writeln!(f)?;
        for Count { name, instructions, unit } in &self.counts {
            writeln!(f, "{name:<28} {instructions:>12.4} {unit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const HEADER: &str = "# why\nrustc: rustc 1\ntarget: x\nlibc: glibc 2\nvalgrind: 3\n\n";

    fn fault(text: &str) -> String {
        format!("{:#}", Baseline::parse(text).unwrap_err())
    }

    #[test]
    fn what_was_written_is_read_again() {
        let count = |name: &str, instructions| Count { name: name.into(), instructions, unit: "byte".into() };
        let mut baseline = Baseline::parse(HEADER).unwrap();
        baseline.counts = vec![count("a/b", 0.3125), count("a/c", 123_456.5)];
        assert_eq!(Baseline::parse(&baseline.to_string()).unwrap(), baseline);
    }

    #[test]
    fn a_bad_line_is_named_by_file_and_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{HEADER}a 1.5 byte\nb much byte\n")).unwrap();
        let fault = format!("{:#}", Baseline::read(file.path()).unwrap_err());
        assert!(fault.starts_with(&format!("{}: line 8: \"b much byte\"", file.path().display())), "{fault}");
    }

    #[test]
    fn nothing_is_guessed() {
        for (lines, what) in [
            ("a 1.5\n", "not `name count unit`"),
            ("a 1.5 a byte\n", "not `name count unit`"),
            ("a 0 byte\n", "not positive"),
            ("a NaN byte\n", "not positive"),
            ("a 1 byte\na 2 byte\n", "line 8: \"a 2 byte\": counted before"),
            ("weather: fine\n", "nobody knows"),
            ("rustc: rustc 2\n", "said before"),
        ] {
            let fault = fault(&format!("{HEADER}{lines}"));
            assert!(fault.contains(what), "{lines:?}: {fault}");
        }
        assert!(fault("a 1 byte\n").contains("no line `rustc: ...`"));
        let missing = Baseline::read(Path::new("there/is/none.txt")).unwrap_err();
        assert!(format!("{missing:#}").contains("none.txt: cannot be read; --write makes one"));
    }

    #[test]
    fn another_compiler_is_said_and_another_target_refused() {
        let here = Baseline::parse(HEADER).unwrap().origin;
        let newer = Baseline::parse(&HEADER.replace("rustc 1", "rustc 2")).unwrap().origin;
        assert_eq!(here.differences(&here), [""; 0]);
        assert_eq!(newer.differences(&here), ["the baseline's rustc is rustc 2, here it is rustc 1"]);
        assert!(newer.check_target(&here).is_ok());
        let other = Baseline::parse(&HEADER.replace("target: x", "target: y")).unwrap().origin;
        assert!(other.check_target(&here).is_err());
    }
}
