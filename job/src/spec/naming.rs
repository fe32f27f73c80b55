//! How settings are called: by their flags, or by their fields.

use super::Spec;
use clap::{Args, Command};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How whoever is told what is wrong has said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By flags: `--eval-data`.
    Flags,
    /// By fields of a manifest: `spec.evalData`.
    Fields,
}

/// The flag of each setting, by its path.
static FLAGS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let command = Spec::augment_args(Command::new("job"));
    let named = command.get_arguments().filter_map(|argument| {
        Some((path(argument.get_id().as_str()), format!("--{}", argument.get_long()?)))
    });
    named.collect()
});

/// The path of the setting whose argument is called so: that of a group has its path, any other its field's name.
fn path(id: &str) -> String {
    let mut parts = id.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| {
        let (head, tail) = part.split_at(part.chars().next().map_or(0, char::len_utf8));
        path + &head.to_uppercase() + tail
    })
}

/// Whether a setting has that flag, which is given without its dashes.
pub fn is_flag(name: &str) -> bool {
    FLAGS.values().any(|flag| flag.strip_prefix("--") == Some(name))
}

impl Naming {
    /// What the setting of that path is called, such as `checkpoint.place`.
    pub fn of(self, path: &str) -> String {
        let flag = FLAGS.get(path).filter(|_| self == Naming::Flags);
        flag.cloned().unwrap_or_else(|| format!("spec.{path}"))
    }

    /// How a setting is said to have a value: `--epochs 0`, or `spec.epochs: 0`.
    pub fn says(self, path: &str, value: &str) -> String {
        match self {
            Naming::Flags => format!("{} {value}", self.of(path)),
            Naming::Fields => format!("{}: {value}", self.of(path)),
        }
    }

    /// How a switch is set: `--untrained`, or `spec.untrained: true`.
    pub fn sets(self, path: &str) -> String {
        match self {
            Naming::Flags => self.of(path),
            Naming::Fields => self.says(path, "true"),
        }
    }
}
