//! One stage of the network on one image: a convolution with 5×5 kernels (no padding, stride 1), the maximum of each
//! 2×2 pixels, a bias, ReLU. Pure mathematics in a fixed order on one thread.
//!
//! The maximum comes before bias and ReLU: both keep the order of values, so it changes nothing and spares 3 of 4.

use super::dense::{matrix, matrix_mut};
use ndarray::linalg::general_mat_mul;

/// Side of a kernel, in pixels.
pub(crate) const KERNEL: usize = 5;
/// Where a pooled pixel has no gradient to hand down: ReLU gave 0.
const NOWHERE: u32 = u32::MAX;

/// The sizes of a stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    /// Planes of the input.
    pub(crate) channels: usize,
    /// Side of each plane of the input, in pixels; even.
    pub(crate) side: usize,
    /// Planes of the output.
    pub(crate) filters: usize,
}

/// Memory that images take turns in.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The input's patches: a row for each place in a kernel, a column for each place of the kernel.
    patches: Vec<f32>,
    /// A plane for each filter, or the gradient by it.
    planes: Vec<f32>,
    /// The gradient by the patches.
    patches_error: Vec<f32>,
}

impl Stage {
    /// Values of one input.
    pub(crate) const fn inputs(&self) -> usize {
        self.channels * self.side * self.side
    }
    /// Values of one output.
    pub(crate) const fn outputs(&self) -> usize {
        self.filters * self.pooled_side() * self.pooled_side()
    }
    const fn plane_side(&self) -> usize {
        self.side - KERNEL + 1
    }
    const fn pooled_side(&self) -> usize {
        self.plane_side() / 2
    }
    const fn plane(&self) -> usize {
        self.plane_side() * self.plane_side()
    }
    const fn kernel(&self) -> usize {
        self.channels * KERNEL * KERNEL
    }

    /// Fills `outputs`, and in `winners` which pixel of the plane each came from.
    ///
    /// # Panics
    /// Slices whose lengths are not those of the sizes.
    pub(crate) fn forward(
        &self,
        weight: &[f32],
        bias: &[f32],
        input: &[f32],
        scratch: &mut Scratch,
        outputs: &mut [f32],
        winners: &mut [u32],
    ) {
        self.cut(input, &mut scratch.patches);
        scratch.planes.resize(self.filters * self.plane(), 0.0);
        let weight = matrix(weight, self.filters, self.kernel());
        let patches = matrix(&scratch.patches, self.kernel(), self.plane());
        let mut planes = matrix_mut(&mut scratch.planes, self.filters, self.plane());
        general_mat_mul(1.0, &weight, &patches, 0.0, &mut planes);
        let pooled = self.pooled_side() * self.pooled_side();
        let planes = scratch.planes.chunks_exact(self.plane()).zip(bias);
        let slots = outputs.chunks_exact_mut(pooled).zip(winners.chunks_exact_mut(pooled));
        for ((plane, bias), (outputs, winners)) in planes.zip(slots) {
            self.pool(plane, *bias, outputs, winners);
        }
    }

    /// Adds the gradients by weight and bias to their sums, given the gradient by the outputs. Where `input_error` is
    /// given, it becomes the gradient by the input.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub(crate) fn backward(
        &self,
        weight: &[f32],
        input: &[f32],
        (outputs_error, winners): (&[f32], &[u32]),
        scratch: &mut Scratch,
        (weight_sum, bias_sum): (&mut [f32], &mut [f32]),
        input_error: Option<&mut [f32]>,
    ) {
        self.cut(input, &mut scratch.patches);
        scratch.planes.clear();
        scratch.planes.resize(self.filters * self.plane(), 0.0);
        let pooled = self.pooled_side() * self.pooled_side();
        let planes = scratch.planes.chunks_exact_mut(self.plane()).zip(bias_sum);
        let errors = outputs_error.chunks_exact(pooled).zip(winners.chunks_exact(pooled));
        for ((plane, bias_sum), (errors, winners)) in planes.zip(errors) {
            for (error, winner) in errors.iter().zip(winners).filter(|(_, winner)| **winner != NOWHERE) {
                plane[*winner as usize] = *error;
                *bias_sum += error;
            }
        }
        let planes = matrix(&scratch.planes, self.filters, self.plane());
        let patches = matrix(&scratch.patches, self.kernel(), self.plane());
        let mut slot = matrix_mut(weight_sum, self.filters, self.kernel());
        general_mat_mul(1.0, &planes, &patches.t(), 1.0, &mut slot);
        let Some(input_error) = input_error else { return };
        scratch.patches_error.resize(self.kernel() * self.plane(), 0.0);
        let weight = matrix(weight, self.filters, self.kernel());
        let mut slot = matrix_mut(&mut scratch.patches_error, self.kernel(), self.plane());
        general_mat_mul(1.0, &weight.t(), &planes, 0.0, &mut slot);
        self.lay(&scratch.patches_error, input_error);
    }

    /// Copies what each place in the kernel sees, plane by plane.
    fn cut(&self, input: &[f32], patches: &mut Vec<f32>) {
        patches.resize(self.kernel() * self.plane(), 0.0);
        let width = self.plane_side();
        for (place, patch) in patches.chunks_exact_mut(self.plane()).enumerate() {
            let begins = self.seen_from(place);
            for (row, pixels) in patch.chunks_exact_mut(width).enumerate() {
                pixels.copy_from_slice(&input[begins + row * self.side..][..width]);
            }
        }
    }

    /// The reverse of [`cut`](Self::cut): adds up what each pixel was seen for.
    fn lay(&self, patches: &[f32], input: &mut [f32]) {
        input.fill(0.0);
        let width = self.plane_side();
        for (place, patch) in patches.chunks_exact(self.plane()).enumerate() {
            let begins = self.seen_from(place);
            for (row, errors) in patch.chunks_exact(width).enumerate() {
                let pixels = &mut input[begins + row * self.side..][..width];
                pixels.iter_mut().zip(errors).for_each(|(pixel, error)| *pixel += error);
            }
        }
    }

    /// The first pixel of the input that a place in the kernel (channel, row, column) sees.
    fn seen_from(&self, place: usize) -> usize {
        let (channel, row, column) = (place / (KERNEL * KERNEL), place / KERNEL % KERNEL, place % KERNEL);
        channel * self.side * self.side + row * self.side + column
    }

    fn pool(&self, plane: &[f32], bias: f32, outputs: &mut [f32], winners: &mut [u32]) {
        let (width, pooled) = (self.plane_side(), self.pooled_side());
        for (index, (output, winner)) in outputs.iter_mut().zip(winners).enumerate() {
            let corner = index / pooled * 2 * width + index % pooled * 2;
            let mut best = corner;
            for other in [corner + 1, corner + width, corner + width + 1] {
                if plane[other] > plane[best] {
                    best = other;
                }
            }
            let value = plane[best] + bias;
            (*output, *winner) = if value > 0.0 { (value, best as u32) } else { (0.0, NOWHERE) };
        }
    }
}
