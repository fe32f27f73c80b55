//! Update rules: how a parameter's value follows from its former value and the step's reduced gradient.
//!
//! Here are their names, constants and state slots; their arithmetic is the pserver's. A rule never borrows the slots or
//! the constants of another.

use super::decisions::Decisions;
use super::metric::Metric;
use super::target::Target;
use serde::{Deserialize, Serialize};

/// How a parameter's value follows from its former value and the step's reduced gradient.
///
/// `w` is the value, `g` the mean gradient (the step's sum divided by its weight), `rate` the learning rate, `t` the
/// number of the update from 1. State slots begin at zero.
///
/// Of a table, an update changes the rows whose keys occurred in it and no others. What decays with time (velocities,
/// Adam's moments) decays for the updates in between as well, as if the row's gradient had been zero in them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rule {
    /// `w - rate * g`.
    Sgd,
    /// Heavy-ball momentum (Polyak 1964, in the form of Sutskever et al. 2013 with the rate outside):
    /// `v = momentum * v + g; w - rate * v`.
    Momentum {
        /// Decay of the velocity, in `0..1`.
        momentum: f32,
    },
    /// Nesterov's accelerated gradient (Nesterov 1983; Sutskever et al. 2013, their equations 3 and 4, with `w` the point
    /// at which the gradient is taken): `v = momentum * v + g; w - rate * (g + momentum * v)`.
    Nesterov {
        /// Decay of the velocity, in `0..1`.
        momentum: f32,
    },
    /// AdaGrad (Duchi, Hazan and Singer 2011, diagonal): `s = s + g^2; w - rate * g / (sqrt(s) + epsilon)`.
    Adagrad {
        /// Added to the root of the summed squares; positive.
        epsilon: f32,
    },
    /// AdaGrad with one sum for a whole row of a table (as in FBGEMM and DLRM): `s = s + mean(g^2);`
    /// `w - rate * g / (sqrt(s) + epsilon)`. Of tables only.
    RowwiseAdagrad {
        /// Added to the root of the summed mean squares; positive.
        epsilon: f32,
    },
    /// Adam (Kingma and Ba 2015, algorithm 1): `m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;`
    /// `w - rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)`.
    Adam {
        /// Decay of the first moment, in `0..1`.
        beta1: f32,
        /// Decay of the second moment, in `0..1`.
        beta2: f32,
        /// Added to the root of the second moment; positive.
        epsilon: f32,
    },
    /// Adam whose moments rest while a row's key does not occur (TensorFlow's LazyAdam, PyTorch's SparseAdam); `t` counts
    /// all updates. Of tables only.
    LazyAdam {
        /// Decay of the first moment, in `0..1`.
        beta1: f32,
        /// Decay of the second moment, in `0..1`.
        beta2: f32,
        /// Added to the root of the second moment; positive.
        epsilon: f32,
    },
    /// AdamW (Loshchilov and Hutter 2019, algorithm 2): Adam whose weight decay stays out of the moments.
    AdamW {
        /// Decay of the first moment, in `0..1`.
        beta1: f32,
        /// Decay of the second moment, in `0..1`.
        beta2: f32,
        /// Added to the root of the second moment; positive.
        epsilon: f32,
    },
    /// AMSGrad (Reddi, Kale and Kumar 2018, algorithm 2), with Adam's bias corrections and epsilon as usual today: Adam
    /// that divides by the largest second moment so far, the maximum being taken before the correction.
    AmsGrad {
        /// Decay of the first moment, in `0..1`.
        beta1: f32,
        /// Decay of the second moment, in `0..1`.
        beta2: f32,
        /// Added to the root of the second moment; positive.
        epsilon: f32,
    },
    /// FTRL-Proximal (McMahan et al. 2013, algorithm 1; the per-element rate falls with the root of the summed squares):
    /// `sigma = (sqrt(n + g^2) - sqrt(n)) / rate; z = z + g - sigma * w; n = n + g^2;`
    /// `0 if |z| <= l1, else -(z - sign(z) * l1) / ((beta + sqrt(n)) / rate + l2)`.
    ///
    /// The value is a function of `z`, `n` and the rate, so the rate must be constant. The algorithm starts at zero; an
    /// element that starts elsewhere starts with the `z` that gives its value.
    Ftrl {
        /// Strength of the L1 penalty, which makes zeros; not negative.
        l1: f32,
        /// Strength of the L2 penalty; not negative.
        l2: f32,
        /// Added to the root of the summed squares; positive.
        beta: f32,
    },
    /// Running statistics, such as batch normalisation's: `decay * w + (1 - decay) * g`, where `g` is the mean of what
    /// steps give. Read by steps; no learning rate.
    Ema {
        /// What is left of the former value, in `0..1`.
        decay: f32,
    },
    /// `w + sum`: a counter. The sum is not divided by the weight; no learning rate; not pulled by steps. What rounding leaves out of
    /// `w` is kept beside it (Knuth 1998, TAOCP 2, 4.2.2, theorem B) and comes in once it counts. For how far it counts see
    /// [`super::Parameter::sum`].
    Sum,
    /// `w + sum` in an evaluation, from zero in each; nothing in a step that trains. The sum is not divided by the weight;
    /// no learning rate; not pulled by steps. Made by [`super::Parameter::metric`].
    Metric {
        /// What its sums say.
        metric: Metric,
        /// What the job aims at with it.
        target: Option<Target>,
    },
    /// Of the one parameter that holds what is decided over all blocks: see [`super::Declaration::deciding`].
    Decide(Decisions),
}

