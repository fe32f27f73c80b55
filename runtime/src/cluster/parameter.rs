//! What a training program declares: its parameters, each with shape, update rule, schedule and initial values.

use super::decisions::{DECISION_ELEMENTS, Decisions};
use super::initial::Initial;
use super::schedule::Schedule;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How a parameter's value follows from its former value and the step's reduced gradient.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rule {
    /// `w - lr * g`, where `g` is the step's gradient sum divided by its weight.
    Sgd,
    /// Heavy-ball momentum (Polyak 1964, as Sutskever et al. 2013): `v = momentum * v + g; w - lr * v`.
    Momentum {
        /// Decay of the velocity, in `0..1`.
        momentum: f32,
    },
    /// Adam (Kingma and Ba 2015, algorithm 1).
    Adam {
        /// Decay of the first moment, in `0..1`.
        beta1: f32,
        /// Decay of the second moment, in `0..1`.
        beta2: f32,
        /// Added to the root of the second moment; positive.
        epsilon: f32,
    },
    /// `w + sum`: a counter or a metric. The sum is not divided by the weight; no learning rate; not pulled by steps.
    Sum,
    /// Of the one parameter that holds what is decided over all blocks: see [`Declaration::deciding`].
    Decide(Decisions),
}

impl Rule {
    /// Adam with the constants of its paper.
    pub const ADAM: Rule = Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };

    /// Names of the state slots beside the parameter, in the order in which they are kept and hashed.
    pub fn slots(&self) -> &'static [&'static str] {
        match self {
            Rule::Sgd | Rule::Sum | Rule::Decide(_) => &[],
            Rule::Momentum { .. } => &["velocity"],
            Rule::Adam { .. } => &["first_moment", "second_moment"],
        }
    }
    /// Whether a training step reads the parameter.
    pub fn is_read_by_steps(&self) -> bool {
        !matches!(self, Rule::Sum)
    }

    /// Whether trainers push gradients to the parameter.
    pub fn is_pushed(&self) -> bool {
        !matches!(self, Rule::Decide(_))
    }
    /// Whether its gradients belong to the global norm, and are scaled as is decided.
    pub fn is_trained(&self) -> bool {
        !matches!(self, Rule::Sum | Rule::Decide(_))
    }

    fn fault(&self) -> Option<&'static str> {
        let is_decay = |x: f32| (0.0..1.0).contains(&x);
        match *self {
            Rule::Momentum { momentum } if !is_decay(momentum) => {
                Some("momentum must be at least 0 and below 1")
            }
            Rule::Adam { beta1, beta2, .. } if !is_decay(beta1) || !is_decay(beta2) => {
                Some("beta1 and beta2 must be at least 0 and below 1")
            }
            Rule::Adam { epsilon, .. } if !(epsilon > 0.0 && epsilon.is_finite()) => {
                Some("epsilon must be positive")
            }
            Rule::Decide(decisions) => decisions.fault(),
            _ => None,
        }
    }
}

/// A named dense tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Unique in the job.
    pub name: String,
    /// Dimensions; empty for a scalar. Values are in row-major order.
    pub shape: Vec<u64>,
    /// How it is updated.
    pub rule: Rule,
    /// Its learning rate as a function of the step.
    pub learning_rate: Schedule,
    /// Its values before the first step.
    pub initial: Initial,
}

impl Parameter {
    /// A parameter trained by `rule` at a constant learning rate, starting from `initial`.
    pub fn new(
        name: &str,
        shape: &[u64],
        rule: Rule,
        learning_rate: Schedule,
        initial: Initial,
    ) -> Parameter {
        Parameter { name: name.to_owned(), shape: shape.to_vec(), rule, learning_rate, initial }
    }
    /// A counter or metric that starts at zero and adds up what steps give it.
    pub fn sum(name: &str, shape: &[u64]) -> Parameter {
        Parameter::new(name, shape, Rule::Sum, Schedule::constant(0.0), Initial::Zeros)
    }
    /// Number of elements; saturates (a declaration that large is refused).
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product, dimension| product.saturating_mul(*dimension))
    }
}

/// All that a training program declares when it joins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Declaration {
    /// In declaration order, which is block order.
    pub parameters: Vec<Parameter>,
    /// Elements of one block; 0 lets the layout choose.
    pub block_elements: u64,
}

/// The most parameters one job may declare.
pub const PARAMETERS_MAX: usize = 100_000;
/// The most elements one parameter may have: 2^40, or 4 TiB.
pub const ELEMENTS_MAX: u64 = 1 << 40;

/// Why a declaration is refused: the parameter and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parameter {parameter:?}: {what}")]
pub struct DeclarationFault {
    /// The parameter's name; empty when no single one is at fault.
    pub parameter: String,
    /// What is wrong and the way out.
    pub what: String,
}

