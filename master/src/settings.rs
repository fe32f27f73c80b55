//! The master's settings: flag, then `SHOAL_*`, then default.

mod flags;
mod untrained;

use crate::document::{Checks, Wanted};
use crate::machine::CheckpointPolicy;
use anyhow::{Context, anyhow, bail, ensure};
use shoal_runtime::cluster::job::DELAY_MAX;
use shoal_runtime::cluster::job_check;
use shoal_runtime::cluster::tree::MICROBATCHES_PER_STEP_MAX;
use shoal_runtime::cluster::verification::WHOLE_SHARE;
use shoal_runtime::cluster::{
    EnvironmentRule, Evaluated, JobId, JobSettings, Manifest, Mode, Period, Precision,
};
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::telemetry::LogFormat;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a job is. Shared by `shoal master` and `shoal run`.
#[derive(clap::Args, Clone, Debug)]
pub struct JobArguments {
    /// RecordIO files of the data set, in order: paths, file:///PATH, s3://BUCKET/NAME or gs://BUCKET/NAME, each may be a
    /// quoted glob; commas divide several. A file that is called so is taken as it is; in a glob `[*]`, `[[]` and `[,]`
    /// stand for the character. Trainers read them under the same names; buckets need a build with --features s3 or gs. Or
    /// alone, records:N: N records without files, each of which is its own number, from 0
    #[arg(long, env = "SHOAL_DATA", num_args = 1.., value_name = "GLOB")]
    pub data: Vec<String>,
    /// RecordIO files to evaluate the model on, named like --data: after every epoch, unless stated, and at the end
    #[arg(long, env = "SHOAL_EVAL_DATA", num_args = 1.., value_name = "GLOB")]
    pub eval_data: Vec<String>,
    /// Evaluate after every so many steps
    #[arg(long, env = "SHOAL_EVAL_STEPS", value_name = "STEPS",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub eval_steps: Option<u64>,
    /// Evaluate after every so many epochs
    #[arg(long, env = "SHOAL_EVAL_EPOCHS", value_name = "EPOCHS", conflicts_with = "eval_steps",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub eval_epochs: Option<u64>,
    /// Do not train: write what the program predicts of each record of --data, in the order of records, into this place, a
    /// folder or an object store's URL that every trainer reaches and that no other prediction has written into. Give the model
    /// by --warm-start
    #[arg(long, env = "SHOAL_PREDICT", value_name = "PLACE")]
    pub predict: Option<String>,
    /// With --predict or --epochs 0, in place of --warm-start: the model as it begins, for a baseline
    #[arg(long, env = "SHOAL_UNTRAINED")]
    pub untrained: bool,
    /// Passes over the data; 0 to evaluate only. Give the model by --warm-start
    #[arg(long, env = "SHOAL_EPOCHS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub epochs: u64,
    /// Seeds shuffling, initial values and the randomness inside trainers
    #[arg(long, env = "SHOAL_SEED", default_value_t = 0)]
    pub seed: u64,
    /// Records in a microbatch: what one trainer computes at a time
    #[arg(long, env = "SHOAL_MICROBATCH_RECORDS", default_value_t = 8, value_name = "RECORDS",
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub microbatch_records: u32,
    /// Microbatches in a step (M): fixed whatever the number of trainers; about 8 for each trainer expected
    #[arg(long, env = "SHOAL_MICROBATCHES_PER_STEP", default_value_t = 16, value_name = "M",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MICROBATCHES_PER_STEP_MAX)))]
    pub microbatches_per_step: u32,
    /// Records that stay together when a chunk is shuffled
    #[arg(long, env = "SHOAL_SHUFFLE_RUN", default_value_t = 1, value_name = "RECORDS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub shuffle_run: u32,
    /// How long a task may go without progress before it is leased to another trainer as well, in milliseconds
    #[arg(long, env = "SHOAL_LEASE_TTL_MILLIS", default_value_t = 5000, value_name = "MILLIS",
          value_parser = clap::value_parser!(u64).range(50..=3_600_000))]
    pub lease_ttl_millis: u64,
    /// How updates follow one another: sync (one for each step, the same bits whoever computes) or async (one for each
    /// microbatch, as it comes)
    #[arg(long, env = "SHOAL_MODE", value_enum, default_value_t = ModeArgument::Sync)]
    pub mode: ModeArgument,
    /// Async: microbatches beyond the lowest unapplied one that may be under way, the bound on staleness; by default M
    #[arg(long, env = "SHOAL_STALENESS_WINDOW", value_name = "MICROBATCHES",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub staleness_window: Option<u32>,
    /// Async: divide the learning rate of an update by 1 + its staleness
    #[arg(long, env = "SHOAL_SCALE_BY_STALENESS")]
    pub scale_by_staleness: bool,
    /// Sync: take the gradients of a step so many versions before the one that it replaces: the same bits whoever computes,
    /// and the network is hidden behind the computation of the next steps
    #[arg(long, env = "SHOAL_DELAY", default_value_t = 0, value_name = "VERSIONS",
          value_parser = clap::value_parser!(u32).range(0..=i64::from(DELAY_MAX)))]
    pub delay: u32,
    /// How precise gradients of dense parameters travel and are summed: f32, or bf16, half the bytes, every sum of two
    /// rounded to 8 bits. Counters, metrics, running statistics and embedding tables stay f32
    #[arg(long, env = "SHOAL_GRADIENTS", value_enum, default_value_t = PrecisionArgument::F32)]
    pub gradients: PrecisionArgument,
    /// Copies of each block beside its primary: with one, a lost pserver costs a moment and no work
    #[arg(long, env = "SHOAL_REPLICAS", default_value_t = 0, value_name = "COPIES",
          value_parser = clap::value_parser!(u32).range(0..=8))]
    pub replicas: u32,
    /// Leave out up to so many records that no trainer can read or use, and go on without them, degraded; more of them,
    /// or one with 0, fail the job. `shoal status` lists them
    #[arg(long, env = "SHOAL_EXCLUDE_MAX", default_value_t = 0, value_name = "RECORDS")]
    pub exclude_max: u64,
    /// What becomes of trainers whose environment (what the program says that its bits depend on: versions, instruction sets,
    /// threads, flags) is not the first trainer's: same refuses them, warn lets them in and logs the difference, any does not
    /// look. By default same in synchronous jobs, any in asynchronous ones, which promise no bits
    #[arg(long, env = "SHOAL_ENVIRONMENT", value_enum, value_name = "RULE")]
    pub environment: Option<EnvironmentArgument>,
    /// Sync: compute this share of microbatches twice, by two trainers where there are two, and fail the job by step, microbatch and
    /// parameter if their sums differ in one bit; from 0 to 1
    #[arg(long, env = "SHOAL_VERIFY", default_value_t = 0.0, value_name = "SHARE", value_parser = share)]
    pub verify: f64,
    /// Make a checkpoint every so many steps; 0 for none but the last
    #[arg(long, env = "SHOAL_CHECKPOINT_STEPS", default_value_t = 0, value_name = "STEPS")]
    pub checkpoint_steps: u64,
    /// Make a checkpoint every so many seconds; 0 for none but the last
    #[arg(long, env = "SHOAL_CHECKPOINT_SECONDS", default_value_t = 600, value_name = "SECONDS")]
    pub checkpoint_seconds: u64,
    /// Where checkpoints are kept, as master and pservers reach it: a folder or an object store's URL; by default
    /// "checkpoints" in the folder of the master's store
    #[arg(long, env = "SHOAL_CHECKPOINTS", value_name = "PLACE")]
    pub checkpoints: Option<String>,
    /// A safetensors file, in a folder or an object store that master and pservers reach: parameters named as its
    /// tensors begin at its values, the others at their initial values. It must stay as it is while the job lives
    #[arg(long, env = "SHOAL_WARM_START", value_name = "PLACE/FILE.safetensors")]
    pub warm_start: Option<String>,
    /// Checkpoints to keep
    #[arg(long, env = "SHOAL_KEEP_LAST", default_value_t = 2, value_name = "CHECKPOINTS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_last: u32,
    /// Of so many checkpoints at least one has all rows of embedding tables; the others have the rows that changed since the
    /// one before. 1 writes all rows every time
    #[arg(long, env = "SHOAL_CHECKPOINT_FULL_EVERY", default_value_t = 8, value_name = "CHECKPOINTS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub checkpoint_full_every: u32,
}

