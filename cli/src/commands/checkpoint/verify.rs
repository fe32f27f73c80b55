//! `shoal checkpoint verify`: reads every byte, names everything that is wrong, and fails if anything is.

use super::choice::{Chosen, PlaceChoice, reached};
use serde_json::json;
use shoal_runner::output::{Output, print_outcome};
use shoal_runtime::cluster::ManifestRecord;
use shoal_runtime::host::checkpoints::{Completeness, Fault, Report, verify};
use std::process::ExitCode;

/// Read checkpoints whole and check every checksum
#[derive(clap::Args)]
#[command(after_help = "Example: shoal checkpoint verify --checkpoint 12\n\
Exits with 1 if anything is wrong, and says in which file.")]
pub(crate) struct VerifyArguments {
    /// Only this one; by default all that are kept
    #[arg(long, value_name = "NUMBER")]
    checkpoint: Option<u64>,
    #[command(flatten)]
    place: PlaceChoice,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn run(arguments: VerifyArguments) -> anyhow::Result<ExitCode> {
    let chosen = arguments.place.open().await?;
    let found = verified(&chosen, arguments.checkpoint).await?;
    let is_sound = found.iter().all(|(_, report)| report.faults.is_empty());
    match arguments.output {
        Output::Json => print_outcome(json!({
            "sound": is_sound,
            "checkpoints": found.iter().map(|(number, report)| json!({
                "checkpoint": number, "bytes": report.bytes, "pieces": report.pieces,
                "faults": report.faults.iter().map(|fault| json!({
                    "file": fault.file, "offset": fault.offset, "what": fault.what,
                })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        }))?,
        Output::Text => {
            for (number, Report { bytes, pieces, faults }) in &found {
                let word = if faults.is_empty() { "sound" } else { "DAMAGED" };
                print_outcome(format_args!(
                    "checkpoint {number}: {word}, {pieces} pieces, {bytes} bytes read"
                ))?;
                faults.iter().try_for_each(|fault| print_outcome(format_args!("  {fault}")))?;
            }
            if found.is_empty() {
                print_outcome(format_args!("{}: none yet", chosen.storage.place()))?;
            }
        }
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is found of one checkpoint, or of all that are kept.
pub(super) async fn verified(chosen: &Chosen, number: Option<u64>) -> anyhow::Result<Vec<(u64, Report)>> {
    let (records, mut found) = match (number, &chosen.document) {
        (Some(number), _) => (vec![chosen.record(Some(number)).await?], Vec::new()),
        (None, Some(document)) => (document.checkpoints.iter().map(|kept| kept.record).collect(), Vec::new()),
        (None, None) => complete(chosen).await?,
    };
    for record in records {
        let report = verify(&chosen.storage, &record).await.map_err(reached)?;
        found.push((record.checkpoint.0, report));
    }
    found.sort_by_key(|(number, _)| *number);
    Ok(found)
}

/// Without a store: what is complete is to be read, and what is not is reported as such unless it was never committed.
async fn complete(chosen: &Chosen) -> anyhow::Result<(Vec<ManifestRecord>, Vec<(u64, Report)>)> {
    let (mut records, mut faulty) = (Vec::new(), Vec::new());
    for entry in chosen.entries().await? {
        match entry.completeness {
            Completeness::Complete(record) => records.push(record),
            Completeness::Incomplete(what) => {
                let manifest = entry.checkpoint.manifest_object();
                if chosen.storage.bytes_of(&manifest).await.is_ok() {
                    let fault = Fault { file: chosen.storage.at(&manifest), offset: 0, what };
                    faulty.push((entry.checkpoint.0, Report { faults: vec![fault], ..Report::default() }));
                }
            }
        }
    }
    Ok((records, faulty))
}
