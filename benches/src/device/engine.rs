//! Whole updates as a pserver makes them, from sums in this machine's memory to published parameters there, against the
//! processor's.

use super::Arguments;
use super::equality::value;
use anyhow::{Context, ensure};
use shoal_pserver::device::{Device, DeviceChoice, Outcome, PieceUpdate, Resident};
use shoal_pserver::kernel::rules::{self, Pass};
use shoal_runtime::cluster::{BlockId, Rule};
use tokio::time::Instant;

const BLOCK: usize = 1 << 18;
const BLOCKS: [usize; 3] = [16, 64, 256];

/// Measures all of it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = Device::open(DeviceChoice::Cuda(arguments.device))?.context("no device")?;
    println!("\nAdam from sums to published parameters, GB/s of parameters, medians of {}", arguments.rounds);
    println!("{:>12} {:>12} {:>22} {:>7}", "MiB", "device", "one core of this one", "ratio");
    let contents: Vec<f32> = (0..BLOCK).map(|element| value(1, element)).collect();
    let zeros = vec![0.0; BLOCK];
    for count in BLOCKS.into_iter().filter(|count| ((count * 12) << 20) as u64 <= arguments.bytes_max) {
        let place = |number: usize| device.place(BlockId(number as u32), &contents, &[&zeros, &zeros]);
        let mut residents = (0..count).map(place).collect::<Result<Vec<Resident>, _>>()?;
        let there = median(arguments.rounds, || on_device(&device, &mut residents, &contents))?;
        let mut blocks = vec![[contents.clone(), zeros.clone(), zeros.clone()]; count];
        let here = median(arguments.rounds, || Ok(on_processor(&mut blocks, &contents)))?;
        let rate = |seconds: f64| (4 * BLOCK * count) as f64 / seconds / 1e9;
        println!("{:>12} {:>12.2} {:>22.2} {:>7.2}", count, rate(there), rate(here), here / there);
    }
    Ok(())
}

fn pass() -> Pass {
    Pass { weight: 48.0, rate: 0.01, scale: 1.0, weight_decay: 0.01, update: 10 }
}

/// Seconds for one update of all blocks.
fn on_device(device: &Device, residents: &mut [Resident], sum: &[f32]) -> anyhow::Result<f64> {
    let began = Instant::now();
    let update = |resident: &mut Resident| {
        let pieces = PieceUpdate::new(0..BLOCK, Rule::ADAM, pass()).into_iter().collect();
        resident.update(pieces, |page| page.copy_from_slice(sum))
    };
    let outcomes: Vec<Outcome> = residents.iter_mut().map(update).collect();
    while outcomes.iter().any(|outcome| outcome.bytes().is_none()) {
        ensure!(device.failure().is_none(), "the device has failed");
        std::thread::yield_now();
    }
    Ok(began.elapsed().as_secs_f64())
}

fn on_processor(blocks: &mut [[Vec<f32>; 3]], sum: &[f32]) -> f64 {
    let began = Instant::now();
    for [parameters, first, second] in blocks {
        let mut values = sum.to_vec();
        rules::run(Rule::ADAM, pass(), parameters, &mut values, &mut [first, second]);
        *parameters = values;
    }
    began.elapsed().as_secs_f64()
}

fn median(rounds: usize, mut measure: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    measure()?;
    let mut all = (0..rounds).map(|_| measure()).collect::<anyhow::Result<Vec<f64>>>()?;
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().context("no rounds")
}