impl Rule {
    /// Adam with the constants of its paper.
    pub const ADAM: Rule = Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    /// Lazy Adam with Adam's constants.
    pub const LAZY_ADAM: Rule = Rule::LazyAdam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    /// AdamW with Adam's constants.
    pub const ADAMW: Rule = Rule::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
    /// AMSGrad with Adam's constants.
    pub const AMSGRAD: Rule = Rule::AmsGrad { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };

    /// Names of the state slots beside the parameter, in the order in which they are kept and hashed.
    pub fn slots(&self) -> &'static [&'static str] {
        match self {
            Rule::Sgd | Rule::Ema { .. } | Rule::Metric { .. } => &[],
            Rule::Sum | Rule::Decide(_) => &["remainder"],
            Rule::Momentum { .. } | Rule::Nesterov { .. } => &["velocity"],
            Rule::Adagrad { .. } | Rule::RowwiseAdagrad { .. } => &["summed_squares"],
            Rule::Adam { .. } | Rule::LazyAdam { .. } | Rule::AdamW { .. } => {
                &["first_moment", "second_moment"]
            }
            Rule::AmsGrad { .. } => &["first_moment", "second_moment", "second_moment_max"],
            Rule::Ftrl { .. } => &["linear", "summed_squares"],
        }
    }
    /// Elements of state beside a row of `dimension` elements, slot by slot.
    pub fn row_slots(&self, dimension: usize) -> usize {
        match self {
            Rule::RowwiseAdagrad { .. } => 1,
            rule => rule.slots().len() * dimension,
        }
    }
    /// Whether it updates rows of tables.
    pub fn is_of_tables(&self) -> bool {
        match self {
            Rule::Sgd | Rule::Momentum { .. } | Rule::Adagrad { .. } | Rule::RowwiseAdagrad { .. } => true,
            Rule::Adam { .. } | Rule::LazyAdam { .. } | Rule::Ftrl { .. } | Rule::Sum => true,
            Rule::Nesterov { .. } | Rule::AdamW { .. } | Rule::AmsGrad { .. } => false,
            Rule::Ema { .. } | Rule::Metric { .. } | Rule::Decide(_) => false,
        }
    }
    /// Whether it updates dense parameters.
    pub fn is_of_dense(&self) -> bool {
        !matches!(self, Rule::RowwiseAdagrad { .. } | Rule::LazyAdam { .. })
    }
    /// Whether a training step reads the parameter.
    pub fn is_read_by_steps(&self) -> bool {
        !matches!(self, Rule::Sum | Rule::Metric { .. })
    }
    /// Whether it has a learning rate; one that has none ignores its parameter's schedule.
    pub fn has_rate(&self) -> bool {
        !matches!(self, Rule::Ema { .. } | Rule::Sum | Rule::Metric { .. } | Rule::Decide(_))
    }
    /// Whether it may begin at values of another job's: metrics and decisions are this job's alone.
    pub fn begins_anywhere(&self) -> bool {
        !matches!(self, Rule::Sum | Rule::Metric { .. } | Rule::Decide(_))
    }
    /// Whether trainers push gradients to the parameter.
    pub fn is_pushed(&self) -> bool {
        !matches!(self, Rule::Decide(_))
    }

    /// Whether it is a metric: evaluations alone add to it.
    pub fn is_metric(&self) -> bool {
        matches!(self, Rule::Metric { .. })
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        let is_decay = |x: f32| (0.0..1.0).contains(&x);
        let is_positive = |x: f32| x > 0.0 && x.is_finite();
        let is_strength = |x: f32| x >= 0.0 && x.is_finite();
        match *self {
            Rule::Momentum { momentum } | Rule::Nesterov { momentum } if !is_decay(momentum) => {
                Some("momentum must be at least 0 and below 1")
            }
            Rule::Adam { beta1, beta2, .. }
            | Rule::LazyAdam { beta1, beta2, .. }
            | Rule::AdamW { beta1, beta2, .. }
            | Rule::AmsGrad { beta1, beta2, .. }
                if !is_decay(beta1) || !is_decay(beta2) =>
            {
                Some("beta1 and beta2 must be at least 0 and below 1")
            }
            Rule::Adagrad { epsilon }
            | Rule::RowwiseAdagrad { epsilon }
            | Rule::Adam { epsilon, .. }
            | Rule::LazyAdam { epsilon, .. }
            | Rule::AdamW { epsilon, .. }
            | Rule::AmsGrad { epsilon, .. }
                if !is_positive(epsilon) =>
            {
                Some("epsilon must be positive")
            }
            Rule::Ftrl { l1, l2, .. } if !is_strength(l1) || !is_strength(l2) => {
                Some("l1 and l2 must be finite and not negative")
            }
            Rule::Ftrl { beta, .. } if !is_positive(beta) => Some("beta must be positive (1.0 is usual)"),
            Rule::Decide(decisions) => decisions.fault(),
            Rule::Metric { metric, target } => {
                metric.fault().or_else(|| target.and_then(|target| target.fault()))
            }
            Rule::Ema { decay } if !is_decay(decay) => Some("decay must be at least 0 and below 1"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_that_make_no_sense_are_refused_by_name() {
        let (beta1, beta2, epsilon) = (0.9, 0.999, 1e-8);
        let faults = [
            (Rule::Momentum { momentum: 1.0 }, "momentum"),
            (Rule::Nesterov { momentum: f32::NAN }, "momentum"),
            (Rule::Adagrad { epsilon: 0.0 }, "epsilon"),
            (Rule::RowwiseAdagrad { epsilon: f32::NAN }, "epsilon"),
            (Rule::Adam { beta1: 1.0, beta2, epsilon }, "beta1"),
            (Rule::LazyAdam { beta1, beta2: 1.0, epsilon }, "beta2"),
            (Rule::AdamW { beta1, beta2: -0.1, epsilon }, "beta2"),
            (Rule::AdamW { beta1, beta2, epsilon: f32::INFINITY }, "epsilon"),
            (Rule::AmsGrad { beta1, beta2: 1.5, epsilon }, "beta2"),
            (Rule::AmsGrad { beta1, beta2, epsilon: -1.0 }, "epsilon"),
            (Rule::Ftrl { l1: -1.0, l2: 0.0, beta: 1.0 }, "l1"),
            (Rule::Ftrl { l1: 0.0, l2: f32::NAN, beta: 1.0 }, "l2"),
            (Rule::Ftrl { l1: 0.0, l2: 0.0, beta: 0.0 }, "beta"),
            (Rule::Ema { decay: 1.0 }, "decay"),
        ];
        for (rule, word) in faults {
            assert!(rule.fault().is_some_and(|fault| fault.contains(word)), "{rule:?}");
        }
    }

    #[test]
    fn usual_constants_are_taken() {
        let rules = [
            Rule::Sgd,
            Rule::Momentum { momentum: 0.0 },
            Rule::Nesterov { momentum: 0.9 },
            Rule::Adagrad { epsilon: 1e-10 },
            Rule::RowwiseAdagrad { epsilon: 1e-10 },
            Rule::ADAM,
            Rule::LAZY_ADAM,
            Rule::ADAMW,
            Rule::AMSGRAD,
            Rule::Ftrl { l1: 0.0, l2: 0.0, beta: 1.0 },
            Rule::Ema { decay: 0.99 },
            Rule::Sum,
        ];
        assert!(rules.iter().all(|rule| rule.fault().is_none()));
    }
}
