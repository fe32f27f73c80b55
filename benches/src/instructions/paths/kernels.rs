//! The pserver's loops over dense parameters, a stretch at a time as a block runs them, and a whole block with them.

use super::{HotPath, Walk};
use crate::paths::blocks::{Blocks, Message, RATE, WEIGHT, gradient};
use shoal_pserver::block::shape::STRETCH;
use shoal_pserver::kernel::norm::SquareSum;
use shoal_pserver::kernel::rules::{self, Pass};
use shoal_pserver::kernel::sum::{
    Single, add_left_words, add_right, add_right_words, first_non_finite, read_into,
};
use shoal_runtime::cluster::Rule;
use shoal_runtime::cluster::layout::BLOCK_ELEMENTS_MAX;
use std::hint::black_box;

const PARAMETERS: (u32, &str) = (STRETCH as u32, "parameter");
const BLOCK: (u32, &str) = (BLOCK_ELEMENTS_MAX as u32, "parameter");
const RULES: [(&str, Rule); 10] = [
    ("kernel/sgd", Rule::Sgd),
    ("kernel/momentum", Rule::Momentum { momentum: 0.9 }),
    ("kernel/nesterov", Rule::Nesterov { momentum: 0.9 }),
    ("kernel/adagrad", Rule::Adagrad { epsilon: 1e-8 }),
    ("kernel/adam", Rule::ADAM),
    ("kernel/adamw", Rule::ADAMW),
    ("kernel/amsgrad", Rule::AMSGRAD),
    ("kernel/ftrl", Rule::Ftrl { l1: 0.1, l2: 0.1, beta: 1.0 }),
    ("kernel/ema", Rule::Ema { decay: 0.9 }),
    ("kernel/counter", Rule::Sum),
];

pub(super) fn paths() -> Vec<HotPath> {
    let loops = vec![
        on_words("kernel/sum/right", |values, message| add_right_words(values, message.words())),
        on_words("kernel/sum/left", |values, message| add_left_words(message.words(), values)),
        on_words("kernel/check", |_, message| {
            black_box(first_non_finite(message.words()));
        }),
        on_words("kernel/read", |values, message| {
            values.clear();
            read_into(message.words(), values);
        }),
        HotPath::new("kernel/sum/values", PARAMETERS, 64, || {
            let (mut left, right) = (gradient(1, STRETCH), gradient(2, STRETCH));
            Ok(Box::new(move || {
                add_right::<Single>(black_box(&mut left), &right);
                Ok(())
            }))
        }),
        HotPath::new("kernel/norm", PARAMETERS, 64, || {
            let (mut sum, values) = (SquareSum::new(), gradient(1, STRETCH));
            Ok(Box::new(move || {
                sum.add(black_box(&values));
                Ok(())
            }))
        }),
    ];
    let rules = RULES.map(|(name, rule)| HotPath::new(name, PARAMETERS, 64, move || Ok(update(rule))));
    // Two pushes: their checks, the copy that holds the first, the merge, Adam, publication.
    let block = HotPath::new("block/adam", BLOCK, 4, || {
        let mut blocks = Blocks::new(BLOCK.0 as usize)?;
        Ok(Box::new(move || blocks.update()))
    });
    loops.into_iter().chain(rules).chain([block]).collect()
}

/// A loop over values and as many words of a message.
fn on_words(name: &'static str, work: fn(&mut Vec<f32>, &Message)) -> HotPath {
    HotPath::new(name, PARAMETERS, 64, move || {
        let (mut values, message) = (gradient(1, STRETCH), Message::new(&gradient(2, STRETCH)));
        Ok(Box::new(move || {
            work(black_box(&mut values), &message);
            Ok(())
        }))
    })
}

/// What a rule made of a sum is its next sum: no rule looks at values to decide what it does.
fn update(rule: Rule) -> Walk {
    let (parameters, mut values) = (gradient(1, STRETCH), gradient(2, STRETCH));
    let mut slots = vec![vec![0.0; STRETCH]; rule.slots().len()];
    let mut update = 0;
    Box::new(move || {
        update += 1;
        let pass = Pass { weight: WEIGHT as f32, rate: RATE, scale: 1.0, weight_decay: 0.01, update };
        let mut slots: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
        rules::run(rule, pass, &parameters, black_box(&mut values), &mut slots);
        Ok(())
    })
}