/// The name of the parameter that [`Declaration::deciding`] adds.
pub const DECISIONS: &str = "decisions";

impl Declaration {
    /// The same with decisions over all blocks. What was decided last is a parameter of its own, `decisions`: kept,
    /// copied, moved and restored like any other. Synchronous jobs only.
    pub fn deciding(mut self, decisions: Decisions) -> Declaration {
        let (shape, rule) = ([DECISION_ELEMENTS as u64], Rule::Decide(decisions));
        let parameter = Parameter::new(DECISIONS, &shape, rule, Schedule::constant(0.0), Initial::Zeros);
        self.parameters.push(parameter);
        self
    }

    /// What is decided over all blocks, if anything is.
    pub fn decisions(&self) -> Option<Decisions> {
        self.parameters.iter().find_map(|parameter| match parameter.rule {
            Rule::Decide(decisions) => Some(decisions),
            _ => None,
        })
    }

    /// Checks names, shapes, rules and schedules. Returns the first fault.
    pub fn check(&self) -> Result<(), DeclarationFault> {
        let fault = |parameter: &str, what: &str| {
            Err(DeclarationFault { parameter: parameter.to_owned(), what: what.to_owned() })
        };
        if self.parameters.is_empty() || self.parameters.len() > PARAMETERS_MAX {
            return fault("", "declare at least one parameter and at most 100,000");
        }
        let mut names = BTreeSet::new();
        for parameter in &self.parameters {
            let name = parameter.name.as_str();
            if name.is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
                return fault(name, "a name has 1 to 256 bytes and no control characters");
            }
            if !names.insert(name) {
                return fault(name, "declared twice: give each parameter its own name");
            }
            if parameter.elements() == 0 || parameter.elements() > ELEMENTS_MAX {
                return fault(name, "the shape must have at least one element and at most 2^40");
            }
            if !parameter.rule.is_pushed() && parameter.shape != [DECISION_ELEMENTS as u64] {
                return fault(name, "the rule is of the parameter that `Declaration::deciding` adds");
            }
            if let Some(what) =
                parameter.rule.fault().or(parameter.learning_rate.fault()).or(parameter.initial.fault())
            {
                return fault(name, what);
            }
        }
        if self.parameters.iter().filter(|parameter| !parameter.rule.is_pushed()).count() > 1 {
            return fault(DECISIONS, "declared twice: say once what is decided over all blocks");
        }
        Ok(())
    }

    /// The first difference between this declaration and `other`, if any: what a mismatch names.
    pub fn difference(&self, other: &Declaration) -> Option<DeclarationFault> {
        let fault =
            |parameter: &str, what: String| Some(DeclarationFault { parameter: parameter.to_owned(), what });
        for (ours, theirs) in self.parameters.iter().zip(&other.parameters) {
            if ours != theirs {
                return fault(&ours.name, format!("the job has {ours:?}, declared was {theirs:?}"));
            }
        }
        let (ours, theirs) = (self.parameters.len(), other.parameters.len());
        if ours != theirs {
            let longer = if ours > theirs { &self.parameters } else { &other.parameters };
            return fault(
                &longer[ours.min(theirs)].name,
                format!("the job has {ours} parameters, declared were {theirs}"),
            );
        }
        if self.block_elements != other.block_elements {
            let what = format!(
                "the job has block_elements {}, declared was {}",
                self.block_elements, other.block_elements
            );
            return fault("", what);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration(shape: &[u64], rule: Rule) -> Declaration {
        let parameter = Parameter::new("w", shape, rule, Schedule::constant(0.1), Initial::Zeros);
        Declaration { parameters: vec![parameter], block_elements: 0 }
    }

    #[test]
    fn a_declaration_is_refused_by_parameter_and_reason() {
        assert!(declaration(&[2, 3], Rule::ADAM).check().is_ok());
        assert!(declaration(&[2, 0], Rule::Sgd).check().unwrap_err().what.contains("shape"));
        assert!(declaration(&[1 << 40, 1 << 40], Rule::Sgd).check().unwrap_err().what.contains("shape"));
        assert!(
            declaration(&[2], Rule::Momentum { momentum: 1.0 })
                .check()
                .unwrap_err()
                .what
                .contains("momentum")
        );
        let mut twice = declaration(&[2], Rule::Sgd);
        twice.parameters.push(twice.parameters[0].clone());
        assert!(twice.check().unwrap_err().what.contains("twice"));
    }

    #[test]
    fn a_mismatch_names_the_parameter() {
        let fault = declaration(&[2, 3], Rule::Sgd).difference(&declaration(&[3, 2], Rule::Sgd)).unwrap();
        assert_eq!(fault.parameter, "w");
        assert_eq!(declaration(&[2], Rule::Sgd).difference(&declaration(&[2], Rule::Sgd)), None);
    }
}
