//! Blocks on a device against blocks on the processor, by whatever updates, copies and departures in whatever order.

use super::super::self_test::{RULES, values};
use super::super::{Device, DeviceChoice, DeviceError, PieceUpdate, Resident};
use super::fake::Fake;
use crate::kernel::rules::{self, Pass};
use bytes::Bytes;
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::{BlockId, Rule};
use std::time::Duration;

fn open() -> Device {
    Device::open(DeviceChoice::Cuda(0)).unwrap().unwrap()
}

/// A block of one rule on both sides.
struct Twin {
    device: Device,
    rule: Rule,
    parameters: Vec<f32>,
    slots: Vec<Vec<f32>>,
    resident: Resident,
    updates: u64,
    newest: Option<super::super::Outcome>,
}

impl Twin {
    fn new(device: &Device, number: u32, rule: Rule, length: usize) -> Result<Twin, DeviceError> {
        let parameters: Vec<f32> = values(7, length).iter().map(|value| value % 1.0).collect();
        let slots = vec![vec![0.0; length]; rule.slots().len()];
        let borrowed: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
        let resident = device.place(BlockId(number), &parameters, &borrowed)?;
        Ok(Twin { device: device.clone(), rule, parameters, slots, resident, updates: 0, newest: None })
    }

    fn update(&mut self) {
        self.updates += 1;
        let pass = Pass { weight: 48.0, rate: 0.01, scale: 1.0, weight_decay: 0.01, update: self.updates };
        let length = self.parameters.len();
        let mut next: Vec<f32> =
            (0..length).map(|at| (mix(self.updates << 32 | at as u64) as i32) as f32 / 1e8).collect();
        let piece = PieceUpdate::new(0..length, self.rule, pass).unwrap();
        self.newest = Some(self.resident.update(vec![piece], |sum| sum.copy_from_slice(&next)));
        let mut slots: Vec<&mut [f32]> = self.slots.iter_mut().map(Vec::as_mut_slice).collect();
        rules::run(self.rule, pass, &self.parameters, &mut next, &mut slots);
        self.parameters = next;
    }

    fn check(&self) {
        let slots = self.resident.slots().unwrap();
        if self.rule.slots().is_empty() {
            // There was nothing to wait for.
            while self.newest.as_ref().is_some_and(|newest| newest.bytes().is_none()) {
                assert_eq!(self.device.failure(), None);
                std::thread::yield_now();
            }
        }
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let came = |bytes: &Bytes| bits(&bytemuck::pod_collect_to_vec::<u8, f32>(bytes));
        for (ours, theirs) in self.slots.iter().zip(&slots) {
            assert!(bits(ours) == came(theirs), "slots of {:?} after {} updates", self.rule, self.updates);
        }
        if let Some(newest) = &self.newest {
            let theirs = came(newest.bytes().expect("all that came before its slots is done"));
            assert!(bits(&self.parameters) == theirs, "{:?} after {} updates", self.rule, self.updates);
        }
    }
}

#[test]
fn a_thousand_steps_of_every_rule_have_the_processors_bits() {
    let _fake = Fake::driver();
    let device = open();
    let twin =
        |(number, rule): (usize, &Rule)| Twin::new(&device, number as u32, *rule, 101 + number).unwrap();
    let mut twins: Vec<Twin> = RULES.iter().enumerate().map(twin).collect();
    for _ in 0..1000 {
        twins.iter_mut().for_each(Twin::update);
    }
    twins.iter().for_each(Twin::check);
    let mut finished = device.take_finished();
    finished.sort_unstable();
    finished.dedup();
    assert_eq!(finished.len(), RULES.len());
}

