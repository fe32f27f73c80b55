//! A job's settings. Each is one field of [`Spec`], with all that is said of it: its sentence for help and for `kubectl explain`, its
//! flag and variable, its bounds, whether it may change. Flags, the resource's schema, its rules, the checks and the master's document
//! follow from the field.
//!
//! A setting that nobody has stated is absent; what counts then is its default, by the method of its name.

mod check;
mod document;
mod enums;
mod live;
mod naming;
mod schema;

pub use check::check_value;
pub use document::Document;
pub use enums::{EnvironmentRule, Gradients, Mode};
pub use naming::{Naming, is_flag};
pub use schema::{Change, Field, fields};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most microbatches of a step: the slots of its tree.
pub const MICROBATCHES_PER_STEP_MAX: u32 = 1 << 24;
/// The largest delay: so many states as it needs are kept of every block, and travel when one is copied.
pub const DELAY_MAX: u32 = 4;

// The rules of the fields below, so that none says them again:
// - The comment is the help of the flag and the description in the resource's definition. "By default X" is held against the
//   defaults by a test; "May not change once the job has begun" is added where the field says `x-change`.
// - `range` are the bounds of flags, manifests and documents alike; `x-most` is one that the installed definition does not have.

/// What a job learns from, how, and what is kept of it.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// RecordIO files to train on, in order: paths, file:///PATH, s3://BUCKET/NAME or gs://BUCKET/NAME, each may be a glob (quoted, in
    /// a shell); commas divide several. A file that is called so is taken as it is; in a glob `[*]`, `[[]` and `[,]` stand for the
    /// character. Master and trainers read them under the same names; buckets need a build with --features s3 or gs. Or alone,
    /// records:N: N records without files, each of which is its own number, from 0.
    #[arg(long, env = "SHOAL_DATA", num_args = 1.., value_name = "GLOB")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-change" = "pinned"))]
    pub data: Vec<String>,
    /// RecordIO files to evaluate the model on, or records:N, named like those to train on: after every epoch unless stated, and at
    /// the end.
    #[arg(long, env = "SHOAL_EVAL_DATA", num_args = 1.., value_name = "GLOB")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-change" = "pinned"))]
    pub eval_data: Vec<String>,
    /// Evaluate after every so many steps.
    #[arg(long, env = "SHOAL_EVAL_STEPS", value_name = "STEPS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-change" = "pinned"))]
    pub eval_steps: Option<u64>,
    /// Evaluate after every so many epochs.
    #[arg(long, env = "SHOAL_EVAL_EPOCHS", value_name = "EPOCHS", conflicts_with = "eval_steps")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-change" = "pinned"))]
    pub eval_epochs: Option<u64>,
    /// Do not train: write what the program predicts of each record of the data, in the order of records, into this place, a folder
    /// or an object store's URL that every trainer reaches and that no other prediction has written into. A warm start gives the
    /// model.
    #[arg(long, env = "SHOAL_PREDICT", value_name = "PLACE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "pinned"))]
    pub predict: Option<String>,
    /// For a prediction or an evaluation without training, in place of a warm start: the model as it begins, for a baseline.
    #[arg(long, env = "SHOAL_UNTRAINED")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("x-change" = "pinned"))]
    pub untrained: bool,
    /// Passes over the data; 0 to evaluate only, the model of a warm start. By default 1.
    #[arg(long, env = "SHOAL_EPOCHS", value_name = "EPOCHS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000), extend("x-change" = "pinned"))]
    pub epochs: Option<u64>,
    /// Seeds shuffling, initial values and the randomness inside trainers. By default 0.
    #[arg(long, env = "SHOAL_SEED", value_name = "SEED")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "pinned"))]
    pub seed: Option<u64>,
    /// How updates follow one another: sync, one for each step, the same bits whoever computes; or async, one for each microbatch,
    /// as it comes. By default sync.
    #[arg(long, env = "SHOAL_MODE", value_enum, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "pinned"))]
    pub mode: Option<Mode>,
    /// Records in a microbatch: what one trainer computes at a time. By default 8.
    #[arg(long, env = "SHOAL_MICROBATCH_RECORDS", value_name = "RECORDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216), extend("x-change" = "pinned"))]
    pub microbatch_records: Option<u32>,
    /// Microbatches in a step (M), fixed whatever the number of trainers: about 8 for each trainer expected. By default 16.
    #[arg(long, env = "SHOAL_MICROBATCHES_PER_STEP", value_name = "M")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-change" = "pinned", "x-most" = MICROBATCHES_PER_STEP_MAX))]
    pub microbatches_per_step: Option<u32>,
    /// Records that stay together when a chunk is shuffled. By default 1.
    #[arg(long, env = "SHOAL_SHUFFLE_RUN", value_name = "RECORDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-change" = "pinned"))]
    pub shuffle_run: Option<u32>,
    /// How long a task may go without progress before another trainer is given it as well, in milliseconds. By default 5000.
    #[arg(long, env = "SHOAL_LEASE_TTL_MILLIS", value_name = "MILLIS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 50, max = 3_600_000), extend("x-change" = "pinned"))]
    pub lease_ttl_millis: Option<u64>,
    /// Async: microbatches beyond the lowest unapplied one that may be under way, the bound on staleness; without a word, as many as
    /// a step has.
    #[arg(long, env = "SHOAL_STALENESS_WINDOW", value_name = "MICROBATCHES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576), extend("x-change" = "pinned"))]
    pub staleness_window: Option<u32>,
    /// Async: divide the learning rate of an update by 1 + its staleness.
    #[arg(long, env = "SHOAL_SCALE_BY_STALENESS")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("x-change" = "pinned"))]
    pub scale_by_staleness: bool,
    /// Sync: take the gradients of a step so many versions before the one that it replaces: the same bits whoever computes, and the
    /// network is hidden behind the computation of the next steps. By default 0.
    #[arg(long, env = "SHOAL_DELAY", value_name = "VERSIONS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "pinned", "x-most" = DELAY_MAX))]
    pub delay: Option<u32>,
    /// How precise gradients of dense parameters travel and are summed: f32, or bf16, half the bytes, every sum of two rounded to 8
    /// bits. Counters, metrics, running statistics and embedding tables stay f32. By default f32.
    #[arg(long, env = "SHOAL_GRADIENTS", value_enum, value_name = "PRECISION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "pinned"))]
    pub gradients: Option<Gradients>,
    /// Copies of each block beside its primary: with one, a lost pserver costs a moment and no work. By default 0.
    #[arg(id = "copies", long = "replicas", env = "SHOAL_REPLICAS", value_name = "COPIES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 8))]
    pub copies: Option<u32>,
    /// Leave out up to so many records that no trainer can read or use, and go on without them, degraded; more of them fail the job.
    /// By default 0.
    #[arg(long, env = "SHOAL_EXCLUDE_MAX", value_name = "RECORDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_max: Option<u64>,
    /// What becomes of trainers whose environment (what the program says that its bits depend on: versions, instruction sets,
    /// threads, flags) is not the first trainer's: same refuses them, warn lets them in and logs the difference, any does not look.
    /// Without a word same in synchronous jobs, any in asynchronous ones, which promise no bits.
    #[arg(long, env = "SHOAL_ENVIRONMENT", value_enum, value_name = "RULE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentRule>,
    /// Sync: compute this share of microbatches twice, by two trainers where there are two, and fail the job by step, microbatch and
    /// parameter if their sums differ in one bit. By default 0.
    #[arg(long, env = "SHOAL_VERIFY", value_name = "SHARE|1/N", value_parser = share)]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub verify: Option<f64>,
    /// Sync: after every so many steps keep a hash of each block beside the checkpoints, by which `shoal replay` tells whether it
    /// plays the same steps again; 0 for none. By default 0.
    #[arg(long, env = "SHOAL_RECORD_HASHES", value_name = "STEPS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_hashes: Option<u64>,
    /// A safetensors file, in a folder or an object store that master and pservers reach: parameters named as its tensors begin at its
    /// values, the others at their initial values. It must stay as it is while the job lives.
    #[arg(long, env = "SHOAL_WARM_START", value_name = "PLACE/FILE.safetensors")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-change" = "pinned"))]
    pub warm_start: Option<String>,
    /// Where and how often the model is saved.
    #[command(flatten)]
    pub checkpoint: CheckpointSpec,
}

