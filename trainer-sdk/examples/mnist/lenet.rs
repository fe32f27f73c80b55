//! LeNet-5 as it is drawn today (after LeCun et al. 1998, with ReLU, maxima and a softmax): 28×28 pixels → 6 filters of
//! 5×5 → 16 filters → 120 → 84 → 10 classes. Pure mathematics on flat slices: no optimizer, no file, no clock, no
//! randomness, and the same bits for the same input on the same machine.

use super::convolution::{KERNEL, Scratch, Stage};
use super::dense;
use ndarray::{Array2, ArrayView2};

/// Side of an image.
pub(crate) const SIDE: usize = 28;
/// Pixels of an image.
pub(crate) const PIXELS: usize = SIDE * SIDE;
/// Outputs of the network.
pub(crate) const CLASSES: usize = 10;

/// Blank pixels around an image.
const MARGIN: usize = 2;
const FIRST: Stage = Stage { channels: 1, side: SIDE + 2 * MARGIN, filters: 6 };
const SECOND: Stage = Stage { channels: 6, side: SIDE / 2, filters: 16 };
const HIDDEN: [usize; 2] = [120, 84];

/// Name and shape of each parameter, outputs first: what PyTorch's `Conv2d` and `Linear` have, so that an exported
/// model can be loaded there.
pub(crate) const PARAMETERS: [(&str, &[u64]); 10] = {
    const KERNEL_SIDE: u64 = KERNEL as u64;
    [
        ("conv1.weight", &[FIRST.filters as u64, FIRST.channels as u64, KERNEL_SIDE, KERNEL_SIDE]),
        ("conv1.bias", &[FIRST.filters as u64]),
        ("conv2.weight", &[SECOND.filters as u64, SECOND.channels as u64, KERNEL_SIDE, KERNEL_SIDE]),
        ("conv2.bias", &[SECOND.filters as u64]),
        ("hidden1.weight", &[HIDDEN[0] as u64, SECOND.outputs() as u64]),
        ("hidden1.bias", &[HIDDEN[0] as u64]),
        ("hidden2.weight", &[HIDDEN[1] as u64, HIDDEN[0] as u64]),
        ("hidden2.bias", &[HIDDEN[1] as u64]),
        ("output.weight", &[CLASSES as u64, HIDDEN[1] as u64]),
        ("output.bias", &[CLASSES as u64]),
    ]
};

/// The parameters in the order of [`PARAMETERS`], borrowed from wherever they were pulled to.
pub(crate) type Weights<'a> = [&'a [f32]; 10];
/// Sums in the shapes of the parameters.
pub(crate) type Sums = [Vec<f32>; 10];

/// The negative log likelihood summed over a batch (nats). Adds to `sums` the sums of the gradients of the log
/// **likelihood**: the loss's, negated.
///
/// `pixels` are `labels.len()` rows of 784, each 0 to 1; labels are 0 to 9.
///
/// # Panics
/// When a slice has not the length its shape says, or a label is no class.
pub(crate) fn loss_and_sums(weights: &Weights<'_>, pixels: &[f32], labels: &[u8], sums: &mut Sums) -> f64 {
    let [_, _, conv2, _, weight1, _, weight2, _, weight3, _] = *weights;
    let [conv1_sum, bias1_sum, conv2_sum, bias2_sum, sum1, sum2, sum3, sum4, sum5, sum6] = sums;
    let mut scratch = Scratch::default();
    let mut pass = Pass::forward(weights, pixels, &mut scratch);
    let loss = dense::softmax_loss(&mut pass.logits, labels);

    let error = dense::backward(weight3, &pass.hidden[1].view(), &pass.logits, sum5, sum6);
    let error = dense::relu_error(error, &pass.hidden[1]);
    let error = dense::backward(weight2, &pass.hidden[0].view(), &error, sum3, sum4);
    let error = dense::relu_error(error, &pass.hidden[0]);
    let error = dense::backward(weight1, &pass.features(), &error, sum1, sum2);

    let mut first_error = vec![0.0; SECOND.inputs()];
    for (row, image) in pixels.chunks_exact(PIXELS).enumerate() {
        let (first, first_winners) = (pass.of_first(row), &pass.first_winners[row * FIRST.outputs()..]);
        let second_winners = &pass.second_winners[row * SECOND.outputs()..][..SECOND.outputs()];
        let error = error.row(row);
        let error = (error.as_slice().unwrap_or(&[]), second_winners);
        let slots = (conv2_sum.as_mut_slice(), bias2_sum.as_mut_slice());
        SECOND.backward(conv2, first, error, &mut scratch, slots, Some(&mut first_error));
        let error = (first_error.as_slice(), &first_winners[..FIRST.outputs()]);
        let slots = (conv1_sum.as_mut_slice(), bias1_sum.as_mut_slice());
        FIRST.backward(weights[0], &framed(image), error, &mut scratch, slots, None);
    }
    loss
}

/// A row of 10 logits for each row of 784 pixels.
///
/// # Panics
/// When a slice has not the length its shape says.
pub(crate) fn logits(weights: &Weights<'_>, pixels: &[f32]) -> Array2<f32> {
    Pass::forward(weights, pixels, &mut Scratch::default()).logits
}

