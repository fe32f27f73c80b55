//! What a block's primary does: takes gradients in, makes versions of them, logs these for followers, publishes what every
//! required copy has, and asks for copies to be admitted. Pure.
//!
//! An acknowledgement is for one fill. A copy is *required* from before its admission is asked for until a placement without that
//! fill is learnt; nothing is published that some required copy lacks. A filling copy is required as soon as it is only a few
//! entries behind, or could not keep up: updates would outrun it for ever.

use super::decide::Scalars;
use super::memory::may_update;
use super::piece::Piece;
use super::reduce::{Credit, Gradient, HeldSteps, Merge, Sum};
use super::state::{CopyOf, State, Update};
use super::{Block, Cursor, News, Role, Standing};
use crate::bucket::arena::Slot;
use shoal_runtime::cluster::{
    BlockCopy, Fill, Incarnation, Ledger, Mode, Node, Refusal, RefusalKind, Rewind, StateName, Step, Term,
    Version,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Entries kept for followers that are a little behind; one further behind is given the state again.
pub(super) const LOG_MAX: usize = 8;

/// The gradient of a node of a step's tree, for one block.
#[derive(Clone, Debug)]
pub struct NodeGradient {
    /// The step.
    pub step: Step,
    /// Of its tree.
    pub node: Node,
    /// Records (or tokens) in it.
    pub weight: u64,
    /// Of the block.
    pub gradient: Gradient,
}

/// What became of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// Held, and lost if this pserver is; it took the place of `replaced` descendants.
    Held {
        /// How many held nodes it covered.
        replaced: usize,
    },
    /// The same, and it made the root, whose turn has yet to come.
    Whole {
        /// How many held nodes it covered.
        replaced: usize,
    },
    /// It made the root: the step is applied, and published if no copy is waited for.
    Applied {
        /// How many held nodes it covered.
        replaced: usize,
        /// Whether some slots of the step were absent.
        is_short: bool,
        /// Whether it is part of a published version.
        is_published: bool,
    },
    /// A held node covers it; dropped.
    Covered,
    /// Its step was published before; dropped.
    Late,
    /// No credit, or the step's version is not published yet; send it again after a pause.
    Busy,
    /// The block's piece of a checkpoint waits to be written, and an update would hold more memory than pieces may;
    /// send it again after a pause.
    Throttled,
    /// The area that the gradient is said to be in is not here: its values are to be sent.
    NoArea,
    /// This copy is not the block's primary.
    Moved,
    /// The block has gone back since the gradient was computed, or records have been excluded.
    Rewound,
}

/// A copy as the master has placed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedCopy {
    /// Where it is.
    pub pserver: Incarnation,
    /// Which copy it is.
    pub fill: Fill,
    /// Whether it may be promoted.
    pub is_in_sync: bool,
}

/// The primary's part of a block.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) held: HeldSteps,
    /// Jobs that decide over all blocks.
    pub(super) scalars: Box<Scalars>,
    /// The state that this primary was promoted with: those below it under the same term are its past.
    pub(super) inherited: Option<StateName>,
    /// Asynchronous jobs: positions that are published; none until all is published that was inherited.
    pub(super) ledger: Option<Ledger>,
    /// Asynchronous jobs: positions of updates that are not published yet.
    pub(super) pending: VecDeque<(Version, u64)>,
    log: VecDeque<Arc<Update>>,
    followers: BTreeMap<Incarnation, Follower>,
}

/// What a primary knows of one copy.
#[derive(Clone, Copy, Debug)]
struct Follower {
    fill: Fill,
    stage: Stage,
    /// The newest version that it has said it has; none before its first word.
    acknowledged: Option<Version>,
    /// Whether it has all rows of that, and not the first ones only.
    is_whole: bool,
}

/// How far a copy is on its way to being in-sync. It goes from each stage to later ones only, for as long as its fill lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It was given nothing.
    Empty,
    /// It was given the state, and has not said since that it is within the log.
    Filling,
    /// Nothing is published that it lacks: it is only a few entries behind, or has needed the state twice.
    CatchingUp,
    /// The master is asked to admit it.
    Asking,
    /// The master has admitted it: it may be promoted.
    InSync,
}