/// Where and how often the model is saved.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointSpec {
    /// Where checkpoints are kept, as master and pservers reach it: a folder, on a cluster on a volume that all of them mount under the
    /// same path, or an object store's URL. A job of its own each: a place that holds another job's checkpoints is refused.
    #[arg(
        id = "checkpoint.place",
        long = "checkpoints",
        env = "SHOAL_CHECKPOINTS",
        value_name = "PLACE",
        default_value = "",
        hide_default_value = true
    )]
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-change" = "pinned"))]
    pub place: String,
    /// Make a checkpoint every so many steps; 0 for none but by time. By default 0.
    #[arg(
        id = "checkpoint.everySteps",
        long = "checkpoint-steps",
        env = "SHOAL_CHECKPOINT_STEPS",
        value_name = "STEPS"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<u64>,
    /// Make a checkpoint every so many seconds; 0 for none but by steps, and the last. By default 600.
    #[arg(
        id = "checkpoint.everySeconds",
        long = "checkpoint-seconds",
        env = "SHOAL_CHECKPOINT_SECONDS",
        value_name = "SECONDS"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<u64>,
    /// Checkpoints to keep. By default 2.
    #[arg(
        id = "checkpoint.keepLast",
        long = "keep-last",
        env = "SHOAL_KEEP_LAST",
        value_name = "CHECKPOINTS"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub keep_last: Option<u32>,
    /// Of so many checkpoints at least one has all rows of embedding tables; the others have the rows that changed since the one
    /// before. 1 writes all rows every time. By default 8.
    #[arg(
        id = "checkpoint.fullEvery",
        long = "checkpoint-full-every",
        env = "SHOAL_CHECKPOINT_FULL_EVERY",
        value_name = "CHECKPOINTS"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub full_every: Option<u32>,
}

