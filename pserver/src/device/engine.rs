//! The two threads of a device: one launches, one waits for what was launched.
//!
//! An update is `queued -> in flight -> done`, or never done. Invariants:
//! - kernels and copies out run in the order in which work was queued: a stream waits for the one before it between its copies in
//!   and its kernel. So copies in overlap all else, and no two updates of a block meet;
//! - a flight has each block at most once: its blocks are updated by one launch, in any order;
//! - a page belongs to whoever queued it, then to its stream, then to who reads it: never to two;
//! - the first error is the last thing that happens: nothing is launched and nothing is done after it.
//!
//! While all streams are under way updates gather in the queue, and leave it together: the busier, the more blocks a launch.

#![allow(unsafe_code, reason = "the kernel is given addresses")]

use super::Shared;
use super::batch::{Addresses, Operand, PieceUpdate, Tables};
use super::pool::PoolPage;
use super::stream::{Done, Stream};
use super::tree::Tree;
use bytes::Bytes;
use shoal_runtime::cluster::BlockId;
use shoal_runtime::host::cuda::{DeviceError, Memory};
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

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
/// How long one flight may take: a thousand times what the slowest does.
const STALLED: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });

/// What is queued.
#[derive(Debug)]
pub(super) enum Work {
    Update(Update),
    /// The first content of a block's memory.
    Upload(PoolPage, Arc<Memory>),
    /// So many bytes of a block's memory from there on.
    Fetch(Arc<Memory>, usize, usize, Sender<PoolPage>),
}

/// One block's update. Its page will have the new parameters, and has the gradient sum unless that is on the device.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) block: BlockId,
    pub(super) memory: Arc<Memory>,
    pub(super) at: Addresses,
    pub(super) pieces: Vec<PieceUpdate>,
    pub(super) page: PoolPage,
    pub(super) there: Option<Tree>,
    pub(super) outcome: Arc<OnceLock<Bytes>>,
}

/// A stream with memory of its own.
#[derive(Debug)]
struct Equipped {
    stream: Stream,
    staging: Arc<Memory>,
    tables: Arc<Memory>,
}

/// What a stream is under way with.
struct Flight {
    equipped: Equipped,
    then: Then,
}

/// What becomes of a flight's pages.
enum Then {
    Publish(Vec<(BlockId, Arc<OnceLock<Bytes>>)>),
    Answer(Sender<PoolPage>),
    Nothing,
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
            self.shared.context.enter()?;
            let then = match first {
                Work::Update(update) => {
                    let updates = self.gather(update, &mut next);
                    self.update(&mut equipped, updates)?
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

    /// The updates that are queued by now, as many as fit a stream; what does not fit is the next.
    fn gather(&self, first: Update, next: &mut Option<Work>) -> Vec<Update> {
        let (mut bytes, mut updates) = (room(&first), vec![first]);
        while let Ok(work) = self.work.try_recv() {
            match work {
                Work::Update(update)
                    if bytes + room(&update) <= STAGING_BYTES
                        && updates.iter().all(|other| !Arc::ptr_eq(&other.memory, &update.memory)) =>
                {
                    bytes += room(&update);
                    updates.push(update);
                }
                other => {
                    *next = Some(other);
                    break;
                }
            }
        }
        updates
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
            let Update { block, memory, at, pieces, page, there, outcome } = update;
            let bytes = page.bytes().len();
            if let Some(tree) = there {
                tables.add(at, &tree.operands(), tree.rounds(), &pieces);
                gradients.extend(tree.memories());
                stream.keep(page);
            } else {
                let sum = Operand { address: staging.address() + staged as u64, is_half: 0, joins: 0 };
                tables.add(at, &[sum], false, &pieces);
                stream.copy_in(page, bytes, staging, staged)?;
                staged += bytes.next_multiple_of(ALIGNMENT);
            }
            outcomes.push((block, outcome));
            memories.push((memory, bytes));
        }
        if tables.chunks() > 0 {
            let bytes = tables.bytes().next_power_of_two().max(TABLES_PAGE_BYTES);
            if room_for_tables.bytes() < bytes {
                *room_for_tables = Arc::new(self.shared.context.allocate("room for tables", bytes)?);
            }
            let mut page = self.shared.pool.page(bytes)?;
            tables.write(page.bytes_mut());
            stream.copy_in(page, tables.bytes(), room_for_tables, 0)?;
        }
        self.follow(stream)?;
        if tables.chunks() > 0 {
            let mut arguments = tables.addresses(room_for_tables.address());
            let named = memories.iter().map(|(memory, _)| Arc::clone(memory));
            let named = named.chain(gradients).chain([Arc::clone(staging), Arc::clone(room_for_tables)]);
            let (kernel, grid) = (&self.shared.kernel, (tables.chunks(), THREADS));
            // SAFETY: the kernel takes three tables. All addresses in them are of `named`: each block's own, which no other
            // piece of the tables has and which are written by launches alone, one after another, gradients that nobody writes
            // while a tree has them, and of the staging and the tables of this stream.
            unsafe { stream.launch(kernel, grid, &mut arguments, named)? };
        }
        for (index, (memory, bytes)) in memories.iter().enumerate() {
            stream.copy_out(memory, 0, *bytes, index)?;
        }
        Ok(Then::Publish(outcomes))
    }
}

/// What an update takes of a stream's staging.
fn room(update: &Update) -> usize {
    update.page.bytes().len().next_multiple_of(ALIGNMENT)
}

/// Waits for flights in the order in which they were launched, and says what is done.
fn land(shared: &Shared, landings: &Receiver<Flight>, idle: &Sender<Equipped>) -> Result<(), DeviceError> {
    while let Ok(Flight { mut equipped, then }) = landings.recv() {
        let mut pages = wait(&mut equipped.stream)?.into_iter();
        match then {
            Then::Publish(outcomes) => {
                let blocks: Vec<BlockId> = outcomes.iter().map(|(block, _)| *block).collect();
                for ((_, outcome), page) in outcomes.into_iter().zip(pages.by_ref()) {
                    // Set once, here.
                    let _ = outcome.set(Bytes::from_owner(page));
                }
                shared.finish(&blocks);
            }
            // Whoever asked may be gone.
            Then::Answer(answer) => drop(pages.next().map(|page| answer.send(page))),
            Then::Nothing => {}
        }
        drop(pages);
        // The launcher may be gone.
        let _ = idle.send(equipped);
    }
    Ok(())
}

/// Looks often at first: most flights take some hundred microseconds.
fn wait(stream: &mut Stream) -> Result<Vec<PoolPage>, DeviceError> {
    let began = Instant::now();
    let mut pause = Duration::from_micros(10);
    loop {
        if let Some(pages) = stream.finish()? {
            return Ok(pages);
        }
        if began.elapsed() > STALLED {
            return Err(DeviceError::Stalled { seconds: STALLED.as_secs() });
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(Duration::from_micros(200));
    }
}
