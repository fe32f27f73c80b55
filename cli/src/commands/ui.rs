//! `shoal ui`: the live page of a job that somebody else has started, or of a run that is over.

use shoal_runner::client::JobChoice;
use shoal_runner::exit::Exit;
use shoal_runner::output::print;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_ui::{Source, Ui, bind};
use std::net::SocketAddr;
use std::process::ExitCode;

/// Serve a live page of a job
///
/// Members over time, steps, losses and metrics as they come, where the time goes, copies and moves of blocks, checkpoints, what happened.
/// It looks and changes nothing. The page's address has a token, without which nobody gets anything; it is printed once. Ends with Ctrl-C;
/// a run's page can be looked at when the run is over, too.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  shoal ui\n  shoal ui --run runs/digits-1764300000-4242\n  shoal ui digits --namespace team-a\n  shoal ui --master trainer-7:7160 --tls credentials/ --at 127.0.0.1:8080"
)]
pub(crate) struct UiArguments {
    /// Name of a job of a Kubernetes cluster, which is reached through the API server by your own rights. It goes before --master and
    /// --run, which say where another job is
    #[arg(value_name = "JOB")]
    name: Option<String>,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    cluster: crate::cluster::ClusterChoice,
    #[command(flatten)]
    job: JobChoice,
    /// Where the page is served; port 0 is any that is free. Beyond the loopback address it travels in plaintext
    #[arg(long, env = "SHOAL_UI", default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    at: SocketAddr,
}

async fn source(arguments: &UiArguments) -> anyhow::Result<Source> {
    let Some(name) = &arguments.name else {
        #[cfg(feature = "cluster")]
        if arguments.cluster.context.is_some() {
            let what = "--context goes with the name of a job: shoal ui JOB --context CONTEXT";
            return Err(Exit::Usage(what.to_owned()).into());
        }
        return Ok(Source::of(arguments.job.clone()));
    };
    #[cfg(feature = "cluster")]
    return super::cluster::source(&arguments.cluster, name).await;
    #[cfg(not(feature = "cluster"))]
    Err(crate::absent::flag(&format!("`shoal ui {name}`"), "cluster").into())
}

pub(crate) async fn run(arguments: UiArguments) -> anyhow::Result<ExitCode> {
    let mut shutdown = Shutdown::on_signal()?;
    let source = tokio::select! {
        biased;
        () = shutdown.wait() => return Err(Exit::interrupted(&shutdown).into()),
        source = source(&arguments) => source?,
    };
    if let Some(folder) = &source.folder
        && !folder.journal().is_file()
        && folder.master().is_err()
    {
        return Err(Exit::Usage(format!(
            "{} is no run's folder: name one by --run, or a job by --master; a demo's runs are in folders below its own",
            folder.path().display()
        ))
        .into());
    }
    let ui = Ui::start(bind(arguments.at)?, source, None)?;
    print(ui.address())?;
    note!("the live page is served there until Ctrl-C");
    shutdown.wait().await;
    drop(ui);
    Err(Exit::interrupted(&shutdown).into())
}
