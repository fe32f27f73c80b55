//! The master's settings: flag, then `SHOAL_*`, then default.

use crate::machine::Wanted;
use anyhow::ensure;
use shoal_runtime::cluster::tree::MICROBATCHES_PER_STEP_MAX;
use shoal_runtime::cluster::{JobId, JobSettings, Manifest};
use std::net::SocketAddr;

/// What a job is. Shared by `shoal master` and `shoal run`.
#[derive(clap::Args, Clone, Debug)]
pub struct JobArguments {
    /// RecordIO files of the data set: paths or quoted globs, in order
    #[arg(long, env = "SHOAL_DATA", required = true, num_args = 1.., value_delimiter = ',', value_name = "GLOB")]
    pub data: Vec<String>,
    /// Passes over the data
    #[arg(long, env = "SHOAL_EPOCHS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
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
}

/// Settings of one master.
#[derive(clap::Args, Clone, Debug)]
pub struct MasterSettings {
    /// Name of the job; calls that name another are refused
    #[arg(long, env = "SHOAL_JOB", default_value = "job")]
    pub job: String,
    #[command(flatten)]
    job_arguments: JobArguments,
    /// Address to listen on; port 0 lets the system choose
    #[arg(long, env = "SHOAL_MASTER_LISTEN", default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Pservers to wait for before the model is placed
    #[arg(long, env = "SHOAL_PSERVERS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub pservers: u32,
    /// Trainers that a supervisor should run; changed later by `shoal scale`
    #[arg(long, env = "SHOAL_TRAINERS", default_value_t = 1)]
    pub trainers: u32,
}

impl std::ops::Deref for MasterSettings {
    type Target = JobArguments;
    fn deref(&self) -> &JobArguments {
        &self.job_arguments
    }
}

impl MasterSettings {
    /// The job over a scanned data set.
    pub fn job_settings(&self, manifest: &Manifest) -> anyhow::Result<JobSettings> {
        ensure!(!self.job.is_empty() && self.job.len() <= 253, "--job: a name has 1 to 253 bytes");
        Ok(JobSettings {
            job: JobId(self.job.clone()),
            seed: self.seed,
            epochs: self.epochs,
            microbatch_records: self.microbatch_records,
            microbatches_per_step: self.microbatches_per_step,
            shuffle_run: self.shuffle_run,
            records: manifest.record_count(),
            manifest_fingerprint: manifest.fingerprint(),
            lease_ttl_millis: self.lease_ttl_millis,
        })
    }
    /// What to wait for and to run.
    pub fn wanted(&self) -> Wanted {
        Wanted { pservers: self.pservers, trainers: self.trainers }
    }
}
