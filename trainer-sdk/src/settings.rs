//! A trainer's settings, from `SHOAL_*` variables: the same program runs on a laptop and in a pod.

use crate::error::TrainError;
use crate::inspection::InspectionSettings;
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::Role;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of one trainer.
#[derive(Clone, Debug)]
pub struct TrainerSettings {
    /// Where the master listens, or those who may lead the job, with commas between them (`SHOAL_MASTER`, default
    /// `127.0.0.1:7400`). A call that finds no leader at one address turns to the next.
    pub master: String,
    /// The job; empty to take whichever the master runs (`SHOAL_JOB`).
    pub job: String,
    /// Unique in the job (`SHOAL_TRAINER_NAME`, default `trainer-PID`).
    pub name: String,
    /// How long no master may answer as the job's leader before the trainer gives up (`SHOAL_PATIENCE_SECONDS`, default
    /// 120). A pserver that does not answer never ends a trainer: as long as the master says that the job goes on, it
    /// is tried again, or its blocks are found elsewhere.
    pub patience: Duration,
    /// How long one attempt of a call may take, beyond what the other side may keep it open. `None`: half a lease's time to
    /// live, at least 200 ms and at most 10 s, so that one lost answer never costs more than that.
    pub attempt: Option<Duration>,
    /// Address of the pages /metrics, /healthz and /readyz (`SHOAL_HTTP`, default none).
    pub http: Option<SocketAddr>,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem` (or a Kubernetes secret's `ca.crt`, `tls.crt`, `tls.key`): every
    /// connection is over TLS, with roles of the same job alone (`SHOAL_TLS`, default none).
    pub tls: Option<PathBuf>,
    /// Without `tls`: whether plaintext may leave this machine (`SHOAL_PLAINTEXT`, default false).
    pub plaintext: bool,
    /// A pause before each microbatch, to make a job last (`SHOAL_PACE_MILLIS`, default 0). Changes no bit.
    pub pace: Duration,
    /// Where the trainer's own work that takes a processor's time runs: the decoding of chunks, and all that goes over the whole
    /// model. In simulations in place.
    pub processors: Processors,
    /// Where pushes that pservers answered `Applied` are written down, one JSON line for each block
    /// (`SHOAL_PUSH_LOG`, default nowhere). For tests that compare it with what pservers recover.
    pub push_log: Option<PathBuf>,
    /// What is written of the microbatches that are computed, and where (`SHOAL_INSPECT`, default nothing; `shoal replay --inspect`
    /// sets it).
    pub inspection: Option<InspectionSettings>,
}

impl Default for TrainerSettings {
    fn default() -> TrainerSettings {
        TrainerSettings {
            master: "127.0.0.1:7400".to_owned(),
            job: String::new(),
            name: format!("trainer-{}", std::process::id()),
            patience: Duration::from_secs(120),
            attempt: None,
            http: None,
            tls: None,
            plaintext: false,
            pace: Duration::ZERO,
            processors: Processors::all(),
            push_log: None,
            inspection: None,
        }
    }
}

impl TrainerSettings {
    /// The settings that the environment gives.
    ///
    /// # Errors
    /// A number that is none; the message names the variable.
    pub fn from_env() -> Result<TrainerSettings, TrainError> {
        let mut settings = TrainerSettings::default();
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let number = |name: &str, default: Duration, unit: fn(u64) -> Duration| match read(name) {
            None => Ok(default),
            Some(value) => value
                .parse()
                .map(unit)
                .map_err(|_| TrainError::Settings(format!("{name}={value:?}: give a whole number"))),
        };
        settings.master = read("SHOAL_MASTER").unwrap_or(settings.master);
        settings.job = read("SHOAL_JOB").unwrap_or(settings.job);
        settings.name = read("SHOAL_TRAINER_NAME").unwrap_or(settings.name);
        settings.patience = number("SHOAL_PATIENCE_SECONDS", settings.patience, Duration::from_secs)?;
        settings.pace = number("SHOAL_PACE_MILLIS", settings.pace, Duration::from_millis)?;
        if let Some(address) = read("SHOAL_HTTP") {
            let address = address
                .parse()
                .map_err(|_| TrainError::Settings(format!("SHOAL_HTTP={address:?}: give HOST:PORT")));
            settings.http = Some(address?);
        }
        settings.push_log = read("SHOAL_PUSH_LOG").map(PathBuf::from);
        settings.inspection =
            read("SHOAL_INSPECT").map(|said| InspectionSettings::parse(&said)).transpose()?;
        settings.tls = read("SHOAL_TLS").map(PathBuf::from);
        settings.plaintext = match read("SHOAL_PLAINTEXT").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(TrainError::Settings(format!("SHOAL_PLAINTEXT={other:?}: give true or false")));
            }
        };
        Ok(settings)
    }

    /// How connections are secured.
    ///
    /// # Errors
    /// Files that cannot be used, a certificate for another role or another job.
    pub fn security(&self) -> Result<Security, TrainError> {
        let security = Security::open(self.tls.as_deref(), self.plaintext, Some(Role::Trainer));
        let security = security.map_err(|why| TrainError::Settings(format!("SHOAL_TLS: {why}")))?;
        if !self.job.is_empty() {
            security.check_job(&self.job).map_err(|why| TrainError::Settings(format!("SHOAL_TLS: {why}")))?;
        }
        Ok(security)
    }

    /// How long one attempt may take in a job of this time to live, or while that is not known.
    pub(crate) fn attempt(&self, ttl: Option<Duration>) -> Duration {
        let (least, most) = (Duration::from_millis(200), Duration::from_secs(10));
        self.attempt.unwrap_or_else(|| ttl.map_or(most, |ttl| (ttl / 2).clamp(least, most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_lasts_half_a_time_to_live_within_bounds_unless_it_is_set() {
        let mut settings = TrainerSettings::default();
        let attempt = |settings: &TrainerSettings, ttl: u64| {
            settings.attempt(Some(Duration::from_millis(ttl))).as_millis()
        };
        let attempts = [100, 1000, 15_000, 100_000].map(|ttl| attempt(&settings, ttl));
        assert_eq!(attempts, [200, 500, 7500, 10_000]);
        settings.attempt = Some(Duration::from_millis(30));
        assert_eq!(attempt(&settings, 1000), 30);
    }
}
