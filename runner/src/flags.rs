//! What a command that runs a job is told of it, and the plan that becomes of it.

use super::JobPlan;
use super::claim::Claim;
use super::description::{self, Asked};
use super::folder::RunFolder;
use super::plan::{Bounds, Resumed};
use crate::exit::Exit;
use crate::output::Output;
use shoal_job::spec::{Naming, Spec};
use shoal_master::settings::check_outputs;
use shoal_pserver::device::DeviceChoice;
use shoal_runtime::cluster::plan::EpochShape;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest pause before a microbatch that a job is given to last longer.
const PAUSE_MAX: Duration = Duration::from_millis(300);
/// The most letters of a program's name in that of its job.
const PROGRAM_NAME_MAX: usize = 64;

/// A job on this machine.
#[derive(clap::Args, Clone, Debug)]
pub struct JobFlags<More: clap::Args> {
    /// Number of trainers, or the bounds between which `shoal scale` and chaos may move it; starts with MIN [default: 1]
    #[arg(long, value_name = "MIN[:MAX]")]
    pub trainers: Option<Bounds>,
    /// Number of parameter servers, or the bounds between which chaos may move it; starts with MIN [default: 1]
    #[arg(long, value_name = "MIN[:MAX]")]
    pub pservers: Option<Bounds>,
    /// What the job is.
    #[command(flatten)]
    pub spec: Spec,
    /// What the command that has these flags takes beside them; help lists it here.
    #[command(flatten)]
    pub more: More,
    /// Memory of each pserver for pieces of a checkpoint that wait to be written, in MiB [default: 1024]
    #[arg(long, env = "SHOAL_CHECKPOINT_MEMORY", value_name = "MIB")]
    pub checkpoint_memory: Option<u64>,
    /// Where pservers update dense blocks: see `shoal pserver --help`. Of several, with commas between them, each pserver takes
    /// the next, round and round [default: cpu]
    #[arg(long, env = "SHOAL_DEVICE", value_delimiter = ',', value_name = "DEVICES")]
    pub device: Vec<DeviceChoice>,
    /// How long the program may take to say, before its job begins, what that begins with and which records it has
    /// (SHOAL_DESCRIBE, see docs/training.md); 0: it is not asked
    #[arg(long, env = "SHOAL_DESCRIBE_SECONDS", default_value_t = 120, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub describe_seconds: u64,
    /// Pause before each microbatch, in milliseconds; changes no bit
    #[arg(long, env = "SHOAL_PACE_MILLIS", value_name = "MILLIS")]
    pub pace_millis: Option<u64>,
    /// A variable in the environment of the trainers, beside this command's own; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Speak TLS: an authority is made in the folder, and every process of the run is given a certificate of it
    #[arg(long)]
    pub tls: bool,
    /// How to print the closing output
    #[arg(short, long, default_value = "text")]
    pub output: Output,
    /// The training program, and arguments of its own: they reach it as they are, in every trainer that is ever started
    #[arg(last = true, value_name = "PROGRAM ARGS")]
    pub program: Vec<OsString>,
}

