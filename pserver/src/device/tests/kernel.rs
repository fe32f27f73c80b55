//! The kernel's source, compiled for this processor, against the loops of `kernel/rules`: the same bits, whatever the rule, the
//! cut, the number of sums and their precision.

#![allow(unsafe_code, reason = "C is called")]

use super::super::batch::{Addresses, Operand, PieceUpdate, Tables};
use super::super::self_test::{RULES, is_same, values};
use super::fake::library;
use crate::kernel::rules::{self, Pass};
use bytemuck::Zeroable;
use proptest::prelude::*;
use shoal_runtime::cluster::Rule;
use shoal_runtime::cluster::precision::round_bf16;
use std::sync::OnceLock;

type Run = unsafe extern "C" fn(u64, u64, u64, u32, u32);

/// Four floats that begin at a multiple of 16, as buffers on a device do.
#[derive(Clone, Copy, Zeroable, bytemuck::Pod)]
#[repr(C, align(16))]
struct Quad([f32; 4]);

fn aligned(values: &[f32]) -> Vec<Quad> {
    let mut quads = vec![Quad([f32::NAN; 4]); values.len().div_ceil(4)];
    bytemuck::cast_slice_mut(&mut quads)[..values.len()].copy_from_slice(values);
    quads
}

fn launch(tables: &Tables, threads: u32) {
    static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let folder = library("libkernel.so", &["pserver/src/device/tests/kernel.c"]);
        // SAFETY: our own library, without initialisers.
        unsafe { libloading::Library::new(folder.join("libkernel.so")) }.unwrap()
    });
    let mut bytes = vec![Quad([0.0; 4]); tables.bytes().div_ceil(16)];
    tables.write(bytemuck::cast_slice_mut(&mut bytes));
    let [pieces, operands, chunks] = tables.addresses(bytes.as_ptr().addr() as u64);
    // SAFETY: `run` of kernel.c; what the tables name lives longer than this call.
    unsafe {
        let run = library.get::<Run>(b"run").unwrap();
        run(pieces, operands, chunks, tables.chunks(), threads);
    }
}

/// A block of which one stretch is updated.
#[derive(Debug)]
struct Trial {
    rule: Rule,
    pass: Pass,
    length: usize,
    range: std::ops::Range<usize>,
    sums: Vec<Vec<f32>>,
    halves: Vec<bool>,
    /// After each sum, how often the two newest become one.
    joins: Vec<u32>,
    rounds: bool,
    threads: u32,
}

/// A tree of so many leaves: after each, as many joins as a draw says of those that there may be; all that are left at the end.
fn joins(draws: &[u32]) -> Vec<u32> {
    let mut waiting = 0;
    let joins = draws.iter().enumerate().map(|(at, draw)| {
        let joins = if at + 1 == draws.len() { waiting } else { draw % (waiting + 1) };
        waiting = waiting + 1 - joins;
        joins
    });
    joins.collect()
}

fn trials() -> impl Strategy<Value = Trial> {
    let cut = (1usize..9000)
        .prop_flat_map(|length| (Just(length), 0..length))
        .prop_flat_map(|(length, first)| (Just(length), (Just(first), first + 1..=length)));
    let sums = prop::collection::vec((any::<u32>(), any::<bool>()), 1..10);
    let pass = (1u32..5000, 1u64..100_000, any::<bool>(), any::<bool>());
    (0..RULES.len(), cut, sums, any::<bool>(), pass, 1u32..70).prop_map(
        |(rule, (length, (first, end)), sums, rounds, (weight, update, is_stale, decays), threads)| {
            let pass = Pass {
                weight: weight as f32,
                rate: 0.01,
                scale: if is_stale { 0.25 } else { 1.0 },
                weight_decay: if decays { 0.1 } else { 0.0 },
                update,
            };
            let halves: Vec<bool> = sums.iter().map(|(_, is_half)| *is_half).collect();
            let sum = |(of, is_half): &(u32, bool)| {
                let sum = values(u64::from(*of), length);
                if *is_half { sum.into_iter().map(round_bf16).filter_map(finite).collect() } else { sum }
            };
            let joins = joins(&sums.iter().map(|(draw, _)| *draw).collect::<Vec<_>>());
            let sums = sums.iter().map(sum).collect();
            Trial { rule: RULES[rule], pass, length, range: first..end, sums, halves, joins, rounds, threads }
        },
    )
}

/// Rounding makes infinities of the largest.
fn finite(value: f32) -> Option<f32> {
    Some(if value.is_finite() { value } else { 1.0 })
}

