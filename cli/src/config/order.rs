//! Which of several values of a flag counts: typed, then a variable, then the nearest file, then the next, then the default. What a
//! stronger place contradicts is as if it were not there. It reads no file and no variable.

use super::flags::{contradict, flag, words};
use super::text::{Given, Setting};
use clap::{Arg, Command};
use std::collections::BTreeSet;

/// A setting of a file that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted<'a> {
    /// The flag, as clap identifies it.
    pub(crate) flag: String,
    pub(crate) setting: &'a Setting,
    /// The index of its file.
    pub(crate) file: usize,
    /// What it is as if typed.
    pub(crate) words: Vec<String>,
}

/// What counts of the settings that files have for a command, the nearest file first. `given` are the flags that were typed or have a
/// variable. The settings have been checked.
pub(crate) fn counted<'a>(
    command: &Command,
    files: &[&'a [Setting]],
    given: &BTreeSet<String>,
) -> Vec<Counted<'a>> {
    let of = |id: &str| command.get_arguments().find(|flag| flag.get_id() == id);
    let mut decided = given.clone();
    let mut present: Vec<&Arg> = given.iter().filter_map(|id| of(id)).collect();
    let mut counted = Vec::new();
    for (file, settings) in files.iter().enumerate() {
        let stronger = present.len();
        for setting in *settings {
            let Some(flag) = flag(command, &setting.key) else { continue };
            let id = flag.get_id().to_string();
            let is_on = setting.value != Given::Switch(false);
            let is_refused =
                is_on && present[..stronger].iter().any(|other| contradict(command, flag, other));
            if decided.contains(&id) || is_refused {
                continue;
            }
            let Ok(words) = words(flag, &setting.value) else { continue };
            decided.insert(id.clone());
            if is_on {
                present.push(flag);
            }
            counted.push(Counted { flag: id, setting, file, words });
        }
    }
    counted
}