/// A share of something.
fn share(word: &str) -> Result<f64, String> {
    let share = word.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a number from 0 to 1".to_owned())
}

/// The most evaluations of a job: the master remembers the values of all.
const EVALUATIONS_MAX: u64 = 10_000;

/// A place as others may name it too: a folder from the root.
pub(crate) fn rooted(flag: &str, place: &str) -> anyhow::Result<String> {
    if place.contains("://") {
        return Ok(place.to_owned());
    }
    let folder = std::path::absolute(place).with_context(|| format!("{flag} {place:?}"))?;
    let named = folder.to_str().map(str::to_owned);
    named.with_context(|| {
        format!("{flag} {place:?}: the path {} is not UTF-8, as places have to be", folder.display())
    })
}

/// How updates follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeArgument {
    /// One update for each step.
    Sync,
    /// One update for each microbatch.
    Async,
}

/// In which precision gradients of dense parameters travel and are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PrecisionArgument {
    /// As they were computed.
    F32,
    /// Rounded, in half the bytes.
    Bf16,
}

/// Whether trainers of one job may have environments of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EnvironmentArgument {
    /// Whoever has another than the job's is refused.
    Same,
    /// They are let in, and the difference is logged.
    Warn,
    /// Nobody compares.
    Any,
}

impl From<EnvironmentArgument> for EnvironmentRule {
    fn from(argument: EnvironmentArgument) -> EnvironmentRule {
        match argument {
            EnvironmentArgument::Same => EnvironmentRule::Same,
            EnvironmentArgument::Warn => EnvironmentRule::Warn,
            EnvironmentArgument::Any => EnvironmentRule::Any,
        }
    }
}

