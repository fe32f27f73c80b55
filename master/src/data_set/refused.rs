//! Why a data set is not taken: what is wrong with which of its files, all of them counted and the first of them named.

use std::fmt;

/// Files that are named with what is wrong with them. Beyond, they are counted.
const NAMED_MAX: usize = 20;

/// A data set that is not taken: somebody has to name other files, or to mend them.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    named: Vec<String>,
    count: usize,
}

impl Refused {
    /// Adds what is wrong with one file, name first.
    pub(super) fn add(&mut self, fault: String) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(fault);
        }
    }

    /// The refusal, if there is anything to refuse.
    pub(super) fn check(self) -> Result<(), Refused> {
        if self.count == 0 { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "the data set is refused for one of its names:")?,
            count => write!(f, "the data set is refused for {count} of its names:")?,
        }
        for fault in &self.named {
            write!(f, "\n  {fault}")?;
        }
        match self.count - self.named.len() {
            0 => Ok(()),
            more => write!(f, "\n  … and {more} more"),
        }
    }
}

/// A name as messages say it: as it is where every character can be seen, or else in quotes, escaped.
pub(super) fn shown(name: &(impl fmt::Debug + ?Sized)) -> String {
    let quoted = format!("{name:?}");
    match quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => plain.to_owned(),
        _ => quoted,
    }
}