fn half_words(sum: &[f32]) -> Vec<f32> {
    let words: Vec<u16> = sum.iter().map(|value| (value.to_bits() >> 16) as u16).collect();
    let mut packed = vec![0.0f32; words.len().div_ceil(2)];
    bytemuck::cast_slice_mut::<f32, u16>(&mut packed)[..words.len()].copy_from_slice(&words);
    packed
}

fn check(trial: &Trial) -> Result<(), TestCaseError> {
    let Trial { rule, pass, length, range, sums, halves, joins, rounds, threads } = trial;
    let mut parameters = values(1, *length);
    let mut slots: Vec<Vec<f32>> = (0..rule.slots().len())
        .map(|of| values(2 + of as u64, *length).iter().map(|v| v.abs()).collect())
        .collect();
    let mut on_device: Vec<Vec<Quad>> =
        std::iter::once(&parameters).chain(&slots).map(|buffer| aligned(buffer)).collect();
    let operands: Vec<Vec<Quad>> = sums
        .iter()
        .zip(halves)
        .map(|(sum, is_half)| if *is_half { aligned(&half_words(sum)) } else { aligned(sum) })
        .collect();

    let address = |quads: &[Quad]| quads.as_ptr().addr() as u64;
    let mut at = Addresses { parameters: 0, next: 0, slots: [0; 3] };
    for (index, buffer) in on_device.iter_mut().enumerate() {
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        if index == 0 { (at.parameters, at.next) = (address, address) } else { at.slots[index - 1] = address }
    }
    let named: Vec<Operand> = operands
        .iter()
        .zip(halves)
        .zip(joins)
        .map(|((sum, is_half), joins)| Operand {
            address: address(sum),
            is_half: (*is_half).into(),
            joins: *joins,
        })
        .collect();
    let mut tables = Tables::default();
    tables.add(at, &named, *rounds, &[PieceUpdate::new(range.clone(), *rule, *pass).unwrap()]);
    launch(&tables, *threads);

    let settled = |value: f32| if *rounds { round_bf16(value) } else { value + 0.0 };
    let mut waiting: Vec<Vec<f32>> = Vec::new();
    for (leaf, joins) in sums.iter().zip(joins) {
        waiting.push(leaf.iter().map(|value| settled(*value)).collect());
        for _ in 0..*joins {
            let (right, left) = (waiting.pop().unwrap(), waiting.pop().unwrap());
            waiting.push(left.iter().zip(right).map(|(left, right)| settled(left + right)).collect());
        }
    }
    let mut sum = waiting.pop().unwrap();
    let mut own: Vec<&mut [f32]> = slots.iter_mut().map(|slot| &mut slot[range.clone()]).collect();
    rules::run(*rule, *pass, &parameters[range.clone()], &mut sum[range.clone()], &mut own);
    parameters[range.clone()].copy_from_slice(&sum[range.clone()]);
    for (ours, theirs) in std::iter::once(&parameters).chain(&slots).zip(&on_device) {
        let theirs: &[f32] = bytemuck::cast_slice(theirs);
        let different = ours.iter().zip(theirs).position(|(ours, theirs)| !is_same(*ours, *theirs));
        if let Some(at) = different {
            return Err(TestCaseError::fail(format!("element {at}: {:e}, {:e}", ours[at], theirs[at])));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_kernel_makes_the_bits_of_the_loops_and_touches_nothing_else(trial in trials()) {
        check(&trial)?;
    }
}

/// PTX says how each operation rounds: what contracts, flushes or approximates has another name.
#[test]
fn every_operation_of_the_device_code_is_correctly_rounded() {
    let ptx = include_str!("../kernels/update.compute_80.ptx");
    let operations: Vec<&str> = ptx.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let arithmetic = ["add.", "sub.", "mul.", "div.", "sqrt.", "fma.", "mad.", "rcp.", "rsqrt."];
    let of_floats = operations.iter().filter(|name| {
        name.contains(".f32") && arithmetic.iter().any(|operation| name.starts_with(operation))
    });
    let names: std::collections::BTreeSet<&str> = of_floats.copied().collect();
    let exact = ["add.rn.f32", "div.rn.f32", "mul.rn.f32", "sqrt.rn.f32", "sub.rn.f32"];
    assert_eq!(names, exact.into_iter().collect());
    assert!(!ptx.contains(".f64") && !ptx.contains(".ftz") && !ptx.contains(".approx"), "another precision");
}
