//! Where work that takes a processor's time is run: on threads of its own, as many as there are processors, so that calls,
//! reports and probes are answered meanwhile; in a simulation in place, for its order of events must not depend on threads.
//!
//! There are two kinds. What computes is short and bounded, and takes a permit: [`run`](Processors::run),
//! [`over`](Processors::over), [`each`](Processors::each). What waits for a device may last, and takes none
//! ([`run_apart`](Processors::run_apart)): with as many permits as processors, of which there may be one, it would hold up all
//! computing for as long.

use futures_util::stream::{self, StreamExt};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Bytes that are gone over in less time than another thread takes to begin and to be heard of: some tens of microseconds,
/// where a core goes over gigabytes a second.
const FEW_BYTES: usize = 256 << 10;

/// Threads to compute on. Clones share them: together they compute on no more than there are processors.
#[derive(Clone, Debug, Default)]
pub struct Processors {
    /// One for each processor; `None`: all work is done in place.
    permits: Option<Arc<Semaphore>>,
    count: usize,
}

impl Processors {
    /// As many threads as the process has processors.
    pub fn all() -> Processors {
        Processors::of(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Starts `count` threads, at least one.
    pub fn of(count: usize) -> Processors {
        let count = count.max(1);
        Processors { permits: Some(Arc::new(Semaphore::new(count))), count }
    }

    /// No thread: whoever asks for work to be done does it.
    pub fn in_place() -> Processors {
        Processors::default()
    }

    /// How many threads compute at a time; in place one.
    pub fn count(&self) -> usize {
        self.count.max(1)
    }

    /// Does `work` with all items, in batches of neighbours of at most `batch_max`; returns what came of them in the order of the
    /// batches. Dropped before that, the batches that were begun are done, and no others are begun.
    ///
    /// # Panics
    /// When `work` has panicked, with its words.
    pub async fn each<I, T>(
        &self,
        items: Vec<I>,
        batch_max: usize,
        work: impl Fn(Vec<I>) -> T + Send + Sync + 'static,
    ) -> Vec<T>
    where
        I: Send + 'static,
        T: Send + 'static,
    {
        let batches = cut(items, self.count(), batch_max);
        if self.permits.is_none() {
            return batches.into_iter().map(work).collect();
        }
        let work = Arc::new(work);
        let batches = batches.into_iter().enumerate().map(|(at, batch)| {
            let work = Arc::clone(&work);
            async move { (at, self.run(move || work(batch)).await) }
        });
        // No more than there are threads ask for one: so whoever else computes has its turn between two batches.
        let mut done: Vec<(usize, T)> = stream::iter(batches).buffer_unordered(self.count).collect().await;
        done.sort_unstable_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Does one piece of work, once a permit is free.
    ///
    /// # Panics
    /// When it has panicked, with its words.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let Some(permits) = &self.permits else { return work() };
        // Never closed.
        let permit = Arc::clone(permits).acquire_owned().await;
        on_a_thread(move || {
            let _permit = permit;
            work()
        })
        .await
    }

    /// Does one piece of work that goes over so many bytes: in place if they are few.
    ///
    /// # Panics
    /// When it has panicked, with its words.
    pub async fn over<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes <= FEW_BYTES { work() } else { self.run(work).await }
    }

    /// Does what waits, for as long as it likes: on a thread of its own, without a permit.
    ///
    /// # Panics
    /// When it has panicked, with its words.
    pub async fn run_apart<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        if self.permits.is_none() { work() } else { on_a_thread(work).await }
    }
}

