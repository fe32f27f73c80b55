//! `shoal doctor`: what is to be checked, and how it is told.

#[cfg(feature = "cluster")]
use crate::cluster::ClusterChoice;
use crate::doctor::{self, Wanted, outcome};
use shoal_runner::output::{Output, print_outcome};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check whether jobs run on this machine, and say what to do where not
///
/// Builds, limits, disk, network, clock, device, certificates, and a Kubernetes cluster if there is one. Each check is ok, a warning,
/// failed or not applicable. Nothing is changed, and nothing is left behind. Exit code 1 if a check has failed.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal doctor\n  shoal doctor --folder /mnt/scratch --members 200\n  shoal doctor -o json"
)]
pub(crate) struct DoctorArguments {
    /// Folder in which runs are to be kept; by default runs, in the working directory
    #[arg(long, default_value = "runs", value_name = "DIR")]
    folder: PathBuf,
    /// Trainers and pservers of the largest job that is to run here
    #[arg(long, default_value_t = 16, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=40_000))]
    members: u64,
    /// Folder with certificates to check, as for other commands
    #[arg(long, env = "SHOAL_TLS", value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Folder with certificates for an etcd over TLS to check
    #[arg(long, env = "SHOAL_STORE_TLS", value_name = "DIR")]
    store_tls: Option<PathBuf>,
    #[cfg_attr(
        feature = "cluster",
        doc = "Insist on a Kubernetes cluster: that there is none, or that it does not answer, fails"
    )]
    #[cfg_attr(not(feature = "cluster"), doc = "Not in this build: insist on a Kubernetes cluster")]
    #[arg(long)]
    cluster: bool,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    choice: ClusterChoice,
    /// How to print what was found
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) fn run(
    arguments: DoctorArguments,
    line: &clap::Command,
    named: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    #[cfg(not(feature = "cluster"))]
    if arguments.cluster {
        return Err(crate::absent::flag("`shoal doctor --cluster`", "cluster").into());
    }
    let wanted = Wanted {
        folder: arguments.folder,
        members: arguments.members,
        certificates: arguments.tls.into_iter().chain(arguments.store_tls).collect(),
        line: line.clone(),
        config: named.map(Path::to_owned),
        #[cfg(feature = "cluster")]
        insists_on_cluster: arguments.cluster || arguments.choice.context.is_some(),
        #[cfg(feature = "cluster")]
        cluster: arguments.choice,
    };
    let found = doctor::examine(&wanted);
    match arguments.output {
        Output::Text => print_outcome(outcome::text(&found))?,
        Output::Json => print_outcome(outcome::object(&found))?,
    }
    Ok(if outcome::is_well(&found) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
