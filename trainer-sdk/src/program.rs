//! The program, and the thread on which its functions run: always the same one, so that what a library keeps for a thread (random
//! generators, gradient modes, pools of workers) is the program's throughout. The trainer's loops have another, and go on while a
//! function computes for minutes.

use crate::error::panic_words;
use crate::model::Model;
use futures_util::stream::{self, Stream, StreamExt};
use std::any::Any;
use std::mem;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
#[cfg(any(feature = "internals", test))]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// A program as the trainer's loops have it.
pub struct Program(Place);

enum Place {
    /// Whoever calls a function runs it: in simulations, whose order must not depend on threads.
    #[cfg(any(feature = "internals", test))]
    Here(Mutex<Box<dyn Model + Send>>),
    /// The thread of [`Calls::serve`].
    Apart(CallSender),
}

/// Calls of a program's functions that other threads make.
pub struct Calls {
    receiver: mpsc::Receiver<Call>,
    open: Arc<AtomicUsize>,
}

type Call = Box<dyn FnOnce(&mut dyn Model) + Send>;

struct CallSender {
    sender: mpsc::Sender<Call>,
    open: Arc<AtomicUsize>,
}

/// Whether a program computes.
#[derive(Clone)]
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Program {
    /// A program whose functions whoever calls them runs.
    #[cfg(any(feature = "internals", test))]
    pub fn in_place(model: impl Model + Send + 'static) -> Program {
        Program(Place::Here(Mutex::new(Box::new(model))))
    }

    /// A program whose functions run where its calls are [served](Calls::serve).
    pub fn apart() -> (Program, Calls) {
        let (sender, receiver) = mpsc::channel();
        let open = Arc::new(AtomicUsize::new(0));
        (Program(Place::Apart(CallSender { sender, open: open.clone() })), Calls { receiver, open })
    }

    /// Calls a function of the program. Dropped before its end, it runs to its end all the same, and nobody hears what came of it.
    ///
    /// # Panics
    /// When it has panicked, with its words.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut dyn Model) -> T + Send + 'static,
    ) -> T {
        let mut function = Some(function);
        let once =
            move |model: &mut dyn Model| ControlFlow::Break(function.take().map(|function| function(model)));
        match std::pin::pin!(self.each(Duration::ZERO, once)).next().await.flatten() {
            Some(done) => done,
            None => resume_unwind(Box::new("the program's thread has ended")),
        }
    }

    /// Calls a function of the program again and again, each time after a pause, until it breaks off or nobody waits for what it
    /// gives: one call follows the other, and the program's thread does not fall asleep until what came of the first was heard.
    /// Of short calls whoever waits is woken for many answers at once.
    /// What the function holds is dropped before the last answer is heard.
    ///
    /// # Panics
    /// When it has panicked, with its words.
    pub(crate) fn each<T: Send + 'static>(
        &self,
        pause: Duration,
        function: impl FnMut(&mut dyn Model) -> ControlFlow<T, T> + Send + 'static,
    ) -> impl Stream<Item = T> {
        match &self.0 {
            #[cfg(any(feature = "internals", test))]
            Place::Here(model) => each_here(model, pause, function).left_stream(),
            Place::Apart(calls) => {
                let given = calls.each(pause, function);
                #[cfg(any(feature = "internals", test))]
                let given = given.right_stream();
                given
            }
        }
    }
}

#[cfg(any(feature = "internals", test))]
fn each_here<T>(
    model: &Mutex<Box<dyn Model + Send>>,
    pause: Duration,
    function: impl FnMut(&mut dyn Model) -> ControlFlow<T, T>,
) -> impl Stream<Item = T> {
    stream::unfold(Some(function), move |function| async move {
        let mut function = function?;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        match function(model.lock().unwrap_or_else(PoisonError::into_inner).as_mut()) {
            ControlFlow::Continue(given) => Some((given, Some(function))),
            ControlFlow::Break(last) => Some((last, None)),
        }
    })
}

/// How often whoever waits for calls in a row is woken, at most, before the last of them: to be woken takes some tens of
/// microseconds of a processor.
const TOLD_EVERY: Duration = Duration::from_millis(20);

