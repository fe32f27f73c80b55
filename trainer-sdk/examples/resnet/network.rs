//! A residual network for small images after He et al. 2016, section 4.2: a convolution, three stages of residual blocks
//! whose shortcuts have no parameters (every other pixel, and blank planes for new filters), the mean over pixels, 10
//! classes. Pure mathematics on flat slices: no optimizer, no file, no clock, no randomness.

use super::convolution::Scratch;
use super::dense;
use super::norm::Statistics;
use super::sizes::{CLASSES, Sizes, Unit};
use ndarray::Array2;

/// The parameters, borrowed from wherever they were pulled to.
#[derive(Debug)]
pub(crate) struct Weights<'a> {
    /// Of each unit kernel, scale, shift, running mean, running variance.
    pub(crate) units: Vec<[&'a [f32]; 5]>,
    /// Weight and bias of the last layer.
    pub(crate) output: [&'a [f32]; 2],
}

/// Sums in the shapes of the parameters: gradients of the loss, and means and variances times images.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    pub(crate) units: Vec<[Vec<f32>; 5]>,
    pub(crate) output: [Vec<f32>; 2],
}

/// The network.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) sizes: Sizes,
    pub(crate) units: Vec<Unit>,
}

/// By what channels are normalised.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// The statistics of the images themselves.
    Own,
    /// The running ones.
    Running,
}

/// What a pass forward leaves for the pass backward.
struct Pass {
    /// Of each unit, after ReLU and where there is one after the shortcut, image after image.
    outputs: Vec<Vec<f32>>,
    /// Of each unit, before scale and shift.
    normalised: Vec<Vec<f32>>,
    statistics: Vec<Statistics>,
    features: Array2<f32>,
    logits: Array2<f32>,
}

impl Network {
    pub(crate) fn new(sizes: Sizes) -> Network {
        Network { sizes, units: sizes.units() }
    }

    /// The negative log likelihood summed over a microbatch (nats), normalised by its own statistics. Adds to `sums` the
    /// gradients of that loss, and means and variances times the number of images.
    ///
    /// `pixels` are `labels.len()` images, planes one after another, values 0 to 1; labels are 0 to 9.
    ///
    /// # Panics
    /// When a slice has not the length its shape says, or a label is no class.
    pub(crate) fn loss_and_sums(
        &self,
        weights: &Weights<'_>,
        pixels: &[f32],
        labels: &[u8],
        sums: &mut Sums,
    ) -> f64 {
        let mut scratch = Scratch::default();
        let mut pass = self.forward(weights, pixels, By::Own, &mut scratch);
        let loss = dense::softmax_loss(&mut pass.logits, labels);
        pass.logits.mapv_inplace(|error| -error);
        let [weight_sum, bias_sum] = &mut sums.output;
        let error =
            dense::backward(weights.output[0], &pass.features.view(), &pass.logits, weight_sum, bias_sum);
        let error = self.unpooled(&error);
        self.backward(weights, pixels, &pass, error, &mut scratch, sums);
        let images = labels.len() as f32;
        for ([.., mean_sum, variance_sum], Statistics { mean, variance }) in
            sums.units.iter_mut().zip(&pass.statistics)
        {
            mean_sum.iter_mut().zip(mean).for_each(|(sum, mean)| *sum += mean * images);
            variance_sum.iter_mut().zip(variance).for_each(|(sum, variance)| *sum += variance * images);
        }
        loss
    }

    /// A row of 10 logits for each image, by the running statistics: of each image alone.
    ///
    /// # Panics
    /// When a slice has not the length its shape says.
    pub(crate) fn logits(&self, weights: &Weights<'_>, pixels: &[f32]) -> Array2<f32> {
        self.forward(weights, pixels, By::Running, &mut Scratch::default()).logits
    }

    fn forward(&self, weights: &Weights<'_>, pixels: &[f32], by: By, scratch: &mut Scratch) -> Pass {
        let images = pixels.len() / self.sizes.pixels();
        let (mut outputs, mut normalised, mut statistics) = (Vec::<Vec<f32>>::new(), Vec::new(), Vec::new());
        for (index, (unit, of_unit)) in self.units.iter().zip(&weights.units).enumerate() {
            let [kernel, scale, shift, mean, variance] = *of_unit;
            let (sizes, channels) = (unit.convolution, unit.channels());
            let inputs = outputs.last().map_or(pixels, Vec::as_slice);
            let mut values = vec![0.0; images * sizes.outputs()];
            let slots = values.chunks_exact_mut(sizes.outputs());
            for (input, slot) in inputs.chunks_exact(sizes.inputs()).zip(slots) {
                sizes.forward(kernel, input, scratch, slot);
            }
            let own = if by == By::Own { channels.statistics(&values) } else { Statistics::default() };
            let used = if by == By::Own { (&own.mean[..], &own.variance[..]) } else { (mean, variance) };
            channels.normalise(used, &mut values);
            let mut output = channels.scale(scale, shift, &values);
            if ends_block(index) {
                self.add_shortcut(index, &outputs[index - 2], &mut output);
            }
            output.iter_mut().for_each(|value| *value = value.max(0.0));
            outputs.push(output);
            normalised.push(values);
            statistics.push(own);
        }
        let features = self.pooled(outputs.last().map_or(&[], Vec::as_slice), images);
        let logits = dense::forward(weights.output[0], weights.output[1], &features.view());
        Pass { outputs, normalised, statistics, features, logits }
    }

