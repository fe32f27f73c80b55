//! `shoal master`, `shoal pserver`, `shoal operator`: the roles by hand, as a cluster or the local runner starts them.

use rustix::process::{Resource, getrlimit, setrlimit};
use shoal_runner::exit;
use shoal_runtime::host::{files, shutdown::Shutdown, telemetry};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run the master of a job
#[derive(clap::Args)]
#[command(after_help = "Example: shoal master --job digits --data 'data/train-*.recordio' --pservers 2")]
pub(crate) struct MasterArguments {
    #[command(flatten)]
    settings: shoal_master::settings::MasterSettings,
    /// Write the address listened on into this file, once it is known
    #[arg(long, value_name = "FILE")]
    address_file: Option<PathBuf>,
}

/// Run a parameter server
#[derive(clap::Args)]
#[command(after_help = "Example: shoal pserver --master 127.0.0.1:7400 --name pserver-0")]
pub(crate) struct PserverArguments {
    #[command(flatten)]
    settings: shoal_pserver::PserverSettings,
}

/// Run the Kubernetes operator, which looks after TrainingJobs
#[cfg(feature = "cluster")]
#[derive(clap::Args)]
#[command(
    after_help = "Example: KUBECONFIG=~/.kube/config shoal operator --namespace default --http 127.0.0.1:8080\n\
In a cluster it is installed by kubectl apply -k deploy/."
)]
pub(crate) struct OperatorArguments {
    #[command(flatten)]
    settings: shoal_operator::settings::OperatorSettings,
}

pub(crate) async fn master(arguments: MasterArguments) -> anyhow::Result<ExitCode> {
    telemetry::start("master", arguments.settings.log_format);
    take_open_files();
    let file = arguments.address_file;
    let ready = |address: std::net::SocketAddr| {
        if let Some(file) = file
            && let Err(error) = files::write(&file, address.to_string().as_bytes())
        {
            tracing::error!("{error}");
        }
    };
    Ok(ended(shoal_master::run(arguments.settings, ready, Shutdown::on_signal()?).await))
}

pub(crate) async fn pserver(arguments: PserverArguments) -> anyhow::Result<ExitCode> {
    telemetry::start("pserver", arguments.settings.log_format);
    take_open_files();
    let (leave, stop) = Shutdown::on_second_signal()?;
    Ok(ended(shoal_pserver::run(arguments.settings, leave, stop).await))
}

#[cfg(feature = "cluster")]
pub(crate) async fn operator(arguments: OperatorArguments) -> anyhow::Result<ExitCode> {
    telemetry::start("operator", arguments.settings.log_format);
    Ok(ended(shoal_operator::run(arguments.settings, Shutdown::on_signal()?).await))
}

/// As many open files as this process may have: each connection is one.
fn take_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "no more files can be opened than are allowed at first");
    }
}

/// The exit code of a role that has ended; why it failed is said in the format of its logs.
fn ended(ended: anyhow::Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            telemetry::last_words(&format!("{error:#}"));
            exit::code_of(&error)
        }
    }
}
