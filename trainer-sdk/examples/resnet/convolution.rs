//! Convolution of one image with 3×3 kernels, a blank border of one pixel, stride 1 or 2, no bias. Pure mathematics in a
//! fixed order on one thread.

use super::dense::{matrix, matrix_mut};
use ndarray::linalg::general_mat_mul;
use std::ops::Range;

/// Side of a kernel, in pixels.
pub(crate) const KERNEL: usize = 3;

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Convolution {
    /// Planes of the input.
    pub(crate) channels: usize,
    /// Side of each plane of the input, in pixels.
    pub(crate) side: usize,
    /// Planes of the output.
    pub(crate) filters: usize,
    /// Pixels from one place of the kernel to the next.
    pub(crate) stride: usize,
}

/// Memory that images take turns in.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The input's patches: a row for each place in a kernel, a column for each place of the kernel.
    patches: Vec<f32>,
    /// The gradient by them.
    patches_error: Vec<f32>,
}

impl Convolution {
    /// Values of one input.
    pub(crate) const fn inputs(&self) -> usize {
        self.channels * self.side * self.side
    }
    /// Values of one output.
    pub(crate) const fn outputs(&self) -> usize {
        self.filters * self.plane()
    }
    /// Side of each plane of the output.
    pub(crate) const fn side_after(&self) -> usize {
        (self.side - 1) / self.stride + 1
    }
    /// Values of one plane of the output.
    pub(crate) const fn plane(&self) -> usize {
        self.side_after() * self.side_after()
    }
    const fn kernel(&self) -> usize {
        self.channels * KERNEL * KERNEL
    }

    /// Fills `output`.
    ///
    /// # Panics
    /// Slices whose lengths are not those of the sizes.
    pub(crate) fn forward(&self, weight: &[f32], input: &[f32], scratch: &mut Scratch, output: &mut [f32]) {
        self.cut(input, &mut scratch.patches);
        let weight = matrix(weight, self.filters, self.kernel());
        let patches = matrix(&scratch.patches, self.kernel(), self.plane());
        let mut output = matrix_mut(output, self.filters, self.plane());
        general_mat_mul(1.0, &weight, &patches, 0.0, &mut output);
    }