impl From<PrecisionArgument> for Precision {
    fn from(argument: PrecisionArgument) -> Precision {
        match argument {
            PrecisionArgument::F32 => Precision::F32,
            PrecisionArgument::Bf16 => Precision::Bf16,
        }
    }
}

impl JobArguments {
    /// When checkpoints are made.
    pub fn checkpoint_policy(&self) -> CheckpointPolicy {
        CheckpointPolicy {
            every_steps: self.checkpoint_steps,
            every: Duration::from_secs(self.checkpoint_seconds),
            keep_last: self.keep_last as usize,
            full_every: self.checkpoint_full_every.into(),
        }
    }

    /// The patterns of the data that are trained on, and of those that are evaluated or predicted.
    ///
    /// # Errors
    /// Flags that contradict one another.
    pub fn data(&self) -> anyhow::Result<(&[String], &[String])> {
        let named: (&[String], &[String]) =
            match (self.epochs, self.data.is_empty(), self.eval_data.is_empty()) {
                (_, _, is_alone) if self.predict.is_some() => {
                    ensure!(is_alone, "--predict: name the records by --data, not by --eval-data");
                    (&[], &self.data)
                }
                (0, _, true) => {
                    bail!("--epochs 0 trains nothing: give --eval-data to evaluate, or --predict")
                }
                (0, ..) => (&[], &self.eval_data),
                (_, true, _) => bail!("--data is missing; to evaluate without training, give --epochs 0"),
                (_, false, _) => (&self.data, &self.eval_data),
            };
        let is_evaluated_at_times = self.eval_steps.is_some() || self.eval_epochs.is_some();
        ensure!(
            !is_evaluated_at_times || !self.eval_data.is_empty(),
            "--eval-steps and --eval-epochs go with --eval-data"
        );
        self.check_model_and_place()?;
        Ok(named)
    }

    /// What is evaluated and when, if so many records are.
    fn evaluated(&self, records: u64) -> anyhow::Result<Option<Evaluated>> {
        let every = match (self.eval_steps, self.eval_epochs) {
            (Some(steps), _) => Period::Steps(steps),
            (None, epochs) => Period::Epochs(epochs.unwrap_or(1)),
        };
        let outputs = self.predict.as_deref().map(|place| rooted("--predict", place)).transpose()?;
        Ok((records > 0).then_some(Evaluated { records, every, outputs }))
    }

    /// Where checkpoints are kept, if it was said. A folder is named from the root, because pservers may run elsewhere.
    pub fn checkpoint_place(&self) -> anyhow::Result<Option<String>> {
        self.checkpoints.as_deref().map(|place| rooted("--checkpoints", place)).transpose()
    }

    /// How closely trainers of such a job are looked at.
    ///
    /// # Errors
    /// Verification in an asynchronous job.
    pub fn checks(&self, job: &JobSettings) -> anyhow::Result<Checks> {
        ensure!(
            job.is_sync() || self.verify == 0.0,
            "--verify: in an asynchronous job no two computations of a microbatch read the same parameters, so nothing can be \
             compared: run it with --mode sync"
        );
        let environment = self.environment.map_or(Checks::usual(job).environment, Into::into);
        Ok(Checks { environment, verify_millionths: (self.verify * f64::from(WHOLE_SHARE)).round() as u32 })
    }

    /// The mode with its numbers.
    pub fn mode(&self) -> Mode {
        match self.mode {
            ModeArgument::Sync => Mode::Sync { delay: self.delay },
            ModeArgument::Async => Mode::Async {
                staleness_window: self.staleness_window.unwrap_or(self.microbatches_per_step),
                scale_by_staleness: self.scale_by_staleness,
            },
        }
    }
}

