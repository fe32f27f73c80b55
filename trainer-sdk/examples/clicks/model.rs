//! The clicks program: DeepFM, every parameter by AdaGrad. All fields share two tables; a value's key is that of its
//! field and its text, so that nobody has to number values beforehand.

use super::deepfm::{self, DIMENSION, Deep, DeepSums, Rows};
use super::records::{self, Click};
use shoal_trainer_sdk::{
    Batch, Declaration, Fans, Gradient, Initial, Job, Keys, Metric, Metrics, Model, Parameter, Parameters,
    Rule, Schedule, Table, feature_key,
};

const FIRST_ORDER: &str = "first_order";
const EMBEDDING: &str = "embedding";
/// The loss of every step, summed over its records: `shoal run` and `shoal report` show it.
const LOSS: &str = "loss";
const AUC: &str = "auc";
const LOG_LOSS: &str = "log_loss";
/// So many that what counts as a tie changes the area under the curve by about 0.00001 on either set (256: by 0.0005).
const BINS: u32 = 4096;
/// Small tables: a few for each pserver that there may ever be.
const BUCKETS: u32 = 16;

/// The model, with buffers that steps reuse.
#[derive(Debug)]
pub(crate) struct Clicks {
    fields: &'static [&'static str],
    rate: f32,
    /// Of the batch's values, record after record.
    keys: Vec<u64>,
    rows: Rows,
    sums: DeepSums,
}

impl Model for Clicks {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        let steps = job.epochs * job.steps_per_epoch;
        let trained = |name: &str, shape: &[u64], initial| {
            let rate = Schedule::cosine(self.rate, 0.0, steps);
            // Leaves a row as it is where its key does not occur, be the table sparse or dense.
            Parameter::new(name, shape, Rule::Adagrad { epsilon: 1e-8 }, rate, initial)
        };
        let table = Table { buckets: BUCKETS, ..Table::default() };
        let start = Initial::Normal { deviation: 0.01 };
        let mut parameters = vec![
            trained(FIRST_ORDER, &[1], Initial::Zeros).as_table(table),
            trained(EMBEDDING, &[DIMENSION as u64], start).as_table(table),
        ];
        for (name, shape) in deepfm::deep_parameters(self.fields.len()) {
            let initial = match shape.len() {
                1 => Initial::Zeros,
                _ => Initial::kaiming_uniform(Fans::outputs_first(&shape)),
            };
            parameters.push(trained(name, &shape, initial));
        }
        parameters.push(Parameter::sum(LOSS, &[steps]));
        parameters.push(Parameter::metric(AUC, Metric::Auc { bins: BINS }));
        parameters.push(Parameter::metric(LOG_LOSS, Metric::LogLoss));
        Ok(Declaration { parameters, block_elements: 0 })
    }

    fn keys(&mut self, batch: &Batch<'_>, keys: &mut Keys) -> anyhow::Result<()> {
        for record in batch.records {
            let click = records::decode(record.bytes, self.fields.len())?;
            for key in keys_of(self.fields, &click) {
                keys.add(FIRST_ORDER, key)?;
                keys.add(EMBEDDING, key)?;
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        self.read(batch, parameters)?;
        let deep = deep_of(parameters, self.fields.len())?;
        for (sum, weight) in self.sums.iter_mut().zip(deep) {
            sum.clear();
            sum.resize(weight.len(), 0.0);
        }
        let (loss, slopes) = deepfm::loss_and_slopes(&deep, &self.rows, &mut self.sums);
        for ((name, _), sums) in deepfm::deep_parameters(self.fields.len()).iter().zip(&self.sums) {
            gradient.slice_mut(name)?.copy_from_slice(sums);
        }
        gradient.slice_mut(LOSS)?[batch.step as usize] += loss as f32;
        let mut first_order = gradient.embeddings_mut(FIRST_ORDER)?;
        for (keys, slope) in self.keys.chunks(self.fields.len()).zip(&slopes.logits) {
            for key in keys {
                first_order.row_mut(*key)?[0] += slope;
            }
        }
        let mut embeddings = gradient.embeddings_mut(EMBEDDING)?;
        for (key, slopes) in self.keys.iter().zip(slopes.embeddings.chunks_exact(DIMENSION)) {
            embeddings.row_mut(*key)?.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope);
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        let logits = self.logits(batch, parameters)?;
        for (logit, is_positive) in logits.iter().zip(&self.rows.labels) {
            metrics.score(AUC, deepfm::probability(*logit), *is_positive)?;
        }
        metrics.add(LOG_LOSS, deepfm::loss(&logits, &self.rows.labels) as f32, logits.len() as f32)?;
        Ok(())
    }

    /// How probable a click is, from 0 to 1.
    fn predict(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let logits = self.logits(batch, parameters)?;
        outputs.extend(logits.into_iter().map(|logit| deepfm::probability(logit).to_string().into_bytes()));
        Ok(())
    }
}

impl Clicks {
    pub(crate) fn new(fields: &'static [&'static str], rate: f32) -> Clicks {
        Clicks { fields, rate, keys: Vec::new(), rows: Rows::default(), sums: DeepSums::default() }
    }

    fn logits(&mut self, batch: &Batch<'_>, parameters: &Parameters) -> anyhow::Result<Vec<f32>> {
        self.read(batch, parameters)?;
        Ok(deepfm::logits(&deep_of(parameters, self.fields.len())?, &self.rows))
    }

    /// Keys, labels, and what the tables have for them.
    fn read(&mut self, batch: &Batch<'_>, parameters: &Parameters) -> anyhow::Result<()> {
        let (first_order, embeddings) =
            (parameters.embeddings(FIRST_ORDER)?, parameters.embeddings(EMBEDDING)?);
        let rows = &mut self.rows;
        self.keys.clear();
        rows.labels.clear();
        rows.first_order.clear();
        rows.embeddings.clear();
        for record in batch.records {
            let click = records::decode(record.bytes, self.fields.len())?;
            rows.labels.push(click.is_positive);
            for key in keys_of(self.fields, &click) {
                self.keys.push(key);
                rows.first_order.extend_from_slice(first_order.row(key)?);
                rows.embeddings.extend_from_slice(embeddings.row(key)?);
            }
        }
        Ok(())
    }
}

