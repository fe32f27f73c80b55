//! The master's decisions: from the document and what is known to the next document, or none where nothing is to be
//! changed. They must never act on anything but their arguments.

use super::message::ToMaster;
use super::rules::Rule;
use super::words::{
    Block, Document, Exclusion, Incarnation, Mark, Named, Number, Piece, Place, Routing, Setting, Unit,
    Version,
};
use std::collections::{BTreeMap, BTreeSet};

/// What a master may do to the document by itself. `pick` chooses where there is a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Whoever was at the place is lost, or taken for lost.
    Lose { place: Place, pick: usize },
    /// Adds a filling copy.
    Add { block: Block, place: Place },
    /// Drops a copy beyond those wanted.
    Drop { block: Block, place: Place },
    /// Chooses whom the primary is to hand over to.
    Appoint { block: Block, place: Place },
    /// Promotes without asking the primary: what no protocol should do.
    Promote { block: Block, place: Place },
    /// Names a checkpoint.
    Name { version: Version },
    /// Commits the named checkpoint.
    Commit,
    /// Leaves the record out, that a trainer cannot read in this unit.
    Exclude { unit: Unit },
    /// Ends the job.
    Finish,
}

/// A master's memory, all of it volatile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The newest life heard of at each place.
    pub(crate) lives: BTreeMap<Place, u32>,
    pub(crate) pieces: BTreeMap<(Number, Block), Piece>,
    /// Async: ledgers by the term that was current when they were told.
    pub(crate) ledgers: BTreeMap<Block, (Number, BTreeSet<Unit>)>,
}

/// What a decision is made from, besides the document.
pub(crate) struct Case<'a> {
    pub(crate) setting: &'a Setting,
    pub(crate) known: &'a Known,
    /// Whether all blocks have published all units: what `Finish` should not be content with.
    pub(crate) is_all_published: bool,
}

