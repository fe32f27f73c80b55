//! What a local run runs, and with which command lines. Starts nothing.

use super::claim::Claim;
use super::folder::RunFolder;
use shoal_job::spec::{Document, Spec};
use shoal_pserver::device::DeviceChoice;
use shoal_runtime::cluster::environment::PROGRAM_VARIABLES;
use shoal_runtime::host::rpc::tls::Role;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What to run.
#[derive(Debug)]
pub struct JobPlan {
    /// The job's.
    pub name: String,
    /// What the job is.
    pub job: Spec,
    /// How many pservers.
    pub pservers: Bounds,
    /// How many trainers.
    pub trainers: Bounds,
    /// How many trainers it begins with.
    pub trainers_at_start: u32,
    /// The training program and its arguments.
    pub program: Vec<OsString>,
    /// What trainers have in their environment beside this one's, by name.
    pub environment: Vec<(String, String)>,
    /// A pause before each microbatch, which changes no bit.
    pub pace: Duration,
    /// MiB that pieces of a checkpoint may hold on each pserver; its own default where absent.
    pub checkpoint_memory: Option<u64>,
    /// Where pservers update dense blocks, in turn; at least one.
    pub devices: Vec<DeviceChoice>,
    /// Where the master's pages for probes are, if anywhere.
    pub http: Option<SocketAddr>,
    /// Where event files for TensorBoard go, if anywhere.
    pub tensorboard: Option<PathBuf>,
    /// Whether all speak over TLS, by credentials of the run's own making.
    pub tls: bool,
    /// Whether each process is a host of a network of the run's own.
    pub has_network: bool,
    /// Whether the master's state is on a disk of the run's own.
    pub has_disk: bool,
    /// Where the run's files are.
    pub folder: RunFolder,
    /// Nobody else works in the folder.
    pub _claim: Claim,
    /// Of a run that goes on; none of a new one.
    pub resumed: Option<Resumed>,
}

/// The numbers that a run that goes on is given; those that it had where they are absent.
#[derive(Clone, Copy, Debug)]
pub struct Resumed {
    /// How many trainers.
    pub trainers: Option<Bounds>,
    /// How many pservers.
    pub pservers: Option<Bounds>,
}

/// Bounds on a number of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Bounds {
    /// At least so many.
    pub min: u32,
    /// At most so many.
    pub max: u32,
}

impl Bounds {
    /// Exactly so many.
    pub fn exactly(number: u32) -> Bounds {
        Bounds { min: number, max: number }
    }
}

impl std::fmt::Display for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.min == self.max {
            true => write!(f, "{}", self.min),
            false => write!(f, "{}:{}", self.min, self.max),
        }
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Bounds, String> {
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is no number"));
        let (min, max) = match text.split_once(':') {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if min < 1 || max < min || max > 10_000 {
            return Err("give 1 <= MIN <= MAX <= 10000".to_owned());
        }
        Ok(Bounds { min, max })
    }
}

/// The variables that a program is started with where this command's own environment says nothing of them.
pub fn unsaid<'a>() -> impl Iterator<Item = (&'a str, String)> {
    let unsaid = PROGRAM_VARIABLES.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    unsaid.map(|(name, value)| (name, value.to_owned()))
}

impl JobPlan {
    /// The master's command line; it listens on `listen`.
    pub fn master_command(&self, shoal: &OsString, listen: &str) -> Vec<OsString> {
        let mut command = vec![shoal.clone(), "master".into()];
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        for (flag, value) in [
            ("--listen", listen.to_owned()),
            ("--job", self.name.clone()),
            ("--address-file", text(self.folder.address())),
            ("--store", text(self.folder.state())),
            ("--pservers", self.pservers.min.to_string()),
            ("--trainers", self.trainers_at_start.to_string()),
        ] {
            command.extend([flag.into(), value.into()]);
        }
        command.push("--spec".into());
        command.extend(Document(self.job.clone()).parts().into_iter().map(OsString::from));
        command.extend(self.tls_flags(Role::Master));
        if let Some(address) = self.http {
            command.extend(["--http".into(), address.to_string().into()]);
        }
        command
    }

    /// The command line of the pserver of that number.
    pub fn pserver_command(
        &self,
        shoal: &OsString,
        listen: &str,
        master: &str,
        name: &str,
        number: usize,
    ) -> Vec<OsString> {
        let device = self.devices.iter().cycle().nth(number % self.devices.len().max(1));
        let device = device.copied().unwrap_or_default();
        let words = ["pserver", "--listen", listen, "--master", master, "--name", name, "--job", &self.name];
        let memory = self.checkpoint_memory.map(|mib| ["--checkpoint-memory".to_owned(), mib.to_string()]);
        let memory = memory.into_iter().flatten().map(OsString::from);
        std::iter::once(shoal.clone())
            .chain(words.map(OsString::from))
            .chain(memory)
            .chain(["--device".into(), device.to_string().into()])
            .chain(self.tls_flags(Role::Pserver))
            .collect()
    }

    fn tls_flags(&self, role: Role) -> Vec<OsString> {
        match (self.tls, self.has_network) {
            (true, _) => vec!["--tls".into(), self.folder.tls_of(role).into()],
            // Nobody else is on that network.
            (false, true) => vec!["--plaintext".into()],
            (false, false) => Vec::new(),
        }
    }

    /// What a trainer finds in its environment.
    pub fn trainer_environment(&self, master: &str, name: &str) -> Vec<(&str, String)> {
        // From the root: a program may go elsewhere before it looks.
        let place = self.folder.tls_of(Role::Trainer);
        let place = std::path::absolute(&place).unwrap_or(place);
        let tls = self.tls.then(|| ("SHOAL_TLS", place.display().to_string()));
        let plaintext = (self.has_network && !self.tls).then(|| ("SHOAL_PLAINTEXT", "true".to_owned()));
        let always = [
            ("SHOAL_MASTER", master.to_owned()),
            ("SHOAL_JOB", self.name.clone()),
            ("SHOAL_TRAINER_NAME", name.to_owned()),
            ("SHOAL_PACE_MILLIS", self.pace.as_millis().to_string()),
        ];
        let own = self.environment.iter().map(|(name, value)| (name.as_str(), value.clone()));
        unsaid().chain(own).chain(always).chain(tls).chain(plaintext).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_one_number_or_two_in_order() {
        assert_eq!("3".parse(), Ok(Bounds::exactly(3)));
        assert_eq!("2:4".parse(), Ok(Bounds { min: 2, max: 4 }));
        for wrong in ["", "0", "4:2", "0:3", "1:20000", "two", "1:2:3"] {
            assert!(wrong.parse::<Bounds>().is_err(), "{wrong}");
        }
    }
}
