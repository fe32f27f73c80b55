//! Following and being followed: what copies of one block say to one another, over all blocks of two pservers.
//!
//! A follower says how its copies stand: all of them in the first request of a session, then only those that stand otherwise. The
//! primary keeps what was said, so that a request costs what has changed and not what is followed. A follower that misses an answer
//! begins another session; so nothing is lost, and nothing has to be sent again by the primary.
//!
//! A follower has several *channels*, each with its own share of the blocks, a session and a connection: while it takes in what one
//! channel was given, the others' is on its way, and all processors of both sides have something to do.

mod message;

use super::{Kind, Listener, Shard, Since};
use crate::block::{Cursor, News};
use crate::hosting::{Changed, Hosted, Hosting};
pub use message::FollowAnswer;
pub(crate) use message::grouped;
use shoal_runtime::cluster::{BlockId, Fill, Incarnation, Refusal, Term, Version};
use shoal_runtime::host::signal::Changes;
use shoal_runtime::wire::proto;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a follower's copy stands, as the follower says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stand {
    /// Which copy.
    pub fill: Fill,
    /// The block's term, as the follower knows it.
    pub term: Term,
    /// What it holds; none while nothing has come.
    pub cursor: Option<Cursor>,
}

/// The most channels by which a pserver follows another.
pub(crate) const CHANNELS_MAX: u32 = 8;

/// One channel by which a pserver follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Channel {
    /// Whom it follows.
    pub primary: Incarnation,
    /// Which of the channels to that.
    pub number: u32,
}

/// What followers have said to this pserver, of each of their channels the newest session.
#[derive(Debug, Default)]
pub(super) struct Sessions(BTreeMap<(Incarnation, u32), Arc<Mutex<Session>>>);

/// What one follower has said.
#[derive(Debug)]
struct Session {
    /// Names it.
    id: u64,
    /// The number of the request that comes next.
    next: u64,
    said: BTreeMap<BlockId, Stand>,
    /// Copies that were spoken of and not heard yet.
    unheard: BTreeSet<BlockId>,
    /// Copies that the last answer gave something: the next request says what has become of it.
    answered: BTreeSet<BlockId>,
    /// Copies that there may be something for.
    due: BTreeSet<BlockId>,
    logged: Listener,
}

/// One request of a follower, until it is answered.
#[derive(Debug)]
pub struct Led {
    follower: Incarnation,
    channel: u32,
    session: Arc<Mutex<Session>>,
    id: u64,
    number: u64,
    logged: Changes,
}

impl Shard {
    /// A follower says how its copies of a channel stand, in request `number` of a session, counted from 0; none if what it has said
    /// before is not known here.
    pub fn lead(
        &self,
        follower: Incarnation,
        channel: u32,
        id: u64,
        number: u64,
        said: &[proto::FollowedBlocks],
    ) -> Option<Led> {
        let said = said.iter().flat_map(|alike| {
            let stand = Stand::of(alike);
            alike.blocks.iter().map(move |block| (BlockId(*block), stand))
        });
        let said: BTreeMap<BlockId, Stand> = said.collect();
        let logged = self.changes.told(Kind::Logged);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if number == 0 {
            let (said, unheard, answered, due) = Default::default();
            let session = Session {
                id,
                next: 0,
                said,
                unheard,
                answered,
                due,
                logged: self.changes.listen(Kind::Logged),
            };
            // Nobody waits for an answer in the one before any more.
            sessions.0.insert((follower, channel), Arc::new(Mutex::new(session)));
        }
        let session = Arc::clone(sessions.0.get(&(follower, channel))?);
        drop(sessions);
        let led = Led { follower, channel, session, id, number, logged };
        {
            let mut session = led.session();
            if (session.id, session.next) != (id, number) {
                return None;
            }
            session.next = session.next.wrapping_add(1);
            // An answer that gave these something has gone to nobody: a request may come twice.
            let answered = std::mem::take(&mut session.answered);
            session.due.extend(answered.into_iter().filter(|block| !said.contains_key(block)));
            session.unheard.extend(said.keys());
            session.said.extend(said);
        }
        Some(led)
    }

