//! DeepFM (Guo, Tang, Ye, Li, He 2017): a record's logit is the sum of its values' first-order weights, of the inner
//! products of each two of their embeddings (Rendle 2010, in linear time), and of a perceptron over all embeddings side
//! by side. Pure mathematics on flat slices in a fixed order: no optimizer, no file, no clock, no randomness.

use super::dense;
use ndarray::Array2;

/// Numbers of an embedding.
pub(crate) const DIMENSION: usize = 8;
const HIDDEN: [usize; 2] = [64, 32];

/// Name and shape of each parameter of the perceptron, outputs first; the names are those of PyTorch's `Sequential`.
pub(crate) fn deep_parameters(fields: usize) -> [(&'static str, Vec<u64>); 6] {
    let [inputs, first, second] = [fields * DIMENSION, HIDDEN[0], HIDDEN[1]].map(|size| size as u64);
    [
        ("deep.0.weight", vec![first, inputs]),
        ("deep.0.bias", vec![first]),
        ("deep.2.weight", vec![second, first]),
        ("deep.2.bias", vec![second]),
        ("deep.4.weight", vec![1, second]),
        ("deep.4.bias", vec![1]),
    ]
}

/// The perceptron's parameters in the order of [`deep_parameters`], borrowed from wherever they were pulled to.
pub(crate) type Deep<'a> = [&'a [f32]; 6];
/// Sums in their shapes.
pub(crate) type DeepSums = [Vec<f32>; 6];

/// Records with what the tables have for their values: record after record, and field after field in each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) labels: Vec<bool>,
    /// One number for each value.
    pub(crate) first_order: Vec<f32>,
    /// [`DIMENSION`] numbers for each value.
    pub(crate) embeddings: Vec<f32>,
}

/// What the loss of each record has for gradients by what the tables gave.
#[derive(Clone, Debug)]
pub(crate) struct Slopes {
    /// By a record's logit, so by each of its first-order weights.
    pub(crate) logits: Vec<f32>,
    /// As [`Rows::embeddings`].
    pub(crate) embeddings: Vec<f32>,
}

/// The logistic loss summed over the rows (nats), and its gradients by what the tables gave. Adds those by the
/// perceptron's parameters to `sums`.
///
/// # Panics
/// When a slice has not the length that its shape says.
pub(crate) fn loss_and_slopes(deep: &Deep<'_>, rows: &Rows, sums: &mut DeepSums) -> (f64, Slopes) {
    let layers = Layers::of(deep, rows);
    let logits = layers.logits(rows);
    let slope = |(logit, label): (&f32, &bool)| probability(*logit) - f32::from(*label);
    let slopes: Vec<f32> = logits.iter().zip(&rows.labels).map(slope).collect();
    let mut embeddings = layers.backward(deep, &slopes, sums);
    let width = embeddings.ncols();
    let records = rows.embeddings.chunks_exact(width).zip(&slopes);
    for (mut into, (record, slope)) in embeddings.rows_mut().into_iter().zip(records) {
        // By an embedding, the pairs' sum is the sum of all others.
        let total = total(record);
        for (at, (into, value)) in into.iter_mut().zip(record).enumerate() {
            *into += slope * (total[at % DIMENSION] - value);
        }
    }
    let slopes = Slopes { logits: slopes, embeddings: embeddings.into_iter().collect() };
    (loss(&logits, &rows.labels), slopes)
}

/// A logit for each record.
///
/// # Panics
/// As [`loss_and_slopes`].
pub(crate) fn logits(deep: &Deep<'_>, rows: &Rows) -> Vec<f32> {
    Layers::of(deep, rows).logits(rows)
}

/// How probable a logit is: the logistic function, without overflow on either side.
pub(crate) fn probability(logit: f32) -> f32 {
    let power = libm::expf(-logit.abs());
    if logit >= 0.0 { 1.0 / (1.0 + power) } else { power / (1.0 + power) }
}

/// The negative log likelihood of the labels, summed (nats).
pub(crate) fn loss(logits: &[f32], labels: &[bool]) -> f64 {
    let of = |(logit, label): (&f32, &bool)| {
        let right = if *label { *logit } else { -logit };
        f64::from((-right).max(0.0) + libm::log1pf(libm::expf(-right.abs())))
    };
    logits.iter().zip(labels).map(of).sum()
}

