//! Step functions over candle's tensors: parameters go in by name and shape, gradients come out. It must never update a
//! parameter, nor draw at random: both would differ from trainer to trainer.
//!
//! Behind the feature `candle`. Declare as ever; a step is a closure that gives the loss, **summed** over the batch:
//!
//! ```
//! # use shoal_trainer_sdk::{Declaration, Initial, Job, Parameter, Rule, Schedule, Trial};
//! use shoal_trainer_sdk::candle::{self, candle_core::{Device, Tensor}};
//! use shoal_trainer_sdk::{Batch, Gradient, Model, Parameters};
//!
//! struct Line;
//!
//! impl Model for Line {
//! #   fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
//! #       let one = |name: &str, shape: &[u64]| Parameter::new(name, shape, Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
//! #       Ok(Declaration { parameters: vec![one("slope", &[1, 1]), one("offset", &[1])], block_elements: 0 })
//! #   }
//!     // fn declare: "slope" of shape [1, 1], "offset" of shape [1]
//!     fn step(&mut self, batch: &Batch<'_>, parameters: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
//!         let column = |at: usize| {
//!             let values: Vec<f32> = batch.records.iter().map(|record| record.bytes[at].into()).collect();
//!             Tensor::from_vec(values, (batch.records.len(), 1), &Device::Cpu)
//!         };
//!         let (x, y) = (column(0)?, column(1)?);
//!         candle::step(parameters, gradient, &Device::Cpu, |tensors| {
//!             let guess = x.matmul(tensors.find("slope")?)?.broadcast_add(tensors.find("offset")?)?;
//!             Ok((guess - &y)?.sqr()?.sum_all()?)
//!         })?;
//!         Ok(())
//!     }
//! }
//!
//! let trial = Trial::new(&mut Line, 2)?;
//! let gradient = trial.step(&mut Line, &[&[1, 3], &[2, 5]])?;
//! assert_eq!(gradient.slice("slope")?, [-26.0]); // at 0: -2 * (1 * 3 + 2 * 5)
//! assert_eq!(gradient.slice("offset")?, [-16.0]); // -2 * (3 + 5)
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! For the layers of `candle_nn`, collect the tensors into its `VarBuilder`:
//! `VarBuilder::from_tensors(tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect(), DType::F32, &device)`.
//!
//! For another device name [`candle_core`] with its feature (`cuda`, `metal`) in your own `Cargo.toml`, in the version that
//! is re-exported here, and give that [`Device`].
//!
//! Every step copies the parameters into tensors: give it microbatches that are worth it. On the CPU candle computes with
//! as many threads as there are cores; with several trainers on a machine set `RAYON_NUM_THREADS`, to the same number for
//! all trainers of a job, for the bits of a product may depend on it. Dropout and the like take their mask from
//! [`Batch::seed`](crate::Batch::seed), not from candle's generator.

pub use candle_core;

use crate::access::AccessError;
use crate::gradient::Gradient;
use crate::parameters::Parameters;
use candle_core::{DType, Device, Tensor, Var};
use shoal_runtime::cluster::{Parameter, Rule};
use std::collections::BTreeMap;

/// The parameters of one version as tensors of f32 in their declared shapes. Metrics are not among them: no step reads
/// them.
#[derive(Clone, Debug)]
pub struct Tensors(BTreeMap<String, Tensor>);

impl Tensors {
    /// Parameters that no gradient is asked of, to evaluate and predict with.
    ///
    /// # Errors
    /// A device without room for them.
    pub fn constants(parameters: &Parameters, device: &Device) -> anyhow::Result<Tensors> {
        Tensors::made(parameters, |_, tensor| Ok(tensor), device)
    }

    /// The same with what gradients train as candle's variables.
    fn variables(parameters: &Parameters, device: &Device) -> anyhow::Result<Tensors> {
        let variable = |parameter: &Parameter, tensor: Tensor| match parameter.is_trained() {
            true => Ok(Var::from_tensor(&tensor)?.into_inner()),
            false => Ok(tensor),
        };
        Tensors::made(parameters, variable, device)
    }

    fn made(
        parameters: &Parameters,
        of: impl Fn(&Parameter, Tensor) -> candle_core::Result<Tensor>,
        device: &Device,
    ) -> anyhow::Result<Tensors> {
        let mut tensors = BTreeMap::new();
        for parameter in &parameters.names.declaration.parameters {
            if parameter.table.is_some()
                || matches!(parameter.rule, Rule::Sum | Rule::Metric { .. } | Rule::Decide(_))
            {
                continue;
            }
            let values = parameters.slice(&parameter.name)?;
            let tensor = of(parameter, Tensor::from_slice(values, dimensions(parameter), device)?)?;
            tensors.insert(parameter.name.clone(), tensor);
        }
        Ok(Tensors(tensors))
    }