    /// Sessions that no request is open of are forgotten: a follower that is still there begins another.
    pub(super) fn forget_sessions(&self) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.0.retain(|_, session| Arc::strong_count(session) > 1);
    }

    /// The channels by which this pserver follows others, with their addresses.
    pub fn channels(&self) -> Result<BTreeMap<Channel, String>, Refusal> {
        let Some(hosting) = self.hosting() else { return Ok(BTreeMap::new()) };
        let channels_each = self.channels_each(&hosting);
        let mut channels = BTreeSet::new();
        for hosted in hosting.blocks.values() {
            let primary = hosted.read(|block| block.cursor().map(|_| block.placement().primary))?;
            let number = channel_of(hosted.shape.id, channels_each);
            channels.extend(primary.map(|primary| Channel { primary, number }));
        }
        let address = |channel: Channel| Some((channel, hosting.address(channel.primary)?.to_owned()));
        Ok(channels.into_iter().filter_map(address).collect())
    }

    /// Channels to each primary: so many that all of them together are as many as processors, and two at least, of which one is
    /// waited for while the other's answer is taken in.
    fn channels_each(&self, hosting: &Hosting) -> u32 {
        let enough = self.processors.count().max(2).div_ceil(hosting.primaries.max(1));
        u32::try_from(enough).map_or(CHANNELS_MAX, |enough| enough.min(CHANNELS_MAX))
    }

    /// How all copies of a channel stand.
    pub fn following(&self, channel: Channel) -> Result<BTreeMap<BlockId, Stand>, Refusal> {
        let Some(hosting) = self.hosting() else { return Ok(BTreeMap::new()) };
        let channels_each = self.channels_each(&hosting);
        let blocks = hosting.blocks.values();
        self.stands(
            channel.primary,
            blocks.filter(|hosted| channel_of(hosted.shape.id, channels_each) == channel.number),
        )
    }

    /// The same of these copies.
    pub fn following_of(
        &self,
        primary: Incarnation,
        blocks: &[BlockId],
    ) -> Result<BTreeMap<BlockId, Stand>, Refusal> {
        let hosting = self.hosting();
        self.stands(primary, blocks.iter().filter_map(|id| hosting.as_ref()?.block(*id)))
    }

    fn stands<'a>(
        &self,
        primary: Incarnation,
        hosted: impl Iterator<Item = &'a Arc<Hosted>>,
    ) -> Result<BTreeMap<BlockId, Stand>, Refusal> {
        let mut stands = BTreeMap::new();
        for hosted in hosted {
            let stand = hosted.read(|block| {
                let (fill, term, cursor) = block.cursor().filter(|_| block.placement().primary == primary)?;
                Some(Stand { fill, term, cursor })
            })?;
            stands.extend(stand.map(|stand| (hosted.shape.id, stand)));
        }
        Ok(stands)
    }

    /// Takes in a primary's news.
    ///
    /// # Errors
    /// The news of some block cannot be decoded, have another shape, or cannot follow its state. That copy is broken; the others' news
    /// are taken in.
    pub async fn hear(self: &Arc<Self>, said: Vec<proto::FollowedBlock>) -> Result<(), Refusal> {
        let Some(hosting) = self.hosting() else { return Ok(()) };
        let here =
            said.into_iter().filter_map(|said| Some((Arc::clone(hosting.block(BlockId(said.block))?), said)));
        let heard = self.each(here.collect(), |shard, changed, (hosted, said)| {
            let (fill, term) = (Fill(said.fill), Term(said.term));
            let heard = shard.hear_one(changed, &hosted, said)?;
            if let Err(refusal) = &heard {
                tracing::error!(
                    block = %hosted.shape, fill = fill.0, term = term.0, %refusal,
                    "a copy cannot take what its primary gives: the master is to have it filled anew"
                );
            }
            Ok(heard)
        });
        heard.await?.into_iter().collect()
    }

    /// The copy's own refusal is the inner one.
    fn hear_one(
        &self,
        changed: &mut Changed,
        hosted: &Hosted,
        said: proto::FollowedBlock,
    ) -> Result<Result<(), Refusal>, Refusal> {
        let (fill, term, published) = (Fill(said.fill), Term(said.term), Version(said.published));
        let news = match News::decode(&hosted.shape, said.news) {
            Ok(news) => news,
            Err(refusal) => return hosted.with(changed, |block| block.refuse(fill, term, refusal)),
        };
        let bytes = news.bytes() as u64;
        self.count(|counters| {
            counters.fills += u64::from(matches!(news, News::Copy(_)));
            counters.entries += u64::from(matches!(news, News::Entry(_)));
            counters.bytes_followed += bytes;
        });
        hosted.with(changed, |block| block.hear(fill, term, published, news))
    }
}