/// What a primary has for a follower.
#[derive(Clone, Debug, PartialEq)]
enum Next {
    /// It is level.
    Nothing,
    /// What follows its state.
    Entry(Arc<Update>),
    /// Its state is in our past, but the entries are gone.
    State,
    /// It is level, and lacks the rows from this slot on.
    Segment(Slot),
    /// Nothing of ours can follow its state.
    Broken,
}

// Taking gradients in.
impl Block {
    /// Takes in a gradient, computed under `rewind`, that has passed the shape's check.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn push(&mut self, rewind: Rewind, arriving: NodeGradient) -> Result<PushOutcome, Refusal> {
        Ok(match self.check(rewind, &arriving)? {
            None => self.take(arriving),
            Some(outcome) => outcome,
        })
    }

    /// What becomes of a gradient that is not taken in; `None`: it is, if there is memory. Changes nothing.
    ///
    /// # Errors
    /// It contradicts what is held of its node, or is of a step beyond those that may be held.
    pub fn check(&self, rewind: Rewind, arriving: &NodeGradient) -> Result<Option<PushOutcome>, Refusal> {
        let (primary, version) = match self.led(rewind) {
            Ok(led) => led,
            Err(outcome) => return Ok(Some(outcome)),
        };
        let NodeGradient { step, node, weight, gradient } = arriving;
        if step.replaces() < version {
            return Ok(self.before_taking(*step, version).err());
        }
        let Some(held) = primary.held.of(*step) else {
            let detail = format!("the push is for step {step}, the block is at version {version}");
            return Err(Refusal::new(RefusalKind::Ahead, &self.shape, detail));
        };
        let credit = held
            .judge(*node, *weight, gradient)
            .map_err(|difference| self.shape.nondeterministic(*step, *node, difference))?;
        let is_taken = held.takes(credit);
        if is_taken {
            self.shape.check_rows_bytes(held.rows() + gradient.rows())?;
        }
        Ok(self.before_taking(*step, version).err().or(match credit {
            Credit::Covered => Some(PushOutcome::Covered),
            Credit::Lowest | Credit::Beyond(_) if is_taken => None,
            Credit::Lowest | Credit::Beyond(_) => Some(PushOutcome::Busy),
        }))
    }

    /// Takes in a gradient that [`check`](Self::check) has just allowed.
    pub fn take(&mut self, arriving: NodeGradient) -> PushOutcome {
        let NodeGradient { step, node, weight, mut gradient } = arriving;
        if !self.has_memory(gradient.rows()) {
            return PushOutcome::Throttled;
        }
        let Role::Primary(primary) = &mut self.role else { return PushOutcome::Moved };
        let Some(held) = primary.held.of_mut(step) else { return PushOutcome::Busy };
        let is_short = held.tree().present() < self.job.microbatches_per_step;
        if held.colocate(&mut gradient).is_err() {
            // The device has failed, and the process is about to end.
            return PushOutcome::Busy;
        }
        let Merge { replaced, is_whole } = held.take(node, weight, gradient);
        primary.held.note_taken();
        if !is_whole {
            return PushOutcome::Held { replaced };
        }
        self.go_on();
        if let Role::Primary(primary) = &mut self.role {
            primary.held.settle(step);
        }
        let is_applied = self.state.as_ref().is_some_and(|state| step.replaces() < state.version());
        let is_published = step.replaces() < self.published;
        match is_applied {
            true => PushOutcome::Applied { replaced, is_short, is_published },
            false => PushOutcome::Whole { replaced },
        }
    }

    /// What credit there is for a node whose gradient was computed under `rewind`; or what a push of it would be answered, whatever
    /// it brings. Pieces that an update would have to copy are charged for, as a push does.
    pub fn credit(&mut self, rewind: Rewind, step: Step, node: Node) -> Result<Credit, PushOutcome> {
        let (_, version) = self.led(rewind)?;
        self.before_taking(step, version)?;
        if !self.has_memory(0) {
            return Err(PushOutcome::Throttled);
        }
        let (primary, _) = self.led(rewind)?;
        primary.held.of(step).map(|held| held.credit(node)).ok_or(PushOutcome::Busy)
    }

    /// The primary's part and the version, or what a caller with that rewind number is told instead.
    pub(super) fn led(&self, rewind: Rewind) -> Result<(&Primary, Version), PushOutcome> {
        match (&self.role, &self.state) {
            (Role::Primary(_), _) if rewind < self.placement.rewind => Err(PushOutcome::Rewound),
            (Role::Primary(_), _) if rewind > self.placement.rewind => Err(PushOutcome::Busy),
            (Role::Primary(primary), Some(state)) => Ok((primary, state.version())),
            (Role::Primary(_), None) => Err(PushOutcome::Busy),
            (Role::Follower { .. } | Role::Retired, _) => Err(PushOutcome::Moved),
        }
    }

    /// What a push for `step` is answered whatever it brings, the block being at `version`.
    fn before_taking(&self, step: Step, version: Version) -> Result<(), PushOutcome> {
        if step.replaces() < self.published {
            return Err(PushOutcome::Late);
        }
        if step.replaces() < version {
            // Applied, but some copy has yet to say that it has it: it may be lost.
            return Err(PushOutcome::Held { replaced: 0 });
        }
        let is_closed = self.placement.heir.is_some() || !self.is_open(step.0);
        if self.job.reads(step) > self.published || is_closed {
            return Err(PushOutcome::Busy);
        }
        Ok(())
    }

    /// Whether a change of so many rows may cost what pieces under way still need.
    pub(super) fn has_memory(&mut self, rows: usize) -> bool {
        let saved = self.piece.as_ref().zip(self.state.as_ref());
        let may_save = saved.is_none_or(|(piece, state)| {
            piece.may_save(&self.shape, state, self.job.updates(state.version()), rows)
        });
        let has_memory = may_save && may_update(&mut self.holds);
        self.is_starved |= !has_memory;
        has_memory
    }
}

