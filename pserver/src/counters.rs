//! What a pserver tells people that it has counted. No decision may rest on it.

use crate::block::PushOutcome;
use crate::device::Device;
use crate::shard::Shard;
use shoal_job::counters::PserverCounters;
use shoal_runtime::cluster::BlockId;
use shoal_runtime::host::processor;

/// All of it: what was counted as it happened, and what is there and was used at present.
pub(crate) fn all(shard: &Shard) -> PserverCounters {
    let (held, device) = (shard.held_rows(), shard.device().map(Device::usage).unwrap_or_default());
    PserverCounters {
        checkpoint_memory_peak: shard.checkpoint_memory_peak(),
        rows: held.rows,
        row_bytes: held.bytes,
        device_blocks: device.blocks,
        device_gradient_bytes: device.gradient_bytes,
        device_parameter_bytes: device.parameter_bytes,
        processor_micros: processor::used().as_micros() as u64,
        ..shard.counters()
    }
}

/// Counts one push message. `lowest` is the lowest block here.
pub(crate) fn count_push(
    counters: &mut PserverCounters,
    level: u8,
    weight: u64,
    bytes: u64,
    lowest: Option<BlockId>,
    outcomes: &[(BlockId, PushOutcome)],
) {
    let any = |wanted: PushOutcome| u64::from(outcomes.iter().any(|(_, outcome)| *outcome == wanted));
    counters.pushes += 1;
    counters.bytes_in += bytes;
    counters.levels |= 1 << level;
    counters.duplicates_refused += any(PushOutcome::Covered);
    counters.late_pushes += any(PushOutcome::Late);
    counters.busy += any(PushOutcome::Busy);
    counters.throttled += any(PushOutcome::Throttled);
    counters.moved += any(PushOutcome::Moved);
    counters.rewound += any(PushOutcome::Rewound);
    let mut replaced_most = 0;
    for (block, outcome) in outcomes {
        match *outcome {
            PushOutcome::Covered | PushOutcome::Late if *block == BlockId(0) => {
                counters.records_refused += weight;
            }
            PushOutcome::Held { replaced } | PushOutcome::Whole { replaced } => {
                replaced_most = replaced_most.max(replaced);
            }
            PushOutcome::Applied { replaced, is_short, .. } => {
                replaced_most = replaced_most.max(replaced);
                counters.short_steps += u64::from(is_short && Some(*block) == lowest);
            }
            PushOutcome::Covered
            | PushOutcome::Late
            | PushOutcome::Busy
            | PushOutcome::Throttled
            | PushOutcome::NoArea
            | PushOutcome::Moved
            | PushOutcome::Rewound => {}
        }
    }
    counters.replaced_by_ancestor += replaced_most as u64;
}