    /// Adds the gradient by the weight to its sum, given that by the output. Where `input_error` is given, it becomes the
    /// gradient by the input.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub(crate) fn backward(
        &self,
        weight: &[f32],
        input: &[f32],
        output_error: &[f32],
        scratch: &mut Scratch,
        weight_sum: &mut [f32],
        input_error: Option<&mut [f32]>,
    ) {
        self.cut(input, &mut scratch.patches);
        let error = matrix(output_error, self.filters, self.plane());
        let patches = matrix(&scratch.patches, self.kernel(), self.plane());
        let mut slot = matrix_mut(weight_sum, self.filters, self.kernel());
        general_mat_mul(1.0, &error, &patches.t(), 1.0, &mut slot);
        let Some(input_error) = input_error else { return };
        scratch.patches_error.resize(self.kernel() * self.plane(), 0.0);
        let weight = matrix(weight, self.filters, self.kernel());
        let mut slot = matrix_mut(&mut scratch.patches_error, self.kernel(), self.plane());
        general_mat_mul(1.0, &weight.t(), &error, 0.0, &mut slot);
        self.lay(&scratch.patches_error, input_error);
    }

    /// Copies what each place in the kernel sees, plane by plane; beyond the border it sees 0.
    fn cut(&self, input: &[f32], patches: &mut Vec<f32>) {
        patches.clear();
        patches.resize(self.kernel() * self.plane(), 0.0);
        for (place, patch) in patches.chunks_exact_mut(self.plane()).enumerate() {
            for (into, from, count) in self.rows(place) {
                let pixels = input[from..].iter().step_by(self.stride);
                patch[into..][..count].iter_mut().zip(pixels).for_each(|(slot, pixel)| *slot = *pixel);
            }
        }
    }

    /// The reverse of [`cut`](Self::cut): adds up what each pixel was seen for.
    fn lay(&self, patches: &[f32], input: &mut [f32]) {
        input.fill(0.0);
        for (place, patch) in patches.chunks_exact(self.plane()).enumerate() {
            for (from, into, count) in self.rows(place) {
                let pixels = input[into..].iter_mut().step_by(self.stride);
                pixels.zip(&patch[from..][..count]).for_each(|(pixel, error)| *pixel += error);
            }
        }
    }

    /// What a place in the kernel (channel, row, column) sees, row by row of the output: where it begins in the output's
    /// plane and in the input, and how many pixels it is.
    fn rows(&self, place: usize) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let Convolution { side, stride, .. } = *self;
        let (channel, row, column) = (place / (KERNEL * KERNEL), place / KERNEL % KERNEL, place % KERNEL);
        let (columns, side_after) = (self.inside(column), self.side_after());
        self.inside(row).map(move |y| {
            let (line, first) = (y * stride + row - 1, columns.start * stride + column - 1);
            (y * side_after + columns.start, (channel * side + line) * side + first, columns.len())
        })
    }

    /// The rows (columns) of the output at which a row (column) of the kernel lies inside the border.
    fn inside(&self, offset: usize) -> Range<usize> {
        let begin = usize::from(offset == 0);
        begin..(self.side + 1 - offset).div_ceil(self.stride).min(self.side_after())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every output by its definition.
    fn reference(sizes: &Convolution, weight: &[f32], input: &[f32]) -> Vec<f32> {
        let (side, after) = (sizes.side, sizes.side_after());
        let mut outputs = Vec::new();
        for (filter, at) in
            (0..sizes.filters).flat_map(|filter| (0..sizes.plane()).map(move |at| (filter, at)))
        {
            let mut sum = 0.0;
            for (c, ky, kx) in (0..sizes.channels * 9).map(|at| (at / 9, at / 3 % 3, at % 3)) {
                let y = (at / after * sizes.stride + ky).wrapping_sub(1);
                let x = (at % after * sizes.stride + kx).wrapping_sub(1);
                if y < side && x < side {
                    sum += weight[((filter * sizes.channels + c) * 3 + ky) * 3 + kx]
                        * input[(c * side + y) * side + x];
                }
            }
            outputs.push(sum);
        }
        outputs
    }

    /// Whole numbers, whose sums are exact in any order.
    fn numbers(count: usize, factor: usize) -> Vec<f32> {
        (0..count).map(|at| (at * factor % 13) as f32 - 6.0).collect()
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn outputs_are_those_of_the_definition_and_gradients_the_transposed_map() {
        for (side, stride) in [(5, 1), (5, 2), (6, 1), (6, 2), (1, 1)] {
            let sizes = Convolution { channels: 2, side, filters: 3, stride };
            let (weight, input) = (numbers(54, 5), numbers(sizes.inputs(), 7));
            let (mut scratch, mut output) = (Scratch::default(), vec![9.0; sizes.outputs()]);
            sizes.forward(&weight, &input, &mut scratch, &mut output);
            assert_eq!(output, reference(&sizes, &weight, &input), "{sizes:?}");
            // The map is linear in either: <error, map(x)> = <transposed(error), x>.
            let error = numbers(sizes.outputs(), 3);
            let (mut weight_sum, mut input_error) = (vec![0.0; 54], vec![9.0; sizes.inputs()]);
            let slot = Some(input_error.as_mut_slice());
            sizes.backward(&weight, &input, &error, &mut scratch, &mut weight_sum, slot);
            assert_eq!(dot(&weight_sum, &weight), dot(&error, &output), "{sizes:?}");
            for at in 0..sizes.inputs() {
                let mut one = vec![0.0; sizes.inputs()];
                one[at] = 1.0;
                assert_eq!(input_error[at], dot(&error, &reference(&sizes, &weight, &one)), "{sizes:?} {at}");
            }
        }
    }
}