// Making versions of them.
impl Block {
    /// Makes the versions whose time has come: the root of the next step is whole, all before it is published, what is to
    /// be decided of it is, and memory is there.
    pub fn go_on(&mut self) {
        while let Some(rows) = self.due()
            && self.has_memory(rows)
            && let (Role::Primary(primary), Some(state)) = (&mut self.role, &self.state)
        {
            let is_needed_here = primary.is_followed() || !state.is_on_device();
            if is_needed_here && !primary.held.bring_root(self.shape.id) {
                // It goes on once the device tells that the root is here.
                return;
            }
            let (decision, step) = (primary.scalars.decision(), Step(state.version().0));
            primary.scalars.advance();
            let last = self.job.nothing_of(self.job.last_held(Version(state.version().0 + 1)));
            let Some(root) = primary.held.advance(last) else { return };
            let is_skipped = decision.is_some_and(|decision| decision.is_skipped);
            let weight = if is_skipped { 0 } else { root.weight };
            let factor = decision.map_or(1.0, |decision| decision.factor);
            let rate = self.rate(step.0);
            let update = Update::new(state.name(), self.placement.term, weight, root.sum);
            self.update(Update { factor, rate, ..update });
        }
    }

    /// Rows of the next version's sum, if its time has come but for memory.
    fn due(&self) -> Option<usize> {
        let (Role::Primary(primary), Some(state)) = (&self.role, &self.state) else { return None };
        let root = primary.held.root()?;
        let is_decided = !self.shape.is_decided || primary.scalars.decision().is_some();
        let is_due = state.version() == self.published && self.placement.heir.is_none() && is_decided;
        is_due.then(|| root.sum.rows())
    }

    /// The sum is there: the next version is made, logged for whoever follows, and published when it may be.
    pub(super) fn update(&mut self, mut update: Update) {
        let (Role::Primary(primary), Some(state)) = (&mut self.role, &mut self.state) else { return };
        if update.weight == 0 {
            // Nobody adds up what is of no record: followers are not given it.
            update.sum = Sum::nothing(self.shape.bucket.is_some());
        }
        let context = self.job.context(&self.shape, state, &update);
        update.plan = state.plan(&self.shape, context, &update);
        if primary.is_followed() {
            update.sum.freeze();
            primary.append(Arc::new(update.clone()));
        }
        self.row_counts.count(&update.plan);
        self.copied += state.apply(&self.shape, context, update);
        if let Some(Piece::Open(_, piece)) = &self.piece {
            self.settle_saved(&piece.hold);
        }
        self.record();
        self.publish();
    }

