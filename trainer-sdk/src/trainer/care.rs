//! A microbatch with which trainers were lost, computed with care: each record alone before all of them together, and nothing
//! before the master knows of it. If this process ends without a word, the master knows what it was computing.

use super::attempt::Attempt;
use super::{Stop, Trainer};
use crate::desk::Ready;
use crate::parameters::Parameters;
use shoal_runtime::cluster::Task;

impl Trainer {
    /// Computes each record of microbatch `at` alone, with `parameters` or, without, only its keys; what comes of it is thrown
    /// away, also where the program says that it failed: it will say so again. Then announces all of them together. False if the
    /// task has left the desk meanwhile.
    pub(super) async fn try_each(
        &self,
        ready: &Ready,
        at: usize,
        parameters: Option<&Parameters>,
    ) -> Result<bool, Stop> {
        let indexes = self.attempt(ready, at).indexes();
        for index in &indexes {
            if !self.announce(&ready.task, Some(*index)).await {
                return Ok(false);
            }
            if indexes.len() == 1 {
                // Alone it is all of them.
                return Ok(true);
            }
            let (attempt, parameters, index): (Attempt, _, u64) =
                (self.attempt(ready, at), parameters.cloned(), *index);
            self.program.call(move |model| attempt.alone(model, parameters.as_ref(), index)).await?;
        }
        Ok(self.announce(&ready.task, None).await)
    }

    /// Tells the master what is computed next of a task: a record, or all of them. Returns whether it has answered; if not, the
    /// task has left the desk.
    async fn announce(&self, task: &Task, record: Option<u64>) -> bool {
        self.change(|desk| desk.announce(task, record));
        self.wait_for(|desk| desk.is_announced(task)).await
    }
}