async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // Nobody aborts it: if it was not done, it has panicked.
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Neighbours together: few enough in a batch that the threads end at about the same time.
fn cut<I>(items: Vec<I>, threads: usize, batch_max: usize) -> Vec<Vec<I>> {
    let length = (items.len() / (4 * threads)).min(batch_max).max(1);
    let mut batches = Vec::with_capacity(items.len().div_ceil(length));
    let mut items = items.into_iter();
    loop {
        let batch: Vec<I> = items.by_ref().take(length).collect();
        if batch.is_empty() {
            return batches;
        }
        batches.push(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    /// For what does not come.
    const LIMIT: Duration = Duration::from_secs(60);

    fn where_done(batch: Vec<u32>) -> (Vec<u32>, ThreadId) {
        (batch, thread::current().id())
    }

    #[test]
    fn in_place_everything_is_done_at_once_by_whoever_asks() {
        let here = thread::current().id();
        let done = Processors::in_place().each((0..1000).collect(), 64, where_done).now_or_never().unwrap();
        assert!(done.iter().all(|(_, thread)| *thread == here));
        assert_eq!(
            done.into_iter().flat_map(|(batch, _)| batch).collect::<Vec<_>>(),
            Vec::from_iter(0..1000)
        );
        let thread = Processors::in_place().run(|| thread::current().id()).now_or_never();
        assert_eq!(thread, Some(here));
    }

    #[tokio::test]
    async fn results_are_in_order_and_no_runtime_thread_computes() {
        let (processors, here) = (Processors::all(), thread::current().id());
        let done = processors.each((0..1000).collect(), 64, where_done).await;
        assert!(done.iter().all(|(_, thread)| *thread != here));
        assert_eq!(
            done.into_iter().flat_map(|(batch, _)| batch).collect::<Vec<_>>(),
            Vec::from_iter(0..1000)
        );
        assert_ne!(processors.run(|| thread::current().id()).await, here);
        assert!(processors.each(Vec::<u32>::new(), 64, where_done).await.is_empty());
    }

    #[tokio::test]
    async fn all_work_together_has_no_more_threads_than_there_are_processors() {
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let processors = Processors::all();
        let count = processors.count;
        let work = move |_: Vec<u32>| {
            MOST.fetch_max(1 + NOW.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            // However busy the machine is: others come before this one ends, too many as well.
            let mut left = LIMIT.as_millis();
            while left > 0 && MOST.load(Ordering::SeqCst) < count {
                thread::park_timeout(Duration::from_millis(1));
                left -= 1;
            }
            thread::park_timeout(Duration::from_millis(1));
            NOW.fetch_sub(1, Ordering::SeqCst);
        };
        let all = (0..4).map(|_| processors.each((0..40).collect(), 64, work));
        futures_util::future::join_all(all).await;
        assert_eq!(MOST.load(Ordering::SeqCst), count);
    }

    #[tokio::test]
    async fn little_is_gone_over_in_place_and_much_on_another_thread() {
        let here = thread::current().id();
        let ran =
            async |processors: Processors, bytes| processors.over(bytes, || thread::current().id()).await;
        assert_ne!(ran(Processors::all(), FEW_BYTES + 1).await, here);
        assert_eq!(ran(Processors::all(), FEW_BYTES).await, here);
        assert_eq!(ran(Processors::in_place(), usize::MAX).await, here);
    }

    #[tokio::test]
    async fn what_waits_for_long_holds_up_no_other_work_even_on_one_processor() {
        let (processors, here) = (Processors::of(1), thread::current().id());
        let (end, ended) = std::sync::mpsc::channel();
        let waits = processors.run_apart(move || (ended.recv(), thread::current().id()));
        let own = async {
            let on = processors.over(usize::MAX, || thread::current().id()).await;
            end.send(()).unwrap();
            on
        };
        let both = futures_util::future::join(waits, own);
        let ((ended, apart), own) = tokio::time::timeout(LIMIT, both).await.expect("held up");
        assert!(ended.is_ok() && apart != here && own != here);
        assert_eq!(Processors::in_place().run_apart(|| thread::current().id()).await, here);
    }

    #[tokio::test]
    async fn a_panic_goes_on_where_the_work_was_asked_for() {
        let processors = Processors::all();
        let panics = processors.each(vec![1, 2, 3], 64, |batch| assert!(!batch.contains(&2), "two"));
        let panic = std::panic::AssertUnwindSafe(panics).catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"two"));
    }
}
