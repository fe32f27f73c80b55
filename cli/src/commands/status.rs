//! `shoal status`: how a job is, for people and for scripts.

use super::watch::{self, End};
use super::{Output, print};
use crate::breakdown::{self, Breakdown};
use crate::client::JobChoice;
use crate::data_size;
use crate::evaluations;
use crate::exclusions;
use crate::exit::Exit;
use crate::screen::Section;
use crate::waste::Waste;
use crate::{rewinds, staleness, verified};
use serde_json::{Value, json};
use shoal_runtime::cluster::Precision;
use shoal_runtime::wire::proto::{JobSettings, PserverCounters, PserverStatus, StatusReply};
use std::process::ExitCode;

/// Show how a job is
#[derive(clap::Args)]
#[command(after_help = "Example: shoal status --watch")]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    job: JobChoice,
    /// Show it every second until the job ends, and exit as the job does: with 0 when it is done, 1 when it failed. Drawn
    /// over the one before on a terminal; elsewhere a line each, with -o json an object each
    #[arg(short, long)]
    watch: bool,
    /// How to print it
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) async fn run(arguments: StatusArguments) -> anyhow::Result<ExitCode> {
    let finished = arguments.job.run.join("result.json");
    if arguments.job.master.is_none()
        && let Ok(result) = std::fs::read_to_string(&finished)
    {
        match arguments.output {
            Output::Text => print(format_args!("done; its closing object is in {}", finished.display()))?,
            Output::Json => print(result.trim_end())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.watch {
        return watch::watch(&arguments.job, arguments.output).await;
    }
    let asked = async { arguments.job.connect().await?.status().await };
    let status = match asked.await {
        Ok(status) => status,
        Err(error) => return of_the_end(&arguments, error),
    };
    match arguments.output {
        Output::Text => print(text(&status))?,
        Output::Json => print(json_of(&status))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How a run ended whose master does not answer any more, by its journal.
fn of_the_end(arguments: &StatusArguments, error: anyhow::Error) -> anyhow::Result<ExitCode> {
    let ended = watch::ended(&arguments.job).filter(|_| Exit::is_unreachable(&error));
    let (phase, why) = match ended {
        None => return Err(error),
        Some(End::Done) => ("done", String::new()),
        Some(End::Failed(why)) => ("failed", why),
        Some(End::Interrupted(why)) => ("interrupted", why),
    };
    match arguments.output {
        Output::Json => print(json!({ "phase": phase, "failure": why }))?,
        Output::Text if why.is_empty() => print(phase)?,
        Output::Text if phase == "interrupted" => print(&why)?,
        Output::Text => print(format_args!("{phase}: {why}"))?,
    }
    Ok(if phase == "done" { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sums of the pservers' counters over a job.
pub(crate) fn pserver_totals(status: &StatusReply) -> PserverCounters {
    let mut total = PserverCounters::default();
    for pserver in &status.pservers {
        let counters = pserver.counters.unwrap_or_default();
        total.pushes += counters.pushes;
        total.duplicates_refused += counters.duplicates_refused;
        total.late_pushes += counters.late_pushes;
        total.records_refused += counters.records_refused;
        total.replaced_by_ancestor += counters.replaced_by_ancestor;
        total.busy += counters.busy;
        total.short_steps += counters.short_steps;
        total.bytes_in += counters.bytes_in;
        total.bytes_out += counters.bytes_out;
        total.levels |= counters.levels;
        total.fills += counters.fills;
        total.entries += counters.entries;
        total.bytes_followed += counters.bytes_followed;
        total.moved += counters.moved;
        total.rewound += counters.rewound;
        total.pieces_written += counters.pieces_written;
        total.bytes_written += counters.bytes_written;
        total.bytes_copied_on_write += counters.bytes_copied_on_write;
        total.throttled += counters.throttled;
        total.rows_evicted += counters.rows_evicted;
        total.keys_refused += counters.keys_refused;
        total.device_gradient_bytes += counters.device_gradient_bytes;
        total.device_parameter_bytes += counters.device_parameter_bytes;
        // Others lead what a lost one led.
        if !pserver.lost {
            total.rows += counters.rows;
            total.row_bytes += counters.row_bytes;
            total.device_blocks += counters.device_blocks;
        }
        // The peaks of several pservers need not have been at one time: so much would do for the worst of them.
        total.checkpoint_memory_peak = total.checkpoint_memory_peak.max(counters.checkpoint_memory_peak);
    }
    total
}

/// In which precision a job's gradients of dense parameters travel and are summed.
pub(crate) fn gradients(settings: &JobSettings) -> &'static str {
    Precision::from(settings.gradients()).name()
}

/// The levels of the tree at which nodes were pushed.
pub(crate) fn levels(bits: u64) -> Vec<u32> {
    (0..u64::BITS).filter(|level| bits >> level & 1 == 1).collect()
}

/// The whole status for people.
pub(crate) fn text(status: &StatusReply) -> String {
    let sections = sections(status);
    let lines: Vec<&str> = sections.iter().flat_map(Section::lines).map(String::as_str).collect();
    lines.join("\n")
}

/// The epoch under way, counted from 1, and how many there are; none in a job that does not train. Everything that people
/// read counts so; `epoch` in JSON, in metrics and on the wire are those that are over.
pub(crate) fn epoch(status: &StatusReply) -> Option<(u64, u64)> {
    let epochs = status.settings.as_ref().map_or(0, |settings| settings.epochs);
    (epochs > 0).then(|| ((status.epoch + 1).min(epochs), epochs))
}

/// How far the job is, in a line.
fn progress(status: &StatusReply) -> String {
    if !status.is_progress_known {
        return "progress  not known before every block is heard of".to_owned();
    }
    let epoch =
        epoch(status).map_or_else(String::new, |(epoch, epochs)| format!(", epoch {epoch} of {epochs}"));
    format!("progress  step {} of {}{epoch}", status.step, status.steps)
}

/// The status in the order in which it is read; what counts the most has the lowest weight.
pub(crate) fn sections(status: &StatusReply) -> Vec<Section> {
    let settings = status.settings.clone().unwrap_or_default();
    let failure = if status.failure.is_empty() { String::new() } else { format!(": {}", status.failure) };
    let totals = pserver_totals(status);
    let alone = |weight| move |head| Section { weight, head, details: Vec::new() };
    let rewinds = (status.rewind > 0)
        .then(|| format!("went back {}", rewinds::text(status.rewind, &rewinds::causes(status))));
    let mut all = vec![
        alone(Some(4))(format!("job       {}", settings.job)),
        alone(Some(1))(format!("phase     {}{failure}", status.phase)),
        alone(Some(0))(progress(status)),
        alone(None)(format!("gradients {}", gradients(&settings))),
    ];
    all.extend(data_size::line(status).map(|line| alone(Some(13))(format!("data      {line}"))));
    all.extend(Section::of(Some(5), evaluations::lines(status)));
    all.extend(Section::of(Some(2), trainers(status)));
    all.extend(time(status).into_iter().map(alone(Some(8))));
    all.extend(Section::of(Some(3), pservers(status)));
    all.push(alone(Some(9))(format!(
        "copies    {} wanted of each block; {} in-sync, {} filling",
        status.replicas_wanted, status.copies_in_sync, status.copies_filling
    )));
    all.extend(rewinds.map(alone(Some(10))));
    all.extend(rows(&totals).map(alone(Some(11))));
    all.extend(devices(&totals).into_iter().chain(verified::line(status)).map(alone(Some(12))));
    all.extend(Section::of(Some(7), checkpoints(status)));
    all.extend(Section::of(Some(6), troubles(status)));
    all.extend(counters(status, &totals).map(alone(None)));
    all
}

/// What became of records that cannot be used: how many, then one line each, up to a bound.
fn troubles(status: &StatusReply) -> Vec<String> {
    let lines = exclusions::troubles(status).into_iter().enumerate();
    lines.map(|(at, line)| format!("{}{line}", if at == 0 { "records   " } else { "" })).collect()
}

/// The trainers: how many, then one line each.
fn trainers(status: &StatusReply) -> Vec<String> {
    let mut lines = vec![format!("trainers  {} live, {} wanted", live(status), status.trainers_wanted)];
    let shown = status.trainers.iter().filter(|trainer| trainer.state == "live" || trainer.state == "lost");
    lines.extend(shown.map(|trainer| {
        let counters = trainer.counters.unwrap_or_default();
        format!(
            "  {:<14} {:<5} pid {:<8} {} in hand, {} tasks, {} records",
            trainer.name,
            trainer.state,
            trainer.process,
            trainer.tasks_in_hand,
            counters.tasks,
            counters.records
        )
    }));
    lines
}

/// What was done so far, and what of it was refused.
fn counters(status: &StatusReply, totals: &PserverCounters) -> [String; 4] {
    let leases = status.leases.unwrap_or_default();
    [
        format!("master    term {}", status.master_term),
        format!(
            "tasks     {} leased, {} again, {} speculative, {} expired, {} handed back",
            leases.leased, leases.leased_again, leases.speculative, leases.expired, leases.handed_back
        ),
        format!(
            "pushes    {}, {} duplicates refused, {} late, {} replaced by an ancestor",
            totals.pushes, totals.duplicates_refused, totals.late_pushes, totals.replaced_by_ancestor
        ),
        format!(
            "pieces    {} written ({} bytes), {} bytes copied on write, {} pushes throttled, at most {} bytes held",
            totals.pieces_written,
            totals.bytes_written,
            totals.bytes_copied_on_write,
            totals.throttled,
            totals.checkpoint_memory_peak
        ),
    ]
}

/// The rows of tables, and what became of others; nothing in a job without any.
fn rows(totals: &PserverCounters) -> Option<String> {
    let PserverCounters { rows, row_bytes, rows_evicted, keys_refused, .. } = *totals;
    let refused = match keys_refused {
        0 => String::new(),
        refused => format!("; NEW KEYS WERE REFUSED {refused} times: buckets are full"),
    };
    let all = format!("rows      {rows} in {row_bytes} bytes, {rows_evicted} evicted{refused}");
    (rows + rows_evicted + keys_refused > 0).then_some(all)
}

/// The blocks that devices update; nothing in a job without any.
fn devices(totals: &PserverCounters) -> Option<String> {
    let (blocks, gradients) = (totals.device_blocks, totals.device_gradient_bytes);
    let exchanged =
        format!("{gradients} bytes of gradients, {} of parameters", totals.device_parameter_bytes);
    (blocks > 0).then(|| format!("devices   {blocks} blocks, there already: {exchanged}"))
}

/// What trainers' time went to, what would help, what was computed in vain, how stale updates were.
fn time(status: &StatusReply) -> Vec<String> {
    let shares = Breakdown::of(&status.trainer_totals.unwrap_or_default()).shares();
    let shares = shares.map(|shares| format!("time      {shares}"));
    let advice = breakdown::advice(status).map(|advice| format!("          {advice}"));
    let staleness = staleness::of(status).and_then(|staleness| staleness::line(&staleness));
    let staleness = staleness.map(|line| format!("staleness {line}"));
    let waste = Waste::of(status).line().map(|line| format!("work      {line}"));
    shares.into_iter().chain(advice).chain(waste).chain(staleness).collect()
}

/// The pservers: how many, then one line each.
fn pservers(status: &StatusReply) -> Vec<String> {
    let mut lines = Vec::new();
    let present = || status.pservers.iter().filter(|pserver| !pserver.lost);
    let leaving = present().filter(|pserver| pserver.is_leaving).count();
    lines.push(format!(
        "pservers  {} live{}, {} wanted",
        present().count(),
        if leaving > 0 { format!(" ({leaving} leaving)") } else { String::new() },
        status.pservers_wanted
    ));
    // Who is gone and has left nothing behind is nobody's concern.
    let shown = |pserver: &&PserverStatus| !pserver.lost || pserver.blocks + pserver.followers > 0;
    for pserver in status.pservers.iter().filter(shown) {
        lines.push(format!(
            "  {:<14} {:<7} pid {:<8} {}, {} blocks ({} bytes), {} copies",
            pserver.name,
            standing(pserver),
            // A master that came later was not told.
            Some(pserver.process).filter(|pid| *pid > 0).map_or("-".to_owned(), |pid| pid.to_string()),
            pserver.address,
            pserver.blocks,
            pserver.bytes,
            pserver.followers
        ));
    }
    lines
}

/// The newest checkpoint, the one under way, and those that turned out to be damaged.
fn checkpoints(status: &StatusReply) -> Vec<String> {
    let newest = match status.checkpoint {
        0 => String::from("none yet"),
        number => format!("newest {number} at version {}", status.checkpoint_version),
    };
    let under_way = match status.checkpoint_under_way {
        0 => String::new(),
        number => format!(", {number} under way"),
    };
    let mut lines = vec![format!("saved     {newest}{under_way}; in {}", status.checkpoints)];
    for damaged in &status.damaged {
        let number = damaged.record.map_or(0, |record| record.checkpoint);
        lines.push(format!("  DAMAGED {number}: {}: {}", damaged.file, damaged.what));
    }
    lines
}

/// How a pserver is, in a word.
fn standing(pserver: &PserverStatus) -> &'static str {
    match (pserver.lost, pserver.is_leaving) {
        (true, _) => "lost",
        (false, true) => "leaving",
        (false, false) => "live",
    }
}

/// How many trainers are live.
pub(crate) fn live(status: &StatusReply) -> u32 {
    status.trainers.iter().filter(|trainer| trainer.state == "live").count() as u32
}

/// The whole status as one JSON object.
pub(crate) fn json_of(status: &StatusReply) -> Value {
    let settings = status.settings.clone().unwrap_or_default();
    let (leases, totals) = (status.leases.unwrap_or_default(), pserver_totals(status));
    let mut object = json!({
        "job": settings.job, "phase": status.phase, "failure": status.failure,
        "step": status.step, "steps": status.steps, "epoch": status.epoch, "epochs": settings.epochs,
        "records_trained": status.records_trained, "records": settings.records,
        "gradients": gradients(&settings),
        "trainers_live": live(status), "trainers_wanted": status.trainers_wanted,
        "pservers_live": status.pservers.iter().filter(|pserver| !pserver.lost).count(),
        "pservers_wanted": status.pservers_wanted, "replicas": status.replicas_wanted,
        "copies_in_sync": status.copies_in_sync, "copies_filling": status.copies_filling,
        "rewinds": status.rewind, "rewind_causes": rewinds::json(status), "master_term": status.master_term,
        "fills": totals.fills, "entries": totals.entries, "bytes_followed": totals.bytes_followed,
        "trainers": status.trainers.iter().map(|trainer| {
            let counters = trainer.counters.unwrap_or_default();
            json!({
                "name": trainer.name, "state": trainer.state, "pid": trainer.process,
                "tasks_in_hand": trainer.tasks_in_hand, "tasks": counters.tasks, "records": counters.records,
                "microbatches": counters.microbatches, "bytes_read": counters.bytes_read, "retries": counters.retries,
                "compute_micros": counters.compute_micros, "pull_micros": counters.pull_micros,
                "push_micros": counters.push_micros, "read_micros": counters.read_micros, "wait_micros": counters.wait_micros,
            })
        }).collect::<Vec<_>>(),
        "pservers": status.pservers.iter().map(|pserver| json!({
            "name": pserver.name, "address": pserver.address, "pid": pserver.process, "lost": pserver.lost,
            "leaving": pserver.is_leaving, "blocks": pserver.blocks, "bytes": pserver.bytes,
            "copies": pserver.followers, "pushes": pserver.counters.unwrap_or_default().pushes,
        })).collect::<Vec<_>>(),
        "tasks_leased": leases.leased, "tasks_leased_again": leases.leased_again, "speculative": leases.speculative,
        "tasks_expired": leases.expired, "tasks_handed_back": leases.handed_back,
        "pushes": totals.pushes, "duplicates_refused": totals.duplicates_refused, "late_pushes": totals.late_pushes,
        "records_refused": totals.records_refused, "replaced_by_ancestor": totals.replaced_by_ancestor,
        "busy": totals.busy, "short_steps": totals.short_steps, "levels": levels(totals.levels),
        "time": Breakdown::of(&status.trainer_totals.unwrap_or_default()).json(), "advice": breakdown::advice(status),
        "staleness": staleness::of(status).map(|staleness| staleness::json(&staleness)),
    });
    let others = json!({
        "data_set": data_size::json(status), "evaluations": evaluations::json(status), "version": status.version,
        "evaluations_planned": status.evaluations_planned, "stopped_early": status.is_stopped_early,
        "is_progress_known": status.is_progress_known, "device_blocks": totals.device_blocks,
        "device_gradient_bytes": totals.device_gradient_bytes, "device_parameter_bytes": totals.device_parameter_bytes,
    });
    let more =
        [others, json_of_checkpoints(status, &totals), Waste::of(status).json(), verified::json(status)];
    for more in more {
        if let (Value::Object(all), Value::Object(more)) = (&mut object, more) {
            all.extend(more);
        }
    }
    object
}

fn json_of_checkpoints(status: &StatusReply, totals: &PserverCounters) -> Value {
    json!({
        "checkpoint": Some(status.checkpoint).filter(|number| *number > 0),
        "checkpoint_version": Some(status.checkpoint_version).filter(|_| status.checkpoint > 0),
        "checkpoint_under_way": Some(status.checkpoint_under_way).filter(|number| *number > 0),
        "checkpoints": status.checkpoints,
        "records_excluded": status.records_excluded, "exclude_max": status.exclude_max,
        "troubles": status.troubles.iter().map(|trouble| json!({
            "what": trouble.what, "why": trouble.why, "excluded_from": trouble.excluded_from,
            "records": trouble.records.map(|records| [records.first, records.end]),
            "attempts": trouble.attempts, "trainers": trouble.trainers,
        })).collect::<Vec<_>>(),
        "damaged_checkpoints": status.damaged.iter().map(|damaged| json!({
            "checkpoint": damaged.record.map(|record| record.checkpoint), "file": damaged.file, "what": damaged.what,
        })).collect::<Vec<_>>(),
        "pieces_written": totals.pieces_written, "bytes_written": totals.bytes_written,
        "bytes_copied_on_write": totals.bytes_copied_on_write, "throttled": totals.throttled,
        "checkpoint_memory_peak": totals.checkpoint_memory_peak,
        "table_rows": totals.rows, "table_bytes": totals.row_bytes,
        "rows_evicted": totals.rows_evicted, "keys_refused": totals.keys_refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::{Size, fitted};
    use shoal_runtime::wire::proto::TrainerStatus;
    use unicode_width::UnicodeWidthStr;

    fn at(epoch: u64, epochs: u64) -> StatusReply {
        let settings = JobSettings { job: "digits-7".to_owned(), epochs, ..Default::default() };
        StatusReply {
            settings: Some(settings),
            phase: "training".to_owned(),
            epoch,
            step: 7,
            steps: 314,
            is_progress_known: true,
            ..Default::default()
        }
    }

    #[test]
    fn an_epoch_is_counted_in_one_way_wherever_people_read_it() {
        for (over, under_way) in [(0, 1), (1, 2), (2, 2)] {
            let status = at(over, 2);
            assert!(text(&status).contains(&format!("progress  step 7 of 314, epoch {under_way} of 2\n")));
            let mut progress = crate::runner::progress::Progress::new();
            let line = progress.line(&status, tokio::time::Instant::now());
            assert!(line.contains(&format!("  epoch {under_way}/2  step 7/314  ")), "{line}");
            assert_eq!(json_of(&status)["epoch"], over, "programs are told those that are over");
        }
        let only_evaluates = at(0, 0);
        assert!(text(&only_evaluates).contains("progress  step 7 of 314\n"));
        let new_master = StatusReply { is_progress_known: false, ..at(0, 2) };
        assert!(text(&new_master).contains("progress  not known"));
    }

    #[test]
    fn a_watched_status_is_never_larger_than_the_terminal_and_progress_is_the_last_to_go() {
        let mut status = at(0, 2);
        let member = |at: u32| TrainerStatus {
            name: format!("trainer-{at}"),
            state: "live".to_owned(),
            ..Default::default()
        };
        status.trainers = (0..400).map(member).collect();
        let server = |at: u32| PserverStatus { name: format!("pserver-{at}"), ..Default::default() };
        status.pservers = (0..2).map(server).collect();
        for (columns, rows) in [(80, 24), (80, 23), (20, 5), (200, 100), (40, 1), (1, 1)] {
            let lines = fitted(&sections(&status), Size { columns, rows });
            assert!(lines.len() <= rows && lines.iter().all(|line| line.width() <= columns), "{lines:?}");
            assert!(
                columns < 20 || lines.iter().any(|line| line.starts_with("progress  step 7")),
                "{lines:?}"
            );
        }
        let lines = fitted(&sections(&status), Size { columns: 80, rows: 24 });
        assert!(lines.iter().any(|line| line == "  … 386 more"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("pserver-1")), "{lines:?}");
    }
}
