//! Where code runs that takes a processor's time: the program's functions, and whatever goes over a whole model, its
//! gradients or its rows. The runtime's only thread must never do that: heartbeats, reads, pushes and the pages for probes
//! go on there meanwhile.

use crate::error::TrainError;
use crate::settings::Compute;

/// Bytes that are gone over in less time than another thread takes to begin and to be heard of: some tens of microseconds,
/// where a core goes over gigabytes a second.
const FEW_BYTES: usize = 64 << 10;

impl Compute {
    /// Runs code off the runtime's thread, or in place where order must not depend on threads.
    ///
    /// # Errors
    /// The code panicked.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        code: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TrainError> {
        match self {
            Compute::InPlace => Ok(code()),
            Compute::Thread => tokio::task::spawn_blocking(code)
                .await
                .map_err(|stopped| TrainError::Settings(format!("the computing thread ended: {stopped}"))),
        }
    }

    /// Runs code that goes over so many bytes: in place if they are few.
    ///
    /// # Errors
    /// The code panicked.
    pub(crate) async fn over<T: Send + 'static>(
        self,
        bytes: usize,
        code: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TrainError> {
        if bytes <= FEW_BYTES { Ok(code()) } else { self.run(code).await }
    }
}

/// Which code has run on which thread, for tests.
#[cfg(test)]
pub(crate) mod ran {
    use std::sync::Mutex;
    use std::thread::{ThreadId, current};

    static RAN: Mutex<Vec<(&str, ThreadId)>> = Mutex::new(Vec::new());

    /// This code runs here.
    pub(crate) fn note(code: &'static str) {
        let here = (code, current().id());
        let mut ran = RAN.lock().unwrap();
        if !ran.contains(&here) {
            ran.push(here);
        }
    }

    /// What has run on this thread.
    pub(crate) fn here() -> Vec<&'static str> {
        let ran = RAN.lock().unwrap();
        let mut here: Vec<&str> =
            ran.iter().filter(|(_, thread)| *thread == current().id()).map(|(code, _)| *code).collect();
        here.sort_unstable();
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::current;

    #[tokio::test]
    async fn much_is_gone_over_on_another_thread_and_little_or_what_is_simulated_in_place() {
        let here = current().id();
        let ran = async |compute: Compute, bytes| compute.over(bytes, || current().id()).await.unwrap();
        assert_ne!(ran(Compute::Thread, FEW_BYTES + 1).await, here);
        assert_eq!(ran(Compute::Thread, FEW_BYTES).await, here);
        assert_eq!(ran(Compute::InPlace, usize::MAX).await, here);
        assert_ne!(Compute::Thread.run(|| current().id()).await.unwrap(), here);
    }
}
