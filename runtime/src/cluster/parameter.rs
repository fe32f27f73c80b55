//! What a training program declares: its parameters, each with shape, update rule, schedule and initial values.

use super::decisions::{DECISION_ELEMENTS, Decisions};
use super::group::Group;
use super::initial::Initial;
use super::layout::{BLOCKS_MAX, blocks_at_most};
use super::rule::Rule;
use super::schedule::Schedule;
use super::table::{DIMENSION_MAX, Table};
use super::tensor_names;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A named tensor: dense, or an embedding table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Unique in the job.
    pub name: String,
    /// Dimensions; empty for a scalar, which has one element. Values are in row-major order, as many as the product of these says (at
    /// most 2^40). Of a table, of one row (at most 4096).
    pub shape: Vec<u64>,
    /// How it is updated.
    pub rule: Rule,
    /// Its learning rate as a function of the step: what the rule's change is multiplied with, of **mean** gradients (the step's sum
    /// divided by its weight), so that it need not follow the number of records. Rules without a rate (`Ema`, `Sum`,
    /// metrics) do not look at it.
    pub learning_rate: Schedule,
    /// Its values before the first step.
    pub initial: Initial,
    /// What it has in common with other parameters.
    #[serde(default)]
    pub group: Group,
    /// What makes it an embedding table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
}

