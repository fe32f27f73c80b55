//! The thread of a device that launches what is queued; another waits for it (`landing`).
//!
//! An update is `queued -> in flight -> done`, or never done. Invariants:
//! - kernels and copies out run in the order in which work was queued: a stream waits for the one before it between its copies in
//!   and its kernel. So copies in overlap all else, and no two updates of a block meet;
//! - a flight has each block at most once: its blocks are updated by one launch, in any order;
//! - what is copied out of a block, or across to an area, is one of its newest two versions, which no update that was queued
//!   before it overwrites;
//! - a page belongs to whoever queued it, then to its stream, then to who reads it: never to two;
//! - the first error is the last thing that happens: nothing is launched and nothing is done after it.
//!
//! While all streams are under way updates gather in the queue, and leave it together: the busier, the more blocks a launch.

#![allow(unsafe_code, reason = "the kernel is given addresses")]

use super::Shared;
use super::batch::{Addresses, Operand, PieceUpdate, Tables};
use super::landing::{Flight, Then, land};
use super::pool::PoolPage;
use super::stream::{Done, Stream};
use super::tree::Tree;
use super::version::Outcome;
use crate::kernel::rules::Constants;
use shoal_runtime::cluster::BlockId;
use shoal_runtime::host::cuda::{DeviceError, Memory};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// As many as copy in, compute and copy out at a time.
const STREAMS: usize = 3;
/// Bytes of gradient sums that one stream takes at a time: long copies, and many more blocks than a launch costs.
pub(super) const STAGING_BYTES: usize = 32 << 20;
/// Where buffers begin on the device.
const ALIGNMENT: usize = 256;
/// Bytes of tables that a stream has room for at first.
const TABLES_BYTES: usize = 1 << 20;
/// Bytes of a page of tables, at least: one length for almost all, so that pages are used again.
const TABLES_PAGE_BYTES: usize = 64 << 10;
const THREADS: u32 = 256;
/// What is queued.
#[derive(Debug)]
pub(super) enum Work {
    Update(Update),
    Bring(Bring),
    Give(Give),
    /// The first content of a block's memory.
    Upload(PoolPage, Arc<Memory>),
    /// So many bytes of a block's memory from there on.
    Fetch(Arc<Memory>, usize, usize, Sender<PoolPage>),
}

/// What a block is updated by. The new parameters come to the page; without one they stay on the device.
#[derive(Debug)]
pub(super) enum GradientSum {
    /// In the page.
    Here(PoolPage),
    /// On the device.
    There(Tree, Option<PoolPage>),
}

impl GradientSum {
    fn page(&self) -> Option<&PoolPage> {
        match self {
            GradientSum::Here(page) => Some(page),
            GradientSum::There(_, page) => page.as_ref(),
        }
    }
}

/// One block's update.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) block: BlockId,
    pub(super) memory: Arc<Memory>,
    pub(super) addresses: Addresses,
    /// Where in the memory the new parameters begin.
    pub(super) next_at: usize,
    pub(super) pieces: Vec<PieceUpdate>,
    pub(super) sum: GradientSum,
    pub(super) outcome: Outcome,
}

/// A range of device memory that is wanted in host memory. The device signals the block on arrival.
#[derive(Debug)]
pub(super) struct Bring {
    pub(super) block: BlockId,
    pub(super) memory: Arc<Memory>,
    pub(super) at: usize,
    pub(super) bytes: usize,
    pub(super) outcome: Outcome,
}

/// Parameters that are copied to an area.
#[derive(Debug)]
pub(super) struct Give {
    pub(super) from: Arc<Memory>,
    pub(super) at: usize,
    pub(super) to: Arc<Memory>,
    pub(super) to_at: usize,
    pub(super) elements: usize,
    /// One is added once it is done.
    pub(super) done: Arc<AtomicU64>,
}

/// A stream with memory of its own.
#[derive(Debug)]
pub(super) struct Equipped {
    pub(super) stream: Stream,
    staging: Arc<Memory>,
    tables: Arc<Memory>,
}

/// Starts both threads; they end with the queue.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Sender<Work>, DeviceError> {
    let (queue, work) = channel();
    let (idle, streams) = channel();
    let (flights, landings) = sync_channel(STREAMS);
    for _ in 0..STREAMS {
        let stream = Stream::new(&shared.context)?;
        let staging = Arc::new(shared.context.allocate("room for gradients", STAGING_BYTES)?);
        let tables = Arc::new(shared.context.allocate("room for tables", TABLES_BYTES)?);
        // The receiver is there.
        let _ = idle.send(Equipped { stream, staging, tables });
    }
    let launcher = Launcher { shared: Arc::clone(shared), work, streams, flights, last: None };
    spawn("device-launch", shared, move || launcher.run())?;
    let waiting = Arc::clone(shared);
    spawn("device-wait", shared, move || land(&waiting, &landings, &idle))?;
    Ok(queue)
}

fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    body: impl FnOnce() -> Result<(), DeviceError> + Send + 'static,
) -> Result<(), DeviceError> {
    let told = Arc::clone(shared);
    // Whoever waits for a thread that has panicked would wait for ever.
    let run = move || match std::panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => told.fail(error),
        Err(_) => told.fail(DeviceError::Lost { call: "a thread of ours", code: "a panic".to_owned() }),
    };
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned
        .map(|_| ())
        .map_err(|error| shared.context.unsuitable(format!("no thread can be started for it: {error}")))
}

struct Launcher {
    shared: Arc<Shared>,
    work: Receiver<Work>,
    streams: Receiver<Equipped>,
    flights: SyncSender<Flight>,
    /// The end of the newest flight.
    last: Option<Done>,
}

impl Launcher {
    fn run(mut self) -> Result<(), DeviceError> {
        let mut next = self.work.recv().ok();
        while let Some(first) = next.take() {
            // Nobody gives streams back any more after an error, which is told.
            let Ok(mut equipped) = self.streams.recv() else { return Ok(()) };
            if self.shared.failure.get().is_some() {
                return Ok(());
            }
            self.shared.context.enter()?;
            let then = match first {
                Work::Update(update) => {
                    let updates = self.updates(update, &mut next);
                    self.update(&mut equipped, updates)?
                }
                Work::Bring(bring) => {
                    let brings = self.brings(bring, &mut next);
                    self.bring(&mut equipped.stream, brings)?
                }
                Work::Give(give) => {
                    let gives = self.gather(give, &mut next, |work| match work {
                        Work::Give(give) => ControlFlow::Continue(give),
                        other => ControlFlow::Break(other),
                    });
                    self.give(&mut equipped, gives)?
                }
                Work::Upload(page, memory) => {
                    let bytes = page.bytes().len();
                    equipped.stream.copy_in(page, bytes, &memory, 0)?;
                    self.follow(&mut equipped.stream)?;
                    Then::Nothing
                }
                Work::Fetch(memory, at, bytes, answer) => {
                    self.follow(&mut equipped.stream)?;
                    let page = equipped.stream.keep(self.shared.pool.page(bytes)?);
                    equipped.stream.copy_out(&memory, at, bytes, page)?;
                    Then::Answer(answer)
                }
            };
            self.last = Some(equipped.stream.close()?);
            if self.flights.send(Flight { equipped, then }).is_err() {
                return Ok(());
            }
            next = next.or_else(|| self.work.recv().ok());
        }
        Ok(())
    }

    /// What is queued by now and goes with the first; what does not is the next.
    fn gather<T>(
        &self,
        first: T,
        next: &mut Option<Work>,
        mut joins: impl FnMut(Work) -> ControlFlow<Work, T>,
    ) -> Vec<T> {
        let mut all = vec![first];
        while let Ok(work) = self.work.try_recv() {
            match joins(work) {
                ControlFlow::Continue(more) => all.push(more),
                ControlFlow::Break(other) => {
                    *next = Some(other);
                    break;
                }
            }
        }
        all
    }

    /// Updates of different blocks, as many as fit a stream.
    fn updates(&self, first: Update, next: &mut Option<Work>) -> Vec<Update> {
        let (mut bytes, mut blocks) = (room(&first), BTreeSet::from([Arc::as_ptr(&first.memory)]));
        self.gather(first, next, |work| match work {
            Work::Update(update)
                if bytes + room(&update) <= STAGING_BYTES && blocks.insert(Arc::as_ptr(&update.memory)) =>
            {
                bytes += room(&update);
                ControlFlow::Continue(update)
            }
            other => ControlFlow::Break(other),
        })
    }

    /// As many as a stream takes of updates, so that none waits for long.
    fn brings(&self, first: Bring, next: &mut Option<Work>) -> Vec<Bring> {
        let mut bytes = first.bytes;
        self.gather(first, next, |work| match work {
            Work::Bring(bring) if bytes + bring.bytes <= STAGING_BYTES => {
                bytes += bring.bytes;
                ControlFlow::Continue(bring)
            }
            other => ControlFlow::Break(other),
        })
    }

    /// What follows comes after all that was launched before.
    fn follow(&self, stream: &mut Stream) -> Result<(), DeviceError> {
        self.last.as_ref().map_or(Ok(()), |last| stream.after(last))
    }

