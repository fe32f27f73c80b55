//! A program for tests of what is declared and what is no number: `odd WORD...`. Its records are numbers in text; a record that is none
//! cannot be used. `parameter=NAME`, `momentum=NAME`, `table=NAME`, `metric=NAME` (with `aims` after it, one that the job aims at)
//! declare; `nan=N`, `inf=N`, `none=N` say what evaluation N comes to.

#![allow(clippy::print_stderr, reason = "a test's program")]

use shoal_trainer_sdk::{
    Batch, Better, Declaration, Gradient, Initial, Job, Keys, Metric, Metrics, Model, Parameter, Parameters,
    Rule, Schedule, Table, Target,
};
use std::process::ExitCode;

#[derive(Default)]
struct Odd {
    parameters: Vec<Parameter>,
    /// Evaluations, by the epochs begun before them, and what each record adds there in place of its number, and weighs.
    odd: Vec<(u64, f32, f32)>,
}

impl Odd {
    fn of(words: impl Iterator<Item = String>) -> Option<Odd> {
        let mut odd = Odd::default();
        for word in words {
            let (kind, name) = word.split_once('=').unwrap_or((&word, ""));
            let trained = |rule| Parameter::new(name, &[2], rule, Schedule::constant(0.001), Initial::Zeros);
            let mean = Metric::Mean { better: Better::Smaller };
            match kind {
                "parameter" => odd.parameters.push(trained(Rule::Sgd)),
                "momentum" => odd.parameters.push(trained(Rule::Momentum { momentum: 0.5 })),
                "table" => odd.parameters.push(trained(Rule::Sgd).as_table(Table::default())),
                "metric" => odd.parameters.push(Parameter::metric(name, mean)),
                "aims" => {
                    let target = Target { keep_best: true, stop_after: Some(2), ..Target::default() };
                    let metric = odd.parameters.pop()?.aiming(target);
                    odd.parameters.push(metric);
                }
                "nan" => odd.odd.push((name.parse().ok()?, f32::NAN, 1.0)),
                "inf" => odd.odd.push((name.parse().ok()?, f32::INFINITY, 1.0)),
                "none" => odd.odd.push((name.parse().ok()?, 0.0, 0.0)),
                _ => return None,
            }
        }
        Some(odd)
    }

    fn names(&self, is_wanted: impl Fn(&Parameter) -> bool) -> impl Iterator<Item = &str> {
        let wanted = self.parameters.iter().filter(move |parameter| is_wanted(parameter));
        wanted.map(|parameter| parameter.name.as_str())
    }
}

fn number(bytes: &[u8]) -> anyhow::Result<f32> {
    let text = std::str::from_utf8(bytes)?;
    text.parse().map_err(|_| anyhow::anyhow!("{text:?} is no number"))
}

impl Model for Odd {
    fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
        Ok(Declaration { parameters: self.parameters.clone(), block_elements: 0 })
    }

    fn keys(&mut self, batch: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
        for name in self.names(|parameter| parameter.table.is_some()) {
            keys.extend(name, batch.records.iter().map(|record| record.index))?;
        }
        Ok(())
    }

    fn step(&mut self, batch: &Batch<'_>, _: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
        for record in batch.records {
            let number = number(record.bytes)?;
            for name in self.names(|parameter| parameter.table.is_none() && parameter.is_trained()) {
                gradient.add(name, &[number, 1.0])?;
            }
            for name in self.names(|parameter| parameter.table.is_some()) {
                gradient.embeddings_mut(name)?.row_mut(record.index)?[0] += number;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, batch: &Batch<'_>, _: &Parameters, metrics: &mut Metrics) -> anyhow::Result<()> {
        let odd = self.odd.iter().find(|(number, ..)| batch.epoch == number + 1);
        for record in batch.records {
            let usual = (number(record.bytes)? / batch.epoch.max(1) as f32, 1.0);
            let (value, weight) = odd.map_or(usual, |(_, value, weight)| (*value, *weight));
            for name in self.names(|parameter| parameter.rule.is_metric()) {
                metrics.add(name, value, weight)?;
            }
        }
        Ok(())
    }

    fn predict(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let name = self.parameters.first().map_or("", |parameter| parameter.name.as_str());
        let slope = parameters.slice(name)?[0];
        for record in batch.records {
            outputs.push(format!("{}", slope * number(record.bytes)?).into_bytes());
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    match Odd::of(std::env::args().skip(1)) {
        Some(odd) => shoal_trainer_sdk::main(odd),
        None => {
            eprintln!("usage: odd WORD...: see its source");
            ExitCode::from(2)
        }
    }
}
