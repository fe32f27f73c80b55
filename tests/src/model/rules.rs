//! The protocol's rules as switches: a model without one of them must break. It must never know how a rule works.

use std::fmt;

/// One sentence of the protocol. `tests/tests/sim/model/` has a trace for each that ends badly without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Pushes, pulls and answers carry the rewind number; a block refuses another than its own.
    RewindFence,
    /// Followers carry earlier states, and fills do.
    PreviousOnFollowers,
    /// Sync: of earlier states 2k + 1 are kept, where gradients are delayed by k.
    EarlierStatesKept,
    /// Sync: a checkpoint carries the k states before it.
    PiecesCarryEarlier,
    /// Sync: which nodes a step lacks is judged by that step, not by the block's own place.
    AbsenceByStep,
    /// A step is begun when every block's primary said "published", not when every pserver did.
    PublishedPerBlock,
    /// Acknowledgements are for one fill of a copy.
    AcksByFill,
    /// An admission names fill, term and primary, and all three are current.
    AdmissionFenced,
    /// A pserver refuses a slice that is not newer than the one it obeys: so a drop names a routing version.
    SlicesInOrder,
    /// A slice is addressed to an incarnation.
    SlicesNameIncarnations,
    /// A restored block begins with its primary alone: earlier copies come back as new fills.
    RewindRemovesCopies,
    /// Sync: a block that is lost takes all blocks back with it.
    RewindRestoresAll,
    /// A pserver restores a block once per term.
    RestoreOncePerTerm,
    /// A promoted copy publishes what it was told is published, and more when all in-sync copies hold it.
    PromotedWaits,
    /// Only in-sync copies are promoted.
    OnlyInSyncPromoted,
    /// A primary requires a copy's acknowledgement from before it asks for the copy's admission.
    RequiredBeforeAsked,
    /// A promoted primary asks admission only for copies that hold what it was promoted with.
    AdmissionCoversPromotion,
    /// A copy is appended to, or acknowledged, by the name of its state, not by its version alone.
    EntriesNamePredecessor,
    /// A copy is reported as diverged by itself, while its state still is the one that was compared.
    DivergedIsPresent,
    /// A planned change of primary waits until the primary, taking no more, is level with its in-sync copies.
    HandOverDrained,
    /// `Applied` speaks of the published version only.
    AppliedMeansPublished,
    /// Sync: a gradient that is held is pushed again when its block's term changes.
    HeldIsPushedAgain,
    /// A named checkpoint that a block has passed and cannot supply is abandoned.
    PassedIsAbandoned,
    /// A piece is supplied when its version is published.
    PiecesArePublished,
    /// A manifest takes pieces of the present rewind numbers only.
    CommitNeedsRewind,
    /// The job is done only when its final checkpoint is durable.
    DoneAfterDurable,
    /// A master changes the document by compare-and-swap.
    SwapsCompare,
    /// Async: a ledger answer counts while its term is current.
    LedgerFencedByTerm,
    /// Async: a ledger's positions count from the job's beginning.
    PositionsAbsolute,
    /// A block applies a step only with the decision for it.
    AppliedAsDecided,
    /// The scalar block refuses partials under another rewind number.
    PartialsFenced,
    /// A block refuses decisions under another rewind number.
    DecisionsFenced,
    /// A decision is told when it is published.
    DecisionTellsPublished,
    /// A block sends its partial again until it has the decision.
    PartialSentAgain,
    /// Sync: an exclusion takes all blocks back.
    ExclusionRewinds,
    /// Sync: what every block is known to have applied, by present answers or the newest manifest, is not excluded from.
    ExclusionNotOfApplied,
    /// Sync: a record that is excluded may be excluded from an earlier step.
    ExcludedEarlier,
    /// A push carries the number of its exclusion list, and a block refuses a lower one than its own.
    ListFencesPushes,
    /// A belt beside it in sync mode: rewind number and exclusion list are told together.
    ListWithRewind,
    /// A belt: sync: an exclusion drops the manifests beyond its first step.
    ExclusionDropsManifests,
    /// A belt: the scalar block keeps decisions as long as states are kept.
    DecisionsKept,
    /// A belt beside it: a block sends its partial when the update before is published.
    PartialWhenPublished,
    /// A belt: fills come from the primary alone.
    FillsFromPrimary,
    /// A belt: acknowledgements, entries and fills of another term are ignored.
    CopiesFencedByTerm,
    /// A belt: sync: an update waits until the one before it is published; a push for a step beyond the delay does.
    OneUnpublished,
    /// A belt beside it: a promoted copy serves the highest version it was told of, not the one before its own.
    PromotedServesTold,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 46] = [
        Rule::RewindFence,
        Rule::PreviousOnFollowers,
        Rule::EarlierStatesKept,
        Rule::PiecesCarryEarlier,
        Rule::AbsenceByStep,
        Rule::PublishedPerBlock,
        Rule::AcksByFill,
        Rule::AdmissionFenced,
        Rule::SlicesInOrder,
        Rule::SlicesNameIncarnations,
        Rule::RewindRemovesCopies,
        Rule::RewindRestoresAll,
        Rule::RestoreOncePerTerm,
        Rule::PromotedWaits,
        Rule::OnlyInSyncPromoted,
        Rule::RequiredBeforeAsked,
        Rule::AdmissionCoversPromotion,
        Rule::EntriesNamePredecessor,
        Rule::DivergedIsPresent,
        Rule::HandOverDrained,
        Rule::AppliedMeansPublished,
        Rule::HeldIsPushedAgain,
        Rule::PassedIsAbandoned,
        Rule::PiecesArePublished,
        Rule::CommitNeedsRewind,
        Rule::DoneAfterDurable,
        Rule::SwapsCompare,
        Rule::LedgerFencedByTerm,
        Rule::PositionsAbsolute,
        Rule::AppliedAsDecided,
        Rule::PartialsFenced,
        Rule::DecisionsFenced,
        Rule::DecisionTellsPublished,
        Rule::PartialSentAgain,
        Rule::ExclusionRewinds,
        Rule::ExclusionNotOfApplied,
        Rule::ExcludedEarlier,
        Rule::ListFencesPushes,
        Rule::ListWithRewind,
        Rule::ExclusionDropsManifests,
        Rule::DecisionsKept,
        Rule::PartialWhenPublished,
        Rule::FillsFromPrimary,
        Rule::CopiesFencedByTerm,
        Rule::OneUnpublished,
        Rule::PromotedServesTold,
    ];
    /// Rules that follow from others: nothing is known to break without one of them, though without two it may.
    pub const BELTS: [Rule; 8] = [
        Rule::ListWithRewind,
        Rule::ExclusionDropsManifests,
        Rule::DecisionsKept,
        Rule::PartialWhenPublished,
        Rule::FillsFromPrimary,
        Rule::CopiesFencedByTerm,
        Rule::OneUnpublished,
        Rule::PromotedServesTold,
    ];

    /// The rule that is called `name`.
    pub fn named(name: &str) -> Option<Rule> {
        Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == name)
    }
}

/// Which rules hold: all, or all but a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A bit for each rule that does not.
    off: u64,
}

impl Rules {
    /// The protocol.
    pub fn all() -> Rules {
        Rules { off: 0 }
    }
    /// The protocol less one rule.
    pub fn without(rule: Rule) -> Rules {
        Rules::all().nor(rule)
    }
    /// These, less one more.
    pub fn nor(self, rule: Rule) -> Rules {
        Rules { off: self.off | 1 << rule as u64 }
    }
    /// Whether `rule` holds.
    pub fn on(self, rule: Rule) -> bool {
        self.off & 1 << rule as u64 == 0
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| !self.on(*rule)).collect();
        if off.is_empty() { write!(f, "all rules") } else { write!(f, "all rules but {off:?}") }
    }
}
