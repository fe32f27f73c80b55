//! The roles of a local run's processes, by the words that people read.

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Trainer,
    Pserver,
    Master,
}

impl Role {
    /// Its word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Role::Trainer => "trainer",
            Role::Pserver => "pserver",
            Role::Master => "master",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}
