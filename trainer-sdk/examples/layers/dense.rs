//! Layers that more than one example has: fully connected, ReLU, softmax with its loss. Rows are records.
//! Pure mathematics in a fixed order on one thread: no optimizer, no file, no clock, no randomness.
//!
//! Included by path: `#[path = "../layers/dense.rs"] mod dense;`. It needs the crates libm and ndarray.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis};

/// `inputs · weightᵀ + bias`, for a weight of `[outputs, inputs]`, row-major.
///
/// # Panics
/// When the weight's length is not that of its shape.
pub(crate) fn forward(weight: &[f32], bias: &[f32], inputs: &ArrayView2<'_, f32>) -> Array2<f32> {
    let mut outputs = inputs.dot(&matrix(weight, bias.len(), inputs.ncols()).t());
    outputs += &ArrayView1::from(bias);
    outputs
}

/// Adds the gradients by weight and bias to their sums, given the gradient by the outputs; returns that by the inputs.
///
/// # Panics
/// As [`forward`].
pub(crate) fn backward(
    weight: &[f32],
    inputs: &ArrayView2<'_, f32>,
    outputs_error: &Array2<f32>,
    weight_sum: &mut [f32],
    bias_sum: &mut [f32],
) -> Array2<f32> {
    let (outputs, columns) = (outputs_error.ncols(), inputs.ncols());
    let mut slot = matrix_mut(weight_sum, outputs, columns);
    general_mat_mul(1.0, &outputs_error.t(), inputs, 1.0, &mut slot);
    let mut slot = ArrayViewMut1::from(bias_sum);
    slot += &outputs_error.sum_axis(Axis(0));
    outputs_error.dot(&matrix(weight, outputs, columns))
}

/// Negative values become 0.
pub(crate) fn relu(mut values: Array2<f32>) -> Array2<f32> {
    values.mapv_inplace(|value| value.max(0.0));
    values
}

/// The gradient by what [`relu`] was given, where it gave `values`.
pub(crate) fn relu_error(mut error: Array2<f32>, values: &Array2<f32>) -> Array2<f32> {
    error.zip_mut_with(values, |error, value| {
        if *value <= 0.0 {
            *error = 0.0;
        }
    });
    error
}

/// Turns logits into the gradient of the log likelihood by them (one-hot minus softmax), and returns the negative log
/// likelihood, summed over the rows (nats).
///
/// # Panics
/// A label that is no class.
pub(crate) fn softmax_loss(logits: &mut Array2<f32>, labels: &[u8]) -> f64 {
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

/// The likeliest class of every row; of equally likely ones, the smallest.
pub(crate) fn likeliest(logits: &Array2<f32>) -> Vec<u8> {
    let of_row = |row: ArrayView1<'_, f32>| {
        let better = |best, class| if row[class] > row[best] { class } else { best };
        (1..row.len()).fold(0, better) as u8
    };
    logits.rows().into_iter().map(of_row).collect()
}

/// A slice as a matrix, row after row.
///
/// # Panics
/// A slice of another length than `rows × columns`.
#[expect(
    clippy::expect_used,
    reason = "a slice of another length is a bug of the caller, as an index out of range"
)]
pub(crate) fn matrix(values: &[f32], rows: usize, columns: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((rows, columns), values).expect("a slice of rows × columns values")
}

/// As [`matrix`], to be written to.
///
/// # Panics
/// As [`matrix`].
#[expect(
    clippy::expect_used,
    reason = "a slice of another length is a bug of the caller, as an index out of range"
)]
pub(crate) fn matrix_mut(values: &mut [f32], rows: usize, columns: usize) -> ArrayViewMut2<'_, f32> {
    ArrayViewMut2::from_shape((rows, columns), values).expect("a slice of rows × columns values")
}
