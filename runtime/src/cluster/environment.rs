//! What a trainer says that its bits depend on, beside the declaration: versions, instruction sets, thread counts, flags. Only
//! compared: nobody reads a meaning into a name.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The most entries of an environment.
pub const ENTRIES_MAX: usize = 128;
/// The most bytes of an entry's name.
pub const NAME_BYTES_MAX: usize = 64;
/// The most bytes of an entry's value: flags of a compiler are the longest that were seen, some hundreds.
pub const VALUE_BYTES_MAX: usize = 512;
/// Names that a difference tells; the others it counts.
const TOLD_MAX: usize = 8;
/// Characters of a value that a difference tells.
const TOLD_CHARS_MAX: usize = 80;

/// What a trainer's bits depend on, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Environment(pub BTreeMap<String, String>);

/// Whether trainers of one job may have environments of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnvironmentRule {
    /// Whoever has another than the job's is refused.
    #[default]
    Same,
    /// They are let in, and the difference is logged.
    Warn,
    /// Nobody compares.
    Any,
}

impl From<shoal_job::spec::EnvironmentRule> for EnvironmentRule {
    fn from(stated: shoal_job::spec::EnvironmentRule) -> EnvironmentRule {
        match stated {
            shoal_job::spec::EnvironmentRule::Same => EnvironmentRule::Same,
            shoal_job::spec::EnvironmentRule::Warn => EnvironmentRule::Warn,
            shoal_job::spec::EnvironmentRule::Any => EnvironmentRule::Any,
        }
    }
}

impl EnvironmentRule {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            EnvironmentRule::Same => "same",
            EnvironmentRule::Warn => "warn",
            EnvironmentRule::Any => "any",
        }
    }
}

/// What is wrong with an environment: the entry, and the limit that it exceeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment: {0}")]
pub struct EnvironmentFault(String);

impl Environment {
    /// Refuses what is too much to be kept, sent and read.
    ///
    /// # Errors
    /// More than [`ENTRIES_MAX`] entries; a name that is empty, or longer than [`NAME_BYTES_MAX`], or has control characters;
    /// a value longer than [`VALUE_BYTES_MAX`].
    pub fn check(&self) -> Result<(), EnvironmentFault> {
        let fault = |what: String| Err(EnvironmentFault(what));
        if self.0.len() > ENTRIES_MAX {
            return fault(format!("{} entries, at most {ENTRIES_MAX} may be declared", self.0.len()));
        }
        for (name, value) in &self.0 {
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
                let name = shortened(name);
                return fault(format!(
                    "{name} is no name: 1 to {NAME_BYTES_MAX} bytes without control characters are"
                ));
            }
            if value.len() > VALUE_BYTES_MAX {
                let (bytes, most) = (value.len(), VALUE_BYTES_MAX);
                return fault(format!("{name:?} has {bytes} bytes, at most {most}: give a hash of it"));
            }
        }
        Ok(())
    }

    /// In what a trainer's environment is another than this one, the job's: each name with both values, some of them where
    /// there are many. None if they are the same.
    pub fn difference(&self, trainers: &Environment) -> Option<String> {
        let all: BTreeMap<&String, ()> =
            self.0.keys().chain(trainers.0.keys()).map(|name| (name, ())).collect();
        let differ = all.into_keys().filter(|name| self.0.get(*name) != trainers.0.get(*name));
        let differ: Vec<&String> = differ.collect();
        let value = |of: &Environment, name: &String| {
            of.0.get(name).map_or_else(|| "nothing".to_owned(), |value| shortened(value))
        };
        let told = differ.iter().take(TOLD_MAX).map(|name| {
            format!("{name} is {} in the job and {} here", value(self, name), value(trainers, name))
        });
        let mut words = told.collect::<Vec<_>>().join("; ");
        if differ.len() > TOLD_MAX {
            let _ = write!(words, "; and {} more", differ.len() - TOLD_MAX);
        }
        (!differ.is_empty()).then_some(words)
    }
}

/// A text in quotation marks, cut where it is long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(TOLD_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

/// Variables that a training program is started with unless somebody has said otherwise, and their values. Its mathematics has one
/// thread, the job's number and not the machine's: in another number sums have other bits, and more trainers come before more
/// threads. What it prints is seen at once. Python's sets of texts have one order in all trainers.
pub const PROGRAM_VARIABLES: [(&str, &str); 3] =
    [("OMP_NUM_THREADS", "1"), ("PYTHONHASHSEED", "0"), ("PYTHONUNBUFFERED", "1")];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, &str)]) -> Environment {
        Environment(entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_difference_names_each_entry_with_both_values_absent_ones_too() {
        let job = of(&[("threads", "1"), ("torch", "2.15"), ("mkl", "2026.1")]);
        assert_eq!(job.difference(&job.clone()), None);
        let other = of(&[("threads", "2"), ("torch", "2.15"), ("flags", "-x")]);
        let said = job.difference(&other).unwrap();
        assert_eq!(
            said,
            "flags is nothing in the job and \"-x\" here; mkl is \"2026.1\" in the job and nothing here; threads is \"1\" in \
             the job and \"2\" here"
        );
        assert!(Environment::default().difference(&job).is_some());
        assert_eq!(Environment::default().difference(&Environment::default()), None);
    }

    #[test]
    fn a_difference_of_many_long_entries_is_short() {
        let all = |value: &str| -> Environment {
            Environment((0..ENTRIES_MAX).map(|n| (format!("{n:064}"), value.repeat(256))).collect())
        };
        let (job, other) = (all("a"), all("é"));
        assert_eq!((job.check(), other.check()), (Ok(()), Ok(())));
        let said = job.difference(&other).unwrap();
        assert!(said.len() < 4000 && said.ends_with("; and 120 more"), "{}: {said}", said.len());
        // What would break a line of a log is written as in Rust.
        assert!(of(&[("a", "x\ny")]).difference(&of(&[])).unwrap().contains("\"x\\ny\""));
    }

    #[test]
    fn what_is_too_much_is_refused_by_name() {
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        let value = "v".repeat(VALUE_BYTES_MAX + 1);
        for (environment, says) in [
            (of(&[("", "x")]), "\"\" is no name"),
            (of(&[("a\nb", "x")]), "a\\nb"),
            (of(&[(&long, "x")]), "is no name: 1 to 64 bytes"),
            (of(&[("flags", &value)]), "\"flags\" has 513 bytes, at most 512"),
        ] {
            let said = environment.check().unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
        let many = Environment((0..=ENTRIES_MAX).map(|n| (n.to_string(), String::new())).collect());
        assert!(many.check().unwrap_err().to_string().contains("129 entries, at most 128"));
    }
}
