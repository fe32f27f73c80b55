//! The trainer SDK: link it into a training program, and the program trains elastically.
//!
//! A whole program:
//!
//! ```no_run
//! use shoal_trainer_sdk::{Batch, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule};
//!
//! /// Fits the mean of the records' first bytes.
//! struct Mean;
//!
//! impl Model for Mean {
//!     fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
//!         let mean = Parameter::new("mean", &[1], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
//!         Ok(Declaration { parameters: vec![mean], block_elements: 0 })
//!     }
//!     fn step(&mut self, batch: &Batch<'_>, parameters: &Parameters, gradient: &mut Gradient) -> anyhow::Result<()> {
//!         let mean = parameters.slice("mean")?[0];
//!         for record in batch.records {
//!             gradient.slice_mut("mean")?[0] += mean - f32::from(record.bytes[0]);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     shoal_trainer_sdk::main(Mean)
//! }
//! ```
//!
//! Run it on this machine with `shoal run --data 'DIR/*.recordio' -- target/release/program`. The step function adds
//! up **sums** of gradients over the records it is given; Shoal divides once, at the root of the step's reduction
//! tree, so that the result does not depend on how many trainers there are.
//!
//! # Hyper-parameters
//!
//! What follows the program on `shoal run`'s command line reaches it untouched, in every trainer that is ever started.
//! Settings of Shoal come by `SHOAL_*` variables, so the arguments are all the program's own:
//!
//! ```no_run
//! # use shoal_trainer_sdk::{Batch, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule};
//! # struct Mean { learning_rate: f32 }
//! # impl Model for Mean {
//! #     fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
//! #         let schedule = Schedule::constant(self.learning_rate);
//! #         let mean = Parameter::new("mean", &[1], Rule::Sgd, schedule, Initial::Zeros);
//! #         Ok(Declaration { parameters: vec![mean], block_elements: 0 })
//! #     }
//! #     fn step(&mut self, _: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> { Ok(()) }
//! # }
//! #[derive(clap::Parser)]
//! struct Arguments {
//!     #[arg(long, default_value_t = 0.1)]
//!     learning_rate: f32,
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     let arguments: Arguments = clap::Parser::parse();
//!     shoal_trainer_sdk::main(Mean { learning_rate: arguments.learning_rate })
//! }
//! ```
//!
//! `shoal run --data 'DIR/*.recordio' -- target/release/program --learning-rate 0.05`. What the arguments change in the
//! declaration is the job's from its first trainer on: a trainer that declares otherwise is refused.
//!
//! # Evaluation
//!
//! Metrics are declared beside the parameters, and `evaluate` adds sums to them as `step` does to gradients. A job with
//! `--eval-data` calls it on every record of those data, after every epoch and at the end:
//!
//! ```no_run
//! # use shoal_trainer_sdk::{Batch, Declaration, Gradient, Initial, Job, Model, Parameter, Parameters, Rule, Schedule};
//! use shoal_trainer_sdk::{Better, Metric, Metrics, Target};
//! # struct Mean;
//! impl Model for Mean {
//!     fn declare(&mut self, _: &Job) -> anyhow::Result<Declaration> {
//!         let mean = Parameter::new("mean", &[1], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
//!         let error = Parameter::metric("squared_error", Metric::Mean { better: Better::Smaller });
//!         // The job ends after three evaluations in a row that were no better.
//!         let error = error.aiming(Target { stop_after: Some(3), ..Target::default() });
//!         Ok(Declaration { parameters: vec![mean, error], block_elements: 0 })
//!     }
//!     fn evaluate(&mut self, batch: &Batch<'_>, parameters: &Parameters, metrics: &mut Metrics) -> anyhow::Result<()> {
//!         let mean = parameters.slice("mean")?[0];
//!         let errors = batch.records.iter().map(|record| (mean - f32::from(record.bytes[0])).powi(2));
//!         metrics.add("squared_error", errors.sum(), batch.records.len() as f32)?;
//!         Ok(())
//!     }
//! #   fn step(&mut self, _: &Batch<'_>, _: &Parameters, _: &mut Gradient) -> anyhow::Result<()> { Ok(()) }
//! }
//! ```
//!
//! `predict` gives one output for each record, in jobs with `--predict`.
//!
//! # Testing a model, and networks by their forward pass
//!
//! [`Trial`] steps a model without a job: hold its gradient against finite differences, as the crate does that `shoal new`
//! makes. With the feature `candle` the module of that name takes gradients for you: a step is a forward pass and a summed
//! loss over tensors named and shaped as declared.
//!
//! # When something fails
//!
//! | what | what the trainer does |
//! | --- | --- |
//! | a pserver does not answer | tries again for as long as the master says that the job goes on; when the master gives its blocks to others, calls them there at once |
//! | a block's primary is lost with what it held | pushes the sum again; sums are kept until their step is published everywhere, 256 MiB of them and the newest at most |
//! | the job goes back to a checkpoint | throws away what was computed since, and asks for tasks anew |
//! | in an asynchronous job, one block goes back | computes the microbatch again from the block's present parameters, for that block alone |
//! | the master is replaced | turns to the next address of `SHOAL_MASTER`, joins again under the same name, keeps its tasks |
//! | no master answers as the leader for `SHOAL_PATIENCE_SECONDS` | gives up, with exit code 3, whatever pservers say: tasks, the end of the job and its failure are the master's to tell |
//! | its certificate is refused, or it does not believe a role's | tries again for `SHOAL_PATIENCE_SECONDS`, since certificates may be changed; then gives up with a message |
//! | records cannot be read, or the step function returns an error | tells the master which, hands the task back, goes on with others |
//! | the step function says that this trainer cannot ([`Unfit`], or an error of a full disk, of no memory, of too many open files), or its device fails | tells the master, and ends; no record is blamed, and others compute the microbatch |
//! | the step function panics | tells the master of the microbatch, and ends: nobody knows what state the program is in |
//! | what it declares, or its [environment](Model::environment), is not the job's | gives up with a message and exit code 5; the job goes on without it |
//! | the master or a pserver refuses it for good | gives up with a message, and tells the master |
//! | the program's functions say that they were asked to stop ([`Leave`]) | as SIGTERM |
//! | SIGTERM or SIGINT | hands back what it has not finished, and ends |

