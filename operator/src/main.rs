//! The operator as a program of its own; the same as `shoal operator`.

use clap::Parser;
use shoal_runtime::host::{output, program, shutdown::Shutdown, telemetry};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "shoal-operator", version, about = "The Kubernetes operator of Shoal")]
struct Arguments {
    #[command(flatten)]
    settings: shoal_operator::settings::OperatorSettings,
    /// Print the definitions of the resources as YAML, and end
    #[arg(long)]
    crds: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    program::run(live())
}

async fn live() -> anyhow::Result<ExitCode> {
    let Arguments { settings, crds } = Arguments::parse();
    if crds {
        let definitions = shoal_operator::api::definitions_as_yaml().map_err(anyhow::Error::msg)?;
        output::result(definitions.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    telemetry::start("operator", settings.log_format);
    if let Err(error) = shoal_operator::run(settings, Shutdown::on_signal()?).await {
        telemetry::last_words(&format!("{error:#}"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