/// Settings of one master.
#[derive(clap::Args, Clone, Debug)]
// A program that `shoal run` starts may say what its data are.
#[command(mut_arg("data", |data| data.required_unless_present("eval_data")))]
#[command(mut_arg("eval_steps", |steps| steps.requires("eval_data")))]
#[command(mut_arg("eval_epochs", |epochs| epochs.requires("eval_data")))]
pub struct MasterSettings {
    /// Name of the job; calls that name another are refused
    #[arg(long, env = "SHOAL_JOB", default_value = "job")]
    pub job: String,
    #[command(flatten)]
    job_arguments: JobArguments,
    /// Address to listen on; port 0 lets the system choose
    #[arg(long, env = "SHOAL_MASTER_LISTEN", default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Folder with ca.pem, cert.pem and key.pem (or a Kubernetes secret's ca.crt, tls.crt, tls.key), made by `shoal certs
    /// issue`: connections are over TLS, with roles of the same job alone. Looked at again when the files change
    #[arg(long, env = "SHOAL_TLS", value_name = "DIR", conflicts_with = "plaintext")]
    pub tls: Option<PathBuf>,
    /// Speak plaintext with other machines too: whoever reaches the network may read, command and spoil the job. Without
    /// it, and without --tls, only loopback addresses are listened on and called
    #[arg(long, env = "SHOAL_PLAINTEXT")]
    pub plaintext: bool,
    /// How logs are written, on standard error: text or json, one object a line. SHOAL_LOG or else RUST_LOG filters them
    #[arg(long, env = "SHOAL_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Address of the pages /metrics, /healthz and /readyz; none by default
    #[arg(long, env = "SHOAL_HTTP", value_name = "HOST:PORT")]
    pub http: Option<SocketAddr>,
    /// Where the job's state is kept: a folder, or `etcd://HOST:PORT/PREFIX` (several
    /// endpoints with commas between them); by default shoal-state/JOB
    #[arg(long, env = "SHOAL_STORE", value_name = "PLACE")]
    pub store: Option<String>,
    /// Pservers to wait for before the model is placed
    #[arg(long, env = "SHOAL_PSERVERS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pservers: u32,
    /// Trainers that a supervisor should run; changed later by `shoal scale`
    #[arg(long, env = "SHOAL_TRAINERS", default_value_t = 1)]
    pub trainers: u32,
    /// Once the job is over, stay so long for those who have not heard of it, then end: with 0 if it is done, with 1 if it
    /// failed. Without this the master stays until it is stopped
    #[arg(long, env = "SHOAL_LINGER_SECONDS", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub linger_seconds: Option<u64>,
}

impl std::ops::Deref for MasterSettings {
    type Target = JobArguments;
    fn deref(&self) -> &JobArguments {
        &self.job_arguments
    }
}

impl MasterSettings {
    /// The job over a scanned data set, of which the first `trained` records are trained on and the others evaluated.
    pub fn job_settings(&self, manifest: &Manifest, trained: u64) -> anyhow::Result<JobSettings> {
        job_check::name(&self.job).map_err(|fault| anyhow!("--job {:?} {}", self.job, fault.what))?;
        let job = JobSettings {
            job: JobId(self.job.clone()),
            seed: self.seed,
            epochs: if trained > 0 { self.epochs } else { 0 },
            microbatch_records: self.microbatch_records,
            microbatches_per_step: self.microbatches_per_step,
            shuffle_run: self.shuffle_run,
            records: trained,
            manifest_fingerprint: manifest.fingerprint(),
            lease_ttl_millis: self.lease_ttl_millis,
            mode: self.mode(),
            gradients: self.gradients.into(),
            warm_start: None,
            evaluated: self.evaluated(manifest.record_count() - trained)?,
        };
        job.check()?;
        let evaluations = job.course().evaluations();
        ensure!(
            evaluations <= EVALUATIONS_MAX,
            "{evaluations} evaluations, and at most {EVALUATIONS_MAX} are remembered: evaluate after more steps or epochs"
        );
        Ok(job)
    }
    /// How connections are secured.
    ///
    /// # Errors
    /// Files that cannot be used, a certificate for another role or another job.
    pub fn security(&self) -> anyhow::Result<Security> {
        let security = Security::open(self.tls.as_deref(), self.plaintext, Some(Role::Master));
        let security = security.map_err(anyhow::Error::msg)?;
        security.check_job(&self.job).map_err(anyhow::Error::msg)?;
        Ok(security)
    }
    /// Where the job's state is kept.
    pub fn store(&self) -> String {
        self.store.clone().unwrap_or_else(|| format!("shoal-state/{}", self.job))
    }
    /// Where checkpoints are kept.
    pub fn checkpoints(&self) -> anyhow::Result<String> {
        if let Some(place) = self.checkpoint_place()? {
            return Ok(place);
        }
        let store = self.store();
        let is_url = store.contains("://");
        ensure!(!is_url, "--checkpoints: name a folder or a URL that master and pservers reach");
        rooted("--store", &format!("{}/checkpoints", store.trim_end_matches('/')))
    }
    /// How long to stay once the job is over, if not for ever.
    pub fn linger(&self) -> Option<Duration> {
        self.linger_seconds.map(Duration::from_secs)
    }
    /// What to wait for and to run.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            pservers: self.pservers,
            trainers: self.trainers,
            replicas: self.replicas,
            exclude_max: self.exclude_max,
        }
    }
}