#![cfg_attr(not(test), forbid(unsafe_code))]
#![cfg_attr(
    not(feature = "internals"),
    allow(unreachable_pub, reason = "what the feature exports is public within")
)]

mod access;
mod acks;
mod activities;
mod calls;
#[cfg(feature = "candle")]
pub mod candle;
#[cfg(feature = "internals")]
pub mod chunks;
#[cfg(not(feature = "internals"))]
mod chunks;
mod complaint;
mod description;
mod desk;
mod device;
mod environment;
mod errand;
mod error;
mod flat;
mod gradient;
mod hashes;
mod inspection;
mod kept;
mod known;
mod leaders;
mod master;
mod meter;
mod metrics;
mod model;
mod names;
mod origin;
mod outputs;
mod parameters;
mod pending;
mod place;
#[cfg(feature = "internals")]
pub mod program;
#[cfg(not(feature = "internals"))]
mod program;
mod pull;
mod push;
mod push_log;
mod queues;
#[cfg(test)]
mod ran;
mod reduce;
mod routes;
mod session;
mod settings;
mod share;
mod sums;
mod tables;
mod trainer;
mod trial;

pub use access::AccessError;
pub use chunks::KeptRecord;
pub use description::Description;
pub use device::{DeviceSlice, OnDevice};
#[cfg(feature = "internals")]
pub use environment::usual_environment;
pub use error::{Leave, RoleFault, TrainError, Unfit};
pub use gradient::{Gradient, GradientSums};
#[cfg(feature = "internals")]
pub use inspection::{Alone, InspectionSettings};
pub use metrics::Metrics;
pub use model::{Batch, Job, Model, Record};
pub use ndarray;
pub use parameters::Parameters;
pub use shoal_recordio as recordio;
pub use shoal_runtime::cluster::decisions::{Decisions, LossScale, NonFinite};
pub use shoal_runtime::cluster::initial::{Fans, Initial};
pub use shoal_runtime::cluster::parameter::DeclarationFault;
pub use shoal_runtime::cluster::schedule::{Decay, Schedule, Stage};
pub use shoal_runtime::cluster::table::{Ceiling, Full, Table, feature_key, string_key};
pub use shoal_runtime::cluster::{Better, Declaration, Group, Metric, Mode};
pub use shoal_runtime::cluster::{Parameter, Plateau, Precision, Rule, Target};
pub use shoal_runtime::host::cuda::DeviceError;
pub use tables::{EmbeddingGradients, Embeddings, Keys};
pub use trainer::Ended;
pub use trial::Trial;

