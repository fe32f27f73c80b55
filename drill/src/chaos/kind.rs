//! The kinds of fault there are, and what each asks of the machine. Pure.

use clap::ValueEnum;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// kill -9 of a trainer, a pserver or the master
    Kill,
    /// SIGSTOP, and SIGCONT after a while
    Freeze,
    /// SIGTERM to a trainer: it hands back its tasks
    Leave,
    /// Other numbers of trainers or pservers, within their bounds
    Scale,
    /// A pserver's blocks go to another that takes its place
    Migrate,
    /// No process gets more memory than it has for a while, and ends if it needs it (Linux)
    Memory,
    /// Hosts cannot reach one another, one way or both (root on Linux, iproute2)
    Partition,
    /// A host's link delays and drops (root on Linux, iproute2)
    Slow,
    /// The disk with the master's state and its checkpoints is full (root on Linux)
    Disk,
}

impl Kind {
    /// Its word on the command line.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
    /// Whether each process has to be a host of a network made for the run.
    pub fn needs_network(self) -> bool {
        matches!(self, Kind::Partition | Kind::Slow)
    }
    /// Whether only the superuser can do it.
    pub fn is_privileged(self) -> bool {
        self.needs_network() || self == Kind::Disk
    }
}

/// A set of [kinds](Kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// These; if there are none, all that anybody can do.
    pub fn of(kinds: &[Kind]) -> Kinds {
        let anybody =
            |kind: &Kind| !kind.is_privileged() && (cfg!(target_os = "linux") || *kind != Kind::Memory);
        match kinds {
            [] => Kind::value_variants().iter().copied().filter(anybody).collect(),
            kinds => kinds.iter().copied().collect(),
        }
    }
    /// Whether a kind is among them.
    pub fn holds(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u16 != 0
    }
    /// One after another.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::value_variants().iter().copied().filter(move |kind| self.holds(*kind))
    }
    /// Their words, with commas between.
    pub fn words(self) -> String {
        self.iter().map(Kind::word).collect::<Vec<_>>().join(",")
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<T: IntoIterator<Item = Kind>>(kinds: T) -> Kinds {
        Kinds(kinds.into_iter().fold(0, |all, kind| all | 1 << kind as u16))
    }
}
