//! A microbatch that is looked at: its gradient, and those of records alone. Pushes nothing.

use super::attempt::{Attempt, ProgramSums, StepError};
use crate::inspection::{Alone, Inspection, Seen, Sum};
use crate::model::{Model, Record};
use crate::parameters::Parameters;

impl Attempt {
    /// Tells what came of the microbatch, and of records alone as far as that is asked for.
    pub(super) fn inspect(
        &self,
        inspection: &Inspection,
        model: &mut dyn Model,
        parameters: &Parameters,
        records: &[Record<'_>],
        sums: &ProgramSums,
    ) {
        let step = self.place.step + 1;
        let Some(which) = inspection.alone(step) else { return };
        let Ok(sum) = self.seen(sums, records.len()) else { return };
        let mut one = |records: &[Record<'_>]| self.measure(model, parameters, records);
        let alone = match which {
            Alone::All => records
                .iter()
                .map(|record| self.by_index(record, one(std::slice::from_ref(record))))
                .collect(),
            Alone::Largest => self.largest(records, &mut one).into_iter().collect(),
        };
        inspection.see(
            &self.names,
            Seen {
                step,
                microbatch: self.ready.records[self.at].microbatch,
                of: self.microbatches,
                sum: &sum,
                decision: parameters
                    .decision()
                    .filter(|_| self.reads > 0)
                    .map(|decision| (self.reads, decision)),
                loss_scale: parameters.loss_scale(),
                alone,
            },
        );
    }

    /// The record with the largest gradient: halves are halved again where more of it comes from.
    fn largest(
        &self,
        records: &[Record<'_>],
        measure: &mut impl FnMut(&[Record<'_>]) -> Result<Sum, String>,
    ) -> Option<(u64, Result<Sum, String>)> {
        let mut rest = records;
        while rest.len() > 1 {
            let halves = rest.split_at(rest.len() / 2);
            let norm =
                |half: Result<Sum, String>| half.map_or(f64::INFINITY, |sum| sum.norm_of_sum(&self.names));
            let (left, right) = (norm(measure(halves.0)), norm(measure(halves.1)));
            rest = if left >= right { halves.0 } else { halves.1 };
        }
        rest.first().map(|record| self.by_index(record, measure(rest)))
    }

    fn by_index(&self, record: &Record<'_>, sum: Result<Sum, String>) -> (u64, Result<Sum, String>) {
        (record.index + self.first_record, sum)
    }

    fn measure(
        &self,
        model: &mut dyn Model,
        parameters: &Parameters,
        records: &[Record<'_>],
    ) -> Result<Sum, String> {
        let sums = self.call(model, parameters, records).map_err(StepError::words)?;
        self.seen(&sums, records.len()).map_err(|lost| lost.to_string())
    }

    fn seen(
        &self,
        sums: &ProgramSums,
        records: usize,
    ) -> Result<Sum, shoal_runtime::host::cuda::DeviceError> {
        let ProgramSums { values, rows, there, weight, .. } = sums;
        let dense = |parameter: usize| match there
            .as_ref()
            .and_then(|there| Some((there, there.slice(parameter)?)))
        {
            Some((there, slice)) => there.read(parameter, 0..slice.elements()),
            None => Ok(values[parameter].to_vec()),
        };
        let dense = (0..values.len()).map(dense).collect::<Result<_, _>>()?;
        Ok(Sum::of(dense, rows, *weight, records as u64))
    }
}