/// What a pass forward leaves for the pass backward.
struct Pass {
    /// Outputs of the first stage, image after image, and where they came from.
    first: Vec<f32>,
    first_winners: Vec<u32>,
    /// Outputs of the second stage likewise.
    second: Vec<f32>,
    second_winners: Vec<u32>,
    hidden: [Array2<f32>; 2],
    logits: Array2<f32>,
}

impl Pass {
    fn forward(weights: &Weights<'_>, pixels: &[f32], scratch: &mut Scratch) -> Pass {
        let [conv1, bias1, conv2, bias2, weight1, bias3, weight2, bias4, weight3, bias5] = *weights;
        let rows = pixels.len() / PIXELS;
        let (mut first, mut first_winners) = slots(rows * FIRST.outputs());
        let (mut second, mut second_winners) = slots(rows * SECOND.outputs());
        for (row, image) in pixels.chunks_exact(PIXELS).enumerate() {
            let at = row * FIRST.outputs()..(row + 1) * FIRST.outputs();
            let (outputs, winners) = (&mut first[at.clone()], &mut first_winners[at]);
            FIRST.forward(conv1, bias1, &framed(image), scratch, outputs, winners);
            let at = row * SECOND.outputs()..(row + 1) * SECOND.outputs();
            let winners = &mut second_winners[at.clone()];
            SECOND.forward(conv2, bias2, outputs, scratch, &mut second[at], winners);
        }
        let features = dense::matrix(&second, rows, SECOND.outputs());
        let hidden1 = dense::relu(dense::forward(weight1, bias3, &features));
        let hidden2 = dense::relu(dense::forward(weight2, bias4, &hidden1.view()));
        let logits = dense::forward(weight3, bias5, &hidden2.view());
        Pass { first, first_winners, second, second_winners, hidden: [hidden1, hidden2], logits }
    }

    fn of_first(&self, row: usize) -> &[f32] {
        &self.first[row * FIRST.outputs()..][..FIRST.outputs()]
    }

    fn features(&self) -> ArrayView2<'_, f32> {
        dense::matrix(&self.second, self.logits.nrows(), SECOND.outputs())
    }
}

fn slots(values: usize) -> (Vec<f32>, Vec<u32>) {
    (vec![0.0; values], vec![0; values])
}

