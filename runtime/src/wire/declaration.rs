//! Declarations on the wire.

use super::{malformed, proto, required};
use crate::cluster::initial::Initial;
use crate::cluster::schedule::{Decay, Schedule, Stage};
use crate::cluster::table::{Ceiling, Full, Table};
use crate::cluster::{Better, Declaration, Group, Metric, Parameter, Plateau, Refusal, Rule, Target};

impl From<&Declaration> for proto::Declaration {
    fn from(declaration: &Declaration) -> Self {
        proto::Declaration {
            parameters: declaration.parameters.iter().map(Into::into).collect(),
            block_elements: declaration.block_elements,
        }
    }
}

impl TryFrom<proto::Declaration> for Declaration {
    type Error = Refusal;

    /// The declaration, checked ([`Declaration::check`]).
    fn try_from(wire: proto::Declaration) -> Result<Self, Refusal> {
        let parameters = wire.parameters.into_iter().map(Parameter::try_from).collect::<Result<_, _>>()?;
        let declaration = Declaration { parameters, block_elements: wire.block_elements };
        declaration.check().map_err(|fault| malformed(&fault.parameter, fault.what))?;
        Ok(declaration)
    }
}

impl From<&Parameter> for proto::Parameter {
    fn from(parameter: &Parameter) -> Self {
        proto::Parameter {
            name: parameter.name.clone(),
            shape: parameter.shape.clone(),
            rule: Some(parameter.rule.into()),
            learning_rate: Some((&parameter.learning_rate).into()),
            initial: Some(parameter.initial.into()),
            group: Some(parameter.group.into()),
            table: parameter.table.map(Into::into),
        }
    }
}

impl TryFrom<proto::Parameter> for Parameter {
    type Error = Refusal;

    fn try_from(wire: proto::Parameter) -> Result<Self, Refusal> {
        Ok(Parameter {
            rule: required(wire.rule, "parameter.rule")?.try_into()?,
            learning_rate: required(wire.learning_rate, "parameter.learning_rate")?.try_into()?,
            initial: required(wire.initial, "parameter.initial")?.try_into()?,
            group: wire.group.map_or_else(Group::default, Into::into),
            table: wire.table.map(TryInto::try_into).transpose()?,
            name: wire.name,
            shape: wire.shape,
        })
    }
}

impl From<Table> for proto::Table {
    fn from(table: Table) -> Self {
        let Table { buckets, admission, age_max, ceiling } = table;
        let half_life = match ceiling {
            Some(Ceiling { full: Full::Evict { half_life }, .. }) => half_life,
            _ => 0,
        };
        let rows_max = ceiling.map_or(0, |ceiling| ceiling.rows);
        proto::Table { buckets, admission: admission.into(), age_max, rows_max, half_life }
    }
}

impl TryFrom<proto::Table> for Table {
    type Error = Refusal;

    fn try_from(wire: proto::Table) -> Result<Self, Refusal> {
        let proto::Table { buckets, admission, age_max, rows_max, half_life } = wire;
        let admission = u8::try_from(admission)
            .map_err(|_| malformed("table.admission", format!("{admission} occurrences, at most 255")))?;
        let full = if half_life == 0 { Full::Refuse } else { Full::Evict { half_life } };
        let ceiling = (rows_max > 0).then_some(Ceiling { rows: rows_max, full });
        Ok(Table { buckets, admission, age_max, ceiling })
    }
}

impl From<Group> for proto::Group {
    fn from(group: Group) -> Self {
        let Group { rate_multiplier, weight_decay, is_frozen } = group;
        proto::Group { rate_multiplier, weight_decay, is_frozen }
    }
}

impl From<proto::Group> for Group {
    fn from(wire: proto::Group) -> Self {
        let proto::Group { rate_multiplier, weight_decay, is_frozen } = wire;
        Group { rate_multiplier, weight_decay, is_frozen }
    }
}

