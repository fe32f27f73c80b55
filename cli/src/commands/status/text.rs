//! A status for people, section by section. Pure.

use crate::{recorded, verified};
use shoal_job::counters::PserverCounters;
use shoal_runner::breakdown::{self, Breakdown};
use shoal_runner::reading::{epoch, gradients, live, pserver_totals};
use shoal_runner::screen::Section;
use shoal_runner::waste::Waste;
use shoal_runner::{data_size, evaluations, exclusions, rewinds, staleness, standstill};
use shoal_runtime::wire::proto::{PserverStatus, StatusReply};

/// The whole status for people.
pub(super) fn text(status: &StatusReply) -> String {
    let sections = sections(status);
    let lines: Vec<&str> = sections.iter().flat_map(Section::lines).map(String::as_str).collect();
    lines.join("\n")
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
pub(super) fn sections(status: &StatusReply) -> Vec<Section> {
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
    let waits = standstill::lines(status).into_iter().enumerate();
    let waits =
        waits.map(|(at, line)| format!("{}{line}", if at == 0 { "waits     " } else { "          " }));
    all.extend(Section::of(Some(2), waits.collect::<Vec<_>>()));
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
    all.extend(
        devices(&totals)
            .into_iter()
            .chain(verified::line(status))
            .chain(recorded::line(status))
            .map(alone(Some(12))),
    );
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