    /// From the gradient by the last unit's output back to the first unit.
    fn backward(
        &self,
        weights: &Weights<'_>,
        pixels: &[f32],
        pass: &Pass,
        mut error: Vec<f32>,
        scratch: &mut Scratch,
        sums: &mut Sums,
    ) {
        let mut beside = Vec::new();
        for (index, unit) in self.units.iter().enumerate().rev() {
            let [kernel, scale, ..] = weights.units[index];
            let [kernel_sum, scale_sum, shift_sum, ..] = &mut sums.units[index];
            let outputs = &pass.outputs[index];
            error.iter_mut().zip(outputs).filter(|(_, output)| **output <= 0.0).for_each(|(e, _)| *e = 0.0);
            if ends_block(index) {
                beside = self.shortcut_error(index, &error, pass.outputs[index - 2].len());
            }
            let (variance, normalised) = (&pass.statistics[index].variance, &pass.normalised[index]);
            let slots = (scale_sum.as_mut_slice(), shift_sum.as_mut_slice());
            unit.channels().backward(scale, variance, normalised, &mut error, slots);
            let (sizes, inputs) =
                (unit.convolution, if index == 0 { pixels } else { &pass.outputs[index - 1] });
            let mut before = vec![0.0; if index == 0 { 0 } else { inputs.len() }];
            let mut slots = before.chunks_exact_mut(sizes.inputs());
            let errors = error.chunks_exact(sizes.outputs());
            for (input, error) in inputs.chunks_exact(sizes.inputs()).zip(errors) {
                sizes.backward(kernel, input, error, scratch, kernel_sum, slots.next());
            }
            if begins_block(index) {
                before.iter_mut().zip(&beside).for_each(|(error, beside)| *error += beside);
            }
            error = before;
        }
    }

    /// Adds a block's input to its output.
    fn add_shortcut(&self, index: usize, inputs: &[f32], outputs: &mut [f32]) {
        self.along_shortcut(index, inputs.len(), |input, output| outputs[output] += inputs[input]);
    }

    /// The gradient by a block's input that comes by the shortcut.
    fn shortcut_error(&self, index: usize, error: &[f32], inputs: usize) -> Vec<f32> {
        let mut input_error = vec![0.0; inputs];
        self.along_shortcut(index, inputs, |input, output| input_error[input] = error[output]);
        input_error
    }

    /// Each value of a block's input that the shortcut of the block that ends with a unit takes, and the value of the
    /// output that it is added to.
    fn along_shortcut(&self, index: usize, inputs: usize, mut each: impl FnMut(usize, usize)) {
        let first = self.units[index - 1].convolution;
        let (side, after) = (first.side, first.side_after());
        for image in 0..inputs / first.inputs() {
            for (channel, y) in (0..first.channels).flat_map(|channel| (0..after).map(move |y| (channel, y)))
            {
                let input = image * first.inputs() + (channel * side + y * first.stride) * side;
                let output = image * first.outputs() + (channel * after + y) * after;
                (0..after).for_each(|x| each(input + x * first.stride, output + x));
            }
        }
    }

    /// The mean over the pixels of each channel.
    fn pooled(&self, outputs: &[f32], images: usize) -> Array2<f32> {
        let (channels, plane) = (self.sizes.features(), self.last_plane());
        let mean = |(image, channel): (usize, usize)| {
            let begins = (image * channels + channel) * plane;
            outputs[begins..][..plane].iter().sum::<f32>() / plane as f32
        };
        Array2::from_shape_fn((images, channels), mean)
    }

    /// The gradient by the pixels, from that by their means.
    fn unpooled(&self, error: &Array2<f32>) -> Vec<f32> {
        let plane = self.last_plane();
        error.iter().flat_map(|error| std::iter::repeat_n(error / plane as f32, plane)).collect()
    }

    fn last_plane(&self) -> usize {
        self.units.last().map_or(1, |unit| unit.convolution.plane())
    }

    /// Zeros in the shapes of all parameters.
    pub(crate) fn zeros(&self) -> Sums {
        let of_unit = |unit: &Unit| {
            let kernel = vec![0.0; unit.kernel_shape().iter().product::<u64>() as usize];
            let channel = || vec![0.0; unit.convolution.filters];
            [kernel, channel(), channel(), channel(), channel()]
        };
        let output = [vec![0.0; CLASSES * self.sizes.features()], vec![0.0; CLASSES]];
        Sums { units: self.units.iter().map(of_unit).collect(), output }
    }
}

/// Whether a unit is the second of a residual block: its output has the shortcut added.
fn ends_block(index: usize) -> bool {
    index > 0 && index.is_multiple_of(2)
}

/// Whether a unit is the first of a residual block.
fn begins_block(index: usize) -> bool {
    !index.is_multiple_of(2)
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