#[cfg(not(any(feature = "internals", test)))]
use settings::TrainerSettings;
#[cfg(any(feature = "internals", test))]
pub use settings::TrainerSettings;
#[cfg(any(feature = "internals", test))]
pub use trainer::{World, train_in};
#[cfg(not(any(feature = "internals", test)))]
use trainer::{World, train_in};

use program::Program;
use shoal_runtime::host::memory::keep_large_buffers;
use shoal_runtime::host::panics;
use shoal_runtime::host::program::THREADS_STAY;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::TcpDial;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::telemetry;
use std::process::ExitCode;
use std::sync::Arc;

/// Trains `model` with the settings of the environment until the job is done or the process is asked to stop: by SIGTERM, SIGINT or
/// the end of its supervisor. SIGHUP ends nothing meanwhile. Once it has returned signals do what they did before; it may be called
/// again. The program's functions run on the thread that calls this; one that is running when the trainer leaves is waited for, while
/// others have its tasks already; then a second signal ends the process. From now on a panic anywhere in the process that is not printed
/// within 30 s ends it, too (SIGABRT, on Linux): a trainer that hangs there would be waited for.
///
/// | variable | what it says | default |
/// | --- | --- | --- |
/// | `SHOAL_MASTER` | where the master listens, or those who may lead the job, with commas between them | `127.0.0.1:7400` |
/// | `SHOAL_JOB` | the job | whichever the master runs |
/// | `SHOAL_TRAINER_NAME` | the trainer's name, unique in the job | `trainer-PID` |
/// | `SHOAL_PATIENCE_SECONDS` | how long no master may answer as the job's leader before the trainer gives up | 120 |
/// | `SHOAL_HTTP` | HOST:PORT of the pages /metrics, /healthz and /readyz | none |
/// | `SHOAL_TLS` | a folder with `ca.pem`, `cert.pem` and `key.pem`: every connection is over TLS | none |
/// | `SHOAL_PLAINTEXT` | without it, whether plaintext may leave this machine: `true` or `false` | `false` |
/// | `SHOAL_PACE_MILLIS` | a pause before each microbatch, to make a job last; changes no bit | 0 |
/// | `SHOAL_DESCRIBE` | a folder: [`main`] writes there what [`Model::describe`] says, and trains nothing | none |
/// | `SHOAL_SEED` | the seed that [`Model::describe`] is given | 0 |
/// | `SHOAL_PUSH_LOG` | a file in which pushes that were applied are written down, for tests | none |
///
/// # Errors
/// See [`TrainError`].
pub fn train(model: &mut dyn Model) -> Result<Ended, TrainError> {
    train_here(model, |_| {}, |_| {})
}

/// Trains as [`train`] does, but at this `master` and under this `name`, whatever the environment says of them: for several trainings
/// at a time in one process.
///
/// # Errors
/// See [`TrainError`].
pub fn train_at(model: &mut dyn Model, master: &str, name: &str) -> Result<Ended, TrainError> {
    let (master, name) = (master.to_owned(), name.to_owned());
    let at = |settings: &mut TrainerSettings| (settings.master, settings.name) = (master, name);
    train_here(model, at, |_| {})
}

/// Trains: the program's functions run on this thread, the loops on one of their own. Settings are the environment's, and then as
/// `set` leaves them. If the trainer is over while a function is still running, `orphan` hears how it ended.
fn train_here(
    model: &mut dyn Model,
    set: impl FnOnce(&mut TrainerSettings) + Send,
    orphan: impl FnOnce(&Result<Ended, TrainError>) + Send,
) -> Result<Ended, TrainError> {
    panics::bound();
    let (program, calls) = Program::apart();
    let busy = calls.busy();
    std::thread::scope(|scope| {
        let loops = move || {
            let (shutdown, ended) = run_loops(program, set)?;
            if busy.is() {
                orphan(&ended);
                shutdown.end_by_next_signal();
            }
            Ok::<_, TrainError>((shutdown, ended))
        };
        let loops = std::thread::Builder::new().name("shoal".to_owned()).spawn_scoped(scope, loops);
        let loops = loops.map_err(|error| TrainError::Settings(format!("cannot start a thread: {error}")))?;
        calls.serve(model);
        let (_shutdown, ended) = loops.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ended
    })
}

