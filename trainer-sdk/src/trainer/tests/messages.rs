//! Messages of one errand: how many are in memory at a time.

use super::fake::{Fake, settings};
use crate::errand::{Errand, Message, run};
use crate::error::TrainError;
use crate::master::Master;
use crate::meter::Meter;
use crate::pending::{BlockBatch, MESSAGE_BYTES};
use crate::push_log::PushLog;
use crate::session::Session;
use crate::{Declaration, Initial, Parameter, Rule, Schedule};
use shoal_runtime::cluster::routing::BlockRoute;
use shoal_runtime::cluster::{BlockId, Mode, Rewind, Routing, Term};
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::PserverClient;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use tonic::{Response, Status};

/// Messages that are in memory, and the most there ever were.
#[derive(Default)]
struct Count {
    present: AtomicUsize,
    most: AtomicUsize,
}

/// One message.
struct Counted(Arc<Count>);

impl Counted {
    fn new(count: &Arc<Count>) -> Counted {
        count.most.fetch_max(count.present.fetch_add(1, Relaxed) + 1, Relaxed);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.present.fetch_sub(1, Relaxed);
    }
}

/// Brings each block a message of its own.
struct Counting {
    count: Arc<Count>,
    lacking: BTreeSet<BlockId>,
    /// The block whose message cannot be made.
    unmade: Option<BlockId>,
    asked: Arc<Mutex<Vec<BlockId>>>,
}

impl Errand for Counting {
    type Request = Counted;
    type Reply = ();
    type End = ();

    fn wanted(&mut self, _: &Arc<Routing>) -> ControlFlow<(), BTreeSet<BlockId>> {
        ControlFlow::Continue(self.lacking.clone())
    }
    fn message(&self, batch: &BlockBatch) -> Message<Counted> {
        let (block, count, asked) = (batch.blocks[0].0, self.count.clone(), self.asked.clone());
        let unmade = self.unmade;
        Message::new(MESSAGE_BYTES, move || {
            asked.lock().unwrap().push(block);
            match unmade == Some(block) {
                true => Err(TrainError::Settings("it cannot be made".to_owned())),
                false => Ok(Counted::new(&count)),
            }
        })
    }
    async fn send(_: PserverClient, request: Counted) -> Result<Response<()>, Status> {
        sleep(Duration::from_millis(10)).await;
        drop(request);
        Ok(Response::new(()))
    }
    fn bytes(&self, _: BlockId) -> usize {
        MESSAGE_BYTES
    }
    fn open(&self, _: &BlockBatch) -> Duration {
        Duration::ZERO
    }
    async fn hear(&mut self, batch: &mut BlockBatch, (): ()) -> Result<ControlFlow<()>, TrainError> {
        batch.blocks.drain(..).for_each(|(block, _)| {
            self.lacking.remove(&block);
        });
        Ok(ControlFlow::Continue(()))
    }
    fn gone(&mut self) -> Option<()> {
        None
    }
    fn done(&mut self) {}
}

/// A trainer of 60 blocks, of which every third is at the second of two pservers.
async fn joined(processors: Processors) -> Session {
    let fake = Fake::new(Mode::SYNC);
    let place =
        |block: u32| BlockRoute { primary: u32::from(block % 3 == 2), term: Term(1), rewind: Rewind(1) };
    fake.state().routing.blocks = (0..60).map(place).collect();
    let w = Parameter::new("w", &[60], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let declaration = Declaration { parameters: vec![w], block_elements: 1 };
    let master = Master::find(&settings(), &fake, Random::seeded(3)).await.unwrap();
    let (push_log, meter) = (PushLog::open(None).unwrap(), Arc::new(Meter::new()));
    Session::join(master, declaration, None, Arc::new(fake), push_log, meter, processors).await.unwrap()
}

fn counting(unmade: Option<BlockId>) -> Counting {
    let lacking = (0..60).map(BlockId).collect();
    Counting { count: Arc::default(), lacking, unmade, asked: Arc::default() }
}

#[tokio::test(start_paused = true)]
async fn no_more_messages_are_made_than_pservers_are_sent_at_a_time() {
    for processors in [Processors::in_place(), Processors::all()] {
        let mut counting = counting(None);
        run(&joined(processors).await, &mut counting).await.unwrap();
        assert_eq!(counting.count.most.load(Relaxed), 16, "eight for each of two pservers");
        assert_eq!(counting.count.present.load(Relaxed), 0);
        let mut asked = counting.asked.lock().unwrap().clone();
        asked.sort_unstable();
        assert_eq!(asked, (0..60).map(BlockId).collect::<Vec<_>>(), "each is made once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_made_ends_the_errand() {
    let mut counting = counting(Some(BlockId(50)));
    let ended = run(&joined(Processors::in_place()).await, &mut counting).await;
    assert!(ended.unwrap_err().to_string().contains("cannot be made"));
    assert_eq!(counting.count.present.load(Relaxed), 0);
}
