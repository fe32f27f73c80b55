//! `shoal checkpoint ls`: what lies in a place, and which of it the job would go back to.

use super::choice::{Chosen, PlaceChoice, reached};
use serde_json::{Value, json};
use shoal_runner::output::{Output, print};
use shoal_runtime::cluster::CheckpointId;
use shoal_runtime::host::checkpoints::{Completeness, Entry, load_unrecorded};
use std::process::ExitCode;

/// List the checkpoints of a job
#[derive(clap::Args)]
#[command(after_help = "Example: shoal checkpoint ls --run runs/latest\n\
Lengths and manifests are looked at, not every byte: `shoal checkpoint verify` reads all.")]
pub(crate) struct LsArguments {
    #[command(flatten)]
    place: PlaceChoice,
    /// How to print it
    #[arg(short, long, default_value = "text")]
    output: Output,
}

/// One checkpoint, as it is listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) checkpoint: u64,
    /// `newest`, `best`, `kept`, `base`, `left behind`, `DAMAGED`, `incomplete`.
    pub(super) standing: &'static str,
    /// What is wrong or in the way, if anything.
    pub(super) why: Option<String>,
    pub(super) version: Option<u64>,
    /// Its own; not those of what it rests on.
    pub(super) bytes: Option<u64>,
    /// Of one that has what changed since others: the oldest of these.
    pub(super) rests_on: Option<u64>,
    pub(super) written: Option<String>,
}

pub(crate) async fn run(arguments: LsArguments) -> anyhow::Result<ExitCode> {
    let chosen = arguments.place.open().await?;
    let lines = lines(&chosen).await?;
    match arguments.output {
        Output::Json => print(json!({
            "place": chosen.storage.place(),
            "newest": chosen.newest().await?.map(|record| record.checkpoint.0),
            "is_store_known": chosen.document.is_some(),
            "checkpoints": lines.iter().map(json_of).collect::<Vec<_>>(),
        }))?,
        Output::Text if lines.is_empty() => print(format_args!("{}: none yet", chosen.storage.place()))?,
        Output::Text => {
            let text: Vec<String> = lines.iter().map(text_of).collect();
            print(format_args!("checkpoint   version        bytes  written               standing"))?;
            print(text.join("\n"))?;
            if chosen.document.is_none() {
                print("which is the newest is known to the master's store alone: name it by --store")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything in the place, and everything that the store says should be there.
pub(super) async fn lines(chosen: &Chosen) -> anyhow::Result<Vec<Line>> {
    let mut entries = chosen.entries().await?;
    let kept = chosen.document.iter().flat_map(|document| &document.checkpoints);
    for record in kept.map(|kept| kept.record) {
        if entries.iter().all(|entry| entry.checkpoint != record.checkpoint) {
            let completeness = Completeness::Incomplete("nothing of it is there".into());
            entries.push(Entry { checkpoint: record.checkpoint, completeness });
        }
    }
    entries.sort_by_key(|entry| entry.checkpoint);
    let newest = chosen.newest().await?.map(|record| record.checkpoint);
    let mut lines = Vec::with_capacity(entries.len());
    for entry in entries {
        lines.push(line(chosen, entry, newest).await?);
    }
    Ok(lines)
}

async fn line(chosen: &Chosen, entry: Entry, newest: Option<CheckpointId>) -> anyhow::Result<Line> {
    let id = entry.checkpoint;
    let (document, known) = (chosen.document.as_ref(), chosen.known(id.0));
    let dropped =
        document.and_then(|document| document.damaged.iter().find(|found| found.record.checkpoint == id));
    let is_kept =
        document.is_none_or(|document| document.checkpoints.iter().any(|kept| kept.record.checkpoint == id));
    let is_base = document.is_some_and(|document| document.checkpoints.iter().any(|kept| kept.needs(id)));
    let (standing, why) = match (&entry.completeness, dropped) {
        (_, Some(found)) => ("DAMAGED", Some(format!("{}: {}", found.file, found.what))),
        (Completeness::Complete(found), None) if known.is_some_and(|known| known != *found) => {
            ("DAMAGED", Some(String::from("its manifest is not the one that the store knows")))
        }
        (Completeness::Complete(_), None) if document.is_some() && newest == Some(id) => ("newest", None),
        (Completeness::Complete(_), None) if is_kept => {
            let is_best = chosen.best().is_ok_and(|best| best.checkpoint == id);
            let kept = if is_best { "best" } else { "kept" };
            (if document.is_some() { kept } else { "complete" }, None)
        }
        (Completeness::Complete(_), None) if is_base => ("base", Some(String::from("later ones rest on it"))),
        (Completeness::Complete(_), None) => {
            ("left behind", Some(String::from("the store does not know it")))
        }
        (Completeness::Incomplete(why), None) if known.is_some() => ("DAMAGED", Some(why.clone())),
        (Completeness::Incomplete(why), None) => ("incomplete", Some(why.clone())),
    };
    let mut line =
        Line { checkpoint: id.0, standing, why, version: None, bytes: None, rests_on: None, written: None };
    if let Completeness::Complete(record) = entry.completeness {
        let (_, manifest) = load_unrecorded(&chosen.storage, id).await.map_err(reached)?;
        line.version = Some(manifest.version().0);
        let own = manifest.files.iter().filter(|file| manifest.is_own(file));
        line.bytes = Some(record.bytes + own.map(|file| file.bytes).sum::<u64>());
        line.rests_on = Some(manifest.oldest()).filter(|oldest| *oldest < id).map(|oldest| oldest.0);
        line.written = Some(chosen.storage.written_at(&id.manifest_object()).await.map_err(reached)?);
    }
    Ok(line)
}

fn text_of(line: &Line) -> String {
    let number = |number: Option<u64>| number.map_or(String::from("-"), |number| number.to_string());
    let why = line.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
    let written = line.written.as_deref().unwrap_or("-");
    let (version, bytes) = (number(line.version), number(line.bytes));
    let rests_on = line.rests_on.map_or(String::new(), |oldest| format!(" (rests on {oldest} and later)"));
    let (number, standing) = (line.checkpoint, line.standing);
    format!("{number:>10} {version:>9} {bytes:>12}  {written:<20}  {standing}{why}{rests_on}")
}

fn json_of(line: &Line) -> Value {
    json!({
        "checkpoint": line.checkpoint, "standing": line.standing, "why": line.why, "version": line.version,
        "bytes": line.bytes, "rests_on": line.rests_on, "written": line.written, "is_newest": line.standing == "newest",
    })
}
