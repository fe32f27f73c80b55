//! Being the leader, and learning that it is over. It must never be taken for a fence: the swap is the fence.

use std::any::Any;
use tokio::sync::watch;

/// The leadership of one store's document, given up on drop.
#[derive(Debug)]
pub struct Leadership {
    lost: watch::Receiver<Option<String>>,
    _hold: Box<dyn Any + Send + Sync>,
}

impl Leadership {
    /// A leadership that lasts while `hold` lives, or until a reason for its end is sent or its sender dropped.
    pub(super) fn new(lost: watch::Receiver<Option<String>>, hold: impl Any + Send + Sync) -> Leadership {
        Leadership { lost, _hold: Box::new(hold) }
    }
    /// Resolves, with the reason, when the leadership is lost; at once if it was lost before. May be dropped and
    /// asked again. Never resolves for a file, whose lock ends with the process or with this value.
    pub async fn lost(&mut self) -> String {
        match self.lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "nobody renews it any more".to_owned(),
        }
    }
}
