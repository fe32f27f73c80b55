//! The master as a program of its own; the same as `shoal master`.

use clap::Parser;
use shoal_runtime::host::{shutdown::Shutdown, telemetry};

#[derive(Parser)]
#[command(name = "shoal-master", version, about = "The master of a Shoal job")]
struct Arguments {
    #[command(flatten)]
    settings: shoal_master::settings::MasterSettings,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    telemetry::start();
    let arguments = Arguments::parse();
    shoal_master::run(arguments.settings, |_| {}, Shutdown::on_signal()?).await
}