#[test]
fn blocks_that_come_and_go_while_others_are_updated_and_copied_have_the_processors_bits() {
    let fake = Fake::driver();
    let device = open();
    let before = fake.counts();
    for seed in 0..6u64 {
        let (mut twins, mut draws) = (Vec::new(), seed * 1_000_000);
        let mut draw = |below: u64| {
            draws += 1;
            mix(draws) % below
        };
        for number in 0..400 {
            match draw(10) {
                0 | 1 => {
                    let rule = RULES[draw(RULES.len() as u64) as usize];
                    let longest = if draw(40) == 0 { 1 << 17 } else { 300 };
                    let length = 1 + draw(longest) as usize;
                    twins.push(Twin::new(&device, number, rule, length).unwrap());
                }
                2 if !twins.is_empty() => drop(twins.swap_remove(draw(twins.len() as u64) as usize)),
                3 if !twins.is_empty() => twins[draw(twins.len() as u64) as usize].check(),
                _ if !twins.is_empty() => {
                    let at = draw(twins.len() as u64) as usize;
                    twins[at].update();
                }
                _ => {}
            }
        }
        twins.iter().for_each(Twin::check);
    }
    assert_eq!(device.usage().blocks, 0);
    let [launches, copied_in, ..] = fake.counts();
    assert!(launches > before[0] && copied_in > before[1]);
}

#[test]
fn updates_that_wait_together_are_launched_together() {
    let fake = Fake::driver();
    let device = open();
    let mut twins: Vec<Twin> = (0..300).map(|n| Twin::new(&device, n, Rule::ADAM, 64).unwrap()).collect();
    let [before, ..] = fake.counts();
    twins.iter_mut().for_each(Twin::update);
    twins.iter().for_each(Twin::check);
    let [after, ..] = fake.counts();
    assert!(after - before < 150, "{} launches for 300 blocks", after - before);
}

#[test]
fn updates_that_follow_one_another_allocate_nothing() {
    let fake = Fake::driver();
    let device = open();
    let mut twins: Vec<Twin> = (0..45).map(|n| Twin::new(&device, n, Rule::ADAM, 1 << 17).unwrap()).collect();
    let mut allocations = Vec::new();
    for _ in 0..8 {
        twins.iter_mut().for_each(Twin::update);
        twins.iter().for_each(Twin::check);
        allocations.push(fake.counts()[3]);
    }
    assert_eq!(allocations[4..], [allocations[4]; 4], "{allocations:?}");
}

#[test]
fn a_block_that_there_is_no_memory_for_is_refused_and_others_go_on() {
    let fake = Fake::driver();
    fake.set("MEMORY", "110000000");
    let device = open();
    let mut twin = Twin::new(&device, 0, Rule::ADAM, 1000).unwrap();
    let large = vec![0.0f32; 1 << 18];
    let mut residents = Vec::new();
    let why = loop {
        match device.place(BlockId(1), &large, &[&large, &large]) {
            Ok(resident) => residents.push(resident),
            Err(why) => break why,
        }
    };
    assert!(matches!(why, DeviceError::Memory { bytes: 4_194_304, .. }), "{why:?}");
    assert_eq!((device.usage().overflow, device.usage().blocks), (1, 1 + residents.len() as u64));
    assert!(device.failure().is_none(), "that is no failure");
    twin.update();
    twin.check();
    drop(residents);
    // Its memory is had back once nothing in flight needs it.
    twin.update();
    twin.check();
    device.place(BlockId(1), &large, &[&large, &large]).unwrap();
}