/// What came of a call, or the panic that it ended with.
type Given<T> = Result<T, Box<dyn Any + Send>>;

impl CallSender {
    fn each<T: Send + 'static>(
        &self,
        pause: Duration,
        function: impl FnMut(&mut dyn Model) -> ControlFlow<T, T> + Send + 'static,
    ) -> impl Stream<Item = T> {
        let (answers, answered) = unbounded_channel::<Vec<Given<T>>>();
        self.open.fetch_add(1, SeqCst);
        // Where calls are not served any more the answers are dropped, too.
        let _ = self.sender.send(Box::new(move |model| answer_each(model, pause, function, &answers)));
        let given = stream::unfold(answered, async |mut answered| Some((answered.recv().await?, answered)));
        given.flat_map(stream::iter).map(|given| given.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

/// Calls `function` until it breaks off, panics, or nobody waits any more.
fn answer_each<T>(
    model: &mut dyn Model,
    pause: Duration,
    mut function: impl FnMut(&mut dyn Model) -> ControlFlow<T, T>,
    answers: &UnboundedSender<Vec<Given<T>>>,
) {
    let (mut given, mut told) = (Vec::new(), Instant::now());
    loop {
        if !pause.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "the program's thread is none of a runtime's")]
            std::thread::sleep(pause);
        }
        if answers.is_closed() {
            return;
        }
        let called = catch_unwind(AssertUnwindSafe(|| function(model)));
        let goes_on = matches!(called, Ok(ControlFlow::Continue(_)));
        given.push(called.map(|(ControlFlow::Continue(next) | ControlFlow::Break(next))| next));
        if !goes_on {
            drop(function);
            // Nobody may be waiting any more.
            let _ = answers.send(given);
            return;
        }
        if told.elapsed() >= TOLD_EVERY {
            let _ = answers.send(mem::take(&mut given));
            told = Instant::now();
        }
    }
}

impl Calls {
    /// Runs the program's functions on this thread as they are called, until nobody is left to call them.
    pub fn serve(self, model: &mut dyn Model) {
        for call in self.receiver {
            call(model);
            self.open.fetch_sub(1, SeqCst);
        }
    }

    pub(crate) fn busy(&self) -> Busy {
        Busy(self.open.clone())
    }
}

impl Busy {
    /// Whether a function has been called and has not returned.
    pub(crate) fn is(&self) -> bool {
        self.0.load(SeqCst) > 0
    }
}

