//! The master as a program of its own; the same as `shoal master`.

use clap::Parser;
use shoal_runtime::host::{program, shutdown::Shutdown, telemetry};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "shoal-master", version, about = "The master of a Shoal job")]
struct Arguments {
    #[command(flatten)]
    settings: shoal_master::settings::MasterSettings,
}

fn main() -> anyhow::Result<ExitCode> {
    program::run(live())
}

async fn live() -> anyhow::Result<ExitCode> {
    let settings = Arguments::parse().settings;
    telemetry::start("master", settings.log_format);
    if let Err(error) = shoal_master::run(settings, |_| {}, Shutdown::on_signal()?).await {
        telemetry::last_words(&format!("{error:#}"));
        return Ok(if shoal_master::is_hopeless(&error) { ExitCode::from(2) } else { ExitCode::FAILURE });
    }
    Ok(ExitCode::SUCCESS)
}
