//! Sees everything and says what is broken. It must never change what anyone does.

use super::pserver::Pserver;
use super::state::{Name, Root, Update};
use super::words::{Block, Document, EPOCH, Exclusion, Number, Piece, Routing, Setting, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How a promise can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// An update answered `Applied` is not in a copy that may lead.
    Gone,
    /// A unit took effect twice, or out of its order.
    Twice,
    /// A step took effect without some of its nodes.
    Incomplete,
    /// A block applied a step without a decision.
    Undecided,
    /// A gradient of another history was applied, or a step read blocks of different histories.
    Mixed,
    /// Two states have one name, or a published state was replaced.
    TwoWriters,
    /// A manifest has pieces that are not of the present rewind numbers, or is behind the one before.
    OldManifest,
    /// A block went back although a single process was lost since its copies were complete.
    SingleLoss,
    /// An excluded record took effect on the surviving history, or was left out before its first step.
    Excluded,
    /// A record was excluded from a step of the newest durable checkpoint.
    Undone,
    /// Everybody lives, the network is fair, and the job cannot be finished.
    CannotFinish,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub fault: Fault,
    /// What was seen.
    pub story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.fault, self.story)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    violations: Vec<Violation>,
    /// The longest published history of a block under a rewind number.
    published: BTreeMap<(Block, Number), Vec<Update>>,
    /// Units answered `Applied` under a rewind number.
    applied: BTreeMap<(Block, Number), BTreeSet<Unit>>,
    names: BTreeMap<(Block, Name), Vec<Update>>,
    /// What the document was changed for, and how often.
    pub(crate) met: BTreeMap<&'static str, u64>,
    /// Processes lost since every block had all its copies; none before it first had.
    losses: Option<u32>,
}

