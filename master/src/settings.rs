//! The master's settings: flag, then `SHOAL_*`, then default; and those of its job, which may come as one document.

mod outputs;
mod stated;

pub use outputs::check_outputs;
pub use stated::StatedJob;

use crate::document::{Checks, Document, Wanted};
use anyhow::{Context, anyhow, ensure};
use shoal_job::spec::{self, CheckpointSpec, Spec};
use shoal_runtime::cluster::job_check;
use shoal_runtime::cluster::{Evaluated, JobId, JobSettings, Manifest, Mode, Period};
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::telemetry::LogFormat;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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

/// Settings of one master.
#[derive(clap::Args, Clone, Debug)]
pub struct MasterSettings {
    /// Name of the job; calls that name another are refused
    #[arg(long, env = "SHOAL_JOB", default_value = "job")]
    pub job: String,
    #[command(flatten)]
    stated: StatedJob,
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
    /// endpoints with commas between them), over TLS `etcds://`; by default shoal-state/JOB
    #[arg(long, env = "SHOAL_STORE", value_name = "PLACE")]
    pub store: Option<String>,
    /// Folder with ca.pem, and a client's cert.pem and key.pem (or the names in a secret of type kubernetes.io/tls), for an
    /// etcd over TLS
    #[arg(long, env = "SHOAL_STORE_TLS", value_name = "DIR")]
    pub store_tls: Option<PathBuf>,
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

/// Settings that make no job: another start would find the same.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(pub(crate) String);

impl MasterSettings {
    /// The settings of the job.
    ///
    /// # Errors
    /// Settings that are wrong, alone or together. What only a disk can tell is not asked.
    pub fn spec(&self) -> anyhow::Result<&Spec> {
        let StatedJob { spec, naming } = &self.stated;
        if let Some(fault) = spec.faults(*naming).into_iter().next() {
            return Err(Wrong(fault).into());
        }
        Ok(spec)
    }

    /// The document of the job, which has not begun, over a scanned data set, of which the first `trained` records are trained on and the others evaluated.
    ///
    /// # Errors
    /// Settings that make no job over these data.
    pub fn fresh(&self, manifest: &Manifest, trained: u64) -> anyhow::Result<Document> {
        job_check::name(&self.job).map_err(|fault| anyhow!("--job {:?} {}", self.job, fault.what))?;
        let spec = &self.stated.spec;
        // Every setting by its name: a new one does not compile before it has its place.
        let Spec {
            data: _,
            eval_data: _,
            eval_steps,
            eval_epochs,
            predict,
            untrained: _,
            epochs: _,
            seed: _,
            mode: _,
            microbatch_records: _,
            microbatches_per_step: _,
            shuffle_run: _,
            lease_ttl_millis: _,
            staleness_window: _,
            scale_by_staleness: _,
            delay: _,
            gradients: _,
            copies: _,
            exclude_max: _,
            environment: _,
            verify: _,
            record_hashes: _,
            // Pinned by the caller, who has the store.
            warm_start: _,
            checkpoint:
                CheckpointSpec { place: _, every_steps: _, every_seconds: _, keep_last: _, full_every: _ },
        } = spec;
        let every = match (eval_steps, eval_epochs) {
            (Some(steps), _) => Period::Steps(*steps),
            (None, epochs) => Period::Epochs(epochs.unwrap_or(1)),
        };
        let outputs = predict.as_deref().map(|place| rooted("--predict", place)).transpose()?;
        let evaluated = manifest.record_count() - trained;
        let job = JobSettings {
            job: JobId(self.job.clone()),
            seed: spec.seed(),
            epochs: if trained > 0 { spec.epochs() } else { 0 },
            microbatch_records: spec.microbatch_records(),
            microbatches_per_step: spec.microbatches_per_step(),
            shuffle_run: spec.shuffle_run(),
            records: trained,
            manifest_fingerprint: manifest.fingerprint(),
            lease_ttl_millis: spec.lease_ttl_millis(),
            mode: mode(spec),
            gradients: spec.gradients().into(),
            warm_start: None,
            evaluated: (evaluated > 0).then_some(Evaluated { records: evaluated, every, outputs }),
        };
        job.check()?;
        let evaluations = job.course().evaluations();
        ensure!(
            evaluations <= EVALUATIONS_MAX,
            "{evaluations} evaluations, and at most {EVALUATIONS_MAX} are remembered: evaluate after more steps or epochs"
        );
        let checks = Checks::of(spec, &job);
        let checkpoint_place = self.checkpoint_place()?;
        Ok(Document { checkpoint_place, checks, ..Document::new(job, self.wanted(spec)) })
    }

    /// What to wait for and to run.
    fn wanted(&self, spec: &Spec) -> Wanted {
        Wanted {
            pservers: self.pservers,
            trainers: self.trainers,
            replicas: spec.copies(),
            exclude_max: spec.exclude_max(),
        }
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

    /// Where checkpoints are kept, if it was said. A folder is named from the root, because pservers may run elsewhere.
    fn checkpoint_place(&self) -> anyhow::Result<Option<String>> {
        let place = Some(&self.stated.spec.checkpoint.place).filter(|place| !place.is_empty());
        place.map(|place| rooted("--checkpoints", place)).transpose()
    }

    /// Where checkpoints are kept.
    ///
    /// # Errors
    /// It was not said, and does not follow from where the job's state is.
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
}

/// The mode with its numbers.
fn mode(spec: &Spec) -> Mode {
    match spec.mode() {
        spec::Mode::Sync => Mode::Sync { delay: spec.delay() },
        spec::Mode::Async => Mode::Async {
            staleness_window: spec.staleness_window(),
            scale_by_staleness: spec.scale_by_staleness,
        },
    }
}
