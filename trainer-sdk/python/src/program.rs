//! A Python object as a training program: the functions of `shoal.Program` that begin with an underscore are called here, and their
//! exceptions told apart.

use crate::logs;
use crate::memory::LentSums;
use crate::views::{Batch, Job, Parameters};
use anyhow::{Context, anyhow};
use pyo3::exceptions::{PyBaseException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde::Deserialize;
use shoal_trainer_sdk::{
    self as sdk, Decisions, Declaration, Ended, Gradient, GradientSums, Leave, Metric, Metrics, Model,
    Parameter, Target, Unfit,
};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Trains an object of `shoal.Program` until its job is done (`"done"`) or it is asked to leave (`"left"`), with the settings of the
/// environment. All its functions are called on this thread. Raises `KeyboardInterrupt` and `SystemExit` where a function has, and
/// otherwise `RuntimeError` with the exit code as second argument.
///
/// `at` is the master's address and the trainer's name, if they are not the environment's.
#[pyfunction]
#[pyo3(signature = (program, at = None))]
pub(crate) fn train(
    py: Python<'_>,
    program: Py<PyAny>,
    at: Option<(String, String)>,
) -> PyResult<&'static str> {
    let process = std::process::id();
    let mut program = Program { object: program, process, raised: None, names: Vec::new(), places: None };
    let trains = |program: &mut Program| match &at {
        Some((master, name)) => sdk::train_at(program, master, name),
        None => sdk::train(program),
    };
    let trained = py.detach(|| catch_unwind(AssertUnwindSafe(|| trains(&mut program))));
    logs::hand_over(py)?;
    if let Some(raised) = program.raised {
        return Err(raised);
    }
    // A signal that came while no function was running.
    py.check_signals()?;
    match trained {
        Ok(Ok(Ended::JobDone)) => Ok("done"),
        Ok(Ok(Ended::Left)) => Ok("left"),
        Ok(Err(error)) => Err(PyRuntimeError::new_err((error.to_string(), error.exit_code()))),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
            Err(PyRuntimeError::new_err((format!("a fault in Shoal: {words}"), 1)))
        }
    }
}

/// Writes the trainer's log to standard error, as `SHOAL_LOG` and `RUST_LOG` say.
#[pyfunction]
pub(crate) fn log_to_stderr() -> PyResult<()> {
    sdk::log_to_stderr().map_err(|why| PyRuntimeError::new_err((why, 2)))
}

struct Program {
    object: Py<PyAny>,
    /// The process that trains. One that a function has forked off is none: what waits for its answer is not there.
    process: u32,
    /// The exception by which a function asked to stop.
    raised: Option<PyErr>,
    /// The names of what is declared.
    names: Vec<String>,
    /// Of each parameter that steps add to, where its sums lie: the same in every step.
    places: Option<Py<PyDict>>,
}

impl Program {
    /// Calls a function of the object.
    fn call<'py>(
        &mut self,
        py: Python<'py>,
        name: &str,
        arguments: impl pyo3::call::PyCallArgs<'py>,
    ) -> anyhow::Result<Bound<'py, PyAny>> {
        let logged = logs::hand_over(py);
        let called = logged.and_then(|()| self.object.bind(py).call_method1(name, arguments));
        if std::process::id() != self.process {
            end_child(py, called.err());
        }
        called.map_err(|raised| self.fault(py, raised))
    }

    /// Where each parameter's sums lie, in elements: first, and one past the last.
    fn places(&mut self, py: Python<'_>, sums: &GradientSums) -> PyResult<Py<PyDict>> {
        if let Some(places) = &self.places {
            return Ok(places.clone_ref(py));
        }
        let places = PyDict::new(py);
        for name in &self.names {
            if let Ok(place) = sums.place(name) {
                places.set_item(name, (place.start, place.end))?;
            }
        }
        Ok(self.places.insert(places.unbind()).clone_ref(py))
    }

    /// What an exception says: that the program is asked to stop, that this trainer cannot, or that the records are to blame.
    fn fault(&mut self, py: Python<'_>, raised: PyErr) -> anyhow::Error {
        let value = raised.clone_ref(py).into_value(py).into_bound(py);
        let told = told(py, &value);
        let (kind, words) = match told {
            Ok(told) => told,
            Err(error) => return anyhow!("{raised} (and of it could not be told more: {error})"),
        };
        match kind.as_str() {
            "leave" => {
                self.raised = Some(raised);
                Leave.into()
            }
            "unfit" => Unfit(words).into(),
            _ => anyhow!(words),
        }
    }
}

