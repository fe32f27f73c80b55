//! A model on trial: its declaration and its step function without a job, for the tests of training programs. It must
//! never reach the network, and leaves updating to pservers.

use crate::access::AccessError;
use crate::flat::Flat;
use crate::gradient::Gradient;
use crate::model::{Batch, Job, Model, Record};
use crate::names::Names;
use crate::parameters::Parameters;
use crate::reduce::{NonFinite, first_non_finite, first_non_finite_row};
use crate::tables::{Keys, TableRows};
use shoal_runtime::cluster::{Mode, Precision, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The job's seed, and the batch's.
const SEED: u64 = 1;

/// The parameters that a model has declared, at values that a test may change.
///
/// ```
/// # use shoal_trainer_sdk::{Batch, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule};
/// # struct Mean;
/// # impl Model for Mean {
/// #     fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
/// #         let mean = Parameter::new("mean", &[1], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
/// #         Ok(Declaration { parameters: vec![mean], block_elements: 0 })
/// #     }
/// #     fn step(&mut self, batch: &Batch<'_>, parameters: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
/// #         let mean = parameters.slice("mean")?[0];
/// #         for record in batch.records {
/// #             gradient.slice_mut("mean")?[0] += mean - f32::from(record.bytes[0]);
/// #         }
/// #         Ok(())
/// #     }
/// # }
/// use shoal_trainer_sdk::Trial;
///
/// let mut trial = Trial::new(&mut Mean, 2)?;
/// trial.slice_mut("mean")?[0] = 4.0;
/// let gradient = trial.step(&mut Mean, &[&[1], &[3]])?;
/// assert_eq!(gradient.slice("mean")?, [4.0]); // (4 - 1) + (4 - 3)
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trial {
    names: Arc<Names>,
    values: Flat,
    /// Rows that a test has changed, by table as declared and by key.
    rows: BTreeMap<(usize, u64), Vec<f32>>,
}

impl Trial {
    /// Asks `model` for its declaration, in a job of one epoch, one step and `records` records. The parameters stand at
    /// their initial values.
    ///
    /// # Errors
    /// A declaration that pservers would refuse, by the parameter's name.
    pub fn new(model: &mut impl Model, records: u64) -> anyhow::Result<Trial> {
        let job = Job {
            name: "trial".to_owned(),
            seed: SEED,
            records,
            epochs: 1,
            evaluations: 0,
            steps_per_epoch: 1,
            global_batch: records,
            microbatch_records: records,
            microbatches_per_step: 1,
            mode: Mode::SYNC,
            gradients: Precision::F32,
            is_warm_started: false,
            trains: true,
        };
        let declaration = model.declare(&job)?;
        declaration.check()?;
        let names = Names::new(declaration, SEED, Precision::F32);
        let mut values = names.zeros();
        for (parameter, values) in names.declaration.parameters.iter().zip(values.iter_mut()) {
            match parameter.rule {
                _ if parameter.table.is_some() => {}
                Rule::Decide(decisions) => values.copy_from_slice(&decisions.initial().to_values()),
                _ => parameter.initial.fill(SEED, &parameter.name, 0, values),
            }
        }
        Ok(Trial { names: Arc::new(names), values, rows: BTreeMap::new() })
    }

    /// The names of the parameters that gradients train: neither metrics nor running statistics, nor frozen.
    pub fn trained(&self) -> impl Iterator<Item = &str> {
        let parameters = self.names.declaration.parameters.iter();
        parameters.filter(|parameter| parameter.is_trained()).map(|parameter| parameter.name.as_str())
    }

    /// A dense parameter's values in row-major order, as many as it has elements.
    ///
    /// # Errors
    /// No such parameter, or a table.
    pub fn slice_mut(&mut self, name: &str) -> Result<&mut [f32], AccessError> {
        let at = self.names.dense(name)?;
        Ok(&mut self.values[at])
    }

    /// The row of a key of an embedding table, as many values as the table's shape has elements, in row-major order; at first its
    /// initial values.
    ///
    /// # Errors
    /// No such table.
    pub fn row_mut(&mut self, table: &str, key: u64) -> Result<&mut [f32], AccessError> {
        let at = self.names.table(table)?;
        let initial = self.initial_row(at, key);
        Ok(self.rows.entry((at, key)).or_insert(initial))
    }

    fn initial_row(&self, table: usize, key: u64) -> Vec<f32> {
        let mut row = vec![0.0; self.names.declaration.parameters[table].elements() as usize];
        self.names.unborn(table, key, &mut row);
        row
    }

    /// The parameters as a step function is given them, of tables no rows.
    pub fn parameters(&self) -> Parameters {
        self.parameters_of(Keys::new(&self.names))
    }

    /// The parameters as a step function is given them, of tables the rows of these keys.
    fn parameters_of(&self, keys: Keys) -> Parameters {
        let rows = keys.rows().into_iter().enumerate().map(|(table, rows)| {
            let changed = |key: &u64| self.rows.get(&(table, *key)).cloned();
            let row = |key: &u64| changed(key).unwrap_or_else(|| self.initial_row(table, *key));
            TableRows {
                keys: rows.keys().to_vec().into(),
                values: rows.keys().iter().flat_map(row).collect(),
            }
        });
        let rows = Arc::new(rows.collect());
        let (names, version) = (self.names.clone(), self.names.next_version());
        Parameters { names, values: Arc::new(self.values.clone()), rows, there: None, version }
    }

    /// One microbatch of these records through the step function: the sums that a trainer would push.
    ///
    /// # Errors
    /// The step function's own, and a gradient that is not finite.
    pub fn step(&self, model: &mut impl Model, records: &[&[u8]]) -> anyhow::Result<Gradient> {
        let records: Vec<Record<'_>> =
            (0..).zip(records).map(|(index, bytes)| Record::new(index, bytes)).collect();
        let batch = Batch { epoch: 0, step: 0, microbatch: 0, seed: SEED, records: &records };
        let mut keys = Keys::new(&self.names);
        model.keys(&batch, &mut keys)?;
        let parameters = self.parameters_of(keys.clone());
        let mut gradient = Gradient::zeros(&self.names, keys, records.len() as u64)?;
        model.step(&batch, &parameters, &mut gradient)?;
        anyhow::ensure!(!gradient.is_taken(), "the gradient sums were taken and not given back");
        if let Some((parameter, key)) = first_non_finite_row(&gradient.rows) {
            let name = &self.names.declaration.parameters[parameter].name;
            anyhow::bail!("the gradient of key {key} of {name:?} is not finite");
        }
        match first_non_finite(&gradient.values, &self.names.rounded) {
            None => Ok(gradient),
            Some(NonFinite(parameter, element)) => {
                let name = &self.names.declaration.parameters[parameter].name;
                anyhow::bail!("the gradient of {name:?} is not finite at element {element}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decisions, Declaration, Group, Initial, LossScale, NonFinite, Parameter, Schedule};

    /// Whatever it declares, its step adds `value` times the loss scale to the first parameter, once a record.
    struct Adding {
        declaration: Declaration,
        value: f32,
    }

    impl Model for Adding {
        fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
            Ok(self.declaration.clone())
        }
        fn step(
            &mut self,
            batch: &Batch<'_>,
            parameters: &Parameters,
            gradient: &mut Gradient,
        ) -> anyhow::Result<()> {
            for record in batch.records {
                gradient.slice_mut("w")?[record.index as usize] += self.value * parameters.loss_scale();
            }
            Ok(())
        }
    }

    fn adding(value: f32) -> Adding {
        let normal = Initial::Normal { deviation: 0.5 };
        let constant = Schedule::constant(0.1);
        let frozen = Parameter::new("frozen", &[1], Rule::Sgd, constant.clone(), Initial::Zeros)
            .in_group(Group::FROZEN);
        let parameters = vec![
            Parameter::new("w", &[3], Rule::Sgd, constant.clone(), normal),
            frozen,
            Parameter::new(
                "running",
                &[1],
                Rule::Ema { decay: 0.9 },
                Schedule::constant(0.0),
                Initial::Zeros,
            ),
            Parameter::sum("loss", &[1]),
        ];
        let declaration = Declaration { parameters, block_elements: 0 };
        let decisions = Decisions {
            non_finite: NonFinite::Skip { in_a_row_max: 3 },
            loss_scale: Some(LossScale { initial: 1024.0, growth_interval: 10 }),
            ..Decisions::default()
        };
        Adding { declaration: declaration.deciding(decisions), value }
    }

    #[test]
    fn a_trial_begins_where_pservers_do_and_steps_as_trainers_do() {
        let mut model = adding(2.0);
        let mut trial = Trial::new(&mut model, 3).unwrap();
        let mut initial = [0.0; 3];
        Initial::Normal { deviation: 0.5 }.fill(SEED, "w", 0, &mut initial);
        assert_eq!(*trial.slice_mut("w").unwrap(), initial);
        let gradient = trial.step(&mut model, &[b"a", b"b"]).unwrap();
        assert_eq!(gradient.slice("w").unwrap(), [2048.0, 2048.0, 0.0]);
        assert_eq!(gradient.weight, 2);
    }

    #[test]
    fn only_what_gradients_train_is_listed() {
        let trial = Trial::new(&mut adding(0.0), 3).unwrap();
        assert_eq!(trial.trained().collect::<Vec<_>>(), ["w"]);
    }

    #[test]
    fn what_a_job_would_refuse_is_refused() {
        let mut model = adding(f32::INFINITY);
        let trial = Trial::new(&mut model, 3).unwrap();
        let refused = trial.step(&mut model, &[b"a"]).unwrap_err().to_string();
        assert_eq!(refused, "the gradient of \"w\" is not finite at element 0");
        model.declaration.parameters[1].name = "w".to_owned();
        let refused = Trial::new(&mut model, 3).unwrap_err().to_string();
        assert!(refused.contains("\"w\": declared twice"), "{refused}");
    }
}