/// The sum of a record's embeddings.
fn total(record: &[f32]) -> [f32; DIMENSION] {
    let mut total = [0.0; DIMENSION];
    for embedding in record.chunks_exact(DIMENSION) {
        total.iter_mut().zip(embedding).for_each(|(total, value)| *total += value);
    }
    total
}

/// The inner products of each two of a record's embeddings, summed.
fn pairs(record: &[f32]) -> f32 {
    let square = |values: &[f32]| values.iter().map(|value| value * value).sum::<f32>();
    (square(&total(record)) - square(record)) / 2.0
}

/// What the perceptron's layers give, a row for each record.
struct Layers {
    inputs: Array2<f32>,
    first: Array2<f32>,
    second: Array2<f32>,
    outputs: Array2<f32>,
}

impl Layers {
    #[expect(clippy::expect_used, reason = "rows of unlike lengths are a bug of the caller")]
    fn of(deep: &Deep<'_>, rows: &Rows) -> Layers {
        let (records, width) = (rows.labels.len(), deep[0].len() / deep[1].len());
        let inputs = Array2::from_shape_vec((records, width), rows.embeddings.clone());
        let inputs = inputs.expect("an embedding for each field of each record");
        let first = dense::relu(dense::forward(deep[0], deep[1], &inputs.view()));
        let second = dense::relu(dense::forward(deep[2], deep[3], &first.view()));
        let outputs = dense::forward(deep[4], deep[5], &second.view());
        Layers { inputs, first, second, outputs }
    }

    fn logits(&self, rows: &Rows) -> Vec<f32> {
        let width = self.inputs.ncols();
        let first_order =
            rows.first_order.chunks_exact(width / DIMENSION).map(|record| record.iter().sum::<f32>());
        let pairs = rows.embeddings.chunks_exact(width).map(pairs);
        self.outputs
            .iter()
            .zip(first_order)
            .zip(pairs)
            .map(|((deep, first), pairs)| deep + first + pairs)
            .collect()
    }