/// What `shoal._declare` writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    parameters: Vec<Parameter>,
    metrics: Vec<DeclaredMetric>,
    decisions: Option<Decisions>,
    block_elements: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredMetric {
    name: String,
    metric: Metric,
    target: Option<Target>,
}

impl From<Declared> for Declaration {
    fn from(Declared { mut parameters, metrics, decisions, block_elements }: Declared) -> Declaration {
        parameters.extend(metrics.into_iter().map(|DeclaredMetric { name, metric, target }| {
            let metric = Parameter::metric(&name, metric);
            target.into_iter().fold(metric, Parameter::aiming)
        }));
        let declaration = Declaration { parameters, block_elements };
        decisions.into_iter().fold(declaration, Declaration::deciding)
    }
}

impl Model for Program {
    fn declare(&mut self, job: &sdk::Job) -> anyhow::Result<Declaration> {
        Python::attach(|py| {
            let json: String = self.call(py, "_declare", (Job::from(job),))?.extract().map_err(said)?;
            let declared: Declared = serde_json::from_str(&json).context("what the program declares")?;
            let declaration = Declaration::from(declared);
            self.names = declaration.parameters.iter().map(|parameter| parameter.name.clone()).collect();
            Ok(declaration)
        })
    }

    fn environment(&mut self) -> anyhow::Result<BTreeMap<String, String>> {
        Python::attach(|py| self.call(py, "_environment", ())?.extract().map_err(said))
    }

    fn step(
        &mut self,
        batch: &sdk::Batch<'_>,
        parameters: &sdk::Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        Python::attach(|py| {
            let sums = gradient.take();
            let places = self.places(py, &sums).map_err(said)?;
            let (memory, lent) = LentSums::lend(sums);
            let arguments = (Batch::from(batch), Parameters(parameters.clone()), memory, places);
            let weight = self.call(py, "_step", arguments)?;
            gradient.give(lent.back());
            if let Some(weight) = weight.extract::<Option<u64>>().map_err(said)? {
                gradient.set_weight(weight);
            }
            Ok(())
        })
    }

    fn evaluate(
        &mut self,
        batch: &sdk::Batch<'_>,
        parameters: &sdk::Parameters,
        metrics: &mut Metrics,
    ) -> anyhow::Result<()> {
        Python::attach(|py| {
            let arguments = (Batch::from(batch), Parameters(parameters.clone()));
            let (means, scores) =
                self.call(py, "_evaluate", arguments)?.extract::<(Means, Scores)>().map_err(said)?;
            for (name, sum, weight) in means {
                metrics.add(&name, sum, weight)?;
            }
            for (name, scores) in scores {
                for (score, is_positive) in scores {
                    metrics.score(&name, score, is_positive)?;
                }
            }
            Ok(())
        })
    }

    fn predict(
        &mut self,
        batch: &sdk::Batch<'_>,
        parameters: &sdk::Parameters,
        outputs: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        Python::attach(|py| {
            let predicted =
                self.call(py, "_predict", (Batch::from(batch), Parameters(parameters.clone())))?;
            let predicted = predicted.cast::<PyList>().map_err(|error| anyhow!("{error}"))?;
            for output in predicted {
                outputs.push(output.extract().map_err(said)?);
            }
            Ok(())
        })
    }
}

/// Ends a process that a function of the program has forked off and that has come back from it, by what it has raised.
fn end_child(py: Python<'_>, raised: Option<PyErr>) -> ! {
    let raised = raised.map(|raised| raised.into_value(py));
    let ended = py.import("shoal._faults").and_then(|faults| faults.call_method1("end_child", (raised,)));
    // It does not return.
    std::process::exit(i32::from(ended.is_err()))
}

/// Of an exception whose it is, and in what words.
fn told(py: Python<'_>, raised: &Bound<'_, PyBaseException>) -> PyResult<(String, String)> {
    py.import("shoal._faults")?.call_method1("told", (raised,))?.extract()
}

/// Of each mean its name, what is added to it, and what that weighs.
type Means = Vec<(String, f32, f32)>;
/// Of each area under a curve its name, and of each record the score and whether it is positive.
type Scores = Vec<(String, Vec<(f32, bool)>)>;

/// An error of the conversion between the two languages.
fn said(error: impl Into<PyErr>) -> anyhow::Error {
    anyhow!("{}", error.into())
}
