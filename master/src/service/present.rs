//! The machine while this process leads, and the lock around it.

use crate::clock::Clock;
use crate::machine::Machine;
use std::sync::MutexGuard;
use std::time::Duration;

/// What there is while this process leads.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) machine: Machine,
    pub(super) clock: Clock,
}

/// The machine, locked and brought up to the present moment.
pub(super) struct Present<'a> {
    pub(super) leading: MutexGuard<'a, Option<Leading>>,
    pub(super) now: Duration,
}

impl std::ops::Deref for Present<'_> {
    type Target = Machine;
    fn deref(&self) -> &Machine {
        &self.leading.as_ref().unwrap_or_else(|| unreachable!("checked when it was locked")).machine
    }
}

impl std::ops::DerefMut for Present<'_> {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.leading.as_mut().unwrap_or_else(|| unreachable!("checked when it was locked")).machine
    }
}