    /// A parameter.
    ///
    /// # Errors
    /// No such parameter, or a metric.
    pub fn find(&self, name: &str) -> anyhow::Result<&Tensor> {
        self.0.get(name).ok_or_else(|| anyhow::anyhow!("no parameter {name:?} was declared that steps read"))
    }

    /// All parameters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}

/// Takes the gradients of the loss that `loss` gives, a single number summed over the batch's records, and adds them to
/// `gradient`. A parameter that the loss does not depend on adds nothing. Where the job has a loss scale, gradients are
/// taken of the scaled loss, as pservers expect.
///
/// Returns the loss, unscaled, for a metric.
///
/// # Errors
/// What `loss` returns; a loss that is not a single number, or depends on no parameter at all.
pub fn step(
    parameters: &Parameters,
    gradient: &mut Gradient,
    device: &Device,
    loss: impl FnOnce(&Tensors) -> anyhow::Result<Tensor>,
) -> anyhow::Result<f32> {
    let tensors = Tensors::variables(parameters, device)?;
    let loss = loss(&tensors)?;
    let shape = loss.dims();
    anyhow::ensure!(
        loss.elem_count() == 1,
        "the loss has shape {shape:?}: add it up over the batch, with sum_all"
    );
    let scale = parameters.loss_scale();
    let scaled = if scale == 1.0 { loss.clone() } else { loss.affine(f64::from(scale), 0.0)? };
    let slopes = scaled.backward()?;
    let mut found = 0;
    for (name, tensor) in tensors.iter().filter(|(_, tensor)| tensor.is_variable()) {
        if let Some(slope) = slopes.get(tensor) {
            add(gradient, name, slope)?;
            found += 1;
        }
    }
    anyhow::ensure!(found > 0, "the loss depends on no trained parameter: is it detached?");
    Ok(values(&loss)?[0])
}

/// Adds a tensor to a parameter's gradient sums: running statistics (rule `Ema`), whose values no loss gives, and metrics.
///
/// # Errors
/// No such parameter, or one of another shape.
pub fn add(gradient: &mut Gradient, name: &str, sums: &Tensor) -> anyhow::Result<()> {
    let at = gradient.names.dense(name)?;
    let (shape, given) = (gradient.names.shape(at), sums.dims().to_vec());
    if shape != given {
        Err(AccessError::WrongShape { name: name.to_owned(), shape, given })?;
    }
    Ok(gradient.add(name, &values(sums)?)?)
}

fn dimensions(parameter: &Parameter) -> Vec<usize> {
    parameter.shape.iter().map(|dimension| *dimension as usize).collect()
}

fn values(tensor: &Tensor) -> anyhow::Result<Vec<f32>> {
    Ok(tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Keys;
    use crate::{
        Batch, Decisions, Declaration, Group, Initial, Job, LossScale, Model, NonFinite, Schedule, Trial,
    };

    type Loss = fn(&Tensors) -> anyhow::Result<Tensor>;

    /// Declares all kinds of parameters, and steps with the loss it is given; that goes to a metric.
    struct Given(Loss);

    impl Model for Given {
        fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
            let rate = Schedule::constant(0.1);
            let ones = |name: &str, rule: Rule| {
                Parameter::new(name, &[2, 1], rule, rate.clone(), Initial::Constant { value: 1.0 })
            };
            let ema = Rule::Ema { decay: 0.9 };
            let running = Parameter::new("running", &[2], ema, Schedule::constant(0.0), Initial::Zeros);
            let parameters = vec![
                ones("used", Rule::Sgd),
                ones("unused", Rule::Sgd),
                ones("frozen", Rule::Sgd).in_group(Group::FROZEN),
                running,
                Parameter::sum("loss", &[1]),
            ];
            let non_finite = NonFinite::Skip { in_a_row_max: 1 };
            let loss_scale = Some(LossScale { initial: 4.0, growth_interval: 10 });
            Ok(Declaration { parameters, block_elements: 0 }.deciding(Decisions {
                non_finite,
                loss_scale,
                ..Decisions::default()
            }))
        }
        fn step(
            &mut self,
            _: &Batch<'_>,
            parameters: &Parameters,
            gradient: &mut Gradient,
        ) -> anyhow::Result<()> {
            let loss = step(parameters, gradient, &Device::Cpu, self.0)?;
            add(gradient, "loss", &Tensor::new(&[loss], &Device::Cpu)?)?;
            add(gradient, "running", &Tensor::new(&[5_f32, 6.0], &Device::Cpu)?)
        }
    }

    fn stepped(loss: Loss) -> anyhow::Result<Gradient> {
        let mut model = Given(loss);
        Trial::new(&mut model, 1)?.step(&mut model, &[b"a"])
    }

    #[test]
    fn gradients_are_of_the_scaled_loss_and_what_it_does_not_depend_on_adds_nothing() {
        let gradient = stepped(|tensors| {
            let sum = (tensors.find("used")?.sqr()? * tensors.find("frozen")?)?.sum_all()?;
            Ok(sum.affine(3.0, 0.0)?)
        });
        let gradient = gradient.unwrap();
        let of = |name: &str| gradient.slice(name).unwrap().to_vec();
        assert_eq!(of("used"), [24.0; 2], "3 * 2w, times the scale of 4");
        assert_eq!((of("unused"), of("frozen")), (vec![0.0; 2], vec![0.0; 2]));
        assert_eq!((of("loss"), of("running")), (vec![6.0], vec![5.0, 6.0]), "not scaled");
    }

    #[test]
    fn a_narrow_loss_is_taken_and_its_gradients_come_in_full_width() {
        let narrow: Loss = |tensors| Ok(tensors.find("used")?.to_dtype(DType::BF16)?.sqr()?.sum_all()?);
        assert_eq!(stepped(narrow).unwrap().slice("used").unwrap(), [8.0; 2]);
    }

    #[test]
    fn a_loss_that_is_no_single_number_or_depends_on_nothing_is_refused() {
        let refused = |loss: Loss| stepped(loss).unwrap_err().to_string();
        let not_summed = refused(|tensors| Ok(tensors.find("used")?.sqr()?));
        assert!(not_summed.contains("shape [2, 1]") && not_summed.contains("sum_all"), "{not_summed}");
        let detached = refused(|tensors| Ok(tensors.find("used")?.detach().sum_all()?));
        assert!(detached.contains("no trained parameter"), "{detached}");
        let frozen = refused(|tensors| Ok(tensors.find("frozen")?.sum_all()?));
        assert!(frozen.contains("no trained parameter"), "{frozen}");
        for absent in ["loss", "decisions", "nobody"] {
            let parameters = Trial::new(&mut Given(|_| unreachable!()), 1).unwrap().parameters();
            let tensors = Tensors::constants(&parameters, &Device::Cpu).unwrap();
            assert!(tensors.find(absent).unwrap_err().to_string().contains(absent));
        }
    }

    #[test]
    fn a_tensor_of_another_shape_is_refused_by_name() {
        let mut model = Given(|_| unreachable!());
        let trial = Trial::new(&mut model, 1).unwrap();
        let names = trial.parameters().names;
        let mut gradient = Gradient::zeros(&names, Keys::new(&names), 1).unwrap();
        let turned = Tensor::new(&[[1_f32, 2.0]], &Device::Cpu).unwrap();
        let refused = add(&mut gradient, "used", &turned).unwrap_err().to_string();
        assert_eq!(refused, "parameter \"used\" has shape [2, 1], [1, 2] was given");
        assert!(add(&mut gradient, "nobody", &turned).is_err());
    }

    #[test]
    fn constants_have_no_gradient_and_keep_names_and_shapes() {
        let parameters = Trial::new(&mut Given(|_| unreachable!()), 1).unwrap().parameters();
        let constants = Tensors::constants(&parameters, &Device::Cpu).unwrap();
        let found: Vec<(&str, &[usize], bool)> =
            constants.iter().map(|(name, tensor)| (name, tensor.dims(), tensor.is_variable())).collect();
        let pair: &[usize] = &[2, 1];
        let expected = [
            ("frozen", pair, false),
            ("running", &[2][..], false),
            ("unused", pair, false),
            ("used", pair, false),
        ];
        assert_eq!(found, expected);
        let variables = Tensors::variables(&parameters, &Device::Cpu).unwrap();
        let trained: Vec<&str> =
            variables.iter().filter(|(_, tensor)| tensor.is_variable()).map(|(name, _)| name).collect();
        assert_eq!(trained, ["unused", "used"]);
    }
}
