//! What the end of a pserver's open call says of the pserver.

use super::MasterService;
use crate::machine::UNATTENDED_MAX;
use shoal_runtime::cluster::Incarnation;
use std::time::Duration;

/// Suspects a pserver whose open call was dropped before it was answered, for its connection is gone; and one that
/// does not open another after an answer, for nothing would tell its end.
pub(super) struct Connected {
    pub(super) service: MasterService,
    pub(super) pserver: Incarnation,
    pub(super) is_answered: bool,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let patience = if self.is_answered { UNATTENDED_MAX } else { Duration::ZERO };
        self.service.with(|machine, now| machine.suspect_pserver(self.pserver, now + patience));
        if !self.is_answered {
            self.service.signals.heard();
        }
    }
}
