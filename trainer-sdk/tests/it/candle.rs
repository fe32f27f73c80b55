//! Candle's gradients of the digits' perceptron against the hand-written ones, and against themselves.

#[allow(dead_code)] // What the demo and the example use.
#[path = "../../examples/digits/data.rs"]
mod data;
#[allow(dead_code)] // As above.
#[path = "../../examples/digits/mlp.rs"]
mod mlp;
#[path = "../../examples/digits_candle/model.rs"]
mod model;

use mlp::{GradientMut, Weights};
use shoal_trainer_sdk::{Gradient, Trial};

const NAMES: [&str; 4] = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"];

/// A trial with biases that are not zero, and a few records.
fn trial() -> (Trial, Vec<Vec<u8>>) {
    let mut trial = Trial::new(&mut model::Digits, 37).unwrap();
    for name in ["hidden.bias", "output.bias"] {
        let biases = trial.slice_mut(name).unwrap();
        (0..).zip(biases).for_each(|(at, bias)| *bias = 0.01 * (at % 7) as f32 - 0.03);
    }
    let (digits, _) = data::split().unwrap();
    let records = digits.rows().take(37).map(|(label, pixels)| data::encode(label, pixels).to_vec());
    (trial, records.collect())
}

fn stepped(trial: &Trial, records: &[Vec<u8>]) -> Gradient {
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    trial.step(&mut model::Digits, &records).unwrap()
}

#[test]
fn gradients_and_loss_are_the_hand_written_ones() {
    let (trial, records) = trial();
    let gradient = stepped(&trial, &records);
    let parameters = trial.parameters();
    let of = |name: &str| parameters.slice(name).unwrap();
    let weights = Weights {
        hidden_weights: of(NAMES[0]),
        hidden_bias: of(NAMES[1]),
        output_weights: of(NAMES[2]),
        output_bias: of(NAMES[3]),
    };
    let mut expected = NAMES.map(|name| vec![0.0; of(name).len()]);
    let [hidden_weights, hidden_bias, output_weights, output_bias] = &mut expected;
    let mut sums = GradientMut { hidden_weights, hidden_bias, output_weights, output_bias };
    let pixels: Vec<f32> =
        records.iter().flat_map(|record| &record[1..]).map(|pixel| data::unit(*pixel)).collect();
    let labels: Vec<u8> = records.iter().map(|record| record[0]).collect();
    let loss = mlp::loss_and_gradient(&weights, &pixels, &labels, &mut sums);

    let found = f64::from(gradient.slice("loss").unwrap()[0]);
    assert!((found - loss).abs() < 1e-4 * loss, "loss {found}, not {loss}");
    for (name, expected) in NAMES.iter().zip(&expected) {
        let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        assert!(largest > 0.1, "{name}: nothing to compare");
        for (element, (found, expected)) in gradient.slice(name).unwrap().iter().zip(expected).enumerate() {
            assert!((found - expected).abs() < 1e-5 * largest, "{name}[{element}]: {found}, not {expected}");
        }
    }
}

#[test]
fn the_same_batch_gives_the_same_bits() {
    let (trial, records) = trial();
    let bits = || {
        let gradient = stepped(&trial, &records);
        NAMES.map(|name| gradient.slice(name).unwrap().iter().map(|sum| sum.to_bits()).collect::<Vec<u32>>())
    };
    let first = bits();
    for _ in 0..20 {
        assert!(bits() == first, "the gradients differ from one run to another");
    }
}
