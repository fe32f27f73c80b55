//! The pserver as a program of its own; the same as `shoal pserver`.

use clap::Parser;
use shoal_runtime::host::{program, shutdown::Shutdown, telemetry};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "shoal-pserver", version, about = "A parameter server of a Shoal job")]
struct Arguments {
    #[command(flatten)]
    settings: shoal_pserver::PserverSettings,
}

fn main() -> anyhow::Result<ExitCode> {
    program::run(live())
}

async fn live() -> anyhow::Result<ExitCode> {
    let settings = Arguments::parse().settings;
    telemetry::start("pserver", settings.log_format);
    let (leave, stop) = Shutdown::on_second_signal()?;
    if let Err(error) = shoal_pserver::run(settings, leave, stop).await {
        telemetry::last_words(&format!("{error:#}"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