impl From<Rule> for proto::Rule {
    fn from(rule: Rule) -> Self {
        use proto::RuleKind as Kind;
        let of = |kind: Kind| proto::Rule { kind: kind.into(), ..Default::default() };
        match rule {
            Rule::Decide(decisions) => proto::Rule { decisions: Some(decisions.into()), ..of(Kind::Decide) },
            Rule::Sgd => of(Kind::Sgd),
            Rule::Momentum { momentum } => proto::Rule { momentum, ..of(Kind::Momentum) },
            Rule::Nesterov { momentum } => proto::Rule { momentum, ..of(Kind::Nesterov) },
            Rule::Adagrad { epsilon } => proto::Rule { epsilon, ..of(Kind::Adagrad) },
            Rule::RowwiseAdagrad { epsilon } => proto::Rule { epsilon, ..of(Kind::RowwiseAdagrad) },
            Rule::Adam { beta1, beta2, epsilon } => proto::Rule { beta1, beta2, epsilon, ..of(Kind::Adam) },
            Rule::LazyAdam { beta1, beta2, epsilon } => {
                proto::Rule { beta1, beta2, epsilon, ..of(Kind::LazyAdam) }
            }
            Rule::AdamW { beta1, beta2, epsilon } => proto::Rule { beta1, beta2, epsilon, ..of(Kind::Adamw) },
            Rule::AmsGrad { beta1, beta2, epsilon } => {
                proto::Rule { beta1, beta2, epsilon, ..of(Kind::Amsgrad) }
            }
            Rule::Ftrl { l1, l2, beta } => proto::Rule { l1, l2, beta, ..of(Kind::Ftrl) },
            Rule::Ema { decay } => proto::Rule { decay, ..of(Kind::Ema) },
            Rule::Sum => of(Kind::Sum),
            Rule::Metric { metric, target } => {
                let (metric, target) = (Some(metric.into()), target.map(Into::into));
                proto::Rule { metric, target, ..of(Kind::Metric) }
            }
        }
    }
}

impl TryFrom<proto::Rule> for Rule {
    type Error = Refusal;

    fn try_from(wire: proto::Rule) -> Result<Self, Refusal> {
        use proto::RuleKind as Kind;
        let proto::Rule { momentum, beta1, beta2, epsilon, l1, l2, beta, decay, .. } = wire;
        Ok(match wire.kind() {
            Kind::Sgd => Rule::Sgd,
            Kind::Momentum => Rule::Momentum { momentum },
            Kind::Nesterov => Rule::Nesterov { momentum },
            Kind::Adagrad => Rule::Adagrad { epsilon },
            Kind::RowwiseAdagrad => Rule::RowwiseAdagrad { epsilon },
            Kind::Adam => Rule::Adam { beta1, beta2, epsilon },
            Kind::LazyAdam => Rule::LazyAdam { beta1, beta2, epsilon },
            Kind::Adamw => Rule::AdamW { beta1, beta2, epsilon },
            Kind::Amsgrad => Rule::AmsGrad { beta1, beta2, epsilon },
            Kind::Ftrl => Rule::Ftrl { l1, l2, beta },
            Kind::Ema => Rule::Ema { decay },
            Kind::Sum => Rule::Sum,
            Kind::Metric => Rule::Metric {
                metric: required(wire.metric, "rule.metric")?.try_into()?,
                target: wire.target.map(Into::into),
            },
            Kind::Decide => Rule::Decide(required(wire.decisions, "rule.decisions")?.into()),
            Kind::Unspecified => return Err(malformed("rule.kind", format!("no such rule: {}", wire.kind))),
        })
    }
}

impl From<Metric> for proto::Metric {
    fn from(metric: Metric) -> Self {
        use proto::MetricKind as Kind;
        let of = |kind: Kind| proto::Metric { kind: kind.into(), ..Default::default() };
        match metric {
            Metric::Accuracy => of(Kind::Accuracy),
            Metric::LogLoss => of(Kind::LogLoss),
            Metric::Mean { better } => {
                proto::Metric { is_smaller_better: better == Better::Smaller, ..of(Kind::Mean) }
            }
            Metric::Auc { bins } => proto::Metric { bins, ..of(Kind::Auc) },
        }
    }
}

impl TryFrom<proto::Metric> for Metric {
    type Error = Refusal;

    fn try_from(wire: proto::Metric) -> Result<Self, Refusal> {
        use proto::MetricKind as Kind;
        let better = if wire.is_smaller_better { Better::Smaller } else { Better::Larger };
        Ok(match wire.kind() {
            Kind::Accuracy => Metric::Accuracy,
            Kind::LogLoss => Metric::LogLoss,
            Kind::Mean => Metric::Mean { better },
            Kind::Auc => Metric::Auc { bins: wire.bins },
            Kind::Unspecified => {
                return Err(malformed("metric.kind", format!("no such metric: {}", wire.kind)));
            }
        })
    }
}

