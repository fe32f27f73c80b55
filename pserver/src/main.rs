//! The pserver as a program of its own; the same as `shoal pserver`.

use clap::Parser;
use shoal_runtime::host::{shutdown::Shutdown, telemetry};

#[derive(Parser)]
#[command(name = "shoal-pserver", version, about = "A parameter server of a Shoal job")]
struct Arguments {
    #[command(flatten)]
    settings: shoal_pserver::PserverSettings,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    telemetry::start();
    let (leave, stop) = Shutdown::on_second_signal()?;
    shoal_pserver::run(Arguments::parse().settings, leave, stop).await
}