    /// Publishes what every required copy has. Whatever is published has been recorded, if that is due: a device may have
    /// brought it since this was last looked at, and what is published lets go of what is older.
    pub(super) fn publish(&mut self) {
        if let (Role::Primary(primary), Some(state)) = (&self.role, &self.state)
            && let Some(version) = primary.publishable(state.ready())
        {
            self.published = self.published.max(version);
        }
        self.record_what_is_here();
        let (Role::Primary(primary), Some(state)) = (&mut self.role, &mut self.state) else { return };
        primary.note_published(self.published, state);
        state.release(self.published, self.job.mode.earlier_states());
        self.take_piece_if_due();
    }

    /// A device has done something for this block: an update, or a copy that was asked for.
    pub fn note_done(&mut self) {
        self.landed += 1;
        self.take_piece_if_here();
        self.publish();
        self.go_on();
    }
}

// Serving followers.
impl Block {
    /// A follower, under `term` and with copy `fill`, says what it holds and asks for what follows, of which at most `bytes_max`
    /// bytes may be given to it.
    pub fn follow(
        &mut self,
        follower: Incarnation,
        fill: Fill,
        term: Term,
        theirs: Option<Cursor>,
        bytes_max: usize,
    ) -> News {
        let whole = self.copy_of(self.job.mode.earlier_states(), 0);
        let (Role::Primary(primary), Some(state)) = (&mut self.role, &self.state) else {
            return News::NotHere;
        };
        if term != self.placement.term || !primary.knows(follower, fill) {
            return News::NotHere;
        }
        let next = theirs.map_or(Next::State, |theirs| primary.hear(follower, theirs, state.name()));
        let fits = |news: News| if news.bytes() <= bytes_max { news } else { News::Later };
        let news = match next {
            Next::Nothing => News::Nothing,
            Next::Broken => News::Broken,
            Next::Entry(entry) => fits(News::Entry(entry)),
            Next::State | Next::Segment(_) if bytes_max == 0 => News::Later,
            Next::State | Next::Segment(_) => {
                let from = if let Next::Segment(from) = next { from } else { 0 };
                let copy = state.copy(&self.shape, CopyOf { from, ..whole });
                let news = copy.map_or(News::Nothing, |copy| fits(News::Copy(Box::new(copy))));
                if from == 0 && matches!(news, News::Copy(_)) {
                    primary.give_state(follower);
                }
                news
            }
        };
        self.publish();
        self.go_on();
        news
    }

    /// A copy at exactly `version`, which must be the newest and published; of a bucket the segment from slot `from` on.
    ///
    /// # Errors
    /// It is of another version, or not here.
    pub fn copy_at(&self, version: Version, from: Slot) -> Result<BlockCopy, Refusal> {
        let state = self.state.as_ref().filter(|_| matches!(self.role, Role::Primary(_)));
        let state = state.ok_or_else(|| {
            let detail = "this pserver has no primary copy of it: learn the present routing";
            Refusal::new(RefusalKind::UnknownBlock, &self.shape, detail)
        })?;
        if version != self.published || version != state.version() {
            let kind = if version < self.published { RefusalKind::StepGone } else { RefusalKind::NotReady };
            let detail = format!("the block is at version {}, asked was {version}", self.published);
            return Err(Refusal::new(kind, &self.shape, detail));
        }
        state.copy(&self.shape, self.copy_of(0, from)).ok_or_else(|| {
            let detail = "its device does not give it: it has failed";
            Refusal::new(RefusalKind::NotReady, &self.shape, detail)
        })
    }

    pub(super) fn copy_of(&self, earlier: u64, from: Slot) -> CopyOf {
        let (rewind, published, segment_bytes) =
            (self.placement.rewind, self.published, self.job.segment_bytes);
        CopyOf { rewind, published, earlier, from, segment_bytes }
    }

    /// Whether there is a copy to ask for that was not asked for yet.
    pub fn is_admission_due(&self) -> bool {
        matches!(&self.role, Role::Primary(primary) if primary.is_admission_due(self.published))
            || self.hand_over().is_some()
    }