impl From<Target> for proto::Target {
    fn from(target: Target) -> Self {
        let (plateau_after, plateau_factor) =
            target.plateau.map_or((0, 0.0), |plateau| (plateau.after, plateau.factor));
        proto::Target {
            least_change: target.least_change,
            keep_best: target.keep_best,
            stop_after: target.stop_after.unwrap_or(0),
            plateau_after,
            plateau_factor,
        }
    }
}

impl From<proto::Target> for Target {
    fn from(wire: proto::Target) -> Self {
        let plateau = Plateau { after: wire.plateau_after, factor: wire.plateau_factor };
        Target {
            least_change: wire.least_change,
            keep_best: wire.keep_best,
            stop_after: Some(wire.stop_after).filter(|after| *after > 0),
            plateau: Some(plateau).filter(|plateau| plateau.after > 0),
        }
    }
}

impl From<&Schedule> for proto::Schedule {
    fn from(schedule: &Schedule) -> Self {
        use proto::ScheduleKind as Kind;
        let Schedule { base, warmup_steps, decay } = schedule;
        let of = |kind: Kind| proto::Schedule {
            kind: kind.into(),
            base: *base,
            warmup_steps: *warmup_steps,
            ..Default::default()
        };
        match decay {
            Decay::Constant => of(Kind::Constant),
            Decay::Step { factor, every } => {
                proto::Schedule { factor: *factor, steps: *every, ..of(Kind::StepDecay) }
            }
            Decay::Exponential { factor, every } => {
                proto::Schedule { factor: *factor, steps: *every, ..of(Kind::Exponential) }
            }
            Decay::Cosine { floor, over } => {
                proto::Schedule { floor: *floor, steps: *over, ..of(Kind::Cosine) }
            }
            Decay::Polynomial { floor, power, over } => {
                proto::Schedule { floor: *floor, factor: *power, steps: *over, ..of(Kind::Polynomial) }
            }
            Decay::InverseRoot { over } => proto::Schedule { steps: *over, ..of(Kind::InverseRoot) },
            Decay::Piecewise { stages } => {
                let stage = |stage: &Stage| proto::Stage { first_step: stage.first_step, rate: stage.rate };
                proto::Schedule { stages: stages.iter().map(stage).collect(), ..of(Kind::Piecewise) }
            }
        }
    }
}

impl TryFrom<proto::Schedule> for Schedule {
    type Error = Refusal;

    fn try_from(wire: proto::Schedule) -> Result<Self, Refusal> {
        use proto::ScheduleKind as Kind;
        let kind = wire.kind();
        let proto::Schedule { base, warmup_steps, factor, floor, steps, stages, .. } = wire;
        let stage = |stage: proto::Stage| Stage { first_step: stage.first_step, rate: stage.rate };
        let decay = match kind {
            Kind::Constant => Decay::Constant,
            Kind::StepDecay => Decay::Step { factor, every: steps },
            Kind::Exponential => Decay::Exponential { factor, every: steps },
            Kind::Cosine => Decay::Cosine { floor, over: steps },
            Kind::Polynomial => Decay::Polynomial { floor, power: factor, over: steps },
            Kind::InverseRoot => Decay::InverseRoot { over: steps },
            Kind::Piecewise => Decay::Piecewise { stages: stages.into_iter().map(stage).collect() },
            Kind::Unspecified => {
                return Err(malformed("learning_rate.kind", format!("no such schedule: {}", wire.kind)));
            }
        };
        Ok(Schedule { base, warmup_steps, decay })
    }
}

impl From<Initial> for proto::Initial {
    fn from(initial: Initial) -> Self {
        let (kind, scale) = match initial {
            Initial::Zeros => (proto::InitialKind::Zeros, 0.0),
            Initial::Constant { value } => (proto::InitialKind::Constant, value),
            Initial::Uniform { limit } => (proto::InitialKind::Uniform, limit),
            Initial::Normal { deviation } => (proto::InitialKind::Normal, deviation),
            Initial::TruncatedNormal { deviation } => (proto::InitialKind::TruncatedNormal, deviation),
        };
        proto::Initial { kind: kind.into(), scale }
    }
}

