//! A perceptron with one hidden layer for 8×8 digits: 64 pixels → 67 hidden units (ReLU) → 10 classes (softmax).
//! Pure mathematics on flat slices: no optimizer, no file, no clock, no randomness, and the same bits for the same
//! input on the same machine.
//!
//! Included by path from the example and from the demo of the `shoal` command, so it names no module of either:
//! `#[path = "…/examples/digits/mlp.rs"] #[allow(dead_code)] mod mlp;`. It needs the crates libm and ndarray; its
//! tests also take `super::data`, the file beside this one.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis};

/// Inputs of the network.
pub(crate) const PIXELS: usize = 64;
/// Outputs of the network.
pub(crate) const CLASSES: usize = 10;
/// Hidden units. A prime, so that no block of parameters divides evenly among pservers or lanes.
pub(crate) const HIDDEN: usize = 67;

/// The four parameters, borrowed from wherever they were pulled to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights<'a> {
    /// `PIXELS × HIDDEN`, row-major: `[pixel][hidden]`.
    pub(crate) hidden_weights: &'a [f32],
    /// `HIDDEN`.
    pub(crate) hidden_bias: &'a [f32],
    /// `HIDDEN × CLASSES`, row-major: `[hidden][class]`.
    pub(crate) output_weights: &'a [f32],
    /// `CLASSES`.
    pub(crate) output_bias: &'a [f32],
}

/// Where the gradients of the four parameters go, in the shapes of [`Weights`].
#[derive(Debug)]
pub(crate) struct GradientMut<'a> {
    /// `PIXELS × HIDDEN`, row-major.
    pub(crate) hidden_weights: &'a mut [f32],
    /// `HIDDEN`.
    pub(crate) hidden_bias: &'a mut [f32],
    /// `HIDDEN × CLASSES`, row-major.
    pub(crate) output_weights: &'a mut [f32],
    /// `CLASSES`.
    pub(crate) output_bias: &'a mut [f32],
}

/// The sum of the cross-entropy losses over a batch (nats); overwrites `gradient` with the sums of the gradients.
/// Sums, not means: sums of any split of a batch add up to the sum of the batch.
///
/// `pixels` are `labels.len()` rows of 64, each 0 to 1; labels are 0 to 9. No rows give zeros.
///
/// # Panics
/// When a slice has not the length its shape says, or a label is no class.
pub(crate) fn loss_and_gradient(
    weights: &Weights<'_>,
    pixels: &[f32],
    labels: &[u8],
    gradient: &mut GradientMut<'_>,
) -> f64 {
    let inputs = matrix(pixels, labels.len(), PIXELS);
    let Activations { hidden, mut logits } = forward(weights, &inputs);
    let loss = softmax_loss(&mut logits, labels);
    // The likelihood's gradient goes up, the loss's goes down: a silent pixel gives -0.0, which Shoal must bear.
    let output_error = logits;

    let mut hidden_error = output_error.dot(&matrix(weights.output_weights, HIDDEN, CLASSES).t());
    hidden_error.zip_mut_with(&hidden, |error, unit| {
        if *unit <= 0.0 {
            *error = 0.0;
        }
    });
    let mut slot = matrix_mut(gradient.output_weights, HIDDEN, CLASSES);
    general_mat_mul(-1.0, &hidden.t(), &output_error, 0.0, &mut slot);
    let mut slot = matrix_mut(gradient.hidden_weights, PIXELS, HIDDEN);
    general_mat_mul(-1.0, &inputs.t(), &hidden_error, 0.0, &mut slot);
    ArrayViewMut1::from(&mut *gradient.output_bias).assign(&-output_error.sum_axis(Axis(0)));
    ArrayViewMut1::from(&mut *gradient.hidden_bias).assign(&-hidden_error.sum_axis(Axis(0)));
    loss
}

/// The likeliest class of every row of 64 pixels; of equally likely ones, the smallest.
///
/// # Panics
/// When a slice has not the length its shape says.
pub(crate) fn predict(weights: &Weights<'_>, pixels: &[f32]) -> Vec<u8> {
    let inputs = matrix(pixels, pixels.len() / PIXELS, PIXELS);
    forward(weights, &inputs).logits.rows().into_iter().map(|row| likeliest(&row)).collect()
}

/// The share of rows, 0 to 1, whose likeliest class is their label; of no rows, 0.
///
/// # Panics
/// As [`predict`], and when there is not one label a row.
pub(crate) fn accuracy(weights: &Weights<'_>, pixels: &[f32], labels: &[u8]) -> f64 {
    let predicted = predict(weights, pixels);
    assert_eq!(predicted.len(), labels.len(), "one label a row");
    let hits = predicted.iter().zip(labels).filter(|(guess, label)| guess == label).count();
    hits as f64 / labels.len().max(1) as f64
}