    /// The gradients by the inputs, given those by the logits.
    #[expect(clippy::expect_used, reason = "there is a slope for each record")]
    fn backward(&self, deep: &Deep<'_>, slopes: &[f32], sums: &mut DeepSums) -> Array2<f32> {
        let [weight_0, bias_0, weight_2, bias_2, weight_4, bias_4] = sums;
        let error = Array2::from_shape_vec((slopes.len(), 1), slopes.to_vec()).expect("one column");
        let error = dense::backward(deep[4], &self.second.view(), &error, weight_4, bias_4);
        let error = dense::relu_error(error, &self.second);
        let error = dense::backward(deep[2], &self.first.view(), &error, weight_2, bias_2);
        let error = dense::relu_error(error, &self.first);
        dense::backward(deep[0], &self.inputs.view(), &error, weight_0, bias_0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: usize = 3;

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

    fn zeros() -> DeepSums {
        deep_parameters(FIELDS).map(|(_, shape)| vec![0.0; shape.iter().product::<u64>() as usize])
    }

    fn deep(seed: u64) -> DeepSums {
        let (mut draw, mut weights) = (draws(seed), zeros());
        weights.iter_mut().flatten().for_each(|value| *value = 0.4 * draw());
        weights
    }

    fn rows(count: usize) -> Rows {
        let mut draw = draws(9);
        let mut numbers = |count: usize| (0..count).map(|_| draw()).collect::<Vec<f32>>();
        Rows {
            labels: (0..count).map(|row| row % 3 == 0).collect(),
            first_order: numbers(count * FIELDS),
            embeddings: numbers(count * FIELDS * DIMENSION),
        }
    }

    fn borrowed(weights: &DeepSums) -> Deep<'_> {
        weights.each_ref().map(Vec::as_slice)
    }

    /// Every number that the loss depends on, in f64: first-order weights, embeddings, the perceptron.
    type Exact = [Vec<f64>; 8];

    fn exact(rows: &Rows, deep: &DeepSums) -> Exact {
        let mut all = [&rows.first_order, &rows.embeddings].into_iter().chain(deep);
        std::array::from_fn(|_| all.next().unwrap().iter().copied().map(f64::from).collect())
    }

    /// The same model in f64 by the paper's formulas, each pair by itself: an independent reference.
    fn reference_loss([first_order, embeddings, deep @ ..]: &Exact, labels: &[bool]) -> f64 {
        let layer = |inputs: &[f64], weight: &[f64], bias: &[f64]| -> Vec<f64> {
            let of = |unit: usize| {
                let weights = &weight[unit * inputs.len()..];
                bias[unit] + inputs.iter().zip(weights).map(|(input, weight)| input * weight).sum::<f64>()
            };
            (0..bias.len()).map(of).collect()
        };
        let relu = |values: Vec<f64>| values.into_iter().map(|value| value.max(0.0)).collect::<Vec<_>>();
        let of_record = |(record, label): (usize, &bool)| {
            let inputs = &embeddings[record * FIELDS * DIMENSION..][..FIELDS * DIMENSION];
            let mut logit: f64 = first_order[record * FIELDS..][..FIELDS].iter().sum();
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                logit += (0..DIMENSION)
                    .map(|at| inputs[a * DIMENSION + at] * inputs[b * DIMENSION + at])
                    .sum::<f64>();
            }
            let hidden = relu(layer(inputs, &deep[0], &deep[1]));
            let hidden = relu(layer(&hidden, &deep[2], &deep[3]));
            logit += layer(&hidden, &deep[4], &deep[5])[0];
            let told = 1.0 / (1.0 + libm::exp(-logit));
            -libm::log(if *label { told } else { 1.0 - told })
        };
        labels.iter().enumerate().map(of_record).sum()
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences_of_the_reference() {
        let (deep, rows, mut sums) = (deep(3), rows(7), zeros());
        let (loss, slopes) = loss_and_slopes(&borrowed(&deep), &rows, &mut sums);
        let mut exact = exact(&rows, &deep);
        assert!((loss - reference_loss(&exact, &rows.labels)).abs() < 1e-4);
        let first_order: Vec<f32> = slopes.logits.iter().flat_map(|slope| [*slope; FIELDS]).collect();
        let found: Vec<&Vec<f32>> = [&first_order, &slopes.embeddings].into_iter().chain(&sums).collect();
        let step = 1e-6;
        for (parameter, found) in found.into_iter().enumerate() {
            assert_eq!(found.len(), exact[parameter].len());
            for (index, found) in found.iter().enumerate() {
                let kept = exact[parameter][index];
                let mut beside = |value| {
                    exact[parameter][index] = value;
                    reference_loss(&exact, &rows.labels)
                };
                let slope = (beside(kept + step) - beside(kept - step)) / (2.0 * step);
                beside(kept);
                let found = f64::from(*found);
                assert!(
                    (slope - found).abs() < 1e-4 + 1e-4 * slope.abs(),
                    "{parameter}, {index}: {slope} but {found}"
                );
            }
        }
    }

    #[test]
    fn sums_are_added_to_what_is_there_and_no_rows_add_nothing() {
        let (deep, rows) = (deep(1), rows(5));
        let (mut once, mut twice) = (zeros(), zeros());
        let (loss, _) = loss_and_slopes(&borrowed(&deep), &rows, &mut once);
        for _ in 0..2 {
            assert_eq!(loss_and_slopes(&borrowed(&deep), &rows, &mut twice).0, loss);
        }
        for (once, twice) in once.iter().flatten().zip(twice.iter().flatten()) {
            assert!((2.0 * once - twice).abs() < 1e-4);
        }
        let (none, slopes) = loss_and_slopes(&borrowed(&deep), &Rows::default(), &mut once);
        assert_eq!((none, slopes.logits.len(), slopes.embeddings.len()), (0.0, 0, 0));
    }

    #[test]
    fn logits_far_from_zero_have_finite_losses() {
        assert_eq!([-200.0, 0.0, 200.0].map(probability), [0.0, 0.5, 1.0]);
        assert_eq!(loss(&[-200.0, 200.0], &[true, false]), 400.0);
        assert_eq!(loss(&[-200.0, 200.0], &[false, true]), 0.0);
        assert!((loss(&[0.0], &[true]) - std::f64::consts::LN_2).abs() < 1e-6);
    }
}
