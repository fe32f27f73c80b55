//! Parameter groups: what some parameters of a declaration have in common beside their rule. Values only; the
//! arithmetic is the pserver's.

use super::rule::Rule;
use serde::{Deserialize, Serialize};

/// How a parameter is treated beside its rule; [`Parameter::in_group`](super::Parameter::in_group) puts it in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The schedule's rate is multiplied with it; positive.
    pub rate_multiplier: f32,
    /// Not negative. AdamW takes `rate * weight_decay * w` off the value beside its own change (decoupled, Loshchilov
    /// and Hutter 2019). SGD, momentum, Nesterov, AdaGrad, Adam, AMSGrad and FTRL add `weight_decay * w` to the mean
    /// gradient (L2). Refused for Ema and Sum.
    pub weight_decay: f32,
    /// The rule never runs: steps read the parameter's initial values. No state slots are kept.
    pub is_frozen: bool,
}

impl Default for Group {
    fn default() -> Group {
        Group { rate_multiplier: 1.0, weight_decay: 0.0, is_frozen: false }
    }
}

impl Group {
    /// Parameters that are read and never updated.
    pub const FROZEN: Group = Group { rate_multiplier: 1.0, weight_decay: 0.0, is_frozen: true };

    pub(super) fn fault(&self, rule: &Rule) -> Option<&'static str> {
        if !(self.rate_multiplier > 0.0 && self.rate_multiplier.is_finite()) {
            return Some(
                "rate_multiplier must be positive and finite; what is to stay as it is belongs in Group::FROZEN",
            );
        }
        if !(self.weight_decay >= 0.0 && self.weight_decay.is_finite()) {
            return Some("weight_decay must be finite and not negative; 0 is none");
        }
        if !rule.has_rate() && self.weight_decay > 0.0 {
            return Some(
                "Ema, Sum and metrics do not learn, so nothing of them decays: leave weight_decay at 0 in their group",
            );
        }
        if !rule.has_rate() && self.rate_multiplier != 1.0 {
            return Some(
                "Ema, Sum and metrics have no learning rate: leave rate_multiplier at 1 in their group",
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_make_no_sense_are_refused_with_the_way_out() {
        let multiplied = |rate_multiplier| Group { rate_multiplier, ..Group::default() };
        let decaying = |weight_decay| Group { weight_decay, ..Group::default() };
        let (ema, sum) = (Rule::Ema { decay: 0.9 }, Rule::Sum);
        let faults = [
            (multiplied(0.0), Rule::Sgd, "FROZEN"),
            (multiplied(-1.0), Rule::Sgd, "rate_multiplier"),
            (multiplied(f32::INFINITY), Rule::Sgd, "rate_multiplier"),
            (decaying(-0.1), Rule::ADAM, "weight_decay"),
            (decaying(f32::NAN), Rule::ADAM, "weight_decay"),
            (decaying(0.1), ema, "leave weight_decay at 0"),
            (decaying(0.1), sum, "leave weight_decay at 0"),
            (multiplied(2.0), ema, "leave rate_multiplier at 1"),
            (multiplied(2.0), sum, "leave rate_multiplier at 1"),
        ];
        for (group, rule, words) in faults {
            assert!(group.fault(&rule).is_some_and(|fault| fault.contains(words)), "{group:?} {rule:?}");
        }
    }

    #[test]
    fn sensible_groups_are_taken() {
        let group = Group { rate_multiplier: 0.1, weight_decay: 0.01, is_frozen: false };
        assert_eq!(group.fault(&Rule::ADAMW), None);
        for rule in [Rule::Sgd, Rule::Ema { decay: 0.9 }, Rule::Sum] {
            assert_eq!((Group::default().fault(&rule), Group::FROZEN.fault(&rule)), (None, None));
        }
    }
}
