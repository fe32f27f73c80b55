//! The exclusions that a trainer knows: a list that only ever grows, learnt from the master with the tasks that need it.

use shoal_runtime::cluster::Exclusions;
use std::sync::{Arc, Mutex, PoisonError};

/// The newest list of exclusions that this trainer has heard of.
#[derive(Debug, Default)]
pub(crate) struct KnownExclusions {
    present: Mutex<Arc<Exclusions>>,
}

impl KnownExclusions {
    pub(crate) fn present(&self) -> Arc<Exclusions> {
        Arc::clone(&self.present.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in a list; an older one changes nothing.
    pub(crate) fn learn(&self, exclusions: Exclusions) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if exclusions.number > present.number {
            *present = Arc::new(exclusions);
        }
    }
}
