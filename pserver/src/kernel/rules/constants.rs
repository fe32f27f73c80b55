//! The scalar constants of one update of a parameter as device code is given them: the same values that the loops here
//! compute for themselves.

use super::Pass;
use super::adam::Moments;
use shoal_runtime::cluster::Rule;

/// A rule and its constants, as `device/kernels/update.cu` names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// The rule's number there.
    pub rule: u32,
    /// Weight, rate, plain rate, scale, weight decay, and up to seven of the rule.
    pub values: [f32; 12],
}

impl Constants {
    /// Of what has no rule: it stays as it is.
    pub const KEEP: Constants = Constants { rule: 10, values: [0.0; 12] };

    /// Of a rule that device code has; none of the others.
    pub fn of(rule: Rule, pass: Pass) -> Option<Constants> {
        let adam = |beta1, beta2, epsilon| Moments::new(pass, beta1, beta2, epsilon).constants();
        let (number, own): (u32, [f32; 7]) = match rule {
            Rule::Sgd => (0, first([])),
            Rule::Momentum { momentum } => (1, first([momentum])),
            Rule::Nesterov { momentum } => (2, first([momentum])),
            Rule::Adagrad { epsilon } => (3, first([epsilon])),
            Rule::Adam { beta1, beta2, epsilon } => (4, adam(beta1, beta2, epsilon)),
            Rule::AdamW { beta1, beta2, epsilon } => (5, adam(beta1, beta2, epsilon)),
            Rule::AmsGrad { beta1, beta2, epsilon } => (6, adam(beta1, beta2, epsilon)),
            Rule::Ftrl { l1, l2, beta } => (7, first([l1, l2, beta])),
            Rule::Ema { decay } => (8, first([decay, 1.0 - decay])),
            Rule::Sum => (9, first([])),
            Rule::RowwiseAdagrad { .. } | Rule::LazyAdam { .. } | Rule::Metric { .. } | Rule::Decide(_) => {
                return None;
            }
        };
        let mut values = [0.0; 12];
        values[..5].copy_from_slice(&[
            pass.weight,
            pass.scaled_rate(),
            pass.rate,
            pass.scale,
            pass.weight_decay,
        ]);
        values[5..].copy_from_slice(&own);
        Some(Constants { rule: number, values })
    }
}

fn first<const N: usize>(own: [f32; N]) -> [f32; 7] {
    let mut values = [0.0; 7];
    values[..N].copy_from_slice(&own);
    values
}
