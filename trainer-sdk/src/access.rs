//! Why a program is not given what it asked for by name: what to match, and what to change in the program.

/// Why values, gradient sums, rows or a metric cannot be had or changed. Each is a mistake of the program; a step function passes
/// it on with `?`.
///
/// ```
/// # use shoal_trainer_sdk::{Batch, Gradient, Parameters};
/// use shoal_trainer_sdk::AccessError;
///
/// /// The bias, of models that have one.
/// fn bias(parameters: &Parameters) -> anyhow::Result<f32> {
///     match parameters.slice("bias") {
///         Ok(bias) => Ok(bias[0]),
///         Err(AccessError::NoSuchParameter { .. }) => Ok(0.0),
///         Err(other) => Err(other.into()),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Nothing of that name was declared.
    #[error("no parameter {name:?} was declared")]
    NoSuchParameter {
        /// The name that was asked for.
        name: String,
    },
    /// No embedding table of that name was declared; a dense parameter may have been.
    #[error("no embedding table {name:?} was declared")]
    NoSuchTable {
        /// The name that was asked for.
        name: String,
    },
    /// An embedding table, where a dense parameter was asked for.
    #[error(
        "{name:?} is an embedding table: its rows are had by their keys, from `embeddings` or `embeddings_mut`"
    )]
    Table {
        /// The table's name.
        name: String,
    },
    /// The batch's keys had it not.
    #[error("key {key} of table {table:?} was not named: add it in `Model::keys`")]
    NoSuchKey {
        /// The table's name.
        table: String,
        /// The key.
        key: u64,
    },
    /// [`Model::on_device`](crate::Model::on_device) has named the parameter, and it was asked for in host memory.
    #[error("{name:?} is on the device: take `on_device`, of a gradient `on_device_mut`")]
    OnDevice {
        /// The parameter's name.
        name: String,
    },
    /// [`Model::on_device`](crate::Model::on_device) has not named the parameter, and it was asked for in device memory.
    #[error("{name:?} is on no device: `Model::on_device` names those")]
    NotOnDevice {
        /// The parameter's name.
        name: String,
    },
    /// Another number of values than the parameter has elements.
    #[error("parameter {name:?} has {elements} elements, {given} were given")]
    WrongLength {
        /// The parameter's name.
        name: String,
        /// How many elements it has.
        elements: usize,
        /// How many values were given.
        given: usize,
    },
    /// Values of another shape than the parameter was declared with.
    #[error("parameter {name:?} has shape {shape:?}, {given:?} was given")]
    WrongShape {
        /// The parameter's name.
        name: String,
        /// Its declared shape.
        shape: Vec<usize>,
        /// The shape that was given.
        given: Vec<usize>,
    },
    /// A metric, where a step's gradient was asked for.
    #[error("metric {name:?}: evaluations add to it, steps have `Parameter::sum`")]
    Metric {
        /// The metric's name.
        name: String,
    },
    /// A parameter, where a metric was asked for.
    #[error("parameter {name:?} is no metric: declare it by `Parameter::metric`")]
    NotMetric {
        /// The parameter's name.
        name: String,
    },
    /// A metric of another kind.
    #[error("metric {name:?} is made {of}: call `{call}`")]
    OtherMetric {
        /// The metric's name.
        name: String,
        /// What it is made of.
        of: &'static str,
        /// The function of [`Metrics`](crate::Metrics) that adds to it.
        call: &'static str,
    },
    /// A score that is no number from 0 to 1.
    #[error("metric {name:?}: score {score} is not from 0 to 1")]
    Score {
        /// The metric's name.
        name: String,
        /// The score.
        score: f32,
    },
    /// All sums were [taken](crate::Gradient::take).
    #[error("the gradient sums were taken, {name:?} among them: give them back")]
    Taken {
        /// The parameter's name.
        name: String,
    },
    /// What pservers decide by themselves: no gradient is pushed to it.
    #[error("{name:?} is what pservers decide: steps add nothing to it")]
    Decided {
        /// The parameter's name.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::OnDevice;
    use crate::device::tests::fake::Fake as Driver;
    use crate::gradient::Gradient;
    use crate::names::Names;
    use crate::parameters::Parameters;
    use crate::tables::Keys;
    use crate::{Decisions, Declaration, Initial, Metric, Metrics, Parameter, Rule, Schedule, Table, Trial};
    use ndarray::{Ix2, arr2};
    use shoal_runtime::cluster::Precision;
    use std::sync::Arc;

    /// A matrix, a scalar, a vector that may be on a device, a table, a counter, two metrics, decisions.
    fn declaration() -> Declaration {
        let start = Initial::Constant { value: 2.0 };
        let new = |name: &str, shape: &[u64]| {
            Parameter::new(name, shape, Rule::Sgd, Schedule::constant(0.1), start)
        };
        let parameters = vec![
            new("matrix", &[2, 3]),
            new("scalar", &[]),
            new("there", &[4]),
            new("table", &[2]).as_table(Table { buckets: 1, ..Table::default() }),
            Parameter::sum("loss", &[1]),
            Parameter::metric("right", Metric::Accuracy),
            Parameter::metric("auc", Metric::Auc { bins: 4 }),
        ];
        Declaration { parameters, block_elements: 0 }.deciding(Decisions::default())
    }

    struct Declaring;

    impl crate::Model for Declaring {
        fn declare(&mut self, _: &crate::Job) -> anyhow::Result<Declaration> {
            Ok(declaration())
        }
        fn step(&mut self, _: &crate::Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> {
            Ok(())
        }
    }

    fn names() -> Arc<Names> {
        Arc::new(Names::new(declaration(), 1, Precision::F32))
    }

    fn gradient(names: &Arc<Names>) -> Gradient {
        let mut keys = Keys::new(names);
        keys.add("table", 7).unwrap();
        Gradient::zeros(names, keys, 1).unwrap()
    }

    fn named(name: &str) -> String {
        name.to_owned()
    }

    #[test]
    fn what_was_not_declared_or_is_of_another_kind_is_told_apart() {
        let parameters = Trial::new(&mut Declaring, 1).unwrap().parameters();
        let mut gradient = gradient(&names());
        let absent = AccessError::NoSuchParameter { name: named("nobody") };
        assert_eq!(parameters.slice("nobody"), Err(absent.clone()));
        assert_eq!(parameters.array("nobody"), Err(absent.clone()));
        assert_eq!(parameters.on_device("nobody").unwrap_err(), absent);
        assert_eq!(gradient.slice("nobody"), Err(absent.clone()));
        assert_eq!(gradient.slice_mut("nobody"), Err(absent.clone()));
        assert_eq!(gradient.array_mut("nobody"), Err(absent.clone()));
        assert_eq!(gradient.on_device_mut("nobody").unwrap_err(), absent);
        assert_eq!(gradient.add("nobody", &[]), Err(absent));
        let table = AccessError::Table { name: named("table") };
        assert_eq!(parameters.slice("table"), Err(table.clone()), "not an empty slice");
        assert_eq!(gradient.slice_mut("table"), Err(table.clone()));
        assert_eq!(parameters.on_device("table").unwrap_err(), table);
        assert_eq!(Trial::new(&mut Declaring, 1).unwrap().slice_mut("table"), Err(table));
        for name in ["matrix", "nobody"] {
            let no_table = AccessError::NoSuchTable { name: named(name) };
            assert_eq!(parameters.embeddings(name).unwrap_err(), no_table);
            assert_eq!(gradient.embeddings_mut(name).unwrap_err(), no_table);
            assert_eq!(Keys::new(&names()).add(name, 1), Err(no_table));
        }
    }

    #[test]
    fn what_steps_add_nothing_to_has_no_gradient() {
        let mut gradient = gradient(&names());
        let metric = AccessError::Metric { name: named("right") };
        assert_eq!(gradient.slice("right"), Err(metric.clone()));
        assert_eq!(gradient.array_mut("right"), Err(metric.clone()));
        assert_eq!(gradient.add("right", &[1.0, 1.0]), Err(metric));
        assert_eq!(gradient.slice_mut("decisions"), Err(AccessError::Decided { name: named("decisions") }));
        assert_eq!(gradient.slice_mut("loss"), Ok(&mut [0.0][..]));
    }

    #[test]
    fn lengths_keys_and_scores_are_held_against_what_was_declared() {
        let mut gradient = gradient(&names());
        let short = AccessError::WrongLength { name: named("matrix"), elements: 6, given: 5 };
        assert_eq!(gradient.add("matrix", &[1.0; 5]), Err(short.clone()));
        assert_eq!(short.to_string(), "parameter \"matrix\" has 6 elements, 5 were given");
        let unnamed = AccessError::NoSuchKey { table: named("table"), key: 8 };
        assert_eq!(gradient.embeddings_mut("table").unwrap().row_mut(8), Err(unnamed));
        assert_eq!(gradient.embeddings_mut("table").unwrap().row_mut(7), Ok(&mut [0.0; 2][..]));
        let mut metrics = Metrics::zeros(&names());
        let other = |name, of, call| Err(AccessError::OtherMetric { name: named(name), of, call });
        assert_eq!(metrics.add("auc", 1.0, 1.0), other("auc", "of scores", "score"));
        assert_eq!(metrics.score("right", 1.0, true), other("right", "a mean", "add"));
        assert_eq!(
            metrics.score("auc", 2.0, true),
            Err(AccessError::Score { name: named("auc"), score: 2.0 })
        );
        assert_eq!(metrics.add("loss", 1.0, 1.0), Err(AccessError::NotMetric { name: named("loss") }));
    }

    #[test]
    fn values_in_one_memory_are_not_had_in_the_other() {
        let _driver = Driver::driver();
        let wanted = OnDevice { ordinal: 0, parameters: vec![named("there")] };
        let device = crate::device::Device::open(&wanted, &declaration()).unwrap();
        let names = Names::new(declaration(), 1, Precision::F32).with_device(Some(device));
        let mut gradient = gradient(&Arc::new(names));
        let there = AccessError::OnDevice { name: named("there") };
        assert_eq!(gradient.slice_mut("there"), Err(there.clone()));
        assert_eq!(gradient.array("there"), Err(there));
        assert_eq!(gradient.on_device_mut("there").unwrap().elements(), 4);
        let here = AccessError::NotOnDevice { name: named("matrix") };
        assert_eq!(gradient.on_device_mut("matrix").unwrap_err(), here);
    }

    #[test]
    fn arrays_have_the_declared_shape_and_are_the_slices_memory() {
        let mut trial = Trial::new(&mut Declaring, 1).unwrap();
        trial.slice_mut("matrix").unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let parameters = trial.parameters();
        let matrix = parameters.array("matrix").unwrap().into_dimensionality::<Ix2>().unwrap();
        assert_eq!(matrix, arr2(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), "row after row");
        let scalar = parameters.array("scalar").unwrap();
        assert_eq!((scalar.shape(), scalar.first()), (&[][..], Some(&2.0)));
        let mut gradient = gradient(&names());
        gradient.array_mut("matrix").unwrap()[[1, 0]] += 4.0;
        gradient.array_mut("scalar").unwrap().fill(9.0);
        assert_eq!(gradient.slice("matrix").unwrap(), [0.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
        assert_eq!(gradient.slice("scalar").unwrap(), [9.0]);
        assert_eq!(gradient.array("matrix").unwrap().shape(), [2, 3]);
    }

    #[test]
    fn an_error_that_a_step_function_passes_on_can_still_be_matched() {
        let parameters = Trial::new(&mut Declaring, 1).unwrap().parameters();
        let step = || -> anyhow::Result<f32> { Ok(parameters.slice("wieght")?[0]) };
        let error = step().unwrap_err();
        let matched = error.downcast_ref::<AccessError>();
        assert_eq!(matched, Some(&AccessError::NoSuchParameter { name: named("wieght") }));
    }

    #[test]
    fn all_parameters_are_in_one_stretch_each_at_an_aligned_address() {
        let mut trial = Trial::new(&mut Declaring, 1).unwrap();
        trial.slice_mut("matrix").unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let parameters = trial.parameters();
        for name in ["matrix", "scalar", "there"] {
            let (slice, place) = (parameters.slice(name).unwrap(), parameters.place(name).unwrap());
            assert_eq!((slice.as_ptr(), slice.len()), (parameters.all()[place].as_ptr(), slice.len()));
            assert_eq!(slice.as_ptr().align_offset(64), 0, "{name}");
        }
        assert_eq!(parameters.place("table"), Err(AccessError::Table { name: named("table") }));
        let later = trial.parameters();
        assert_eq!(parameters.clone().version(), parameters.version());
        assert_ne!(later.version(), parameters.version());
    }

    #[test]
    fn sums_that_were_taken_are_had_again_once_they_are_given_back() {
        let names = names();
        let mut gradient = gradient(&names);
        gradient.add("matrix", &[1.0; 6]).unwrap();
        let mut sums = gradient.take();
        let taken = AccessError::Taken { name: named("matrix") };
        assert_eq!(gradient.slice_mut("matrix"), Err(taken.clone()));
        assert_eq!(gradient.slice("matrix"), Err(taken));
        assert!(gradient.is_taken());
        let place = sums.place("matrix").unwrap();
        assert_eq!(sums.place("right"), Err(AccessError::Metric { name: named("right") }));
        sums.all_mut()[place.clone()][5] += 2.0;
        let mut copy = sums.copy();
        copy.all_mut()[place][0] = 9.0;
        gradient.give(sums);
        assert_eq!(gradient.slice("matrix").unwrap(), [1.0, 1.0, 1.0, 1.0, 1.0, 3.0]);
        gradient.give(copy);
        assert_eq!(gradient.slice("matrix").unwrap(), [9.0, 1.0, 1.0, 1.0, 1.0, 3.0]);
    }
}