struct Activations {
    /// After the ReLU: rows × HIDDEN.
    hidden: Array2<f32>,
    /// Before the softmax: rows × CLASSES.
    logits: Array2<f32>,
}

fn forward(weights: &Weights<'_>, inputs: &ArrayView2<'_, f32>) -> Activations {
    let mut hidden = inputs.dot(&matrix(weights.hidden_weights, PIXELS, HIDDEN));
    hidden += &ArrayView1::from(weights.hidden_bias);
    hidden.mapv_inplace(|unit| unit.max(0.0));
    let mut logits = hidden.dot(&matrix(weights.output_weights, HIDDEN, CLASSES));
    logits += &ArrayView1::from(weights.output_bias);
    Activations { hidden, logits }
}

/// Turns logits into the gradient of the log likelihood by them (one-hot minus softmax), and returns the summed loss.
fn softmax_loss(logits: &mut Array2<f32>, labels: &[u8]) -> f64 {
    let mut loss = 0.0;
    for (mut row, label) in logits.rows_mut().into_iter().zip(labels) {
        let label = usize::from(*label);
        // Against overflow of the exponential; it cancels in the quotient.
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let label_logit = row[label] - largest;
        row.mapv_inplace(|logit| libm::expf(logit - largest));
        let total: f32 = row.iter().sum();
        loss += f64::from(libm::logf(total) - label_logit);
        row.mapv_inplace(|power| -(power / total));
        row[label] += 1.0;
    }
    loss
}

fn likeliest(logits: &ArrayView1<'_, f32>) -> u8 {
    let mut best = 0;
    for (class, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = class;
        }
    }
    // Fits: below CLASSES.
    best as u8
}

#[expect(
    clippy::expect_used,
    reason = "a slice of another length is a bug of the caller, as an index out of range"
)]
fn matrix(values: &[f32], rows: usize, columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((rows, columns), values).expect("a slice of rows × columns values")
}

#[expect(
    clippy::expect_used,
    reason = "a slice of another length is a bug of the caller, as an index out of range"
)]
fn matrix_mut(values: &mut [f32], rows: usize, columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((rows, columns), values).expect("a slice of rows × columns values")
}

#[cfg(test)]
mod tests {
    use super::super::data;
    use super::*;

    const LENGTHS: [usize; 4] = [PIXELS * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES];

    /// The four parameters in one row, which is easier to perturb and to step.
    #[derive(Clone)]
    struct Flat(Vec<f32>);

    impl Flat {
        fn zeros() -> Self {
            Self(vec![0.0; LENGTHS.iter().sum()])
        }

        /// Glorot's uniform distribution for the matrices, zero for the biases.
        fn glorot(seed: u64) -> Self {
            let mut state = seed;
            let mut flat = Self::zeros();
            let (hidden_weights, rest) = flat.0.split_at_mut(LENGTHS[0]);
            fill_uniform(hidden_weights, limit(PIXELS, HIDDEN), &mut state);
            fill_uniform(&mut rest[LENGTHS[1]..][..LENGTHS[2]], limit(HIDDEN, CLASSES), &mut state);
            flat
        }

        fn weights(&self) -> Weights<'_> {
            let (hidden_weights, rest) = self.0.split_at(LENGTHS[0]);
            let (hidden_bias, rest) = rest.split_at(LENGTHS[1]);
            let (output_weights, output_bias) = rest.split_at(LENGTHS[2]);
            Weights { hidden_weights, hidden_bias, output_weights, output_bias }
        }