/// The channel that has a block, of so many to its primary. Blocks of neighbouring numbers may have primaries in turns: a product
/// with 2^32 divided by the golden ratio spreads any such over all channels.
fn channel_of(block: BlockId, channels: u32) -> u32 {
    (block.0.wrapping_mul(0x9e37_79b9) >> 16) % channels
}

impl Led {
    /// Waits until there may be something for the follower.
    pub async fn changed(&mut self) {
        self.logged.changed().await;
    }

    /// Hears what the follower has said, and gives it what there is, as much as fits an answer.
    pub fn news(&mut self, shard: &Shard) -> Result<FollowAnswer, Refusal> {
        self.logged.mark_heard();
        let (mut answer, mut changed) = (FollowAnswer::default(), Changed::default());
        let Some(hosting) = shard.hosting().filter(|_| self.is_newest(shard)) else { return Ok(answer) };
        let mut session = self.session();
        if (session.id, session.next) != (self.id, self.number.wrapping_add(1)) {
            return Ok(answer);
        }
        session.look(&shard.changes);
        let unheard = std::mem::take(&mut session.unheard);
        let due = std::mem::take(&mut session.due);
        let mut later = BTreeSet::new();
        for id in unheard.iter().chain(due.difference(&unheard)) {
            let is_heard = !unheard.contains(id);
            let said = session.said.get(id).copied().filter(|_| !session.answered.contains(id));
            let Some((stand, hosted)) = said.zip(hosting.block(*id)) else { continue };
            if is_heard && answer.is_full() {
                later.insert(*id);
                continue;
            }
            let Stand { fill, term, cursor } = stand;
            let (follower, bytes_max) = (self.follower, answer.bytes_left());
            let (news, published) = hosted.with(&mut changed, |block| {
                (block.follow(follower, fill, term, cursor, bytes_max), block.published())
            })?;
            match news {
                News::Nothing | News::NotHere => {}
                News::Later => {
                    later.insert(*id);
                }
                // It is said again: a million of them are longer than a message.
                News::Broken | News::Entry(_) if answer.is_full() => {
                    later.insert(*id);
                }
                news => {
                    session.answered.insert(*id);
                    answer.push(*id, stand, published, news);
                }
            }
        }
        session.due = later;
        drop(session);
        shard.settle(changed);
        Ok(answer)
    }

    /// Whether the follower has begun no other session of that channel since.
    fn is_newest(&self, shard: &Shard) -> bool {
        let sessions = shard.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions
            .0
            .get(&(self.follower, self.channel))
            .is_some_and(|newest| Arc::ptr_eq(newest, &self.session))
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Notes what may have something for the follower since it was looked at last.
    fn look(&mut self, changes: &super::ChangeLog) {
        match self.logged.take(changes) {
            Since::Any => self.due = self.said.keys().copied().collect(),
            Since::Blocks(blocks) => self.due.extend(blocks.iter().filter(|id| self.said.contains_key(id))),
        }
    }
}
