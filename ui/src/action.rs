//! What a person may do to a job by the page's buttons. The page asks; whoever runs the job answers in words.

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

/// Questions that wait at a time. A person clicks more slowly than they are answered.
const ASKED_MAX: usize = 16;

/// One thing that is done to a member of a local run, named as `trainer-3`, or to the number of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// kill -9.
    Kill {
        /// Whom.
        name: String,
    },
    /// SIGSTOP.
    Freeze {
        /// Whom.
        name: String,
    },
    /// SIGCONT.
    Thaw {
        /// Whom.
        name: String,
    },
    /// Packets between it and all others vanish.
    Cut {
        /// Whom.
        name: String,
    },
    /// They arrive again.
    Heal {
        /// Whom.
        name: String,
    },
    /// A pserver's blocks go to another that takes its place.
    Move {
        /// Whose.
        name: String,
    },
    /// One more is wanted.
    Add {
        /// `trainer` or `pserver`.
        role: String,
    },
    /// One fewer is wanted.
    Remove {
        /// `trainer` or `pserver`.
        role: String,
    },
}

/// An action that somebody waits for: the answer says what was done, or why nothing was.
#[derive(Debug)]
pub struct Asked {
    /// What is asked for.
    pub action: Action,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<String, String>>,
}

/// What the page may ask of whoever runs the job.
#[derive(Clone, Debug)]
pub struct Hands {
    asked: mpsc::Sender<Asked>,
    /// Why links cannot be cut; none where they can.
    pub no_network: Option<String>,
}

/// The other end of [`Hands`].
pub type HandsOn = mpsc::Receiver<Asked>;

impl Hands {
    /// Both ends. `no_network` says why links cannot be cut.
    pub fn new(no_network: Option<String>) -> (Hands, HandsOn) {
        let (asked, hands_on) = mpsc::channel(ASKED_MAX);
        (Hands { asked, no_network }, hands_on)
    }

    /// Has it done, and says what became of it.
    pub(crate) async fn ask(&self, action: Action) -> Result<String, String> {
        let (answer, answered) = oneshot::channel();
        let asked = self.asked.try_send(Asked { action, answer });
        let is_over = "the run is over: nothing is left to act on";
        asked.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => "the run has not answered yet: ask again in a moment",
            mpsc::error::TrySendError::Closed(_) => is_over,
        })?;
        answered.await.unwrap_or_else(|_| Err(is_over.to_owned()))
    }
}
