//! `shoal certs`: a local authority, the certificates it issues, and what a certificate says. It prints no key.

use serde_json::json;
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print_outcome};
use shoal_runner::validity::lasting;
use shoal_runtime::cluster::job_check;
use shoal_runtime::host::authority::{Authority, lifetime};
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::{Identity, Role, described};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Make certificates for TLS between the roles of a job
///
/// A certificate is for one role of one job. Give each role the folder with its own by --tls; issuing again into the same
/// folder changes the certificate of a running process within seconds.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  shoal certs init authority\n  shoal certs issue --authority authority --job digits certs\n  \
shoal master --job digits --tls certs/master ...\n  shoal status --master HOST:PORT --tls certs/client"
)]
pub(crate) struct CertsArguments {
    #[command(subcommand)]
    command: CertsCommand,
}

#[derive(clap::Subcommand)]
enum CertsCommand {
    Init(InitArguments),
    Issue(IssueArguments),
    Show(ShowArguments),
}

/// Make an authority: ca.pem, which everybody may know, and ca.key, which signs and stays here
#[derive(clap::Args)]
struct InitArguments {
    /// Folder to make it in
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How long it is good for: a number with s, m, h or d
    #[arg(long, default_value = "3650d", value_name = "TIME", value_parser = lifetime)]
    valid: Duration,
}

/// Issue certificates: ca.pem, cert.pem and key.pem, all three replaced at one moment if they are there
#[derive(clap::Args)]
#[command(
    after_help = "Example: shoal certs issue --authority authority --job digits --role trainer --valid 24h certs/trainer"
)]
struct IssueArguments {
    /// Folder of the authority
    #[arg(long, value_name = "DIR")]
    authority: PathBuf,
    /// Name of the job, as `shoal master --job` has it
    #[arg(long)]
    job: String,
    /// For which role; without it for all four, in folders OUT/master, OUT/pserver, OUT/trainer and OUT/client
    #[arg(long, value_parser = ["master", "pserver", "trainer", "client"])]
    role: Option<String>,
    /// How long it is good for: a number with s, m, h or d
    #[arg(long, default_value = "90d", value_name = "TIME", value_parser = lifetime)]
    valid: Duration,
    /// Folder to write into
    #[arg(value_name = "OUT")]
    out: PathBuf,
}

/// Show whom the certificate in a folder is for, and until when; exits with 1 if it cannot be used
#[derive(clap::Args)]
struct ShowArguments {
    /// Folder with ca.pem, cert.pem and key.pem
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How to print it
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) fn run(arguments: &CertsArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        CertsCommand::Init(arguments) => {
            Authority::create(&arguments.folder, lasting(arguments.valid)).map_err(Exit::Usage)?;
            let folder = arguments.folder.display();
            print_outcome(format_args!("made an authority in {folder}: keep ca.key to yourself"))?;
            Ok(ExitCode::SUCCESS)
        }
        CertsCommand::Issue(arguments) => issue(arguments),
        CertsCommand::Show(arguments) => Ok(show(&arguments.folder, arguments.output)?),
    }
}

fn issue(arguments: &IssueArguments) -> anyhow::Result<ExitCode> {
    job_check::name(&arguments.job)
        .map_err(|fault| Exit::Usage(format!("--job {:?} {}", arguments.job, fault.what)))?;
    let authority = Authority::open(&arguments.authority).map_err(Exit::Usage)?;
    let role = arguments.role.as_deref().map(str::parse::<Role>).transpose().map_err(Exit::Usage)?;
    let folders: Vec<(Role, PathBuf)> = match role {
        Some(role) => vec![(role, arguments.out.clone())],
        None => Role::ALL.map(|role| (role, arguments.out.join(role.word()))).to_vec(),
    };
    for (role, folder) in folders {
        let identity = Identity { job: arguments.job.clone(), role };
        let issued = authority.issue(&identity, lasting(arguments.valid)).map_err(Exit::Usage)?;
        issued.write(&folder).map_err(Exit::Usage)?;
        print_outcome(format_args!(
            "{}: {identity}, good for {}",
            folder.display(),
            words(arguments.valid.as_secs())
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(folder: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let (identity, validity) = described(folder).map_err(Exit::Usage)?;
    let fault = Security::open(Some(folder), false, None).err();
    let left = validity.until.saturating_sub(wall_seconds());
    match output {
        Output::Json => print_outcome(json!({
            "job": identity.job, "role": identity.role.word(), "valid_from": validity.from,
            "valid_until": validity.until, "seconds_left": left, "fault": fault,
        }))?,
        Output::Text => {
            print_outcome(format_args!("{identity}"))?;
            match &fault {
                None => print_outcome(format_args!("good for another {}", words(left)))?,
                Some(fault) => print_outcome(format_args!("cannot be used: {fault}"))?,
            }
        }
    }
    Ok(if fault.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A number of seconds in the largest unit of which there are two.
fn words(seconds: u64) -> String {
    let units = [(86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds")];
    let (length, unit) =
        units.into_iter().find(|(length, _)| seconds >= 2 * length).unwrap_or((1, "seconds"));
    format!("{} {unit}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_in_a_unit_that_people_read() {
        assert_eq!(
            [0, 119, 120, 7200, 172_799, 172_800].map(words),
            ["0 seconds", "119 seconds", "2 minutes", "2 hours", "47 hours", "2 days"]
        );
    }
}