/// Runs a trainer's loops on this thread: how they ended, and what keeps the handlers of signals.
///
/// # Errors
/// They did not begin.
fn run_loops(
    program: Program,
    set: impl FnOnce(&mut TrainerSettings),
) -> Result<(Shutdown, Result<Ended, TrainError>), TrainError> {
    let mut settings = TrainerSettings::from_env()?;
    set(&mut settings);
    keep_large_buffers();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(THREADS_STAY)
        .build()
        .map_err(|error| TrainError::Settings(format!("cannot start: {error}")))?;
    let listen = async { Shutdown::on_signal() };
    let shutdown =
        runtime.block_on(listen).map_err(|error| TrainError::Settings(format!("no signals: {error}")))?;
    let ended = runtime.block_on(async {
        let world = World {
            dial: Arc::new(TcpDial { security: settings.security()?, ..TcpDial::default() }),
            source: Arc::new(chunks::Stored::default()),
            random: Random::from_os(),
            shutdown: shutdown.clone(),
        };
        train_in(program, settings, world).await
    });
    // Work on other threads must not hold up a trainer that leaves.
    runtime.shutdown_background();
    Ok((shutdown, ended))
}

/// The `main` of a training program: logs, trains, and says on standard error what went wrong. A trainer that leaves ends the process,
/// whatever function of the program is running. Where `SHOAL_DESCRIBE` names a folder it writes there what [`Model::describe`] says,
/// and trains nothing.
pub fn main(mut model: impl Model) -> ExitCode {
    let logs = log_to_stderr();
    if let Some(folder) = description::asked() {
        return match description::describe(&mut model, &folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let exit = |trained: &Result<Ended, TrainError>| std::process::exit(exit_code(trained).into());
    let trained = logs.map_err(TrainError::Settings).and_then(|()| train_here(&mut model, |_| {}, exit));
    exit_code(&trained).into()
}

/// Writes the process's log to standard error, as [`main`] does, in the form that `SHOAL_LOG` says.
///
/// # Errors
/// `SHOAL_LOG` has a value of no meaning; the log is written all the same.
pub fn log_to_stderr() -> Result<(), String> {
    let format = telemetry::LogFormat::from_env();
    telemetry::start("trainer", format.clone().unwrap_or_default());
    format.map(drop)
}

/// Gives the process's log to `take`, for programs that have a log of their own: each line is a JSON object with `time`, `level`,
/// `role`, `job`, `name`, `message` and `fields`. It is called on whatever thread says something, and must not wait for the program's.
pub fn log_to(take: fn(&str)) {
    telemetry::start_to("trainer", take);
}

/// The process exit code of a trainer that has ended; says on standard error what went wrong.
fn exit_code(trained: &Result<Ended, TrainError>) -> u8 {
    match trained {
        Ok(_) => 0,
        Err(error) => {
            tracing::error!("{error}");
            error.exit_code()
        }
    }
}

/// The programs in the guide, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/training.md")]
struct Guide;

#[cfg(test)]
mod tests {
    /// What is exported whatever features are chosen, in the order of the alphabet.
    const ROOT: &str = "AccessError Batch Better Ceiling Decay Decisions Declaration DeclarationFault Description DeviceError DeviceSlice \
        EmbeddingGradients Embeddings Ended Fans Full Gradient GradientSums Group Initial Job KeptRecord Keys Leave LossScale Metric Metrics Mode Model NonFinite \
        OnDevice Parameter Parameters Plateau Precision Record RoleFault Rule Schedule Stage Table Target TrainError Trial Unfit feature_key \
        log_to log_to_stderr main ndarray recordio string_key train train_at";

    /// Names that a file without a module of its own exports, but for what stands behind a feature.
    fn exported(source: &str) -> Vec<&str> {
        let (mut names, mut is_hidden) = (Vec::new(), false);
        for line in source.lines() {
            let item = line.strip_prefix("pub ").filter(|_| !is_hidden);
            is_hidden = line.starts_with("#[cfg(");
            let Some((kind, item)) = item.and_then(|item| item.split_once(' ')) else { continue };
            match kind {
                "use" => {
                    let item = item.trim_end_matches(';');
                    let last = item.rsplit(" as ").next().unwrap();
                    let list = last.split_once('{').map_or(last, |(_, list)| list.trim_end_matches('}'));
                    names.extend(list.split(", ").map(|name| name.rsplit("::").next().unwrap()));
                }
                _ => names.push(item.split(['(', ';', ' ']).next().unwrap()),
            }
        }
        names.sort_unstable();
        names
    }

    #[test]
    fn the_root_exports_what_programs_need_and_nothing_of_the_runtimes_doors() {
        assert_eq!(exported(include_str!("lib.rs")).join(" "), ROOT);
    }
}
