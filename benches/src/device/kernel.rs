//! The kernel alone, over blocks of 1 MiB as jobs have them, against copies in the same memory.

use super::Arguments;
use super::equality::value;
use super::raw::{Function, Raw};
use super::torch::Torch;
use anyhow::Context;
use shoal_pserver::device::IMAGES;
use shoal_pserver::device::batch::{Addresses, Operand, PieceUpdate, Tables};
use shoal_pserver::device::self_test::RULES;
use shoal_pserver::kernel::rules::Pass;
use shoal_runtime::cluster::Rule;

/// Elements of the largest block.
const BLOCK: u64 = 1 << 18;
/// Working sets, in bytes.
const SIZES: [u64; 9] =
    [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30, 10 << 30, 20 << 30];

/// So many bytes of blocks with their sums, in the memory of a device, and room for the next version of their parameters.
struct Work {
    tables: Tables,
    at: u64,
    elements: u64,
    /// Bytes that one update reads and writes.
    traffic: u64,
}

fn work(raw: &Raw, rule: Rule, bytes: u64) -> anyhow::Result<Work> {
    let buffers = 2 + rule.slots().len() as u64;
    let block = BLOCK.min(bytes / buffers / 4) & !63;
    let count = (bytes / (4 * block * buffers)).max(1);
    let pass = Pass { weight: 48.0, rate: 0.01, scale: 1.0, weight_decay: 0.01, update: 10 };
    let contents: Vec<f32> = (0..block as usize).map(|element| value(1, element).abs()).collect();
    let mut tables = Tables::default();
    for number in 0..count {
        let buffer = |at: u64| 4 * block * (number * (buffers + 1) + at);
        for at in 0..buffers {
            raw.write(buffer(at), bytemuck::cast_slice(&contents))?;
        }
        let slots = std::array::from_fn(|slot| raw.address + buffer((1 + slot as u64).min(buffers - 1)));
        let sum = Operand { address: raw.address + buffer(buffers - 1), is_half: 0, joins: 0 };
        let piece = PieceUpdate::new(0..block as usize, rule, pass).context("a rule of tables")?;
        let [parameters, next] = [0, buffers].map(|at| raw.address + buffer(at));
        tables.add(Addresses { parameters, next, slots }, &[sum], false, &[piece]);
    }
    let at = (count * (buffers + 1) * 4 * block).next_multiple_of(1 << 12);
    let mut written = vec![0; tables.bytes()];
    tables.write(&mut written);
    raw.write(at, &written)?;
    // Parameters are read and the next written, state is both, the sum is read.
    Ok(Work { tables, at, elements: count * block, traffic: count * block * 4 * (2 * buffers - 1) })
}

fn measure(raw: &Raw, function: Function, work: &Work, rounds: usize) -> anyhow::Result<f64> {
    raw.seconds(rounds, || raw.launch(function, &work.tables, work.at))
}

/// Measures all of it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let rounds = arguments.rounds;
    let raw = Raw::open(arguments.device, arguments.bytes_max / 2 * 3 + (256 << 20))?;
    let loaded = IMAGES.iter().find_map(|image| Some((image.name, raw.function(image.code).ok()?)));
    let (name, exact) = loaded.context("the driver takes none of the device code")?;
    let mut torch = Torch::start(arguments)?;
    println!(
        "\nAdam by {name} against copies in the device's memory and {}, medians of {rounds}",
        torch.told()
    );
    println!(
        "{:>12} {:>12} {:>12} {:>7} {:>12} {:>12}",
        "MiB", "copy GB/s", "update GB/s", "ratio", "G elements/s", "of PyTorch"
    );
    for bytes in SIZES
        .into_iter()
        .filter(|bytes| *bytes <= arguments.bytes_max && bytes / 2 * 3 + (64 << 20) <= raw.bytes)
    {
        let work = work(&raw, Rule::ADAM, bytes)?;
        let copy = bytes as f64 / raw.seconds(rounds, || raw.copy(bytes / 2))?;
        let seconds = measure(&raw, exact, &work, rounds)?;
        let update = work.traffic as f64 / seconds;
        let elements = work.elements as f64 / seconds / 1e9;
        let (mib, ratio) = (bytes >> 20, update / copy);
        let of_torch = torch.bytes_per_second(bytes)?.map(|theirs| format!("{:.2}", update / theirs));
        let of_torch = of_torch.unwrap_or_else(|| "not measured".to_owned());
        let (copy, update) = (copy / 1e9, update / 1e9);
        println!("{mib:>12} {copy:>12.1} {update:>12.1} {ratio:>7.2} {elements:>12.2} {of_torch:>12}");
    }
    let fast =
        arguments.fast.as_ref().map(|file| anyhow::Ok(raw.function(&std::fs::read(file)?)?)).transpose()?;
    let bytes = (1u64 << 30).min(arguments.bytes_max).min(raw.bytes.saturating_sub(64 << 20) / 3 * 2);
    println!("\nevery rule over {} MiB; with approximate arithmetic where --fast gives it", bytes >> 20);
    println!("{:<60} {:>12} {:>12}", "rule", "exact GB/s", "exact/fast");
    for rule in RULES {
        let work = work(&raw, rule, bytes)?;
        let seconds = measure(&raw, exact, &work, rounds)?;
        let of_fast = fast.map(|fast| measure(&raw, fast, &work, rounds)).transpose()?;
        let ratio = of_fast.map_or("not measured".to_owned(), |fast| format!("{:.2}", fast / seconds));
        println!("{:<60} {:>12.1} {ratio:>12}", format!("{rule:?}"), work.traffic as f64 / seconds / 1e9);
    }
    Ok(())
}