/// What settings are that nobody has stated: a method each, and for the test of the comments above a list of all.
macro_rules! defaults {
    ($settings:ident: $($field:ident: $type:ty = $default:expr;)*) => {
        impl $settings {
            $(
                #[doc = concat!("The setting `", stringify!($field), "`, or its default.")]
                pub fn $field(&self) -> $type {
                    self.$field.unwrap_or($default)
                }
            )*

            /// The default of each setting that has one, by field.
            #[cfg(test)]
            fn defaults() -> Vec<(&'static str, serde_json::Value)> {
                vec![$((stringify!($field), serde_json::json!($settings::default().$field()))),*]
            }
        }
    };
}

defaults! { Spec:
    epochs: u64 = 1;
    seed: u64 = 0;
    mode: Mode = Mode::Sync;
    microbatch_records: u32 = 8;
    microbatches_per_step: u32 = 16;
    shuffle_run: u32 = 1;
    lease_ttl_millis: u64 = 5000;
    delay: u32 = 0;
    gradients: Gradients = Gradients::F32;
    copies: u32 = 0;
    exclude_max: u64 = 0;
    verify: f64 = 0.0;
    record_hashes: u64 = 0;
}

defaults! { CheckpointSpec:
    every_steps: u64 = 0;
    every_seconds: u64 = 600;
    keep_last: u32 = 2;
    full_every: u32 = 8;
}

impl Spec {
    /// Whether nothing is trained: the job predicts, or evaluates alone.
    pub fn is_without_training(&self) -> bool {
        self.predict.is_some() || self.epochs() == 0
    }

    /// Microbatches beyond the lowest unapplied one that may be under way in an asynchronous job.
    pub fn staleness_window(&self) -> u32 {
        self.staleness_window.unwrap_or(self.microbatches_per_step())
    }

    /// The names of what is trained on, and of what is evaluated or predicted.
    pub fn trained_and_evaluated(&self) -> (&[String], &[String]) {
        match self.epochs() {
            _ if self.predict.is_some() => (&[], &self.data),
            0 => (&[], &self.eval_data),
            _ => (&self.data, &self.eval_data),
        }
    }
}

/// A number, or a quotient of two.
fn share(text: &str) -> Result<f64, String> {
    let number = match text.split_once('/') {
        Some((part, whole)) => finite(part)? / finite(whole)?,
        None => finite(text)?,
    };
    if number.is_finite() { Ok(number) } else { Err("give a number, or a quotient such as 1/20".to_owned()) }
}

/// A number that JSON has, too.
fn finite(word: &str) -> Result<f64, String> {
    word.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| "give a number".to_owned())
}

#[cfg(test)]
mod tests;
