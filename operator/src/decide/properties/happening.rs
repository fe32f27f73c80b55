//! What may happen in the model of a cluster, and how often. For the properties beside it.

use proptest::prelude::*;
use shoal_job::ends::End;

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening {
    /// The operator reconciles, and dies after so many acts.
    Reconcile {
        acts: usize,
    },
    /// It goes by what it saw last time.
    ReconcileThePast,
    /// So many seconds pass, and pods do what they are about to.
    Pass {
        seconds: u64,
    },
    Fail {
        which: usize,
        end: End,
    },
    Evict {
        which: usize,
    },
    /// It takes long to end, although its node answers.
    EvictSlowly {
        which: usize,
    },
    LoseNode {
        which: usize,
    },
    /// Another operator takes over, whose clock is ahead by so many seconds.
    TakeOver {
        ahead: i64,
    },
    Scale {
        trainers: u32,
        pservers: u32,
    },
    /// Live settings are others.
    Edit {
        copies: Option<u32>,
        steps: Option<u64>,
    },
    Plan {
        pservers: u32,
    },
    Move,
    Suspend {
        is_on: bool,
    },
    /// The planner scales down by a trainer whose node others need.
    ScaleDown {
        which: usize,
    },
    /// The planner lets the job in, or would not.
    Admit {
        is_on: bool,
    },
}

pub(super) fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => Just(Happening::Reconcile { acts: usize::MAX }),
        2 => (0usize..3).prop_map(|acts| Happening::Reconcile { acts }),
        1 => Just(Happening::ReconcileThePast),
        6 => (1u64..20).prop_map(|seconds| Happening::Pass { seconds }),
        1 => (0usize..20).prop_map(|which| Happening::Fail { which, end: End::Exited(1) }),
        1 => (0usize..20).prop_map(|which| Happening::Fail { which, end: End::OutOfMemory }),
        1 => (0usize..20).prop_map(|which| Happening::Fail { which, end: End::Exited(5) }),
        1 => (0usize..20).prop_map(|which| Happening::Evict { which }),
        1 => (0usize..20).prop_map(|which| Happening::EvictSlowly { which }),
        1 => (0usize..20).prop_map(|which| Happening::LoseNode { which }),
        1 => (0i64..90).prop_map(|ahead| Happening::TakeOver { ahead }),
        1 => (2u32..6, 1u32..4).prop_map(|(trainers, pservers)| Happening::Scale { trainers, pservers }),
        1 => (any::<Option<bool>>(), any::<Option<bool>>()).prop_map(|(copies, steps)| Happening::Edit {
            copies: copies.map(u32::from),
            steps: steps.map(u64::from),
        }),
        1 => (1u32..4).prop_map(|pservers| Happening::Plan { pservers }),
        1 => Just(Happening::Move),
        1 => any::<bool>().prop_map(|is_on| Happening::Suspend { is_on }),
        1 => (0usize..20).prop_map(|which| Happening::ScaleDown { which }),
        1 => any::<bool>().prop_map(|is_on| Happening::Admit { is_on }),
    ]
}