fn keys_of(fields: &[&str], click: &Click<'_>) -> impl Iterator<Item = u64> {
    fields.iter().zip(&click.values).map(|(field, value)| feature_key(field, value))
}

fn deep_of(parameters: &Parameters, fields: usize) -> anyhow::Result<Deep<'_>> {
    let mut deep: Deep<'_> = [&[]; 6];
    for (slot, (name, _)) in deep.iter_mut().zip(deepfm::deep_parameters(fields)) {
        *slot = parameters.slice(name)?;
    }
    Ok(deep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_trainer_sdk::Trial;

    const RECORDS: [&[u8]; 4] = [b"1\ta\tx", b"0\tb\tx", b"1\ta\ty", b"1\tx\ta"];

    fn loss(trial: &Trial, model: &mut Clicks) -> f32 {
        trial.step(model, &RECORDS).unwrap().slice(LOSS).unwrap()[0]
    }

    #[test]
    fn rows_of_tables_get_the_gradients_of_all_records_that_have_their_value() {
        let mut model = Clicks::new(&["left", "right"], 0.02);
        let mut trial = Trial::new(&mut model, 4).unwrap();
        // The perceptron has kinks, at which differences say nothing: it is silent here, and told by its own tests.
        trial.slice_mut("deep.4.weight").unwrap().fill(0.0);
        // Embeddings large enough that the differences are more than what f32 rounds away.
        let keys: Vec<u64> =
            [("left", "a"), ("left", "b"), ("left", "x"), ("right", "x"), ("right", "y"), ("right", "a")]
                .map(|(field, value)| feature_key(field, value))
                .to_vec();
        for (number, key) in keys.iter().enumerate() {
            let row = trial.row_mut(EMBEDDING, *key).unwrap();
            row.iter_mut()
                .enumerate()
                .for_each(|(at, value)| *value = ((3 * number + at) % 7) as f32 / 7.0 - 0.4);
        }
        let mut gradient = trial.step(&mut model, &RECORDS).unwrap();
        for (table, width) in [(FIRST_ORDER, 1), (EMBEDDING, DIMENSION)] {
            for (key, at) in keys.iter().flat_map(|key| (0..width).map(move |at| (*key, at))) {
                let mut beside = |step: f32| {
                    trial.row_mut(table, key).unwrap()[at] += step;
                    let loss = loss(&trial, &mut model);
                    trial.row_mut(table, key).unwrap()[at] -= step;
                    loss
                };
                let slope = (beside(1e-2) - beside(-1e-2)) / 2e-2;
                let found = gradient.embeddings_mut(table).unwrap().row_mut(key).unwrap()[at];
                assert!((slope - found).abs() < 1e-3, "{table}, {key}, {at}: {slope} but {found}");
            }
        }
        assert!(trial.step(&mut model, &[b"1\ta"]).unwrap_err().to_string().contains("--set"));
    }

    #[test]
    fn a_few_steps_learn_what_two_values_mean_together() {
        let mut model = Clicks::new(&["left", "right"], 0.02);
        let mut trial = Trial::new(&mut model, 4).unwrap();
        // Alike or not: no value by itself says anything.
        let records: Vec<String> =
            (0..4).map(|row| format!("{}\t{}\t{}", u8::from(row / 2 == row % 2), row / 2, row % 2)).collect();
        let records: Vec<&[u8]> = records.iter().map(String::as_bytes).collect();
        let values = [("left", "0"), ("left", "1"), ("right", "0"), ("right", "1")];
        let (mut losses, names) = (Vec::new(), trial.trained().map(str::to_owned).collect::<Vec<_>>());
        for _ in 0..150 {
            let mut gradient = trial.step(&mut model, &records).unwrap();
            losses.push(gradient.slice(LOSS).unwrap()[0]);
            for name in names.iter().filter(|name| name.starts_with("deep")) {
                let slopes = gradient.slice(name).unwrap().to_vec();
                let values = trial.slice_mut(name).unwrap().iter_mut();
                values.zip(slopes).for_each(|(value, slope)| *value -= 0.1 * slope);
            }
            for (table, (field, value)) in
                [FIRST_ORDER, EMBEDDING].iter().flat_map(|table| values.map(|v| (*table, v)))
            {
                let key = feature_key(field, value);
                let slopes = gradient.embeddings_mut(table).unwrap().row_mut(key).unwrap().to_vec();
                let values = trial.row_mut(table, key).unwrap().iter_mut();
                values.zip(slopes).for_each(|(value, slope)| *value -= 0.1 * slope);
            }
        }
        assert!(losses[149] < losses[0] / 10.0, "{} to {}", losses[0], losses[149]);
    }
}
