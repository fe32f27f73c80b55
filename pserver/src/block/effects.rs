//! What a transition has changed about a block, for all who wait for something of it. It is found by comparing what the block was
//! with what it is: no transition has to say it, and none can forget to. Here, too, is checked what must hold after every
//! transition; the numbers are those of ARCHITECTURE.md. Pure.

use super::piece::Piece;
use super::state::State;
use super::{Block, Role};
use crate::bucket::arena::Slot;
use crate::bucket::plan::Plan;
use shoal_runtime::cluster::{CheckpointId, Fill, Node, Rewind, StateName, Step, Term, Version};

/// What somebody may wait for that a transition has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Something may be read that could not: a newer version, or its parameters.
    pub published: bool,
    /// Followers may be given something.
    pub logged: bool,
    /// It waits for what is decided of a step.
    pub undecided: bool,
    /// A piece of a checkpoint waits to be written.
    pub piece: bool,
    /// The master has not heard how it stands.
    pub standing: bool,
    /// Nor may that wait: something is published, or a copy is to be admitted, or to be filled anew.
    pub urgent: bool,
    /// It waits for memory that pieces of checkpoints hold.
    pub starved: bool,
    /// It is past the version of this checkpoint, and cannot supply its piece.
    pub passed: Option<CheckpointId>,
    /// What is counted.
    pub counts: Counts,
}

/// What a transition adds to what is counted for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows more (or fewer) that are led here.
    pub rows: i64,
    /// Bytes of their memory.
    pub row_bytes: i64,
    /// Bytes copied because an update met buffers that a piece or a follower still had.
    pub copied: u64,
    /// What became of rows and keys.
    pub updates: RowCounts,
}

impl Effects {
    /// Whether the block is otherwise than it was.
    pub fn has_moved(&self) -> bool {
        self.published || self.logged || self.undecided || self.standing
    }

    /// Whether nobody has to hear of it.
    pub fn is_nothing(&self) -> bool {
        *self == Effects::default()
    }
}

/// What a block is to those who wait for something of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    fill: Fill,
    term: Term,
    rewind: Rewind,
    /// Primary or not; none once it is retired.
    leads: Option<bool>,
    is_broken: bool,
    published: Version,
    name: Option<StateName>,
    filled: Option<Slot>,
    /// Nodes taken in so far, under this term.
    taken: u64,
    /// Times that a device has said that something is there.
    landed: u64,
    undecided: Option<Step>,
    /// The checkpoint of which a piece waits to be written.
    piece: Option<CheckpointId>,
    has_heir: bool,
    passed: Option<CheckpointId>,
    is_admission_due: bool,
    rows: (u64, u64),
    copied: u64,
}

impl Block {
    /// What it is now.
    pub fn facts(&self) -> Facts {
        let state = self.state.as_ref();
        Facts {
            fill: self.placement.fill,
            term: self.placement.term,
            rewind: self.placement.rewind,
            leads: match self.role {
                Role::Primary(_) => Some(true),
                Role::Follower { .. } => Some(false),
                Role::Retired => None,
            },
            is_broken: matches!(self.role, Role::Follower { is_broken: true }),
            published: self.published,
            name: state.map(State::name),
            filled: state.and_then(State::filled),
            taken: match &self.role {
                Role::Primary(primary) => primary.held.taken(),
                Role::Follower { .. } | Role::Retired => 0,
            },
            landed: self.landed,
            undecided: self.undecided_step(),
            piece: match &self.piece {
                Some(Piece::Taken(checkpoint, _) | Piece::Open(checkpoint, _)) => Some(*checkpoint),
                Some(Piece::Wanted(_) | Piece::Coming(..) | Piece::Given(_) | Piece::Passed(_)) | None => {
                    None
                }
            },
            has_heir: self.placement.heir.is_some(),
            passed: match self.piece {
                Some(Piece::Passed(checkpoint)) => Some(checkpoint),
                _ => None,
            },
            is_admission_due: self.is_admission_due(),
            rows: self.rows(),
            copied: self.copied,
        }
    }

