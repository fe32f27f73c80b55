//! What a seed draws before it walks: a job, and how much of what happens to it. It must never look at a run.

use super::message::Message;
use super::words::{Mode, Shape};

/// Where a seed's choices come from: SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn of(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.roll() % end as u64) as usize
    }
    pub(crate) fn among<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

/// What can happen, as the swarm weighs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deliver,
    Forget,
    Crash,
    Restart,
    TrainerCrash,
    TrainerStart,
    MasterCrash,
    Elect,
    /// A master gives up the dead.
    Lose,
    /// A master gives up anybody.
    Suspect,
    Add,
    Drop,
    Appoint,
    Name,
    Commit,
    Exclude,
    /// A record cannot be read any more.
    Rot,
    Tell,
    Inform,
    Ledger,
    Greet,
    Pull,
    Admission,
    HandOver,
    Supply,
    Partial,
    /// Of a trainer.
    Work,
    /// A fair turn for everybody who lives.
    Round,
}

/// Each kind with the weights it may have in a seed: without some kinds, others go further.
const WEIGHTS: [(Kind, &[usize]); 28] = [
    (Kind::Deliver, &[60, 100, 160]),
    (Kind::Forget, &[0, 0, 3, 12]),
    (Kind::Crash, &[0, 1, 2]),
    (Kind::Restart, &[4, 12]),
    (Kind::TrainerCrash, &[0, 1, 4]),
    (Kind::TrainerStart, &[2, 10]),
    (Kind::MasterCrash, &[0, 0, 1]),
    (Kind::Elect, &[0, 1, 3]),
    (Kind::Lose, &[5, 30]),
    (Kind::Suspect, &[0, 1, 3]),
    (Kind::Add, &[20, 40]),
    (Kind::Drop, &[0, 3, 10]),
    (Kind::Appoint, &[0, 4, 12]),
    (Kind::Name, &[0, 2, 6]),
    (Kind::Commit, &[4, 10]),
    (Kind::Exclude, &[0, 0, 1]),
    (Kind::Rot, &[0, 0, 1]),
    (Kind::Tell, &[20, 60]),
    (Kind::Inform, &[4, 10]),
    (Kind::Ledger, &[0, 4, 10]),
    (Kind::Greet, &[4, 10]),
    (Kind::Pull, &[40, 120]),
    (Kind::Admission, &[15, 40]),
    (Kind::HandOver, &[10]),
    (Kind::Supply, &[2, 10]),
    (Kind::Partial, &[20, 60]),
    (Kind::Work, &[40, 120, 400]),
    (Kind::Round, &[0, 1, 2]),
];

/// A seed's weather.
pub(crate) struct Weather {
    weights: Vec<(Kind, usize)>,
    /// One delivery in so many leaves the message in flight; 0: none.
    again: usize,
    /// One in so many takes any message, not the oldest.
    pub(crate) overtakes: usize,
    /// Of ten messages that an action sends, how many arrive at once.
    pub(crate) prompt: usize,
    /// A block that gradients reach seldom: the others run ahead.
    pub(crate) starved: Option<usize>,
    /// A pserver that is paused now: what is for it waits.
    pub(crate) paused: Option<usize>,
}

impl Weather {
    pub(crate) fn drawn(dice: &mut Dice) -> Weather {
        Weather {
            weights: WEIGHTS.iter().map(|(kind, weights)| (*kind, dice.among(weights))).collect(),
            again: dice.among(&[0, 3, 8]),
            overtakes: dice.among(&[1, 2, 10]),
            prompt: dice.among(&[0, 6, 9]),
            starved: dice.among(&[None, None, Some(0), Some(1)]),
            paused: None,
        }
    }
    pub(crate) fn kind(&self, dice: &mut Dice) -> Kind {
        let mut drawn = dice.below(self.weights.iter().map(|(_, weight)| weight).sum());
        for (kind, weight) in &self.weights {
            if drawn < *weight {
                return *kind;
            }
            drawn -= weight;
        }
        Kind::Deliver
    }
    pub(crate) fn holds(&self, message: &Message) -> bool {
        matches!(message, Message::Pserver(place, _) if self.paused == Some(*place))
    }
    pub(crate) fn again(&self, dice: &mut Dice) -> bool {
        self.again > 0 && dice.one_in(self.again)
    }
}

/// A seed's job.
pub(crate) fn shape(dice: &mut Dice) -> Shape {
    let mode = dice.among(&[Mode::Sync, Mode::Sync, Mode::Async]);
    let blocks = dice.among(&[1, 1, 2, 2, 3]);
    let is_sync = mode == Mode::Sync;
    let scalars = is_sync && dice.one_in(3);
    let slots = if is_sync { dice.among(&[1, 1, 2]) } else { 1 };
    Shape {
        mode,
        blocks: blocks + usize::from(scalars),
        metric: is_sync && blocks > 1 && dice.one_in(3),
        scalars,
        pservers: dice.among(&[3, 4]),
        trainers: dice.among(&[1, 2]),
        masters: dice.among(&[1, 1, 2]),
        followers: dice.among(&[0, 1, 1, 2, 2, 2]),
        units: if is_sync { dice.among(&[3, 5, 8]) } else { dice.among(&[4, 8, 12]) },
        slots,
        short: (slots > 1).then(|| dice.below(3)),
        delay: if is_sync { dice.among(&[0, 0, 1, 2]) } else { 0 },
    }
}
