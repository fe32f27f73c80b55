//! A network that tells the next character from the 32 before it (after Bengio et al. 2003): their embeddings side by
//! side → 192 hidden units (ReLU) → 97 classes (softmax). Pure mathematics on flat slices: no optimizer, no file, no
//! clock, no randomness, and the same bits for the same input on the same machine.

use super::dense;
use super::windows::{CLASSES, CONTEXT};
use ndarray::Array2;

/// Numbers for each class of characters.
const WIDTH: usize = 12;
const HIDDEN: usize = 192;

/// Name and shape of each parameter, outputs first.
pub(crate) const PARAMETERS: [(&str, &[u64]); 5] = [
    ("embedding", &[CLASSES as u64, WIDTH as u64]),
    ("hidden.weight", &[HIDDEN as u64, (CONTEXT * WIDTH) as u64]),
    ("hidden.bias", &[HIDDEN as u64]),
    ("output.weight", &[CLASSES as u64, HIDDEN as u64]),
    ("output.bias", &[CLASSES as u64]),
];

/// The parameters in the order of [`PARAMETERS`], borrowed from wherever they were pulled to.
pub(crate) type Weights<'a> = [&'a [f32]; 5];
/// Sums in the shapes of the parameters.
pub(crate) type Sums = [Vec<f32>; 5];

/// What is to be told: the classes of each row's context, one row after another, and the class that follows each.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) contexts: Vec<u8>,
    pub(crate) targets: Vec<u8>,
}

/// The negative log likelihood summed over the rows (nats). Adds to `sums` the sums of the gradients of the log
/// **likelihood**: the loss's, negated.
///
/// # Panics
/// When a slice has not the length its shape says, or a class is none.
pub(crate) fn loss_and_sums(weights: &Weights<'_>, rows: &Rows, sums: &mut Sums) -> f64 {
    let [embedding, hidden_weight, _, output_weight, _] = *weights;
    let [embedding_sum, hidden_sum, hidden_bias_sum, output_sum, output_bias_sum] = sums;
    let (inputs, hidden, mut logits) = forward(weights, &rows.contexts);
    let loss = dense::softmax_loss(&mut logits, &rows.targets);
    let error = dense::backward(output_weight, &hidden.view(), &logits, output_sum, output_bias_sum);
    let error = dense::relu_error(error, &hidden);
    let error = dense::backward(hidden_weight, &inputs.view(), &error, hidden_sum, hidden_bias_sum);
    debug_assert_eq!(embedding.len(), embedding_sum.len());
    for (class, error) in rows.contexts.iter().zip(error.as_slice().unwrap_or(&[]).chunks_exact(WIDTH)) {
        let slots = &mut embedding_sum[usize::from(*class) * WIDTH..][..WIDTH];
        slots.iter_mut().zip(error).for_each(|(slot, error)| *slot += error);
    }
    loss
}

/// A row of 97 logits for each context.
///
/// # Panics
/// As [`loss_and_sums`].
pub(crate) fn logits(weights: &Weights<'_>, contexts: &[u8]) -> Array2<f32> {
    forward(weights, contexts).2
}

