//! A thousand updates of every rule, on the device and on the processor: of values as training has them and of any, over
//! lengths that fill no quad, warp or block of threads, in every form of device code that the device takes.

use super::Arguments;
use anyhow::{Context, ensure};
use shoal_pserver::device::self_test::{self, RULES};
use shoal_pserver::device::{Device, IMAGES, Outcome, PieceUpdate, Resident};
use shoal_pserver::kernel::rules::{self, Pass};
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::{BlockId, Rule};
use shoal_runtime::host::cuda::{DeviceError, Image};

const LENGTHS: [usize; 7] = [1, 3, 4, 127, 1021, 4097, 65_537];

/// Gradients and values of the sizes that training has.
pub(crate) fn value(of: u64, element: usize) -> f32 {
    (mix(of << 32 | element as u64) as i32) as f32 / 2e9
}

/// Which values are compared.
#[derive(Clone, Copy)]
enum Drawn {
    Training,
    /// Any finite bits among them: subnormal, huge, zeros of both signs.
    Any,
}

impl Drawn {
    fn values(self, of: u64, elements: usize) -> Vec<f32> {
        match self {
            Drawn::Training => (0..elements).map(|element| value(of, element)).collect(),
            Drawn::Any => self_test::values(of, elements),
        }
    }
}

/// A block on both sides.
struct Both {
    drawn: Drawn,
    parameters: Vec<f32>,
    slots: Vec<Vec<f32>>,
    resident: Resident,
    newest: Option<Outcome>,
}

impl Both {
    fn place(device: &Device, rule: Rule, drawn: Drawn, elements: usize) -> anyhow::Result<Both> {
        let parameters = drawn.values(1, elements);
        let slots = vec![vec![0.0f32; elements]; rule.slots().len()];
        let borrowed: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
        let resident = device.place(BlockId(0), &parameters, &borrowed)?;
        Ok(Both { drawn, parameters, slots, resident, newest: None })
    }

    fn update(&mut self, rule: Rule, update: u64) {
        let elements = self.parameters.len();
        let pass = Pass { weight: 48.0, rate: 0.01, scale: 0.5, weight_decay: 0.01, update };
        // Sums are canonical: without -0.0.
        let sum = self.drawn.values(1 + update, elements).into_iter();
        let mut next: Vec<f32> = sum.map(|value| 48.0 * value + 0.0).collect();
        let pieces = PieceUpdate::new(0..elements, rule, pass).into_iter().collect();
        self.newest = Some(self.resident.update(pieces, |sum| sum.copy_from_slice(&next)));
        let mut own: Vec<&mut [f32]> = self.slots.iter_mut().map(Vec::as_mut_slice).collect();
        rules::run(rule, pass, &self.parameters, &mut next, &mut own);
        self.parameters = next;
    }

    /// Numbers that are compared, and those of them that are none on both sides.
    fn compare(&self, device: &Device, rule: Rule) -> anyhow::Result<(usize, usize)> {
        // All updates are done once their state is here.
        let state = self.resident.slots()?;
        let newest = self.newest.as_ref().context("no update")?;
        while newest.bytes().is_none() {
            ensure!(device.failure().is_none(), "the device has failed: {:?}", device.failure());
            std::thread::yield_now();
        }
        let there = newest.bytes().into_iter().chain(&state);
        let (mut compared, mut none) = (0, 0);
        for (ours, theirs) in std::iter::once(&self.parameters).chain(&self.slots).zip(there) {
            let theirs: Vec<f32> = bytemuck::pod_collect_to_vec::<u8, f32>(theirs);
            let differs = |(ours, theirs): (&f32, &f32)| !self_test::is_same(*ours, *theirs);
            if let Some(at) = ours.iter().zip(&theirs).position(differs) {
                let (ours, theirs, all) = (ours[at], theirs[at], ours.len());
                anyhow::bail!("{rule:?} makes {theirs:e} of element {at} of {all}; the processor, {ours:e}");
            }
            compared += ours.len();
            none += ours.iter().filter(|value| value.is_nan()).count();
        }
        Ok((compared, none))
    }
}

/// The updates of one rule: numbers that are compared, and those that are none.
fn of_rule(device: &Device, rule: Rule, updates: u64) -> anyhow::Result<(usize, usize)> {
    let placed = LENGTHS
        .iter()
        .flat_map(|elements| [Drawn::Training, Drawn::Any].map(|drawn| (drawn, *elements)))
        .map(|(drawn, elements)| Both::place(device, rule, drawn, elements));
    let mut blocks = placed.collect::<anyhow::Result<Vec<Both>>>()?;
    for update in 1..=updates {
        blocks.iter_mut().for_each(|block| block.update(rule, update));
    }
    blocks.iter().try_fold((0, 0), |(compared, none), block| {
        let (more, of_them) = block.compare(device, rule)?;
        Ok((compared + more, none + of_them))
    })
}

fn of_code(arguments: &Arguments, image: Image) -> anyhow::Result<()> {
    let device = match Device::with_code(arguments.device, &[image]) {
        Err(DeviceError::Unsuitable { what, .. }) => {
            println!("{:<12} not compared: {what}", image.name);
            return Ok(());
        }
        opened => opened?,
    };
    let (of, updates) = (&device, arguments.updates);
    let compared = std::thread::scope(|scope| {
        let rules = RULES.map(|rule| (rule, scope.spawn(move || of_rule(of, rule, updates))));
        rules.map(|(rule, running)| (rule, running.join()))
    });
    for (rule, compared) in compared {
        let compared = compared.map_err(|_| anyhow::anyhow!("comparing {rule:?} panicked"))?;
        let (compared, none) = compared.with_context(|| format!("by {}", image.name))?;
        println!("{:<12} {:<60} {compared:>10} {none:>14}", image.name, format!("{rule:?}"));
    }
    Ok(())
}

/// Runs both and compares what they leave.
///
/// # Errors
/// Other bits, or a device that fails.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    println!("{} updates there and here: numbers whose bits are the same", arguments.updates);
    println!("{:<12} {:<60} {:>10} {:>14}", "code", "rule", "numbers", "of them NaN");
    IMAGES.into_iter().try_for_each(|image| of_code(arguments, image))
}
