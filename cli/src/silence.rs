//! Who does not answer is waited for, for a time that is said once.

use shoal_runner::exit::Exit;
use std::time::Duration;
use tokio::time::Instant;

/// How long somebody has not answered, and may.
pub(crate) struct Silence {
    patience: Duration,
    since: Option<Instant>,
}

impl Silence {
    /// None so far.
    pub(crate) fn of_at_most(patience: Duration) -> Silence {
        Silence { patience, since: None }
    }

    /// There was an answer.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Bears an error that means silence, and notes the first of them, if it `is_told`.
    ///
    /// # Errors
    /// The error itself, if it means something else, or the silence has lasted too long.
    pub(crate) fn bear(&mut self, error: anyhow::Error, is_told: bool) -> anyhow::Result<()> {
        let is_first = self.since.is_none();
        let since = self.since.get_or_insert_with(Instant::now);
        if !Exit::is_unreachable(&error) || since.elapsed() >= self.patience {
            return Err(error);
        }
        if is_first && is_told {
            note!("waiting up to {} s: {error:#}", self.patience.as_secs());
        }
        Ok(())
    }
}
