//! The microbatches of a task, one after the other through the program.

use super::attempt::{Attempt, Computed};
use super::{Stop, Trainer};
use crate::activities::Activity;
use crate::complaint::Complaint;
use crate::desk::Ready;
use crate::model::Model;
use crate::parameters::Parameters;
use crate::reduce::NodeSum;
use crate::tables::Keys;
use futures_util::stream::{self, Stream, StreamExt};
use shoal_runtime::host::cuda::DeviceError;
use std::ops::{ControlFlow, Range};

/// How a call of the program with a microbatch ended.
pub(super) enum Outcome<T> {
    Done(T),
    /// The microbatch cannot be computed here; the trainer goes on with other tasks.
    Refused(Complaint),
    /// The step function panicked: nobody knows what state the model is in.
    Panicked(Complaint),
    /// The device on which the program computes has failed: no record is to blame.
    Lost(DeviceError),
    /// The program says that this trainer cannot: no record is to blame.
    Unfit(String),
    /// The program was asked to stop: no record is to blame, nor anything else.
    Left,
}

impl Trainer {
    /// The keys of tables that microbatches `range` of the task read; without tables nobody is asked. `None`: they cannot be had, and
    /// the task has left the desk.
    pub(super) async fn keys(&self, ready: &Ready, range: Range<usize>) -> Result<Option<Keys>, Stop> {
        let mut keys = Keys::new(&self.session.names);
        for at in range.filter(|_| self.session.names.has_tables()) {
            if !self.with_care(ready, at, None).await? {
                return Ok(None);
            }
            let attempt = self.attempt(ready, at);
            let named = self.program.call(move |model| attempt.named(model)).await;
            match self.done(ready, Some(named))? {
                Some(named) => keys.join(named),
                None => return Ok(None),
            }
        }
        Ok(Some(keys))
    }

    /// The microbatches of the task, from `at` on, that are computed in a row: all, or one where the master asks for care and hears
    /// of each before. None: the task has left the desk.
    pub(super) async fn in_a_row(
        &self,
        ready: &Ready,
        at: usize,
        parameters: &Parameters,
    ) -> Result<Range<usize>, Stop> {
        self.session.meter.enter(Activity::Compute);
        if !self.with_care(ready, at, Some(parameters)).await? {
            return Ok(at..at);
        }
        Ok(at..if ready.task.is_careful { at + 1 } else { ready.records.len() })
    }

    /// Computes microbatches `range` of the task, one at least, each after the trainer's pause, up to the first that comes to
    /// nothing. On the program's thread, whose caches have the sums, it goes on with them: with gradients without -0.0, and rounded
    /// where the job says so.
    pub(super) fn compute<T: Send + 'static>(
        &self,
        ready: &Ready,
        range: Range<usize>,
        parameters: &Parameters,
        mut go_on: impl FnMut(usize, NodeSum) -> Result<T, DeviceError> + Send + 'static,
    ) -> impl Stream<Item = Result<Outcome<T>, Stop>> {
        let attempts: Vec<Attempt> = range.clone().map(|at| self.attempt(ready, at)).collect();
        let (mut next, parameters) = (0, parameters.clone());
        let compute = move |model: &mut dyn Model| {
            let attempt = &attempts[next];
            let computed = attempt.compute(model, &parameters, |sum| go_on(attempt.at, sum));
            next += 1;
            let goes_on = matches!(computed.outcome, Outcome::Done(_)) && next < attempts.len();
            if goes_on { ControlFlow::Continue(computed) } else { ControlFlow::Break(computed) }
        };
        let computed = self.program.each(self.settings.pace, compute).zip(stream::iter(range));
        computed.then(async |(computed, at)| self.computed(ready, at, computed).await)
    }

    /// Counts a microbatch, and writes its outputs.
    async fn computed<T>(&self, ready: &Ready, at: usize, computed: Computed<T>) -> Result<Outcome<T>, Stop> {
        let Computed { outcome, records, negative_zeros, part, list } = computed;
        self.session.meter.count(|counters| {
            counters.microbatches += 1;
            counters.negative_zeros += negative_zeros;
            counters.records += records;
        });
        if let (Some(part), Some(outputs)) = (part, &self.session.outputs) {
            let newest = || self.session.exclusions.present().number;
            outputs.write(ready.task.microbatches[at].index, part, list, newest).await?;
        }
        Ok(outcome)
    }

    /// Tries each record alone first, where the master asks for care. False if the task has left the desk.
    async fn with_care(
        &self,
        ready: &Ready,
        at: usize,
        parameters: Option<&Parameters>,
    ) -> Result<bool, Stop> {
        match ready.task.is_careful {
            true => self.try_each(ready, at, parameters).await,
            false => Ok(true),
        }
    }

    pub(super) fn attempt(&self, ready: &Ready, at: usize) -> Attempt {
        Attempt::of(&self.session, ready.clone(), at, self.inspection.clone())
    }
}