impl Parameter {
    /// A dense parameter trained by `rule` at the rate that `learning_rate` gives each step, starting from `initial`.
    pub fn new(
        name: &str,
        shape: &[u64],
        rule: Rule,
        learning_rate: Schedule,
        initial: Initial,
    ) -> Parameter {
        let group = Group::default();
        let (name, shape) = (name.to_owned(), shape.to_vec());
        Parameter { name, shape, rule, learning_rate, initial, group, table: None }
    }
    /// An embedding table whose rows are as this parameter is: one for every key that occurs.
    pub fn as_table(self, table: Table) -> Parameter {
        Parameter { table: Some(table), ..self }
    }
    /// The same parameter, treated as `group` says.
    pub fn in_group(self, group: Group) -> Parameter {
        Parameter { group, ..self }
    }
    /// A counter: it starts at zero and adds up what steps give it, undivided. No step reads it: it reads as 0.
    ///
    /// An element is an f32, as all values are; what rounding leaves out of it is kept beside it, in the slot `remainder`. So whole
    /// numbers are counted exactly up to 2^48, as long as one step (one microbatch, in asynchronous jobs) adds no more than 2^24,
    /// and the value is that count, rounded to the nearest f32.
    pub fn sum(name: &str, shape: &[u64]) -> Parameter {
        Parameter::new(name, shape, Rule::Sum, Schedule::constant(0.0), Initial::Zeros)
    }
    /// Whether its gradients belong to the global norm, and are scaled as is decided over all blocks.
    pub fn is_trained(&self) -> bool {
        self.rule.has_rate() && !self.group.is_frozen
    }
    /// Number of elements, of a table those of one row; saturates (a declaration that large is refused).
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product, dimension| product.saturating_mul(*dimension))
    }

    /// Names of the state slots that are kept beside it: its rule's, or none while it is frozen.
    pub fn slots(&self) -> &'static [&'static str] {
        if self.group.is_frozen { &[] } else { self.rule.slots() }
    }

    fn fault(&self) -> Option<&'static str> {
        let is_ftrl = matches!(self.rule, Rule::Ftrl { .. });
        if is_ftrl && !(self.learning_rate.is_constant() && self.learning_rate.base > 0.0) {
            return Some("FTRL lowers its rate by itself: give it a constant, positive learning rate");
        }
        if self.table.is_none() && !self.rule.is_of_dense() {
            return Some("the rule is of embedding tables: say `as_table`, or take Adagrad or Adam");
        }
        if self.table.is_some() && !self.rule.is_of_tables() {
            return Some(
                "not a rule of tables: SGD, momentum, Adagrad, Adam (both also for rows), FTRL and Sum are",
            );
        }
        if self.table.is_some() && self.elements() > DIMENSION_MAX {
            return Some("a row of a table has at most 4096 elements");
        }
        let table = self.table.and_then(|table| table.fault());
        let faults = [self.rule.fault(), self.learning_rate.fault(), self.initial.fault(), table];
        faults.into_iter().flatten().next().or_else(|| self.group.fault(&self.rule))
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
            if matches!(parameter.rule, Rule::Metric { metric, .. } if parameter.shape != [metric.elements()])
            {
                return fault(name, "the rule is of parameters that `Parameter::metric` makes");
            }
            if !parameter.rule.is_pushed() && parameter.shape != [DECISION_ELEMENTS as u64] {
                return fault(name, "the rule is of the parameter that `Declaration::deciding` adds");
            }
            if let Some(what) = parameter.fault() {
                return fault(name, what);
            }
        }
        if let Some(fault) = tensor_names::fault(&self.parameters) {
            return Err(fault);
        }
        if blocks_at_most(self) > BLOCKS_MAX {
            return fault(
                "",
                "the model has more than 2^20 blocks: declare fewer elements, or larger blocks",
            );
        }
        if self.parameters.iter().filter(|parameter| !parameter.rule.is_pushed()).count() > 1 {
            return fault(DECISIONS, "declared twice: say once what is decided over all blocks");
        }
        let mut aiming = self.metrics().filter_map(|metric| Some((metric.name, metric.target?)));
        if let (Some((_, target)), second) = (aiming.next(), aiming.next()) {
            if let Some((name, _)) = second {
                return fault(name, "a job aims at one metric: give one of them a target");
            }
            let is_ftrl = |parameter: &&Parameter| matches!(parameter.rule, Rule::Ftrl { .. });
            if let Some(ftrl) = self.parameters.iter().find(is_ftrl).filter(|_| target.plateau.is_some()) {
                return fault(&ftrl.name, "FTRL lowers its rate by itself: have no plateau beside it");
            }
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
        assert!(declaration(&[1 << 38], Rule::Sgd).check().is_ok());
        assert!(declaration(&[1 << 39], Rule::Sgd).check().unwrap_err().what.contains("2^20 blocks"));
        let tiny = Declaration { block_elements: 1, ..declaration(&[(1 << 20) + 1], Rule::Sgd) };
        assert!(tiny.check().unwrap_err().what.contains("larger blocks"));
        assert!(
            declaration(&[2], Rule::Momentum { momentum: 1.0 })
                .check()
                .unwrap_err()
                .what
                .contains("momentum")
        );
        let ftrl = declaration(&[2], Rule::Ftrl { l1: 0.1, l2: 0.0, beta: 1.0 });
        assert!(ftrl.check().is_ok());
        for rate in [Schedule::constant(0.0), Schedule { warmup_steps: 1, ..Schedule::constant(0.1) }] {
            let mut falling = ftrl.clone();
            falling.parameters[0].learning_rate = rate;
            assert!(falling.check().unwrap_err().what.contains("constant"));
        }
        let mut decaying_sum = declaration(&[2], Rule::Sum);
        decaying_sum.parameters[0].group.weight_decay = 0.1;
        assert!(decaying_sum.check().unwrap_err().what.contains("weight_decay"));
        let mut twice = declaration(&[2], Rule::Sgd);
        twice.parameters.push(twice.parameters[0].clone());
        assert!(twice.check().unwrap_err().what.contains("twice"));
    }

    #[test]
    fn a_table_is_refused_by_what_it_cannot_be() {
        let table = |shape: &[u64], rule: Rule, table: Table| {
            let mut declaration = declaration(shape, rule);
            let row = declaration.parameters.remove(0);
            declaration.parameters.push(row.as_table(table));
            declaration.check()
        };
        let fault = |shape: &[u64], rule, of| table(shape, rule, of).unwrap_err().what;
        let usual = Table::default();
        assert_eq!(table(&[16], Rule::RowwiseAdagrad { epsilon: 1e-8 }, usual), Ok(()));
        assert_eq!(table(&[2, 3], Rule::Sum, usual), Ok(()));
        assert!(fault(&[4097], Rule::Sgd, usual).contains("4096"));
        assert!(fault(&[4], Rule::AMSGRAD, usual).contains("not a rule of tables"));
        assert!(fault(&[4], Rule::Sgd, Table { admission: 0, ..usual }).contains("admission"));
        assert!(fault(&[4], Rule::Sgd, Table { buckets: 1 << 21, ..usual }).contains("2^20 blocks"));
        assert!(declaration(&[4], Rule::LAZY_ADAM).check().unwrap_err().what.contains("as_table"));
    }

    #[test]
    fn a_frozen_parameter_keeps_no_slots() {
        let parameter = declaration(&[2], Rule::ADAM).parameters.remove(0);
        assert_eq!(parameter.slots(), ["first_moment", "second_moment"]);
        assert!(parameter.in_group(Group::FROZEN).slots().is_empty());
    }

    #[test]
    fn a_mismatch_names_the_parameter() {
        let frozen = declaration(&[2], Rule::Sgd).parameters.remove(0).in_group(Group::FROZEN);
        let frozen = Declaration { parameters: vec![frozen], block_elements: 0 };
        assert_eq!(frozen.difference(&declaration(&[2], Rule::Sgd)).unwrap().parameter, "w");
        let fault = declaration(&[2, 3], Rule::Sgd).difference(&declaration(&[3, 2], Rule::Sgd)).unwrap();
        assert_eq!(fault.parameter, "w");
        assert_eq!(declaration(&[2], Rule::Sgd).difference(&declaration(&[2], Rule::Sgd)), None);
    }
}
