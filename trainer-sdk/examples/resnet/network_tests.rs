//! The gradient of the residual network against finite differences of an independent forward pass in f64, and what else
//! must hold of it.

use super::*;

/// As small as a network with all its parts can be.
const SIZES: Sizes = Sizes { channels: 2, side: 7, width: 2, blocks: 2 };
const LABELS: [u8; 3] = [3, 9, 0];

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

fn initial(network: &Network, seed: u64) -> Sums {
    let mut draw = draws(seed);
    let mut values = network.zeros();
    for [kernel, scale, shift, mean, variance] in &mut values.units {
        kernel.iter_mut().for_each(|value| *value = draw() * 0.5);
        scale.iter_mut().for_each(|value| *value = 1.0 + draw() * 0.3);
        shift.iter_mut().chain(mean).for_each(|value| *value = draw() * 0.2);
        variance.iter_mut().for_each(|value| *value = 1.0 + draw() * 0.3);
    }
    values.output.iter_mut().flatten().for_each(|value| *value = draw() * 0.5);
    values
}

fn borrowed(values: &Sums) -> Weights<'_> {
    let units = values.units.iter().map(|unit| unit.each_ref().map(Vec::as_slice)).collect();
    Weights { units, output: values.output.each_ref().map(Vec::as_slice) }
}

fn images(count: usize, seed: u64) -> Vec<f32> {
    let mut draw = draws(seed);
    (0..count * SIZES.pixels()).map(|_| draw() / 2.0 + 0.5).collect()
}

/// Every parameter as one list: per unit kernel, scale, shift, mean, variance, then weight and bias.
fn listed(values: &Sums) -> Vec<Vec<f64>> {
    let wide = |values: &Vec<f32>| values.iter().copied().map(f64::from).collect();
    values.units.iter().flatten().chain(&values.output).map(wide).collect()
}

/// An image as planes, its side, and its values by (channel, row, column).
#[derive(Clone)]
struct Planes {
    side: usize,
    values: Vec<Vec<f64>>,
}

/// The loss by the definitions, one image and one plane after another; shares nothing with the network but its sizes.
fn reference_loss(parameters: &[Vec<f64>], pixels: &[f32], labels: &[u8]) -> f64 {
    let plane = SIZES.side * SIZES.side;
    let image = |pixels: &[f32]| Planes {
        side: SIZES.side,
        values: pixels.chunks(plane).map(|plane| plane.iter().copied().map(f64::from).collect()).collect(),
    };
    let mut batch: Vec<Planes> = pixels.chunks(SIZES.pixels()).map(image).collect();
    let of_unit = |unit: usize| &parameters[5 * unit..5 * unit + 3];
    batch =
        normalised(&batch.iter().map(|x| convolved(x, &of_unit(0)[0], 2, 1)).collect::<Vec<_>>(), of_unit(0));
    batch.iter_mut().for_each(rectify);
    let mut unit = 1;
    for (stage, block) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] {
        let (filters, stride) = (2 << stage, if stage > 0 && block == 0 { 2 } else { 1 });
        let first: Vec<Planes> =
            batch.iter().map(|x| convolved(x, &of_unit(unit)[0], filters, stride)).collect();
        let mut first = normalised(&first, of_unit(unit));
        first.iter_mut().for_each(rectify);
        let second: Vec<Planes> =
            first.iter().map(|x| convolved(x, &of_unit(unit + 1)[0], filters, 1)).collect();
        let mut second = normalised(&second, of_unit(unit + 1));
        for (y, x) in second.iter_mut().zip(&batch) {
            for (to, from) in y.values.iter_mut().zip(&x.values) {
                for (at, value) in to.iter_mut().enumerate() {
                    *value += from[at / y.side * stride * x.side + at % y.side * stride];
                }
            }
            rectify(y);
        }
        (batch, unit) = (second, unit + 2);
    }
    let [weight, bias] = &parameters[5 * unit..] else { panic!("not all parameters were used") };
    let loss = |(image, label): (&Planes, &u8)| {
        let means: Vec<f64> =
            image.values.iter().map(|plane| plane.iter().sum::<f64>() / plane.len() as f64).collect();
        let logit = |(weights, bias): (&[f64], &f64)| {
            weights.iter().zip(&means).map(|(weight, mean)| weight * mean).sum::<f64>() + bias
        };
        let logits: Vec<f64> = weight.chunks(means.len()).zip(bias).map(logit).collect();
        libm::log(logits.iter().map(|logit| libm::exp(*logit)).sum()) - logits[usize::from(*label)]
    };
    batch.iter().zip(labels).map(loss).sum()
}