    /// Copies to ask the master to admit. They are required from now on.
    pub fn ask_for(&mut self) -> Vec<(Incarnation, Fill)> {
        match (&mut self.role, &self.state) {
            (Role::Primary(primary), Some(_)) => primary.ask_for(self.published),
            _ => Vec::new(),
        }
    }

    /// The heir that may take over now: every required copy has all that there is, so none of them is ahead of it.
    pub fn hand_over(&self) -> Option<(Incarnation, Fill)> {
        let (Role::Primary(primary), Some(state)) = (&self.role, &self.state) else { return None };
        let heir = self.placement.heir.filter(|_| self.published == state.version())?;
        Some((heir, primary.in_sync_fill(heir)?))
    }
}

// Telling the master how it stands.
impl Block {
    /// How the copy stands. Changes nothing.
    pub fn standing(&self) -> Standing {
        // What is filled in part cannot be gone on from.
        let name = self.state.as_ref().filter(|state| state.filled().is_none()).map(State::name);
        match (&self.role, name) {
            (Role::Primary(primary), Some(name)) => {
                let held = self.standing_held(primary, name.version);
                let Some(ledger) = self.standing_ledger(primary) else { return Standing::Nothing };
                Standing::Primary { term: self.placement.term, published: self.published, held, ledger }
            }
            (Role::Follower { is_broken }, name) => {
                Standing::Follower { fill: self.placement.fill, name, is_broken: *is_broken }
            }
            (Role::Primary(_), None) | (Role::Retired, _) => Standing::Nothing,
        }
    }

    /// What is held, by step: what is applied and not published yet is held whole.
    fn standing_held(&self, primary: &Primary, version: Version) -> Vec<(Step, Vec<Node>)> {
        let mut steps: BTreeMap<Step, Vec<Node>> = BTreeMap::new();
        if matches!(self.job.mode, Mode::Sync { .. }) {
            let unpublished = (self.published.0..version.0).map(Step);
            steps.extend(unpublished.map(|step| (step, vec![self.job.nothing_of(step).tree().root()])));
        }
        for (step, held) in primary.held.nodes() {
            steps.entry(step).or_default().push(held.node);
        }
        steps.into_iter().collect()
    }

    /// The positions that are published; none while that is not known.
    fn standing_ledger(&self, primary: &Primary) -> Option<Ledger> {
        match self.job.mode {
            Mode::Sync { .. } => Some(Ledger::default()),
            Mode::Async { .. } => primary.ledger.clone(),
        }
    }
}

impl Primary {
    pub(super) fn new(held: HeldSteps, inherited: Option<StateName>, copies: &[PlacedCopy]) -> Primary {
        let (log, followers, pending) = (VecDeque::new(), BTreeMap::new(), VecDeque::new());
        let scalars = Box::default();
        let mut primary = Primary { held, scalars, inherited, ledger: None, pending, log, followers };
        primary.place(copies);
        primary
    }

    /// The copies are now these. Whoever has another fill than before has acknowledged nothing.
    pub(super) fn place(&mut self, copies: &[PlacedCopy]) {
        let old = std::mem::take(&mut self.followers);
        for copy in copies {
            let kept = old.get(&copy.pserver).filter(|old| old.fill == copy.fill);
            let mut follower = kept.copied().unwrap_or(Follower::new(copy.fill));
            if copy.is_in_sync {
                follower.reach(Stage::InSync);
            }
            self.followers.insert(copy.pserver, follower);
        }
        if self.followers.is_empty() {
            self.log.clear();
        }
        self.forget_acknowledged();
    }

    /// The highest version that every required copy has acknowledged, up to `version`; none while one has acknowledged
    /// nothing.
    pub(super) fn publishable(&self, version: Version) -> Option<Version> {
        let required = self.followers.values().filter(|follower| follower.is_required());
        required
            .map(|follower| follower.acknowledged)
            .try_fold(version, |lowest, acknowledged| Some(lowest.min(acknowledged?)))
    }

    /// Whether anybody follows, so that entries are worth keeping.
    pub(super) fn is_followed(&self) -> bool {
        !self.followers.is_empty()
    }

