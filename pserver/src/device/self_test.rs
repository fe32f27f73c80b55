//! Whether a device makes the processor's bits: every rule, over values of all sizes, before any block is there. A driver that
//! flushes subnormals, or a chip that rounds otherwise, would change the model in silence.

use super::{Device, DeviceError, PieceUpdate};
use crate::kernel::rules::{self, Pass};
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::{BlockId, Rule};

/// Elements of each rule's piece: no multiple of four, so that pieces begin and end anywhere.
const ELEMENTS: usize = 1021;
const UPDATES: u64 = 3;
/// Every rule that devices have.
pub const RULES: [Rule; 10] = [
    Rule::Sgd,
    Rule::Momentum { momentum: 0.9 },
    Rule::Nesterov { momentum: 0.9 },
    Rule::Adagrad { epsilon: 1e-8 },
    Rule::ADAM,
    Rule::ADAMW,
    Rule::AMSGRAD,
    Rule::Ftrl { l1: 0.01, l2: 0.1, beta: 1.0 },
    Rule::Ema { decay: 0.9 },
    Rule::Sum,
];

/// Every second value is of a size that gradients have; the others have any finite bits: subnormal, huge, zero, of both signs.
fn value(of: u64, element: usize) -> f32 {
    let draw = mix(of << 32 | element as u64);
    let any = f32::from_bits(draw as u32);
    match element % 8 {
        0 | 2 | 4 | 6 => (draw as i32) as f32 / 2e9,
        // Next to where results become subnormal.
        1 => f32::from_bits(draw as u32 & 0x81FF_FFFF),
        // What FTRL looks for: the zeros of the untouched, and its l1.
        3 => [0.0, -0.0, 0.01, 0.0][draw as usize % 4],
        _ if any.is_finite() => any,
        _ => -0.0,
    }
}

/// Values of all sizes, the same whenever they are asked for.
pub fn values(of: u64, length: usize) -> Vec<f32> {
    (0..length).map(|element| value(of, element)).collect()
}

/// Whether a device's number is the processor's.
pub fn is_same(ours: f32, theirs: f32) -> bool {
    // The bits of a not-a-number are anybody's.
    ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan()
}

/// Runs every rule on both sides and compares all that they leave.
///
/// # Errors
/// Any difference.
pub(super) fn run(device: &Device) -> Result<(), DeviceError> {
    let length = RULES.len() * ELEMENTS;
    let mut parameters = values(1, length);
    let mut slots: Vec<Vec<f32>> =
        (2..5).map(|of| values(of, length).into_iter().map(f32::abs).collect()).collect();
    let borrowed: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
    let mut resident = device.place(BlockId(0), &parameters, &borrowed)?;
    let mut outcomes = Vec::new();
    for update in 1..=UPDATES {
        let pass = Pass { weight: 48.0, rate: 0.01, scale: 0.5, weight_decay: 0.1, update };
        // Sums are canonical: without -0.0.
        let mut next: Vec<f32> = values(10 + update, length).iter().map(|value| value + 0.0).collect();
        let piece = |at: usize| at * ELEMENTS..(at + 1) * ELEMENTS;
        let pieces =
            RULES.iter().enumerate().filter_map(|(at, rule)| PieceUpdate::new(piece(at), *rule, pass));
        outcomes.push(resident.update(pieces.collect(), |sum| sum.copy_from_slice(&next)));
        for (at, rule) in RULES.iter().enumerate() {
            let own = slots.iter_mut().take(rule.slots().len());
            let mut own: Vec<&mut [f32]> = own.map(|slot| &mut slot[piece(at)]).collect();
            rules::run(*rule, pass, &parameters[piece(at)], &mut next[piece(at)], &mut own);
        }
        parameters = next;
    }
    // All updates are done once their state is here.
    let theirs = resident.slots()?;
    let last = outcomes.last().and_then(|outcome| outcome.bytes()).ok_or_else(|| device.lost())?;
    for (ours, bytes) in std::iter::once(&parameters).chain(&slots).zip(std::iter::once(last).chain(&theirs))
    {
        let theirs: &[f32] = &bytemuck::pod_collect_to_vec::<u8, f32>(bytes);
        if let Some(at) = ours.iter().zip(theirs).position(|(ours, theirs)| !is_same(*ours, *theirs)) {
            let (rule, ours, theirs) = (RULES[at / ELEMENTS], ours[at], theirs[at]);
            let what = format!(
                "{rule:?} gives {theirs:e} there and {ours:e} on the processor: the model would differ"
            );
            return Err(device.shared.context.unsuitable(what));
        }
    }
    device.take_finished();
    Ok(())
}
