//! What a process is to its job.

/// What a process is to its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Hands out the data.
    Master,
    /// Holds the model.
    Pserver,
    /// Runs the author's program.
    Trainer,
}

impl Role {
    /// All there are.
    pub const ALL: [Role; 3] = [Role::Master, Role::Pserver, Role::Trainer];

    /// Its name: in messages, labels and the names of processes.
    pub fn name(self) -> &'static str {
        match self {
            Role::Master => "master",
            Role::Pserver => "pserver",
            Role::Trainer => "trainer",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