    fn knows(&self, follower: Incarnation, fill: Fill) -> bool {
        self.followers.get(&follower).is_some_and(|known| known.fill == fill)
    }

    /// An update is made.
    fn append(&mut self, entry: Arc<Update>) {
        self.log.push_back(entry);
        if self.log.len() > LOG_MAX {
            self.log.pop_front();
        }
    }

    /// A follower says that it holds `theirs`, a state of this block; `ours` is the newest. What it holds of our past
    /// it has acknowledged.
    fn hear(&mut self, follower: Incarnation, theirs: Cursor, ours: StateName) -> Next {
        let next = match (self.next(theirs.name, ours), theirs.filled) {
            (Next::Nothing, Some(slot)) => Next::Segment(slot),
            (next, _) => next,
        };
        if next != Next::Broken
            && let Some(follower) = self.followers.get_mut(&follower)
        {
            follower.acknowledged = follower.acknowledged.max(Some(theirs.name.version));
            follower.is_whole = theirs.filled.is_none();
            if next != Next::State {
                follower.reach(Stage::CatchingUp);
            }
        }
        self.forget_acknowledged();
        next
    }

    /// A follower is given the state. One that needs it again could not keep up.
    fn give_state(&mut self, follower: Incarnation) {
        if let Some(follower) = self.followers.get_mut(&follower) {
            let is_first = follower.stage == Stage::Empty;
            follower.reach(if is_first { Stage::Filling } else { Stage::CatchingUp });
        }
    }

    fn next(&self, theirs: StateName, ours: StateName) -> Next {
        if theirs == ours {
            return Next::Nothing;
        }
        if let Some(entry) = self.log.iter().find(|entry| entry.follows == theirs) {
            return Next::Entry(Arc::clone(entry));
        }
        // One copy writes under a term: a lower version of the same term is in our past.
        let is_past = |ours: StateName| theirs.term == ours.term && theirs.version <= ours.version;
        if is_past(ours) || self.inherited.is_some_and(is_past) { Next::State } else { Next::Broken }
    }

    /// Entries that everybody has are not needed.
    fn forget_acknowledged(&mut self) {
        let Some(lowest) = self.followers.values().map(|follower| follower.acknowledged).min().flatten()
        else {
            return;
        };
        while self.log.front().is_some_and(|entry| entry.makes().version <= lowest) {
            self.log.pop_front();
        }
    }

    /// What a copy must have to be admitted. All that was inherited counts as published: a predecessor that nobody
    /// hears any more may have published it.
    fn admissible(&self, published: Version) -> Version {
        self.inherited.map_or(published, |inherited| inherited.version.max(published))
    }

    /// The fill of an in-sync copy.
    fn in_sync_fill(&self, pserver: Incarnation) -> Option<Fill> {
        let follower = self.followers.get(&pserver)?;
        (follower.stage == Stage::InSync).then_some(follower.fill)
    }

    fn is_admission_due(&self, published: Version) -> bool {
        let published = self.admissible(published);
        let is_due = |follower: &Follower| follower.stage < Stage::Asking && follower.has(published);
        self.followers.values().any(is_due)
    }

    /// Filling copies that have all that is published: from now on they are required, and the master is asked to
    /// admit them.
    fn ask_for(&mut self, published: Version) -> Vec<(Incarnation, Fill)> {
        let published = self.admissible(published);
        let is_level = |follower: &Follower| follower.stage < Stage::InSync && follower.has(published);
        let level = self.followers.iter_mut().filter(|(_, follower)| is_level(follower));
        let asked = level.map(|(pserver, follower)| {
            follower.reach(Stage::Asking);
            (*pserver, follower.fill)
        });
        asked.collect()
    }
}

impl Follower {
    /// It has said and was given nothing.
    fn new(fill: Fill) -> Follower {
        Follower { fill, stage: Stage::Empty, acknowledged: None, is_whole: false }
    }

    /// It is at that stage or beyond it.
    fn reach(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
    }

    /// Whether nothing is published that it lacks.
    fn is_required(&self) -> bool {
        self.stage >= Stage::CatchingUp
    }

    fn has(&self, published: Version) -> bool {
        self.is_whole && self.acknowledged.is_some_and(|version| version >= published)
    }
}