fn failure_of(device: &Device) -> DeviceError {
    for _ in 0..2000 {
        if let Some(failure) = device.failure() {
            return failure.clone();
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("nobody says that it has failed")
}

#[test]
fn a_device_that_is_lost_says_so_and_answers_nobody_any_more() {
    let fake = Fake::driver();
    let device = open();
    fake.set("LOSE_AFTER", "3");
    let mut twin = Twin::new(&device, 0, Rule::ADAM, 1000).unwrap();
    for _ in 0..50 {
        twin.update();
    }
    let why = failure_of(&device);
    assert_eq!(
        (matches!(why, DeviceError::Lost { .. }), why.to_string().contains("ECC_UNCORRECTABLE")),
        (true, true),
        "{why}"
    );
    assert!(twin.newest.as_ref().unwrap().bytes().is_none(), "an update that was lost is not done");
    assert_eq!(twin.resident.slots().unwrap_err(), why);
    twin.update();
}

#[test]
fn without_memory_for_a_page_the_device_has_failed_and_no_block_is_updated_any_more() {
    let fake = Fake::driver();
    let device = open();
    let mut twins: Vec<Twin> =
        (0..2).map(|n| Twin::new(&device, n, Rule::ADAM, 1000 + n as usize).unwrap()).collect();
    twins[0].update();
    twins[0].check();
    fake.set("REFUSE_PINS", "1");
    // The other's page is of a size that there is none of.
    twins[1].update();
    assert!(matches!(failure_of(&device), DeviceError::Memory { what: "pinned memory", .. }));
    fake.set("REFUSE_PINS", "");
    twins.iter_mut().for_each(Twin::update);
    assert!(twins.iter().all(|twin| twin.resident.slots().is_err()), "nobody is answered any more");
    let is_made = |twin: &Twin| twin.newest.as_ref().unwrap().is_made();
    assert!(!twins.iter().any(is_made));
}

#[test]
fn of_the_newest_two_versions_parameters_can_be_asked_for_and_of_no_others() {
    let _fake = Fake::driver();
    let device = open();
    let mut twin = Twin::new(&device, 0, Rule::Sgd, 100).unwrap();
    let mut made = Vec::new();
    for _ in 0..4 {
        twin.update();
        twin.check();
        made.push(twin.newest.clone().unwrap());
    }
    let asked: Vec<bool> = made.iter().map(|version| twin.resident.bring(version)).collect();
    assert_eq!(asked, [false, false, true, true]);
}

#[test]
fn a_device_that_stalls_is_given_up() {
    let fake = Fake::driver();
    let device = open();
    fake.set("STALL_AFTER", "1");
    let mut twin = Twin::new(&device, 0, Rule::ADAM, 1000).unwrap();
    device.give_up_after(Duration::from_millis(200));
    for _ in 0..5 {
        twin.update();
    }
    assert!(matches!(failure_of(&device), DeviceError::Stalled { .. }));
    assert!(twin.resident.slots().is_err());
}

#[test]
fn what_no_piece_updates_is_carried_from_version_to_version() {
    let _fake = Fake::driver();
    let device = open();
    let mut expected = values(7, 101);
    let mut resident = device.place(BlockId(0), &expected, &[]).unwrap();
    for update in 1..=4 {
        let pass = Pass { weight: 48.0, rate: 0.01, scale: 1.0, weight_decay: 0.01, update };
        let ranges = [5..18, 18..22, 61..90];
        let pieces = ranges.clone().map(|range| PieceUpdate::new(range, Rule::Sgd, pass).unwrap());
        let outcome = resident.update(pieces.to_vec(), |sum| sum.fill(1.0));
        for range in ranges {
            let mut next = vec![1.0; range.len()];
            rules::run(Rule::Sgd, pass, &expected[range.clone()], &mut next, &mut []);
            expected[range].copy_from_slice(&next);
        }
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let theirs = resident.fetch(&outcome).unwrap();
        assert_eq!(bits(&bytemuck::pod_collect_to_vec::<u8, f32>(&theirs)), bits(&expected), "{update}");
    }
}

#[test]
fn what_is_brought_between_updates_keeps_them_in_order() {
    let _fake = Fake::driver();
    let device = open();
    let mut twins: Vec<Twin> = (0..2).map(|n| Twin::new(&device, n, Rule::ADAM, 64).unwrap()).collect();
    for _ in 0..300 {
        twins.iter_mut().for_each(Twin::update);
        let brought = twins[1].newest.clone().unwrap();
        twins[1].resident.bring(&brought);
        twins[0].update();
    }
    twins.iter().for_each(Twin::check);
}