/// Calls a function of the program that is given no records. Its panic is an error like another.
pub(crate) fn caught<T>(function: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    catch_unwind(AssertUnwindSafe(function))
        .unwrap_or_else(|panic| Err(anyhow::anyhow!("it panicked: {}", panic_words(&*panic))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Declaration, Gradient, Job, Parameters};
    use futures_util::FutureExt;
    use std::rc::Rc;
    use std::thread::{self, ThreadId};

    /// What it keeps cannot be sent to another thread.
    struct Local(Rc<()>);

    impl Model for Local {
        fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
            self.0 = Rc::new(());
            Ok(Declaration { parameters: Vec::new(), block_elements: 0 })
        }
        fn step(&mut self, _: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> {
            Ok(())
        }
    }

    /// What `script` says after it has called the program from a thread of its own, and the thread that served it.
    fn served<T: Send>(script: impl AsyncFnOnce(Program, Busy) -> T + Send) -> (T, ThreadId) {
        let (program, calls) = Program::apart();
        let busy = calls.busy();
        thread::scope(|scope| {
            let said = scope.spawn(|| {
                tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(script(program, busy))
            });
            calls.serve(&mut Local(Rc::new(())));
            (said.join().unwrap(), thread::current().id())
        })
    }

    #[test]
    fn every_function_runs_on_the_thread_that_serves() {
        let script = async |program: Program, _| {
            let mut threads = Vec::new();
            for _ in 0..100 {
                threads.push(program.call(|_| thread::current().id()).await);
            }
            threads
        };
        let (threads, here) = served(script);
        assert_eq!(threads, [here; 100]);
    }

    #[test]
    fn a_panic_goes_on_where_the_function_was_called_and_others_are_called_after_it() {
        let script = async |program: Program, _| {
            let panics = program.call::<()>(|_| panic!("two"));
            let panic = AssertUnwindSafe(panics).catch_unwind().await.unwrap_err();
            (panic_words(&*panic).to_owned(), program.call(|_| 3).await)
        };
        assert_eq!(served(script).0, ("two".to_owned(), 3));
    }

    #[test]
    fn calls_in_a_row_wait_for_nobody_and_their_answers_come_in_order() {
        let script = async |program: Program, busy: Busy| {
            let (mut called, held) = (0, Arc::new(()));
            let holds = Arc::downgrade(&held);
            let count = move |_: &mut dyn Model| {
                called += Arc::strong_count(&held);
                if called < 5 { ControlFlow::Continue(called) } else { ControlFlow::Break(called) }
            };
            let answers = program.each(Duration::ZERO, count);
            // All of them are made before an answer is looked at.
            while busy.is() {
                thread::yield_now();
            }
            assert_eq!(holds.strong_count(), 0);
            answers.collect::<Vec<_>>().await
        };
        assert_eq!(served(script).0, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_long_calls_in_a_row_come_to_is_told_while_the_row_goes_on() {
        let script = async |program: Program, _| {
            let (hears, heard) = mpsc::channel::<()>();
            let mut called = 0;
            let mut answers = std::pin::pin!(program.each(Duration::ZERO, move |_| {
                called += 1;
                let begun = Instant::now();
                while begun.elapsed() < 2 * TOLD_EVERY {
                    thread::yield_now();
                }
                // Each waits until the one before it was heard of.
                let is_heard = called == 1 || heard.recv_timeout(Duration::from_secs(10)).is_ok();
                match (is_heard, called) {
                    (true, ..3) => ControlFlow::Continue(called),
                    _ => ControlFlow::Break(called),
                }
            }));
            let mut told = Vec::new();
            while let Some(answer) = answers.next().await {
                told.push(answer);
                let _ = hears.send(());
            }
            told
        };
        assert_eq!(served(script).0, [1, 2, 3]);
    }

    #[test]
    fn no_call_in_a_row_follows_a_panic_or_is_made_for_nobody() {
        let script = async |program: Program, busy: Busy| {
            let counted = Arc::new(AtomicUsize::new(0));
            let counts = || {
                let counted = counted.clone();
                move || counted.fetch_add(1, SeqCst)
            };
            let count = counts();
            let panics = program.each::<()>(Duration::ZERO, move |_| panic!("call {}", count()));
            let panic = AssertUnwindSafe(panics.collect::<Vec<_>>()).catch_unwind().await.unwrap_err();
            let (count, (begin, begins)) = (counts(), mpsc::channel::<()>());
            let for_nobody = program.each(Duration::ZERO, move |_| {
                let _ = begins.recv();
                ControlFlow::Continue(count())
            });
            drop(for_nobody);
            drop(begin);
            while busy.is() {
                thread::yield_now();
            }
            (panic_words(&*panic).to_owned(), counted.load(SeqCst))
        };
        let (panic, counted) = served(script).0;
        assert_eq!(panic, "call 0");
        assert!(counted <= 2, "one had begun at most: {counted}");
    }

    #[test]
    fn a_call_that_nobody_waits_for_runs_to_its_end_and_the_program_is_busy_until_then() {
        let (end, ended) = mpsc::channel::<()>();
        let script = async |program: Program, busy: Busy| {
            let (begun, begins) = tokio::sync::oneshot::channel();
            let call = program.call(move |_| {
                begun.send(()).unwrap();
                ended.recv().unwrap_err()
            });
            tokio::select! {
                biased;
                _ = call => panic!("it waits for the script"),
                begun = begins => begun.unwrap(),
            }
            let is_busy = busy.is();
            drop(end);
            program.call(|_| ()).await;
            is_busy
        };
        assert!(served(script).0);
    }
}
