//! `shoal checkpoint`: what checkpoints there are, whether they are sound, the model in one, one more now.

pub(super) mod choice;
mod export;
mod ls;
mod now;
#[cfg(test)]
mod tests;
mod verify;

use std::process::ExitCode;

/// List, verify and export checkpoints, or ask for one now
#[derive(clap::Args)]
#[command(after_help = "Example: shoal checkpoint ls\n\
ls, verify and export read the place itself: they need no running job, and disturb none.")]
pub(crate) struct CheckpointArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Ls(ls::LsArguments),
    Verify(verify::VerifyArguments),
    Export(export::ExportArguments),
    Now(now::NowArguments),
}

pub(crate) async fn run(arguments: CheckpointArguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Ls(arguments) => ls::run(arguments).await,
        Command::Verify(arguments) => verify::run(arguments).await,
        Command::Export(arguments) => export::run(arguments).await,
        Command::Now(arguments) => now::run(arguments).await,
    }
}