impl Witness {
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }
    pub(crate) fn broken(&mut self, fault: Fault, story: String) {
        // A broken run goes on breaking; the first of each kind tells the story.
        if !self.violations.iter().any(|known| known.fault == fault) {
            self.violations.push(Violation { fault, story });
        }
    }

    pub(crate) fn publishes(&mut self, block: Block, rewind: Number, history: &[Update]) {
        let known = self.published.entry((block, rewind)).or_default();
        let common = known.len().min(history.len());
        if known[..common] != history[..common] {
            let story = format!("block {block}, rewind {rewind}: {known:?} was published, now {history:?}");
            self.broken(Fault::TwoWriters, story);
        } else if history.len() > common {
            *known = history.to_vec();
        }
    }
    pub(crate) fn answers_applied(&mut self, block: Block, rewind: Number, unit: Unit) {
        self.applied.entry((block, rewind)).or_default().insert(unit);
    }
    /// Nodes of a step are held beside others of it.
    pub(crate) fn joins(&mut self, block: Block, others: Option<Root>, root: Root) {
        if others.is_some_and(|others| others != root) {
            self.broken(Fault::Mixed, format!("block {block} holds {others:?} and {root:?}"));
        }
    }
    /// A block under this rewind number takes an update. Partials of other roots than its own are of another history or
    /// another step: where there are none, all blocks apply one decision.
    pub(crate) fn takes(&mut self, block: Block, rewind: Number, update: Update) {
        let mixed = update.decision.iter().flatten().flatten().any(|partial| *partial != update.root);
        if update.root.rewind != rewind || mixed {
            let story = format!("block {block} under rewind number {rewind} takes {update:?}");
            self.broken(Fault::Mixed, story);
        }
    }
    /// A step is applied, of which these nodes were pushed.
    pub(crate) fn completes(&mut self, setting: &Setting, block: Block, update: Update, pushed: u8) {
        if pushed != setting.root(update.root.unit) {
            self.broken(Fault::Incomplete, format!("block {block} takes {update:?} of nodes {pushed:#b}"));
        }
        if setting.shape.scalars && update.decision.is_none() {
            self.broken(Fault::Undecided, format!("block {block} takes {update:?} without a decision"));
        }
    }
    /// Async: a block that was told of an exclusion takes a gradient.
    pub(crate) fn leaves_out(&mut self, block: Block, told: Option<Exclusion>, root: Root) {
        if told.is_some() && !root.without {
            self.broken(Fault::Excluded, format!("block {block}, told of {told:?}, takes {root:?}"));
        }
    }
    /// A sync step begins with these histories of the blocks that it reads.
    pub(crate) fn begins(&mut self, unit: Unit, histories: &[&Vec<Update>]) {
        if histories.windows(2).any(|pair| pair[0] != pair[1]) {
            self.broken(Fault::Mixed, format!("step {unit} reads {histories:?}"));
        }
    }
    /// A process was lost, or given up by a master.
    pub(crate) fn loses(&mut self) {
        self.losses = self.losses.map(|losses| losses + 1);
    }

    pub(crate) fn commits(
        &mut self,
        setting: &Setting,
        old: &Document,
        new: &Document,
        storage: &BTreeMap<Piece, Vec<Update>>,
    ) {
        self.meets(old, new);
        let is_excluded = old.excluded != new.excluded;
        // Going back then is no loss, and takes the copies with it.
        self.losses = self.losses.filter(|_| !is_excluded);
        if is_excluded && new.excluded.is_none() {
            self.broken(Fault::Excluded, format!("{:?} is forgotten", old.excluded));
        }
        let first = new.excluded.map_or(0, |exclusion| exclusion.first);
        let durable = old.durable_version().max(new.durable_version());
        if setting.is_sync() && is_excluded && durable > first {
            let story = format!("a record is excluded from step {first}, {durable} are in a manifest");
            self.broken(Fault::Undone, story);
        }
        for (block, (before, after)) in old.blocks.iter().zip(&new.blocks).enumerate() {
            if before.rewind != after.rewind && setting.shape.followers > 0 && self.losses == Some(1) {
                let story = format!("block {block} goes back to {:?} after a single loss", after.origin);
                self.broken(Fault::SingleLoss, story);
            }
        }
        let Some(pieces) = new.durable.as_ref().filter(|_| new.durable != old.durable) else { return };
        for piece in pieces.iter().filter(|piece| piece.rewind != old.blocks[piece.block].rewind) {
            let now = old.blocks[piece.block].rewind;
            self.broken(Fault::OldManifest, format!("{piece:?} is committed under rewind number {now}"));
        }
        let earlier = old.durable.iter().flatten().zip(pieces);
        for (before, after) in earlier.filter(|(before, after)| before.rewind == after.rewind) {
            if after.version < before.version {
                self.broken(Fault::OldManifest, format!("{before:?} is replaced by {after:?}"));
            }
        }
        let Some(histories) = pieces.iter().map(|piece| storage.get(piece)).collect::<Option<Vec<_>>>()
        else {
            return self.broken(Fault::OldManifest, format!("pieces are missing of {pieces:?}"));
        };
        for history in &histories {
            self.reads_well(setting, "a durable piece", history);
            self.leaves_well(setting, "a durable piece", history, new);
        }
        if setting.is_sync() && histories.windows(2).any(|pair| pair[0] != pair[1]) {
            self.broken(Fault::Mixed, format!("a manifest of {histories:?}"));
        }
    }

    fn meets(&mut self, old: &Document, new: &Document) {
        let mut meets = |what, is_met| *self.met.entry(what).or_default() += u64::from(is_met);
        for (before, after) in old.blocks.iter().zip(&new.blocks) {
            let went_back = before.rewind != after.rewind;
            meets("restores", went_back);
            meets("hand-overs", !went_back && before.heir.is_some() && before.term != after.term);
            meets("failovers", !went_back && before.heir.is_none() && before.term != after.term);
            for mark in before.copies.iter().filter(|_| !went_back) {
                let now = after.copy_at(mark.at);
                meets("admissions", now.is_some_and(|now| now.in_sync && !mark.in_sync));
                meets("refills", now.is_some_and(|now| now.fill != mark.fill));
                meets("removals", now.is_none());
            }
        }
        meets("elections", old.master_term != new.master_term);
        meets("exclusions", old.excluded != new.excluded);
        meets("commits", old.durable != new.durable);
        let is_gone = old.named.is_some() && new.named.is_none() && old.durable == new.durable;
        meets("names given up", is_gone);
    }

    /// What holds after every action.
    pub(crate) fn inspect(&mut self, setting: &Setting, document: &Document, pservers: &[Pserver]) {
        for pserver in pservers.iter().filter(|pserver| pserver.alive) {
            for (block, copy) in &pserver.copies {
                let Some(state) = &copy.state else { continue };
                self.reads_well(setting, "a copy", &state.history);
                if copy.routing.rewind == document.blocks[*block].rewind {
                    self.leaves_well(setting, "a copy", &state.history, document);
                }
                let named = self.names.entry((*block, state.name)).or_insert_with(|| state.history.clone());
                if *named != state.history {
                    let story = format!("block {block}: {:?} is {named:?} and {state:?}", state.name);
                    self.broken(Fault::TwoWriters, story);
                }
            }
        }
        let mut is_redundant = true;
        for (block, routing) in document.blocks.iter().enumerate() {
            let leaders = routing.copies.iter().filter(|mark| mark.in_sync || mark.at == routing.primary);
            let living: Vec<_> = leaders.filter(|mark| pservers[mark.at.place].is(mark.at)).collect();
            is_redundant &= living.len() > setting.shape.followers && is_level(block, routing, pservers);
            let Some(applied) = self.applied.get(&(block, routing.rewind)) else { continue };
            for mark in living {
                let copy = pservers[mark.at.place].copies.get(&block).filter(|copy| copy.fill == mark.fill);
                let history = copy.and_then(|copy| copy.state.as_ref()).map(|state| &state.history);
                let holds = |unit| history.is_some_and(|h| h.iter().any(|update| update.root.unit == unit));
                if let Some(unit) = applied.iter().find(|unit| !holds(**unit)) {
                    let story = format!("block {block}: {unit} was applied, {mark:?} has {history:?}");
                    self.broken(Fault::Gone, story);
                    return;
                }
            }
        }
        if is_redundant {
            self.losses = Some(0);
        }
    }

    /// Exactly once: steps in their order, microbatches in any.
    fn reads_well(&mut self, setting: &Setting, what: &str, history: &[Update]) {
        let mut units: Vec<Unit> = history.iter().map(|update| update.root.unit).collect();
        if !setting.is_sync() {
            units.sort_unstable();
            units.dedup();
        }
        let is_well = match setting.is_sync() {
            true => units.iter().copied().eq(0..history.len()),
            false => units.len() == history.len() && units.iter().all(|unit| *unit < setting.shape.units),
        };
        if !is_well {
            self.broken(Fault::Twice, format!("{what} has {history:?} (epochs of {EPOCH})"));
        }
    }

    /// Sync: the record is left out where it is excluded, and nowhere else.
    fn leaves_well(&mut self, setting: &Setting, what: &str, history: &[Update], document: &Document) {
        let is_well = |update: &Update| update.root.without == document.leaves_out(update.root.unit);
        if setting.is_sync() && !history.iter().all(is_well) {
            let story = format!("{what} has {history:?} where {:?}", document.excluded);
            self.broken(Fault::Excluded, story);
        }
    }
}

/// Whether nobody listed is dead, and every in-sync copy has acknowledged the primary in its present term: until then a
/// copy that is ahead of a promoted primary may have to be filled afresh, and the loss before is not made good.
fn is_level(block: Block, routing: &Routing, pservers: &[Pserver]) -> bool {
    let primary = pservers[routing.primary.place].copies.get(&block);
    let reign = primary.and_then(|copy| copy.reign.as_ref()).filter(|reign| reign.term == routing.term);
    reign.is_some_and(|reign| {
        routing.copies.iter().all(|mark| {
            let has_answered = reign.acknowledged.contains_key(&(mark.at, mark.fill));
            pservers[mark.at.place].is(mark.at)
                && (has_answered || !mark.in_sync || mark.at == routing.primary)
        })
    })
}