/// Embeddings, hidden units and logits, a row for each context.
fn forward(weights: &Weights<'_>, contexts: &[u8]) -> (Array2<f32>, Array2<f32>, Array2<f32>) {
    let [embedding, hidden_weight, hidden_bias, output_weight, output_bias] = *weights;
    let mut inputs = Array2::zeros((contexts.len() / CONTEXT, CONTEXT * WIDTH));
    let slots = inputs.as_slice_mut().unwrap_or(&mut []).chunks_exact_mut(WIDTH);
    for (slot, class) in slots.zip(contexts) {
        slot.copy_from_slice(&embedding[usize::from(*class) * WIDTH..][..WIDTH]);
    }
    let hidden = dense::relu(dense::forward(hidden_weight, hidden_bias, &inputs.view()));
    let logits = dense::forward(output_weight, output_bias, &hidden.view());
    (inputs, hidden, logits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -1 and 1, the same for the same seed (SplitMix64's constants).
    fn draws(seed: u64) -> impl FnMut() -> f32 {
        let mut state = seed;
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0
        }
    }

    fn zeros() -> Sums {
        PARAMETERS.map(|(_, shape)| vec![0.0; shape.iter().product::<u64>() as usize])
    }

    fn initial(seed: u64) -> Sums {
        let (mut draw, mut weights) = (draws(seed), zeros());
        for (values, limit) in weights.iter_mut().zip([1.0, 0.1, 0.05, 0.15, 0.05]) {
            values.iter_mut().for_each(|value| *value = limit * draw());
        }
        weights
    }

    fn borrowed(weights: &Sums) -> Weights<'_> {
        weights.each_ref().map(Vec::as_slice)
    }

    /// Rows of a made-up text in which a character follows from the one before it.
    fn rows(count: usize) -> Rows {
        let text: Vec<u8> = (0..count + CONTEXT)
            .scan(1_usize, |at, _| {
                *at = *at * 5 % CLASSES;
                Some(*at as u8)
            })
            .collect();
        let contexts = text.windows(CONTEXT).take(count).flatten().copied().collect();
        Rows { contexts, targets: text[CONTEXT..].to_vec() }
    }

    /// The same network in f64 by the textbook's loops: an independent reference for loss and gradient.
    fn reference_loss(weights: &[Vec<f64>; 5], rows: &Rows) -> f64 {
        let [embedding, hidden_weight, hidden_bias, output_weight, output_bias] = weights;
        let mut loss = 0.0;
        for (context, target) in rows.contexts.chunks(CONTEXT).zip(&rows.targets) {
            let mut hidden = hidden_bias.clone();
            for (unit, sum) in hidden.iter_mut().enumerate() {
                for (place, width) in (0..CONTEXT * WIDTH).map(|at| (at / WIDTH, at % WIDTH)) {
                    let input = embedding[usize::from(context[place]) * WIDTH + width];
                    *sum += hidden_weight[unit * CONTEXT * WIDTH + place * WIDTH + width] * input;
                }
                *sum = sum.max(0.0);
            }
            let logit = |class: usize| {
                let products = (0..HIDDEN).map(|unit| output_weight[class * HIDDEN + unit] * hidden[unit]);
                products.sum::<f64>() + output_bias[class]
            };
            let total: f64 = (0..CLASSES).map(|class| libm::exp(logit(class))).sum();
            loss += libm::log(total) - logit(usize::from(*target));
        }
        loss
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let (weights, rows, mut sums) = (initial(3), rows(3), zeros());
        let loss = loss_and_sums(&borrowed(&weights), &rows, &mut sums);
        let mut exact =
            weights.each_ref().map(|values| values.iter().copied().map(f64::from).collect::<Vec<_>>());
        assert!((loss - reference_loss(&exact, &rows)).abs() < 1e-4);
        let step = 1e-6;
        for parameter in 0..5 {
            // About 97 of each, at places that share no factor with the shapes.
            for index in (0..exact[parameter].len()).step_by(exact[parameter].len() / 97 + 1) {
                let kept = exact[parameter][index];
                let mut beside = |value| {
                    exact[parameter][index] = value;
                    reference_loss(&exact, &rows)
                };
                let slope = (beside(kept + step) - beside(kept - step)) / (2.0 * step);
                beside(kept);
                let found = -f64::from(sums[parameter][index]);
                let name = PARAMETERS[parameter].0;
                assert!(
                    (slope - found).abs() < 1e-4 + 1e-4 * slope.abs(),
                    "{name} {index}: {slope} but {found}"
                );
            }
        }
    }

    #[test]
    fn sums_are_added_to_what_is_there_and_no_rows_add_nothing() {
        let (weights, rows) = (initial(1), rows(5));
        let (mut once, mut twice) = (zeros(), zeros());
        let loss = loss_and_sums(&borrowed(&weights), &rows, &mut once);
        for _ in 0..2 {
            assert_eq!(loss_and_sums(&borrowed(&weights), &rows, &mut twice), loss);
        }
        for (once, twice) in once.iter().flatten().zip(twice.iter().flatten()) {
            assert!((2.0 * once - twice).abs() < 1e-4);
        }
        assert_eq!(loss_and_sums(&borrowed(&weights), &Rows::default(), &mut once), 0.0);
    }

    #[test]
    fn a_few_steps_learn_what_follows_what() {
        let (mut weights, rows) = (initial(2), rows(96));
        let mut losses = Vec::new();
        for _ in 0..40 {
            let mut sums = zeros();
            losses.push(loss_and_sums(&borrowed(&weights), &rows, &mut sums));
            for (weights, sums) in weights.iter_mut().zip(&sums) {
                weights.iter_mut().zip(sums).for_each(|(weight, sum)| *weight += 0.5 * sum / 96.0);
            }
        }
        assert!(losses[39] < losses[0] / 4.0, "{losses:?}");
        let told = dense::likeliest(&logits(&borrowed(&weights), &rows.contexts));
        let right = told.iter().zip(&rows.targets).filter(|(told, target)| told == target).count();
        assert!(right > 86, "{right} of 96 told right");
    }
}
