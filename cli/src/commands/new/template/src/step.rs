//! The mathematics of one record, here logistic regression. It knows nothing of Shoal, files or randomness: the same
//! numbers give the same bits, whichever trainer computes them. Put your own in its place.

/// The loss of one record in nats; adds its gradient to `weight_sums` and `bias_sum`.
pub fn add_gradient(
    weight: &[f32],
    bias: f32,
    features: &[f32],
    label: f32,
    weight_sums: &mut [f32],
    bias_sum: &mut f32,
) -> f32 {
    let logit = logit(weight, bias, features);
    // libm and not `f32::exp`, which asks the system's library: another machine's may round otherwise.
    let probability = 1.0 / (1.0 + libm::expf(-logit));
    let slope = probability - label;
    for (sum, feature) in weight_sums.iter_mut().zip(features) {
        *sum += slope * feature;
    }
    *bias_sum += slope;
    // ln(1 + e^logit) - label * logit, in a form that does not overflow.
    logit.max(0.0) - label * logit + libm::log1pf(libm::expf(-logit.abs()))
}

/// Positive where the model takes a record for one of label 1.
pub fn logit(weight: &[f32], bias: f32, features: &[f32]) -> f32 {
    weight
        .iter()
        .zip(features)
        .map(|(weight, feature)| weight * feature)
        .sum::<f32>()
        + bias
}