    fn update(&self, equipped: &mut Equipped, updates: Vec<Update>) -> Result<Then, DeviceError> {
        let Equipped { stream, staging, tables: room_for_tables } = equipped;
        let (mut tables, mut staged) = (Tables::default(), 0);
        let (mut outcomes, mut memories) =
            (Vec::with_capacity(updates.len()), Vec::with_capacity(updates.len()));
        let mut gradients = Vec::new();
        for update in updates {
            let Update { block, memory, addresses, next_at, pieces, sum, outcome } = update;
            let bytes = sum.page().map(|page| page.bytes().len());
            match sum {
                GradientSum::There(tree, page) => {
                    tables.add(addresses, &tree.operands(), tree.rounds(), &pieces);
                    gradients.extend(tree.memories());
                    page.map(|page| stream.keep(page));
                }
                GradientSum::Here(page) => {
                    let sum = Operand { address: staging.address() + staged as u64, is_half: 0, joins: 0 };
                    tables.add(addresses, &[sum], false, &pieces);
                    let bytes = page.bytes().len();
                    stream.copy_in(page, bytes, staging, staged)?;
                    staged += bytes.next_multiple_of(ALIGNMENT);
                }
            }
            outcomes.push((block, outcome, bytes.is_some()));
            memories.push((memory, next_at, bytes));
        }
        let named = memories.iter().map(|(memory, ..)| Arc::clone(memory));
        let named: Vec<Arc<Memory>> = named.chain(gradients).chain([Arc::clone(staging)]).collect();
        // SAFETY: all addresses in the tables are of `named`: each block's own, which no other piece of the tables has and which are
        // written by launches alone, one after another, gradients that nobody writes while a tree has them, and of the
        // staging of this stream.
        unsafe { self.launch(stream, room_for_tables, &tables, named)? };
        let brought = memories.iter().filter_map(|(memory, at, bytes)| Some((memory, *at, (*bytes)?)));
        for (index, (memory, at, bytes)) in brought.enumerate() {
            stream.copy_out(memory, at, bytes, index)?;
        }
        Ok(Then::Made(outcomes))
    }

    fn bring(&self, stream: &mut Stream, brings: Vec<Bring>) -> Result<Then, DeviceError> {
        self.follow(stream)?;
        let mut outcomes = Vec::with_capacity(brings.len());
        for Bring { block, memory, at, bytes, outcome } in brings {
            let page = stream.keep(self.shared.pool.page(bytes)?);
            stream.copy_out(&memory, at, bytes, page)?;
            outcomes.push((block, outcome));
        }
        Ok(Then::Brought(outcomes))
    }

    /// One launch for all copies: most blocks are small, and a copy of its own takes as long as a megabyte.
    fn give(&self, equipped: &mut Equipped, gives: Vec<Give>) -> Result<Then, DeviceError> {
        let Equipped { stream, tables: room_for_tables, .. } = equipped;
        let (mut tables, mut named) = (Tables::default(), Vec::with_capacity(2 * gives.len()));
        let mut given = Vec::with_capacity(gives.len());
        for Give { from, at, to, to_at, elements, done } in gives {
            assert!(at + 4 * elements <= from.bytes(), "a copy beyond the end of device memory");
            assert!(to_at + 4 * elements <= to.bytes(), "a copy beyond the end of device memory");
            let (parameters, next) = (from.address() + at as u64, to.address() + to_at as u64);
            let unread = Operand { address: parameters, is_half: 0, joins: 0 };
            let keeps = [PieceUpdate { range: 0..elements, constants: Constants::KEEP }];
            tables.add(Addresses { parameters, next, slots: [0; 3] }, &[unread], false, &keeps);
            named.extend([from, to]);
            given.push(done);
        }
        // SAFETY: all addresses in the tables are of `named`: of blocks' newest two versions, which are written by launches alone,
        // one after another, and of areas where nothing is read or written before this is answered.
        unsafe { self.launch(stream, room_for_tables, &tables, named)? };
        Ok(Then::Given(given))
    }

    /// Launches what the tables say, after all that was launched before.
    ///
    /// # Safety
    /// All addresses in the tables lie in the memories that are named, and nothing else writes there until this is done, nor
    /// reads what this writes.
    unsafe fn launch(
        &self,
        stream: &mut Stream,
        room_for_tables: &mut Arc<Memory>,
        tables: &Tables,
        mut named: Vec<Arc<Memory>>,
    ) -> Result<(), DeviceError> {
        if tables.chunks() == 0 {
            return self.follow(stream);
        }
        let bytes = tables.bytes().next_power_of_two().max(TABLES_PAGE_BYTES);
        if room_for_tables.bytes() < bytes {
            *room_for_tables = Arc::new(self.shared.context.allocate("room for tables", bytes)?);
        }
        let mut page = self.shared.pool.page(bytes)?;
        tables.write(page.bytes_mut());
        stream.copy_in(page, tables.bytes(), room_for_tables, 0)?;
        self.follow(stream)?;
        let mut arguments = tables.addresses(room_for_tables.address());
        named.push(Arc::clone(room_for_tables));
        // SAFETY: the kernel takes three tables, which are this stream's; the rest is the caller's to keep.
        unsafe {
            stream.launch(&self.shared.kernel, (tables.chunks(), THREADS), &mut arguments, named.into_iter())
        }
    }
}

/// What an update takes of a stream's staging.
fn room(update: &Update) -> usize {
    update.sum.page().map_or(0, |page| page.bytes().len().next_multiple_of(ALIGNMENT))
}
