//! Blocks that hold the front up: unheard under their terms, or whole and not published. Pure.

use super::{Cause, Peer, Reason, Watch, lasting, seconds};
use crate::document::{Mark, PlacedBlock};
use crate::machine::Placed;
use crate::members::State;
use shoal_runtime::cluster::waits::WaitKind;
use shoal_runtime::cluster::{BlockId, Version};

/// Blocks that one look goes over at most: those of one pserver stand alike.
const LOOKED_AT_MAX: usize = 1024;

impl Watch<'_> {
    /// No live pserver has a copy of some block.
    pub(super) fn homeless(&self) -> Option<Cause> {
        let is_live = |who| self.machine.pservers.get(who).is_some_and(|member| member.state == State::Live);
        let mut blocks = (0..).map(BlockId).zip(&self.machine.document().blocks);
        let (id, block) = blocks.find(|(_, block)| !block.in_sync().any(|copy| is_live(copy.pserver)))?;
        Some(self.no_copy_left(id, block))
    }

    /// A block without a report under its term, so that the front is unknown.
    pub(super) fn unheard(&self, job: &Placed) -> Option<Cause> {
        let id = job.reports.unheard().next()?;
        let block = self.machine.document().blocks.get(id.0 as usize)?;
        let Some(peer) = self.pserver(block.primary).filter(|peer| peer.is_live) else {
            return Some(self.no_copy_left(id, block));
        };
        if self.is_silent(&peer) {
            return Some(self.pserver_silent(&peer, &format!("leads block {id}")));
        }
        let restoring = match block.origin {
            Some(record) => format!("restores block {id} from checkpoint {}", record.checkpoint),
            None => format!("begins block {id}"),
        };
        if let Some(wait) = peer.wait(WaitKind::Storage) {
            return Some(self.storage(&format!("pserver {:?} {restoring} and", peer.name), wait));
        }
        let is_filled = block.term.0 > block.rewind.0;
        let doing = if is_filled { format!("takes over block {id}") } else { restoring };
        Some(Cause {
            reason: Reason::Restoring,
            subject: peer.name.to_owned(),
            age: self.front_age(),
            text: format!(
                "pserver {:?} ({}) {doing} and has not said how it stands",
                peer.name, peer.address
            ),
            way_out: String::from("large blocks take their time; otherwise see its log"),
        })
    }

    /// No live pserver has a copy of a block: it is restored once enough pservers are there, or patience is over.
    fn no_copy_left(&self, id: BlockId, block: &PlacedBlock) -> Cause {
        let (there, wanted) = (self.machine.pservers.live_count(), self.machine.wanted().pservers);
        let primary = self.pserver(block.primary);
        let lost = primary.map_or_else(String::new, |peer: Peer<'_>| {
            format!(" (pserver {:?} was last heard of {} ago)", peer.name, seconds(peer.silence))
        });
        Cause {
            reason: Reason::NoCopyLeft,
            subject: primary.map_or_else(String::new, |peer| peer.name.to_owned()),
            age: primary.map_or(self.front_age(), |peer| peer.silence),
            text: format!(
                "no live pserver has a copy of block {id}{lost}; {there} of {wanted} pservers are there"
            ),
            way_out: String::from(
                "start another pserver: the job goes back to its newest checkpoint then; --copies 1 keeps a copy of each block",
            ),
        }
    }

    /// Every trainer's part of the front is there, and some block has not published it.
    pub(super) fn unpublished(&self, job: &Placed) -> Option<Cause> {
        let behind = job.reports.behind(self.machine.settings().is_sync());
        let blocks = &self.machine.document().blocks;
        let looked_at: Vec<(BlockId, Version, &PlacedBlock)> = behind
            .take(LOOKED_AT_MAX)
            .filter_map(|(id, version)| Some((id, version, blocks.get(id.0 as usize)?)))
            .collect();
        let each = |look: &dyn Fn(BlockId, Version, &PlacedBlock) -> Option<Cause>| {
            looked_at.iter().find_map(|(id, version, block)| look(*id, *version, block))
        };
        each(&|id, _, block| self.primary_silent(id, block))
            .or_else(|| each(&|id, version, block| self.copy_behind(job, id, version, block)))
            .or_else(|| each(&|_, _, block| self.primary_waits(block)))
            .or_else(|| each(&|id, _, block| self.primary_stuck(id, block)))
    }

    pub(super) fn primary_silent(&self, id: BlockId, block: &PlacedBlock) -> Option<Cause> {
        let peer = self.pserver(block.primary)?;
        self.is_silent(&peer).then(|| self.pserver_silent(&peer, &format!("leads block {id}")))
    }

    /// A copy that the primary requires has not taken in the next version.
    fn copy_behind(&self, job: &Placed, id: BlockId, version: Version, block: &PlacedBlock) -> Option<Cause> {
        let copies =
            block.copies.iter().filter(|copy| copy.pserver != block.primary && copy.mark == Mark::InSync);
        let mut behind = copies.filter(|copy| {
            let word = job.reports.copies().get(&(id, copy.pserver)).filter(|word| word.fill == copy.fill);
            word.and_then(|word| word.name).is_none_or(|name| name.version <= version)
        });
        let copy = behind.next()?;
        let (peer, primary) = (self.pserver(copy.pserver)?, self.pserver(block.primary)?);
        if self.is_silent(&peer) {
            return Some(self.pserver_silent(&peer, &format!("has a copy of block {id}")));
        }
        let unanswered =
            peer.waits.iter().find(|wait| wait.kind == WaitKind::Primary && wait.subject == primary.address);
        let (age, why) = match unanswered {
            Some(wait) => {
                (wait.age, format!(": it gets no answer from {} {}", primary.address, lasting(wait)))
            }
            None => (self.front_age(), String::new()),
        };
        Some(Cause {
            reason: Reason::CopyBehind,
            subject: peer.name.to_owned(),
            age,
            text: format!(
                "pserver {:?} may not publish block {id} before its copy on pserver {:?} has taken in what follows version {version}{why}",
                primary.name, peer.name
            ),
            way_out: format!(
                "see that {:?} reaches {}, and its log; shoal migrate {:?} moves the copy elsewhere",
                peer.name, primary.address, peer.name
            ),
        })
    }

    /// A wait that the primary reports.
    fn primary_waits(&self, block: &PlacedBlock) -> Option<Cause> {
        let peer = self.pserver(block.primary)?;
        let of = format!("pserver {:?}", peer.name);
        if let Some(memory) = peer.wait(WaitKind::CheckpointMemory) {
            let writing = peer.wait(WaitKind::Storage);
            let (subject, written) = writing.map_or_else(Default::default, |wait| {
                (wait.subject.clone(), format!("; {} {}", wait.subject, lasting(wait)))
            });
            return Some(Cause {
                reason: Reason::CheckpointMemory,
                subject: if subject.is_empty() { peer.name.to_owned() } else { subject },
                age: memory.age,
                text: format!(
                    "{of} puts updates off for {}, until pieces of a checkpoint are written that hold its --checkpoint-memory{written}",
                    seconds(memory.age)
                ),
                way_out: String::from(
                    "see that the place of checkpoints answers and has room; a larger --checkpoint-memory lets training go on meanwhile",
                ),
            });
        }
        if let Some(wait) = peer.wait(WaitKind::Device) {
            return Some(Cause {
                reason: Reason::Device,
                subject: peer.name.to_owned(),
                age: wait.age,
                text: format!("the device of {of} has not done its work {}", lasting(wait)),
                way_out: String::from(
                    "it is given up after 60 s, and its pserver replaced; see the driver's log (dmesg)",
                ),
            });
        }
        if let Some(wait) = peer.wait(WaitKind::Decision) {
            if let Some(scalars) = self.pserver_at(&wait.subject).filter(|scalars| self.is_silent(scalars)) {
                return Some(self.pserver_silent(&scalars, "decides over all blocks"));
            }
            return Some(Cause {
                reason: Reason::Undecided,
                subject: wait.subject.clone(),
                age: wait.age,
                text: format!(
                    "{of} gets no decision over all blocks from {} {}",
                    wait.subject,
                    lasting(wait)
                ),
                way_out: format!("see that {of} reaches it, and its log"),
            });
        }
        peer.wait(WaitKind::Storage).map(|wait| self.storage(&of, wait))
    }

    fn primary_stuck(&self, id: BlockId, block: &PlacedBlock) -> Option<Cause> {
        let peer = self.pserver(block.primary)?;
        Some(Cause {
            reason: Reason::PserverStuck,
            subject: peer.name.to_owned(),
            age: self.front_age(),
            text: format!(
                "pserver {:?} ({}) has all that the next update of block {id} needs, and has not published it",
                peer.name, peer.address
            ),
            way_out: format!("see its log; shoal migrate {:?} moves its blocks elsewhere", peer.name),
        })
    }
}