        fn gradient_mut(&mut self) -> GradientMut<'_> {
            let (hidden_weights, rest) = self.0.split_at_mut(LENGTHS[0]);
            let (hidden_bias, rest) = rest.split_at_mut(LENGTHS[1]);
            let (output_weights, output_bias) = rest.split_at_mut(LENGTHS[2]);
            GradientMut { hidden_weights, hidden_bias, output_weights, output_bias }
        }
    }

    fn limit(inputs: usize, outputs: usize) -> f32 {
        libm::sqrtf(6.0 / (inputs + outputs) as f32)
    }

    fn fill_uniform(values: &mut [f32], limit: f32, state: &mut u64) {
        for value in values {
            *value = (unit_draw(state) * 2.0 - 1.0) * limit;
        }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): the top 24 bits of a draw as a number of [0, 1).
    fn unit_draw(state: &mut u64) -> f32 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 40) as f32 / (1 << 24) as f32
    }

    struct Adam {
        rate: f32,
        step: i32,
        first: Vec<f32>,
        second: Vec<f32>,
    }

    impl Adam {
        fn new(rate: f32) -> Self {
            let zeros = Flat::zeros().0;
            Self { rate, step: 0, first: zeros.clone(), second: zeros }
        }

        fn apply(&mut self, values: &mut [f32], sums: &[f32], rows: usize) {
            self.step += 1;
            let first_bias = 1.0 - libm::powf(0.9, self.step as f32);
            let second_bias = 1.0 - libm::powf(0.999, self.step as f32);
            for (index, value) in values.iter_mut().enumerate() {
                let slope = sums[index] / rows as f32;
                self.first[index] = 0.9 * self.first[index] + 0.1 * slope;
                self.second[index] = 0.999 * self.second[index] + 0.001 * slope * slope;
                let spread = libm::sqrtf(self.second[index] / second_bias) + 1e-8;
                *value -= self.rate * (self.first[index] / first_bias) / spread;
            }
        }
    }

    /// Trains from fresh values and returns `(mean loss, held-out accuracy)` after every epoch. Rows come in a new
    /// order each epoch.
    fn train(rate: f32, batch: usize, epochs: usize, seed: u64) -> Vec<(f64, f64)> {
        let (train, test) = data::split().unwrap();
        let (pixels, test_pixels) = (train.unit_pixels(), test.unit_pixels());
        let (mut flat, mut sums, mut adam) = (Flat::glorot(seed), Flat::zeros(), Adam::new(rate));
        let (mut order, mut state) = ((0..train.len()).collect::<Vec<_>>(), seed ^ 0x5eed);
        let mut curve = Vec::new();
        for _ in 0..epochs {
            shuffle(&mut order, &mut state);
            let mut loss = 0.0;
            for rows in order.chunks(batch) {
                let inputs: Vec<f32> =
                    rows.iter().flat_map(|row| &pixels[row * PIXELS..][..PIXELS]).copied().collect();
                let labels: Vec<u8> = rows.iter().map(|row| train.labels[*row]).collect();
                loss += loss_and_gradient(&flat.weights(), &inputs, &labels, &mut sums.gradient_mut());
                adam.apply(&mut flat.0, &sums.0, rows.len());
            }
            let held_out = accuracy(&flat.weights(), &test_pixels, &test.labels);
            curve.push((loss / train.len() as f64, held_out));
        }
        curve
    }

    fn shuffle(order: &mut [usize], state: &mut u64) {
        for index in (1..order.len()).rev() {
            order.swap(index, (unit_draw(state) * (index + 1) as f32) as usize);
        }
    }

    /// The same network in f64 by the textbook's loops: an independent reference for loss and gradient.
    fn reference_loss(flat: &[f64], pixels: &[f32], labels: &[u8]) -> f64 {
        let (hidden_weights, rest) = flat.split_at(LENGTHS[0]);
        let (hidden_bias, rest) = rest.split_at(LENGTHS[1]);
        let (output_weights, output_bias) = rest.split_at(LENGTHS[2]);
        let row_loss = |(row, label): (&[f32], &u8)| {
            let unit = |unit: usize| {
                let sum: f64 = (0..PIXELS)
                    .map(|pixel| f64::from(row[pixel]) * hidden_weights[pixel * HIDDEN + unit])
                    .sum();
                (sum + hidden_bias[unit]).max(0.0)
            };
            let hidden: Vec<f64> = (0..HIDDEN).map(unit).collect();
            let logit = |class: usize| {
                let sum: f64 =
                    (0..HIDDEN).map(|unit| hidden[unit] * output_weights[unit * CLASSES + class]).sum();
                sum + output_bias[class]
            };
            let logits: Vec<f64> = (0..CLASSES).map(logit).collect();
            libm::log(logits.iter().map(|logit| libm::exp(*logit)).sum()) - logits[usize::from(*label)]
        };
        pixels.chunks(PIXELS).zip(labels).map(row_loss).sum()
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let (digits, _) = data::split().unwrap();
        let (pixels, labels) = (&digits.unit_pixels()[..9 * PIXELS], &digits.labels[..9]);
        let (mut flat, mut sums) = (Flat::glorot(7), Flat::zeros());
        fill_uniform(&mut flat.0[LENGTHS[0]..][..HIDDEN], 0.1, &mut 11);
        sums.0.fill(f32::NAN); // what was there before must not matter
        let loss = loss_and_gradient(&flat.weights(), pixels, labels, &mut sums.gradient_mut());

        let mut exact: Vec<f64> = flat.0.iter().copied().map(f64::from).collect();
        assert!((loss - reference_loss(&exact, pixels, labels)).abs() < 1e-4);
        let step = 1e-6;
        // Every 13th of the large matrix, every one of the rest.
        for index in (0..LENGTHS[0]).step_by(13).chain(LENGTHS[0]..exact.len()) {
            let kept = exact[index];
            exact[index] = kept + step;
            let above = reference_loss(&exact, pixels, labels);
            exact[index] = kept - step;
            let below = reference_loss(&exact, pixels, labels);
            exact[index] = kept;
            let slope = (above - below) / (2.0 * step);
            let found = f64::from(sums.0[index]);
            assert!((slope - found).abs() < 1e-4 + 1e-4 * slope.abs(), "{index}: {slope} but {found}");
        }
    }

    #[test]
    fn sums_of_two_halves_are_the_sum_of_the_whole() {
        let (digits, _) = data::split().unwrap();
        let pixels = &digits.unit_pixels()[..20 * PIXELS];
        let flat = Flat::glorot(3);
        let sums_of = |rows: std::ops::Range<usize>| {
            let mut sums = Flat::zeros();
            let inputs = &pixels[rows.start * PIXELS..rows.end * PIXELS];
            let loss =
                loss_and_gradient(&flat.weights(), inputs, &digits.labels[rows], &mut sums.gradient_mut());
            (loss, sums.0)
        };
        let (whole, left, right) = (sums_of(0..20), sums_of(0..7), sums_of(7..20));
        assert!((whole.0 - left.0 - right.0).abs() < 1e-4);
        for index in 0..whole.1.len() {
            assert!((whole.1[index] - left.1[index] - right.1[index]).abs() < 1e-4);
        }
    }

    #[test]
    fn no_rows_give_zeros() {
        let (flat, mut sums) = (Flat::glorot(1), Flat::zeros());
        sums.0.fill(f32::NAN);
        assert_eq!(loss_and_gradient(&flat.weights(), &[], &[], &mut sums.gradient_mut()), 0.0);
        assert!(sums.0.iter().all(|value| *value == 0.0));
        assert!(predict(&flat.weights(), &[]).is_empty());
        assert_eq!(accuracy(&flat.weights(), &[], &[]), 0.0);
    }

    #[test]
    fn huge_logits_neither_overflow_nor_hide_the_loss() {
        let (mut flat, mut sums) = (Flat::zeros(), Flat::zeros());
        let last = flat.0.len() - 1;
        flat.0[last] = 1e4;
        let loss = loss_and_gradient(&flat.weights(), &[0.5; PIXELS], &[0], &mut sums.gradient_mut());
        assert_eq!(loss, 1e4);
        assert_eq!(predict(&flat.weights(), &[0.5; PIXELS]), [9]);
    }

    #[test]
    fn twelve_epochs_learn_the_digits() {
        // Several seeds, because one decides over three or four of the 299 digits held out.
        let curves: Vec<_> = (41..46).map(|seed| train(0.01, 64, 12, seed)).collect();
        let first = mean(curves.iter().map(|curve| curve[0].0));
        let last = mean(curves.iter().map(|curve| curve[11].0));
        assert!(last < first / 5.0, "mean loss {first}, then {last}");
        let held_out = mean(curves.iter().map(|curve| curve[11].1));
        assert!(held_out >= 0.95, "accuracy on held-out digits {held_out}");
    }

    fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = values.len() as f64;
        values.sum::<f64>() / count
    }

    /// What the demo's default rate, batch and number of epochs were chosen by:
    /// `cargo test … learning_rates -- --ignored --nocapture`.
    #[test]
    #[ignore = "prints a table"]
    fn learning_rates() {
        const SEEDS: u64 = 5;
        println!("batch  rate   epoch: mean loss, held-out accuracy as worst to best of {SEEDS} seeds");
        for batch in [64, 128] {
            for rate in [0.003, 0.01, 0.02] {
                let curves: Vec<_> = (0..SEEDS).map(|seed| train(rate, batch, 12, 41 + seed)).collect();
                let cells: Vec<String> = [1, 2, 3, 4, 6, 8, 10, 12].map(|epoch| cell(&curves, epoch)).into();
                println!("{batch:>5}  {rate:<5}  {}", cells.join("  "));
            }
        }
    }

    fn cell(curves: &[Vec<(f64, f64)>], epoch: usize) -> String {
        let after: Vec<_> = curves.iter().map(|curve| curve[epoch - 1]).collect();
        let loss = after.iter().map(|(loss, _)| loss).sum::<f64>() / after.len() as f64;
        let worst = after.iter().map(|(_, share)| *share).fold(1.0, f64::min);
        let best = after.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        format!("{epoch}: {loss:.3}, {worst:.3}–{best:.3}")
    }
}