    /// What has changed between then and now. What is counted is told once.
    pub fn effects(&mut self, before: &Facts, now: &Facts) -> Effects {
        // A state that has come may be read, though its version be the one that was published before.
        let differ =
            |was: &Facts| (was.fill, was.term, was.rewind, was.leads, was.published, was.name.is_some());
        let is_placed_or_published = differ(before) != differ(now);
        let is_landed = before.landed != now.landed;
        let is_named = (before.name, before.filled) != (now.name, now.filled);
        let is_asking = now.is_admission_due && !before.is_admission_due;
        // Waits for a broken copy end only once the master has it filled anew.
        let has_broken = now.is_broken && !before.is_broken;
        let urgent = is_placed_or_published || is_asking || has_broken;
        let passed = now.passed.filter(|_| before.passed != now.passed);
        let (rows, counted) = (now.rows, before.rows);
        Effects {
            published: is_placed_or_published || is_landed,
            logged: is_placed_or_published || is_landed || is_named,
            undecided: now.undecided.is_some()
                && (is_placed_or_published || before.undecided != now.undecided),
            piece: now.piece.is_some() && (before.piece != now.piece || is_landed),
            standing: urgent
                || is_named
                || before.taken != now.taken
                || before.is_broken != now.is_broken
                || passed.is_some(),
            urgent: urgent || passed.is_some(),
            starved: std::mem::take(&mut self.is_starved),
            passed,
            counts: Counts {
                rows: rows.0.cast_signed() - counted.0.cast_signed(),
                row_bytes: rows.1.cast_signed() - counted.1.cast_signed(),
                copied: now.copied - before.copied,
                updates: std::mem::take(&mut self.row_counts),
            },
        }
    }

    /// What does not hold though it must after a transition, if anything does not, where that costs nothing to find.
    pub fn violated(&self, before: &Facts, now: &Facts) -> Option<String> {
        let broken =
            |number: u32, what: &str| Some(format!("invariant {number}, {what}: {before:?}, then {now:?}"));
        let is_same_copy = now.fill == before.fill && now.leads.is_some();
        if is_same_copy && now.term < before.term {
            return broken(18, "a copy's term never falls");
        }
        let (Some(state), true) = (&self.state, now.leads.is_some()) else { return None };
        if self.published > state.version() {
            return broken(16, "nothing is published that is not made");
        }
        if state.name().term > self.placement.term {
            return broken(18, "a state is of no later term than its copy");
        }
        let Role::Primary(primary) = &self.role else { return None };
        let goes_on = is_same_copy && (before.leads, before.term) == (now.leads, now.term);
        let has_risen = goes_on && before.name.is_some() && now.published > before.published;
        if has_risen && primary.publishable(state.ready()).is_none_or(|most| now.published > most) {
            return broken(16, "nothing is published that a required copy lacks");
        }
        let has_changed =
            (before.name.map(|name| name.version), before.taken) != (Some(state.version()), now.taken);
        if goes_on && before.name.is_some() && before.has_heir && now.has_heir && has_changed {
            return broken(21, "a primary with an heir takes nothing");
        }
        let held = primary.held.nodes().map(|(step, held)| (step, held.node));
        if now.taken != before.taken && !held.is_sorted_by(apart) {
            return broken(1, "held nodes never cover one another");
        }
        None
    }
}

/// Whether neighbours in the order of steps and slots have no slot in common.
fn apart<S: PartialEq>(left: &(S, Node), right: &(S, Node)) -> bool {
    left.0 != right.0 || left.1.end() <= right.1.first()
}

/// What some updates did to the rows of a bucket, counted for people. No decision may rest on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows that were let go of, by age or by score.
    pub evicted: u64,
    /// Keys that were left unborn because the bucket was full, each time.
    pub refused: u64,
}

impl RowCounts {
    /// Counts one update.
    pub(super) fn count(&mut self, plan: &Plan) {
        self.evicted += plan.evicted.len() as u64;
        self.refused += u64::from(plan.refused);
    }
}