fn rectify(planes: &mut Planes) {
    planes.values.iter_mut().flatten().for_each(|value| *value = value.max(0.0));
}

fn convolved(input: &Planes, kernel: &[f64], filters: usize, stride: usize) -> Planes {
    let (side, after, channels) = (input.side, input.side.div_ceil(stride), input.values.len());
    let value = |filter: usize, at: usize| {
        let mut sum = 0.0;
        for (c, ky, kx) in (0..channels * 9).map(|at| (at / 9, at / 3 % 3, at % 3)) {
            let (y, x) =
                ((at / after * stride + ky).wrapping_sub(1), (at % after * stride + kx).wrapping_sub(1));
            if y < side && x < side {
                sum += kernel[((filter * channels + c) * 3 + ky) * 3 + kx] * input.values[c][y * side + x];
            }
        }
        sum
    };
    let plane = |filter: usize| (0..after * after).map(|at| value(filter, at)).collect();
    Planes { side: after, values: (0..filters).map(plane).collect() }
}

fn normalised(batch: &[Planes], of_unit: &[Vec<f64>]) -> Vec<Planes> {
    let mut batch = batch.to_vec();
    for (channel, (scale, shift)) in of_unit[1].iter().zip(&of_unit[2]).enumerate() {
        let values: Vec<f64> = batch.iter().flat_map(|image| image.values[channel].clone()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / values.len() as f64;
        for value in batch.iter_mut().flat_map(|image| &mut image.values[channel]) {
            *value = (*value - mean) / (variance + 1e-5).sqrt() * scale + shift;
        }
    }
    batch
}

#[test]
fn the_gradient_agrees_with_finite_differences() {
    let network = Network::new(SIZES);
    let (values, pixels) = (initial(&network, 4), images(LABELS.len(), 8));
    let mut sums = network.zeros();
    let loss = network.loss_and_sums(&borrowed(&values), &pixels, &LABELS, &mut sums);
    let (mut exact, found) = (listed(&values), listed(&sums));
    let expected = reference_loss(&exact, &pixels, &LABELS);
    assert!((loss - expected).abs() < 1e-3, "{loss} is not {expected}");
    let (step, statistics) = (1e-6, [3, 4]);
    let all = exact.len();
    for parameter in (0..all).filter(|at| *at >= all - 2 || !statistics.contains(&(at % 5))) {
        // About eleven of each, at places that share no factor with the shapes.
        for index in (0..exact[parameter].len()).step_by(exact[parameter].len() / 11 + 1) {
            let kept = exact[parameter][index];
            let mut beside = |value| {
                exact[parameter][index] = value;
                reference_loss(&exact, &pixels, &LABELS)
            };
            let slope = (beside(kept + step) - beside(kept - step)) / (2.0 * step);
            beside(kept);
            let found = found[parameter][index];
            assert!(
                (slope - found).abs() < 2e-3 + 2e-3 * slope.abs(),
                "parameter {parameter}, {index}: {slope} but {found}"
            );
        }
    }
}

#[test]
fn running_statistics_get_the_images_own_times_their_number() {
    let network = Network::new(SIZES);
    let (values, pixels) = (initial(&network, 4), images(LABELS.len(), 8));
    let mut sums = network.zeros();
    network.loss_and_sums(&borrowed(&values), &pixels, &LABELS, &mut sums);
    // With these in place of the running ones the images are told as in training.
    let mut evaluated = values.clone();
    for (unit, [.., mean, variance]) in evaluated.units.iter_mut().zip(&sums.units) {
        unit[3] = mean.iter().map(|sum| sum / LABELS.len() as f32).collect();
        unit[4] = variance.iter().map(|sum| sum / LABELS.len() as f32).collect();
    }
    let mut logits = network.logits(&borrowed(&evaluated), &pixels);
    let loss = dense::softmax_loss(&mut logits, &LABELS);
    let expected = reference_loss(&listed(&values), &pixels, &LABELS);
    assert!((loss - expected).abs() < 1e-3, "{loss} is not {expected}");
}

#[test]
fn an_evaluated_image_depends_on_no_other() {
    let network = Network::new(SIZES);
    let (values, pixels) = (initial(&network, 2), images(4, 3));
    let together = network.logits(&borrowed(&values), &pixels);
    for (image, row) in pixels.chunks(SIZES.pixels()).zip(together.rows()) {
        assert_eq!(network.logits(&borrowed(&values), image).row(0), row);
    }
}

#[test]
fn no_images_add_nothing() {
    let network = Network::new(SIZES);
    let mut sums = network.zeros();
    assert_eq!(network.loss_and_sums(&borrowed(&initial(&network, 1)), &[], &[], &mut sums), 0.0);
    assert_eq!(sums, network.zeros());
}