/// An image with its blank margin.
fn framed(image: &[f32]) -> [f32; FIRST.inputs()] {
    let mut framed = [0.0; FIRST.inputs()];
    for (row, pixels) in image.chunks_exact(SIDE).enumerate() {
        framed[(row + MARGIN) * FIRST.side + MARGIN..][..SIDE].copy_from_slice(pixels);
    }
    framed
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

    fn lengths() -> [usize; 10] {
        PARAMETERS.map(|(_, shape)| shape.iter().product::<u64>() as usize)
    }

    fn zeros() -> Sums {
        lengths().map(|length| vec![0.0; length])
    }

    /// Kaiming's uniform distribution for weights; small biases, so that they matter too.
    fn initial(seed: u64) -> Sums {
        let mut draw = draws(seed);
        PARAMETERS.map(|(_, shape)| {
            let length = shape.iter().product::<u64>();
            let limit = if shape.len() == 1 { 0.05 } else { (6.0 / (length / shape[0]) as f32).sqrt() };
            (0..length).map(|_| draw() * limit).collect()
        })
    }

    fn borrowed(weights: &Sums) -> Weights<'_> {
        weights.each_ref().map(Vec::as_slice)
    }

    /// Images of noise with a bright bar whose place is the label.
    fn images(labels: &[u8], seed: u64) -> Vec<f32> {
        let mut draw = draws(seed);
        let pixel = |label: u8, index: usize, noise: f32| {
            let is_bar = index / SIDE / 2 == usize::from(label) + 2 && index % SIDE > 4;
            if is_bar { 0.9 } else { noise.abs() * 0.3 }
        };
        labels
            .iter()
            .flat_map(|label| (0..PIXELS).map(|i| pixel(*label, i, draw())).collect::<Vec<_>>())
            .collect()
    }

    /// The same network in f64 by the textbook's loops: an independent reference for loss and gradient.
    fn reference_loss(weights: &[Vec<f64>; 10], pixels: &[f32], labels: &[u8]) -> f64 {
        let [conv1, bias1, conv2, bias2, hidden1, bias3, hidden2, bias4, output, bias5] = weights;
        let row_loss = |(image, label): (&[f32], &u8)| {
            let image: Vec<f64> = image.iter().copied().map(f64::from).collect();
            let first = pooled(&convolved(&image, 28, 2, conv1, bias1), 28);
            let second = pooled(&convolved(&first, 14, 0, conv2, bias2), 10);
            let hidden1 = connected(&second, hidden1, bias3, |sum| sum.max(0.0));
            let hidden2 = connected(&hidden1, hidden2, bias4, |sum| sum.max(0.0));
            let logits = connected(&hidden2, output, bias5, |sum| sum);
            libm::log(logits.iter().map(|logit| libm::exp(*logit)).sum()) - logits[usize::from(*label)]
        };
        pixels.chunks(PIXELS).zip(labels).map(row_loss).sum()
    }

    fn connected(inputs: &[f64], weight: &[f64], bias: &[f64], then: fn(f64) -> f64) -> Vec<f64> {
        let unit = |(weights, bias): (&[f64], &f64)| {
            then(weights.iter().zip(inputs).map(|(weight, input)| weight * input).sum::<f64>() + bias)
        };
        weight.chunks(inputs.len()).zip(bias).map(unit).collect()
    }

    /// Planes after convolution, bias and ReLU; pixels beyond the border are blank.
    fn convolved(input: &[f64], side: usize, margin: usize, weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let (channels, out) = (input.len() / side / side, side + 2 * margin - 4);
        let mut planes = Vec::new();
        for (filter, bias) in bias.iter().enumerate() {
            for (y, x) in (0..out * out).map(|at| (at / out, at % out)) {
                let mut sum = *bias;
                for (c, ky, kx) in (0..channels * 25).map(|at| (at / 25, at / 5 % 5, at % 5)) {
                    let (y, x) = ((y + ky).wrapping_sub(margin), (x + kx).wrapping_sub(margin));
                    if y < side && x < side {
                        sum += weight[((filter * channels + c) * 5 + ky) * 5 + kx]
                            * input[(c * side + y) * side + x];
                    }
                }
                planes.push(sum.max(0.0));
            }
        }
        planes
    }

    fn pooled(planes: &[f64], side: usize) -> Vec<f64> {
        let of_plane = |plane: &[f64]| -> Vec<f64> {
            let half = side / 2;
            let corner = |at: usize| at / half * 2 * side + at % half * 2;
            let largest =
                |at: usize| plane[at].max(plane[at + 1]).max(plane[at + side]).max(plane[at + side + 1]);
            (0..half * half).map(|at| largest(corner(at))).collect()
        };
        planes.chunks(side * side).flat_map(of_plane).collect()
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let (labels, weights) = ([3, 7], initial(5));
        let pixels = images(&labels, 8);
        let mut sums = zeros();
        let loss = loss_and_sums(&borrowed(&weights), &pixels, &labels, &mut sums);
        let mut exact =
            weights.each_ref().map(|values| values.iter().copied().map(f64::from).collect::<Vec<_>>());
        assert!((loss - reference_loss(&exact, &pixels, &labels)).abs() < 1e-4);
        let step = 1e-6;
        for parameter in 0..10 {
            // About 23 of each, at places that share no factor with the shapes.
            for index in (0..exact[parameter].len()).step_by(exact[parameter].len() / 23 + 1) {
                let kept = exact[parameter][index];
                let mut beside = |value| {
                    exact[parameter][index] = value;
                    reference_loss(&exact, &pixels, &labels)
                };
                let slope = (beside(kept + step) - beside(kept - step)) / (2.0 * step);
                beside(kept);
                let found = -f64::from(sums[parameter][index]);
                let name = PARAMETERS[parameter].0;
                assert!(
                    (slope - found).abs() < 2e-4 + 2e-4 * slope.abs(),
                    "{name} {index}: {slope} but {found}"
                );
            }
        }
    }

    #[test]
    fn sums_of_two_halves_are_the_sum_of_the_whole() {
        let (labels, weights) = ([0, 1, 2, 3, 4], initial(2));
        let pixels = images(&labels, 3);
        let of = |rows: std::ops::Range<usize>, sums: &mut Sums| {
            loss_and_sums(
                &borrowed(&weights),
                &pixels[rows.start * PIXELS..rows.end * PIXELS],
                &labels[rows],
                sums,
            )
        };
        let (mut whole, mut halves) = (zeros(), zeros());
        let loss = of(0..5, &mut whole);
        assert!((loss - of(0..2, &mut halves) - of(2..5, &mut halves)).abs() < 1e-4);
        for (whole, halves) in whole.iter().flatten().zip(halves.iter().flatten()) {
            assert!((whole - halves).abs() < 1e-4);
        }
    }

    #[test]
    fn no_images_add_nothing() {
        let mut sums = zeros();
        assert_eq!(loss_and_sums(&borrowed(&initial(1)), &[], &[], &mut sums), 0.0);
        assert_eq!(sums, zeros());
    }

    #[test]
    fn a_few_steps_tell_bars_apart() {
        let labels: Vec<u8> = (0..40).map(|index| index % 10).collect();
        let (pixels, mut weights) = (images(&labels, 4), initial(6));
        let mut losses = Vec::new();
        for _ in 0..25 {
            let mut sums = zeros();
            losses.push(loss_and_sums(&borrowed(&weights), &pixels, &labels, &mut sums));
            for (weights, sums) in weights.iter_mut().zip(&sums) {
                weights.iter_mut().zip(sums).for_each(|(weight, sum)| *weight += 0.1 * sum / 40.0);
            }
        }
        assert!(losses[24] < losses[0] / 4.0, "{losses:?}");
        assert_eq!(dense::likeliest(&logits(&borrowed(&weights), &pixels)), labels);
    }
}
