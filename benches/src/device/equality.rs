//! A thousand updates of every rule, on the device and on the processor.

use anyhow::{Context, ensure};
use shoal_pserver::device::{Device, DeviceChoice, PieceUpdate};
use shoal_pserver::kernel::rules::{self, Pass};
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::{BlockId, Rule};

pub(crate) const RULES: [Rule; 10] = [
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
const UPDATES: u64 = 1000;
const ELEMENTS: usize = 65_537;

/// Gradients and values of the sizes that training has.
pub(crate) fn value(of: u64, element: usize) -> f32 {
    (mix(of << 32 | element as u64) as i32) as f32 / 2e9
}

fn crc(buffers: impl Iterator<Item = impl AsRef<[u8]>>) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    buffers.for_each(|buffer| hash.update(buffer.as_ref()));
    hash.finalize()
}

/// Runs both and compares what they leave.
///
/// # Errors
/// Other bits, or a device that fails.
pub(crate) fn run(ordinal: u32) -> anyhow::Result<()> {
    let device = Device::open(DeviceChoice::Cuda(ordinal))?.context("no device")?;
    println!(
        "{UPDATES} updates of {ELEMENTS} elements on {} and here: CRC-32 of parameters and state",
        device.name()
    );
    for rule in RULES {
        let mut parameters: Vec<f32> = (0..ELEMENTS).map(|element| value(1, element)).collect();
        let mut slots = vec![vec![0.0f32; ELEMENTS]; rule.slots().len()];
        let borrowed: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
        let resident = device.place(BlockId(0), &parameters, &borrowed)?;
        let mut newest = None;
        for update in 1..=UPDATES {
            let pass = Pass { weight: 48.0, rate: 0.01, scale: 1.0, weight_decay: 0.01, update };
            let mut next: Vec<f32> = (0..ELEMENTS).map(|element| 48.0 * value(1 + update, element)).collect();
            let pieces = PieceUpdate::new(0..ELEMENTS, rule, pass).into_iter().collect();
            newest = Some(resident.update(pieces, |sum| sum.copy_from_slice(&next)));
            let mut own: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
            rules::run(rule, pass, &parameters, &mut next, &mut own);
            parameters = next;
        }
        let state = resident.slots()?;
        let newest = newest.context("no update")?;
        while newest.bytes().is_none() && device.failure().is_none() {
            std::thread::yield_now();
        }
        let there = newest.bytes().context("the device has failed")?;
        let theirs = crc(std::iter::once(there).chain(&state));
        let here =
            std::iter::once(&parameters).chain(&slots).map(|buffer| bytemuck::cast_slice::<f32, u8>(buffer));
        let ours = crc(here);
        println!("{:<60} {ours:08x} {theirs:08x}", format!("{rule:?}"));
        ensure!(ours == theirs, "{rule:?} makes other bits on the device");
    }
    Ok(())
}