impl TryFrom<proto::Initial> for Initial {
    type Error = Refusal;

    fn try_from(wire: proto::Initial) -> Result<Self, Refusal> {
        match wire.kind() {
            proto::InitialKind::Zeros => Ok(Initial::Zeros),
            proto::InitialKind::Constant => Ok(Initial::Constant { value: wire.scale }),
            proto::InitialKind::Uniform => Ok(Initial::Uniform { limit: wire.scale }),
            proto::InitialKind::Normal => Ok(Initial::Normal { deviation: wire.scale }),
            proto::InitialKind::TruncatedNormal => Ok(Initial::TruncatedNormal { deviation: wire.scale }),
            proto::InitialKind::Unspecified => {
                Err(malformed("initial.kind", format!("no such initial values: {}", wire.kind)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_schedule_and_initial_value_survives_the_wire() {
        let (beta1, beta2, epsilon) = (0.8, 0.9, 1e-7);
        let rules = [
            Rule::Sgd,
            Rule::Momentum { momentum: 0.9 },
            Rule::Nesterov { momentum: 0.8 },
            Rule::Adagrad { epsilon: 1e-9 },
            Rule::Adam { beta1, beta2, epsilon },
            Rule::AdamW { beta1, beta2, epsilon },
            Rule::AmsGrad { beta1, beta2, epsilon },
            Rule::Ema { decay: 0.7 },
            Rule::Sum,
        ];
        let schedules = [
            Schedule::constant(0.1),
            Schedule::step(0.1, 0.5, 7),
            Schedule::exponential(0.1, 0.6, 8),
            Schedule::cosine(0.1, 0.01, 9).after_warmup(3),
            Schedule::polynomial(0.1, 0.01, 2.0, 70),
            Schedule::inverse_root(0.1, 30).after_warmup(30),
            Schedule::piecewise(0.1, [(3, 0.2), (5, 0.05)]).after_warmup(4),
        ];
        let initials = [
            Initial::Zeros,
            Initial::Constant { value: -0.7 },
            Initial::Uniform { limit: 0.3 },
            Initial::Normal { deviation: 0.2 },
            Initial::TruncatedNormal { deviation: 0.4 },
        ];
        let mut parameters = Vec::new();
        for rule in rules {
            for schedule in &schedules {
                for initial in initials {
                    let name = format!("p{}", parameters.len());
                    parameters.push(Parameter::new(&name, &[2, 3], rule, schedule.clone(), initial));
                }
            }
        }
        let (ftrl, rate) = (Rule::Ftrl { l1: 0.1, l2: 0.2, beta: 1.5 }, Schedule::constant(0.1));
        let group = Group { rate_multiplier: 0.5, weight_decay: 0.25, is_frozen: true };
        parameters.push(Parameter::new("sparse", &[4], ftrl, rate, Initial::Zeros).in_group(group));
        let ceilings = [
            None,
            Some(Ceiling { rows: 9, full: Full::Refuse }),
            Some(Ceiling { rows: 8, full: Full::Evict { half_life: 7 } }),
        ];
        for (rule, ceiling) in
            [Rule::Sgd, Rule::RowwiseAdagrad { epsilon }, Rule::LazyAdam { beta1, beta2, epsilon }]
                .into_iter()
                .zip(ceilings)
        {
            let name = format!("t{}", parameters.len());
            let table = Table { buckets: 5, admission: 255, age_max: ceiling.map(|_| 6), ceiling };
            let row = Parameter::new(&name, &[4], rule, Schedule::constant(0.1), Initial::Zeros);
            parameters.push(row.as_table(table));
        }
        let declaration = Declaration { parameters, block_elements: 17 };
        assert_eq!(Declaration::try_from(proto::Declaration::from(&declaration)).unwrap(), declaration);
    }

    #[test]
    fn a_declaration_without_a_rule_names_the_field() {
        let wire = proto::Declaration { parameters: vec![proto::Parameter::default()], block_elements: 0 };
        assert_eq!(Declaration::try_from(wire).unwrap_err().subject, "parameter.rule");
    }
}
