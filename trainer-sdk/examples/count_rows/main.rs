//! The oracle's sparse twin as a training program: after E epochs every row of a table holds the number that its key's
//! occurrences give, or a record was skipped or doubled. Beside it a table is trained, and evicted from if that is asked.
//! `shoal run --data 'DIR/*.recordio' --epochs E -- target/release/examples/count_rows`

#[allow(dead_code)] // The dense oracle's digits are the same; its parameters are not declared here.
#[path = "../count/oracle.rs"]
mod oracle;
mod rows;

use clap::Parser;
use shoal_trainer_sdk::{
    Batch, Better, Ceiling, Declaration, Full, Gradient, Initial, Job, Keys, Metric, Metrics, Model,
    Parameter, Parameters, Rule, Schedule, Table,
};

/// Counts records by keys, and trains a table on them.
#[derive(Clone, Copy, Parser)]
struct CountRows {
    /// Buckets of each table
    #[arg(long, default_value_t = 16)]
    buckets: u32,
    /// Occurrences before a key of the trained table gets its row
    #[arg(long, default_value_t = 1)]
    admission: u8,
    /// Updates without its key after which a row of the trained table is evicted
    #[arg(long)]
    age_max: Option<u32>,
    /// The most rows of a bucket of the trained table: beyond it those with the lowest scores are evicted
    #[arg(long)]
    rows_max: Option<u32>,
}

/// The table that is trained.
const LEARNT: &str = "learnt";

impl Model for CountRows {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let CountRows { buckets, admission, age_max, rows_max } = *self;
        let full = Full::Evict { half_life: 8 };
        let ceiling = rows_max.map(|rows| Ceiling { rows, full });
        let (rule, initial) = (Rule::Adagrad { epsilon: 1e-8 }, Initial::Normal { deviation: 0.1 });
        let learnt = Parameter::new(LEARNT, &[4], rule, Schedule::constant(0.05), initial);
        let mut parameters =
            vec![rows::parameter(buckets), learnt.as_table(Table { buckets, admission, age_max, ceiling })];
        if job.evaluations > 0 {
            parameters.push(Parameter::metric("size", Metric::Mean { better: Better::Smaller }));
        }
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn keys(&mut self, batch: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
        rows::name(batch, keys)?;
        for record in batch.records {
            keys.extend(LEARNT, rows::ranked(record.index))?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        rows::add(batch, gradient)?;
        let learnt = parameters.embeddings(LEARNT)?;
        let mut slopes = gradient.embeddings_mut(LEARNT)?;
        for key in batch.records.iter().flat_map(|record| rows::ranked(record.index)) {
            let target = (key % 64) as f32 / 64.0;
            let row = learnt.row(key)?;
            slopes.row_mut(key)?.iter_mut().zip(row).for_each(|(slope, value)| *slope += value - target);
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let learnt = parameters.embeddings(LEARNT)?;
        for key in batch.records.iter().flat_map(|record| rows::ranked(record.index)) {
            metrics.add("size", learnt.row(key)?.iter().map(|value| value * value).sum(), 1.0)?;
        }
        Ok(())
    }
}

fn main() -> std::process::ExitCode {
    shoal_trainer_sdk::main(CountRows::parse())
}
