//! What may happen to an asynchronous job, drawn at random for the model of its lease machine.

use proptest::prelude::*;

/// What may happen; numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A trainer calls for runs; the reply may be lost.
    Call {
        trainer: usize,
        want: u32,
        is_lost: bool,
    },
    /// A call that says how far the trainer is and asks for nothing.
    Heartbeat {
        trainer: usize,
    },
    Compute {
        trainer: usize,
        task: usize,
        microbatches: u32,
    },
    /// Pushes what is computed to the blocks of the mask: again, late, or before a death.
    Push {
        trainer: usize,
        task: usize,
        blocks: u8,
    },
    /// Computes and pushes everything in hand.
    Work {
        trainer: usize,
    },
    /// From now on says to have pushed a run, which is not true.
    Lie {
        trainer: usize,
        task: usize,
    },
    Lose {
        trainer: usize,
    },
    Return {
        trainer: usize,
    },
    /// Leaves, its pushes still under way; another life begins.
    Leave {
        trainer: usize,
    },
    /// A push of a trainer that has left arrives.
    LatePush {
        task: usize,
        blocks: u8,
    },
    Report {
        block: usize,
    },
    /// A report arrives, whichever was sent first.
    Deliver {
        report: usize,
    },
    DropReport {
        report: usize,
    },
    /// A piece of a block becomes durable.
    Save {
        block: usize,
    },
    /// A block is lost without a copy, and restored from its piece.
    Restore {
        block: usize,
    },
    /// A block's primary changes; its state does not.
    Promote {
        block: usize,
    },
    Wait {
        millis: u64,
    },
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let (trainer, task, block) = (0usize..5, 0usize..4, 0usize..3);
    prop_oneof![
        6 => (trainer.clone(), 0u32..4, proptest::bool::weighted(0.2))
            .prop_map(|(trainer, want, is_lost)| Event::Call { trainer, want, is_lost }),
        2 => trainer.clone().prop_map(|trainer| Event::Heartbeat { trainer }),
        2 => (trainer.clone(), task.clone(), 1u32..9)
            .prop_map(|(trainer, task, microbatches)| Event::Compute { trainer, task, microbatches }),
        3 => (trainer.clone(), task.clone(), 1u8..8)
            .prop_map(|(trainer, task, blocks)| Event::Push { trainer, task, blocks }),
        5 => trainer.clone().prop_map(|trainer| Event::Work { trainer }),
        1 => (trainer.clone(), task.clone()).prop_map(|(trainer, task)| Event::Lie { trainer, task }),
        1 => trainer.clone().prop_map(|trainer| Event::Lose { trainer }),
        1 => trainer.clone().prop_map(|trainer| Event::Return { trainer }),
        1 => trainer.prop_map(|trainer| Event::Leave { trainer }),
        1 => (task, 1u8..8).prop_map(|(task, blocks)| Event::LatePush { task, blocks }),
        6 => block.clone().prop_map(|block| Event::Report { block }),
        7 => (0usize..4).prop_map(|report| Event::Deliver { report }),
        1 => (0usize..4).prop_map(|report| Event::DropReport { report }),
        1 => block.clone().prop_map(|block| Event::Save { block }),
        1 => block.clone().prop_map(|block| Event::Restore { block }),
        1 => block.prop_map(|block| Event::Promote { block }),
        3 => (0u64..900).prop_map(|millis| Event::Wait { millis }),
    ]
}