impl Case<'_> {
    fn has(&self, rule: Rule) -> bool {
        self.setting.rules.on(rule)
    }

    /// What a decision makes of the document.
    pub(crate) fn decide(&self, document: &Document, decision: Decision) -> Option<Document> {
        let mut next = document.clone();
        next.version += 1;
        match decision {
            Decision::Lose { place, pick } => self.lose(&mut next, place, pick)?,
            Decision::Add { block, place } => self.add(&mut next, block, place)?,
            Decision::Drop { block, place } => self.drop_copy(&mut next.blocks[block], place)?,
            Decision::Appoint { block, place } => {
                let routing = &mut next.blocks[block];
                let mark = routing.follower_in_sync(place).filter(|_| routing.heir.is_none())?;
                routing.heir = Some(mark.fill);
            }
            Decision::Promote { block, place } => {
                let (number, routing) = (next.version, &mut next.blocks[block]);
                let mark = routing.follower_in_sync(place).filter(|_| !self.has(Rule::HandOverDrained))?;
                routing.promote(mark, number);
            }
            Decision::Name { version } => {
                let is_behind = self.setting.is_sync() && version <= next.durable_version();
                let is_free = next.named.is_none() && !is_behind;
                next.named = Some(Named { number: next.version, version }).filter(|_| is_free);
                next.named?;
            }
            Decision::Commit => self.commit(&mut next)?,
            Decision::Exclude { unit } => self.exclude(&mut next, unit)?,
            Decision::Finish => {
                let is_durable = next.is_final(self.setting.shape.units);
                let is_early = !self.has(Rule::DoneAfterDurable) && self.is_all_published;
                if next.done || !(is_durable || is_early) {
                    return None;
                }
                next.done = true;
            }
        }
        Some(next)
    }

    fn add(&self, next: &mut Document, block: Block, place: Place) -> Option<()> {
        let at = Incarnation { place, life: *self.known.lives.get(&place)? };
        let (fill, copies) = (next.version, &mut next.blocks[block].copies);
        let is_new = copies.iter().all(|mark| mark.at.place != place);
        is_new.then(|| copies.push(Mark { at, fill, in_sync: false }))
    }

    /// A copy goes when enough others are in-sync.
    fn drop_copy(&self, routing: &mut Routing, place: Place) -> Option<()> {
        let mark = *routing.copies.iter().find(|mark| mark.at.place == place)?;
        let others = routing.copies.iter().filter(|other| other.in_sync && other.fill != mark.fill).count();
        if mark.at == routing.primary || others <= self.setting.shape.followers {
            return None;
        }
        routing.remove(|other| other.fill == mark.fill);
        Some(())
    }

    /// What a pserver's request makes of the document: nothing, where what it names is not current any more.
    pub(crate) fn answer(&self, document: &Document, request: &ToMaster) -> Option<Document> {
        let mut next = document.clone();
        next.version += 1;
        let new_number = next.version;
        match *request {
            ToMaster::Admit { block, copy, fill, term, primary } => {
                let is_fenced = self.has(Rule::AdmissionFenced);
                let routing = &mut next.blocks[block];
                if is_fenced && (routing.term != term || routing.primary != primary) {
                    return None;
                }
                let is_it = |mark: &&mut Mark| mark.at == copy && (mark.fill == fill || !is_fenced);
                let mark = routing.copies.iter_mut().find(is_it).filter(|mark| !mark.in_sync)?;
                mark.in_sync = true;
            }
            ToMaster::HandOver { block, fill, term, primary } => {
                let routing = &mut next.blocks[block];
                let mark = routing.copy_filled(fill).filter(|mark| mark.in_sync).copied()?;
                if routing.term != term || routing.primary != primary || routing.heir != Some(fill) {
                    return None;
                }
                routing.promote(mark, new_number);
            }
            ToMaster::Diverged { block, fill, term } => {
                let routing = &mut next.blocks[block];
                let mark = *routing.copy_filled(fill).filter(|mark| mark.at != routing.primary)?;
                if routing.term != term {
                    return None;
                }
                routing.remove(|other| other.fill == fill);
                routing.copies.push(Mark { fill: new_number, in_sync: false, ..mark });
            }
            ToMaster::Passed { number, block, rewind } => {
                let is_named = next.named.is_some_and(|named| named.number == number);
                if !is_named || next.blocks[block].rewind != rewind || !self.has(Rule::PassedIsAbandoned) {
                    return None;
                }
                next.named = None;
            }
            ToMaster::Hello(_) | ToMaster::Supplied { .. } | ToMaster::Ledger { .. } => return None,
        }
        Some(next)
    }

    /// Removes the place's copies; promotes where an in-sync copy is left, goes back where none is.
    fn lose(&self, next: &mut Document, place: Place, pick: usize) -> Option<()> {
        let number = next.version;
        let (mut lost, mut gone) = (Vec::new(), Vec::new());
        for (block, routing) in next.blocks.iter_mut().enumerate() {
            gone.extend(routing.remove(|mark| mark.at.place == place));
            if routing.primary.place != place {
                continue;
            }
            let may_lead = |mark: &&Mark| mark.in_sync || !self.has(Rule::OnlyInSyncPromoted);
            let heirs: Vec<Mark> = routing.copies.iter().filter(may_lead).copied().collect();
            match heirs.is_empty() {
                true => lost.push(block),
                false => routing.promote(heirs[pick % heirs.len()], number),
            }
        }
        if gone.is_empty() {
            return None;
        }
        let lives = self.known.lives.iter().map(|(place, life)| Incarnation { place: *place, life: *life });
        let places: Vec<Incarnation> = lives.filter(|at| gone.iter().all(|mark| mark.at != *at)).collect();
        let is_together = self.setting.is_sync() && self.has(Rule::RewindRestoresAll) && !lost.is_empty();
        self.go_back(next, &lost, &places, pick, is_together)
    }

    /// Restores the lost blocks at some of `places`; if they go together, the others too, where they are.
    fn go_back(
        &self,
        next: &mut Document,
        lost: &[Block],
        places: &[Incarnation],
        pick: usize,
        is_together: bool,
    ) -> Option<()> {
        let number = next.version;
        for (block, routing) in next.blocks.iter_mut().enumerate() {
            let is_lost = lost.contains(&block);
            if !is_lost && !is_together {
                continue;
            }
            let at = match is_lost {
                true if places.is_empty() => return None,
                true => places[(pick + block) % places.len()],
                false => routing.primary,
            };
            let earlier = std::mem::take(&mut routing.copies);
            routing.restore(number, at, next.durable.as_ref().map(|pieces| pieces[block]));
            if !self.has(Rule::RewindRemovesCopies) {
                routing.copies.extend(earlier.into_iter().filter(|mark| mark.at != at));
            }
            next.named = None;
        }
        Some(())
    }

    /// Leaves the record out of `unit`, and of every unit from the first that is not applied.
    fn exclude(&self, next: &mut Document, unit: Unit) -> Option<()> {
        let (number, is_sync) = (next.version, self.setting.is_sync());
        let first = if is_sync { self.first_not_applied(next) } else { 0 };
        let is_known = next.leaves_out(unit) || (next.excluded.is_some() && !self.has(Rule::ExcludedEarlier));
        if next.done || is_known || unit < first {
            return None;
        }
        next.excluded = Some(Exclusion { number, first });
        if is_sync && self.has(Rule::ExclusionRewinds) {
            let beyond = next.durable.take_if(|pieces| pieces[0].version > first);
            self.go_back(next, &[], &[], 0, true)?;
            if !self.has(Rule::ExclusionDropsManifests) {
                next.durable = next.durable.take().or(beyond);
            }
        }
        Some(())
    }

    /// The lowest step that is not known to be applied by every block.
    fn first_not_applied(&self, document: &Document) -> Unit {
        let applied = document.blocks.iter().enumerate().map(|(block, routing)| {
            let told = self.known.ledgers.get(&block).filter(|(term, _)| *term == routing.term);
            told.map_or(0, |(_, units)| units.len())
        });
        let durable = if self.has(Rule::ExclusionNotOfApplied) { document.durable_version() } else { 0 };
        applied.min().unwrap_or(0).max(durable)
    }

    fn commit(&self, next: &mut Document) -> Option<()> {
        let blocks = 0..next.blocks.len();
        let pieces = |number: Number| -> Option<Vec<Piece>> {
            blocks.clone().map(|block| self.known.pieces.get(&(number, block)).copied()).collect()
        };
        let is_fenced = self.has(Rule::CommitNeedsRewind);
        let pieces = match is_fenced {
            true => pieces(next.named?.number)?,
            // A commit that was begun before the document changed.
            false => self.known.pieces.keys().rev().find_map(|(number, _)| pieces(*number))?,
        };
        let is_present = pieces.iter().all(|piece| piece.rewind == next.blocks[piece.block].rewind);
        let is_repeated = !is_fenced && next.durable.as_ref() == Some(&pieces);
        if (is_fenced && !is_present) || is_repeated {
            return None;
        }
        next.durable = Some(pieces);
        next.named = None;
        Some(())
    }
}