/// What stands in `NAME=VALUE`.
///
/// # Errors
/// It has no name.
pub fn variable(text: &str) -> Result<(String, String), String> {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = named.ok_or_else(|| "give NAME=VALUE".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// What a job runs on and in, beside what its flags say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// It is paced to last about so long, unless it was given a pause.
    pub lasts: Option<Duration>,
    /// The lease TTL where none was asked for.
    pub lease_ttl_millis: Option<u64>,
    /// Whether each process is a host of a network of the run's own.
    pub has_network: bool,
    /// Whether the master's state is on a disk of the run's own.
    pub has_disk: bool,
}

/// Which run it is.
#[derive(Debug)]
pub struct RunIdentity {
    /// The job's.
    pub name: String,
    /// Where the run's files are.
    pub folder: RunFolder,
    /// That the folder is this process's.
    pub claim: Claim,
    /// Whether a run goes on that was there before.
    pub is_resumed: bool,
    /// Where the master's pages for probes are, if anywhere.
    pub http: Option<SocketAddr>,
    /// Where event files for TensorBoard go, if anywhere.
    pub tensorboard: Option<PathBuf>,
}

impl<More: clap::Args> JobFlags<More> {
    /// Refuses what no job can be, before anything is made for it. What of its data are missing the program may say.
    pub fn check(&self) -> Result<(), Exit> {
        let mut spec = self.spec.clone();
        if self.describe_seconds > 0 {
            let said = || vec!["records:1".to_owned()];
            let is_evaluated = spec.eval_steps.is_some() || spec.eval_epochs.is_some();
            if spec.predict.is_none() && spec.eval_data.is_empty() && (is_evaluated || spec.epochs() == 0) {
                spec.eval_data = said();
            }
            if spec.data.is_empty() && (spec.epochs() > 0 || spec.predict.is_some()) {
                spec.data = said();
            }
        }
        check(&spec)
    }

    /// The job with what the program says of it; one that has begun with what it said then.
    async fn described(&self, identity: &RunIdentity) -> anyhow::Result<Spec> {
        let mut job = self.spec.clone();
        let RunIdentity { folder, name, is_resumed, .. } = identity;
        if *is_resumed {
            description::complete(&mut job, &folder.described())?;
        } else if self.describe_seconds > 0 {
            folder.begin(name)?;
            let patience = Duration::from_secs(self.describe_seconds);
            let asked = Asked { program: &self.program, environment: &self.env, patience };
            asked.complete(&mut job, folder).await?;
        }
        check(&job)?;
        Ok(job)
    }

    /// Refuses a program that is not there, before a job begins whose state the next try would meet.
    pub fn check_program(&self) -> Result<(), Exit> {
        let program = self.program.first().map(Path::new).unwrap_or(Path::new(""));
        let is_there = if program.components().count() > 1 || program.is_absolute() {
            program.exists()
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
        };
        match is_there {
            true => Ok(()),
            false => Err(Exit::Usage(format!(
                "cannot start {}: no such file: is the program built, and its path right?",
                crate::shell::path(program)
            ))),
        }
    }

    /// The plan of one run.
    pub async fn plan(&self, identity: RunIdentity, conditions: Conditions) -> anyhow::Result<JobPlan> {
        self.check()?;
        let mut job = self.described(&identity).await?;
        job.lease_ttl_millis = job.lease_ttl_millis.or(conditions.lease_ttl_millis);
        // `runs/latest` is another run once this one has begun.
        if let Some(file) = job.warm_start.as_deref().and_then(|file| std::fs::canonicalize(file).ok()) {
            job.warm_start = file.to_str().map(str::to_owned).or(job.warm_start);
        }
        let trainers = self.trainers.unwrap_or(Bounds::exactly(1));
        let pace = match (self.pace_millis, conditions.lasts) {
            (Some(millis), _) => Duration::from_millis(millis),
            (None, Some(time)) => pace_to_last(&job, trainers.min, time).await?,
            (None, None) => Duration::ZERO,
        };
        let RunIdentity { name, folder, claim, is_resumed, http, tensorboard } = identity;
        Ok(JobPlan {
            name,
            job,
            pservers: self.pservers.unwrap_or(Bounds::exactly(1)),
            trainers,
            trainers_at_start: trainers.min,
            program: self.program.clone(),
            environment: self.env.clone(),
            pace,
            checkpoint_memory: self.checkpoint_memory,
            devices: if self.device.is_empty() { vec![DeviceChoice::Cpu] } else { self.device.clone() },
            http,
            tensorboard,
            tls: self.tls,
            has_network: conditions.has_network,
            has_disk: conditions.has_disk,
            folder,
            _claim: claim,
            resumed: is_resumed.then_some(Resumed { trainers: self.trainers, pservers: self.pservers }),
        })
    }

    /// The program's name, or its script's, as far as it can name a job: it names those that have no name of their own.
    pub fn program_name(&self) -> String {
        let stem = match self.program.split_first() {
            Some((program, rest)) => script(program, rest).unwrap_or_else(|| stem(program)),
            None => String::new(),
        };
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let name: String = stem.chars().take(PROGRAM_NAME_MAX).map(plain).collect();
        match name.trim_matches(['-', '_']) {
            "" => "job".to_owned(),
            name => name.to_owned(),
        }
    }
}

/// Refuses settings that make no job.
fn check(spec: &Spec) -> Result<(), Exit> {
    if let Some(fault) = spec.faults(Naming::Flags).into_iter().next() {
        return Err(Exit::Usage(fault));
    }
    check_outputs(spec).map_err(|error| Exit::Usage(error.to_string()))
}

fn stem(path: &OsStr) -> String {
    Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// What an interpreter is given: of `python -u train.py` it is `train`, of `python -m package.train` too.
fn script(interpreter: &OsStr, words: &[OsString]) -> Option<String> {
    let name = stem(interpreter);
    if !name.starts_with("python") && !["bash", "sh"].contains(&name.as_str()) {
        return None;
    }
    let at = words.iter().position(|word| {
        word == "-m" || Path::new(word).extension().is_some_and(|suffix| suffix == "py" || suffix == "sh")
    })?;
    if words[at] != "-m" {
        return Some(stem(&words[at]));
    }
    words.get(at + 1)?.to_string_lossy().rsplit('.').next().map(str::to_owned)
}

/// The pause before each microbatch with which `trainers` trainers take about that time.
async fn pace_to_last(job: &Spec, trainers: u32, time: Duration) -> anyhow::Result<Duration> {
    let (trained, evaluated) = job.trained_and_evaluated();
    let (manifest, trained) = shoal_master::data_set::scan(trained, evaluated).await?;
    let cut = |records| EpochShape::new(records, job.microbatch_records(), job.microbatches_per_step());
    let evaluated = cut(manifest.record_count() - trained).microbatches();
    let microbatches = (cut(trained).microbatches() * job.epochs() + evaluated).max(1);
    Ok(time.mul_f64(f64::from(trainers) / microbatches as f64).min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use shoal_runtime::cluster::job_check;
    use std::os::unix::ffi::OsStringExt;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: JobFlags<()>,
    }

    #[test]
    fn whatever_a_program_is_called_its_name_names_a_job() {
        let long = "x".repeat(300).into_bytes();
        for (program, named) in [
            (b"target/release/examples/digits_candle".to_vec(), "digits_candle"),
            (b"./train.sh".to_vec(), "train"),
            (b"my prog \xc3\xa9".to_vec(), "my-prog"),
            (b"caf\xe9".to_vec(), "caf"),
            (b"..".to_vec(), "job"),
            (b"-".to_vec(), "job"),
            (long, &"x".repeat(PROGRAM_NAME_MAX)),
        ] {
            assert_eq!(program_name(vec![program]), named);
        }
    }

    #[test]
    fn an_interpreter_gives_its_name_to_no_job() {
        for (program, named) in [
            ("/usr/bin/python3.11 -X dev -u my/train.py --lr 0.1", "train"),
            ("python -m package.train", "train"),
            ("python -u", "python"),
            ("python -m", "python"),
            ("bash ./run.sh it.py", "run"),
            ("target/release/digits train.py", "digits"),
        ] {
            assert_eq!(
                program_name(program.split(' ').map(|word| word.as_bytes().to_vec()).collect()),
                named
            );
        }
    }

    fn program_name(program: Vec<Vec<u8>>) -> String {
        let words = ["shoal", "--data", "d", "--"].map(OsString::from).into_iter();
        let command = Command::parse_from(words.chain(program.into_iter().map(OsString::from_vec)));
        let name = command.flags.program_name();
        job_check::name(&name).unwrap();
        name
    }
}
