//! A network that tells the next character from the 32 before it (after Bengio et al. 2003): their embeddings side by
//! side → 192 hidden units (ReLU) → 97 classes (softmax). Pure mathematics on arrays and slices: no optimizer, no file,
//! no clock, no randomness, and the same bits for the same input on the same machine.

use super::dense;
use super::windows::{CLASSES, CONTEXT};
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut2};

/// Numbers for each class of characters.
const WIDTH: usize = 12;
const HIDDEN: usize = 192;

/// A row for each class.
pub(crate) const EMBEDDING: (&str, &[u64]) = ("embedding", &[CLASSES as u64, WIDTH as u64]);
/// Name and shape of each parameter of the layers above it, outputs first.
pub(crate) const LAYERS: [(&str, &[u64]); 4] = [
    ("hidden.weight", &[HIDDEN as u64, (CONTEXT * WIDTH) as u64]),
    ("hidden.bias", &[HIDDEN as u64]),
    ("output.weight", &[CLASSES as u64, HIDDEN as u64]),
    ("output.bias", &[CLASSES as u64]),
];

/// The parameters, borrowed from wherever they were pulled to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights<'a> {
    pub(crate) embedding: ArrayView2<'a, f32>,
    /// In the order of [`LAYERS`], row-major.
    pub(crate) layers: [&'a [f32]; 4],
}

/// Where the gradients of the parameters are added.
#[derive(Debug)]
pub(crate) struct Sums<'a> {
    pub(crate) embedding: ArrayViewMut2<'a, f32>,
    /// In the order of [`LAYERS`], row-major.
    pub(crate) layers: &'a mut [Vec<f32>; 4],
}

/// What is to be told: the classes of each row's context, one row after another, and the class that follows each.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) contexts: Vec<u8>,
    pub(crate) targets: Vec<u8>,
}

/// The negative log likelihood summed over the rows (nats). Adds to `sums` the sums of its gradients.
///
/// # Panics
/// When a slice has not the length its shape says, or a class is none.
pub(crate) fn loss_and_sums(weights: &Weights<'_>, rows: &Rows, sums: Sums<'_>) -> f64 {
    let Sums { embedding: mut embedding_sum, layers } = sums;
    let [hidden_sum, hidden_bias_sum, output_sum, output_bias_sum] = layers;
    let [hidden_weight, _, output_weight, _] = weights.layers;
    let (inputs, hidden, mut logits) = forward(weights, &rows.contexts);
    let loss = dense::softmax_loss(&mut logits, &rows.targets);
    // The likelihood's gradient, of which the loss's is the negative.
    let error = -logits;
    let error = dense::backward(output_weight, &hidden.view(), &error, output_sum, output_bias_sum);
    let error = dense::relu_error(error, &hidden);
    let error = dense::backward(hidden_weight, &inputs.view(), &error, hidden_sum, hidden_bias_sum);
    for (class, error) in rows.contexts.iter().zip(error.as_slice().unwrap_or(&[]).chunks_exact(WIDTH)) {
        let mut row = embedding_sum.row_mut(usize::from(*class));
        row += &ArrayView1::from(error);
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
    let [hidden_weight, hidden_bias, output_weight, output_bias] = weights.layers;
    let mut inputs = Array2::zeros((contexts.len() / CONTEXT, CONTEXT * WIDTH));
    let slots = inputs.as_slice_mut().unwrap_or(&mut []).chunks_exact_mut(WIDTH);
    for (slot, class) in slots.zip(contexts) {
        let row = weights.embedding.row(usize::from(*class));
        slot.iter_mut().zip(row).for_each(|(slot, value)| *slot = *value);
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

    /// A vector for each parameter, row-major: the embedding, then the layers.
    #[derive(Clone)]
    struct Flat {
        embedding: Vec<f32>,
        layers: [Vec<f32>; 4],
    }

    impl Flat {
        fn zeros() -> Flat {
            let zeros = |(_, shape): (&str, &[u64])| vec![0.0; shape.iter().product::<u64>() as usize];
            Flat { embedding: zeros(EMBEDDING), layers: LAYERS.map(zeros) }
        }

        fn initial(seed: u64) -> Flat {
            let (mut draw, mut weights) = (draws(seed), Flat::zeros());
            for (values, limit) in weights.vectors_mut().zip([1.0, 0.1, 0.05, 0.15, 0.05]) {
                values.iter_mut().for_each(|value| *value = limit * draw());
            }
            weights
        }

        fn vectors(&self) -> [&Vec<f32>; 5] {
            let [a, b, c, d] = &self.layers;
            [&self.embedding, a, b, c, d]
        }

        fn vectors_mut(&mut self) -> impl Iterator<Item = &mut Vec<f32>> {
            [&mut self.embedding].into_iter().chain(&mut self.layers)
        }

        fn weights(&self) -> Weights<'_> {
            Weights {
                embedding: dense::matrix(&self.embedding, CLASSES, WIDTH),
                layers: self.layers.each_ref().map(Vec::as_slice),
            }
        }

        fn sums(&mut self) -> Sums<'_> {
            let embedding = dense::matrix_mut(&mut self.embedding, CLASSES, WIDTH);
            Sums { embedding, layers: &mut self.layers }
        }
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
        let (weights, rows, mut sums) = (Flat::initial(3), rows(3), Flat::zeros());
        let loss = loss_and_sums(&weights.weights(), &rows, sums.sums());
        let mut exact =
            weights.vectors().map(|values| values.iter().copied().map(f64::from).collect::<Vec<_>>());
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
                let found = f64::from(sums.vectors()[parameter][index]);
                let name = [&[EMBEDDING], &LAYERS[..]].concat()[parameter].0;
                assert!(
                    (slope - found).abs() < 1e-4 + 1e-4 * slope.abs(),
                    "{name} {index}: {slope} but {found}"
                );
            }
        }
    }

    #[test]
    fn sums_are_added_to_what_is_there_and_no_rows_add_nothing() {
        let (weights, rows) = (Flat::initial(1), rows(5));
        let (mut once, mut twice) = (Flat::zeros(), Flat::zeros());
        let loss = loss_and_sums(&weights.weights(), &rows, once.sums());
        for _ in 0..2 {
            assert_eq!(loss_and_sums(&weights.weights(), &rows, twice.sums()), loss);
        }
        for (once, twice) in once.vectors().into_iter().flatten().zip(twice.vectors().into_iter().flatten()) {
            assert!((2.0 * once - twice).abs() < 1e-4);
        }
        assert_eq!(loss_and_sums(&weights.weights(), &Rows::default(), once.sums()), 0.0);
    }

    #[test]
    fn a_few_steps_learn_what_follows_what() {
        let (mut weights, rows) = (Flat::initial(2), rows(96));
        let mut losses = Vec::new();
        for _ in 0..40 {
            let mut sums = Flat::zeros();
            losses.push(loss_and_sums(&weights.weights(), &rows, sums.sums()));
            for (weights, sums) in weights.vectors_mut().zip(sums.vectors()) {
                weights.iter_mut().zip(sums).for_each(|(weight, sum)| *weight -= 0.5 * sum / 96.0);
            }
        }
        assert!(losses[39] < losses[0] / 4.0, "{losses:?}");
        let told = dense::likeliest(&logits(&weights.weights(), &rows.contexts));
        let right = told.iter().zip(&rows.targets).filter(|(told, target)| told == target).count();
        assert!(right > 86, "{right} of 96 told right");
    }
}
