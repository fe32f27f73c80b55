//! A status for programs, as one JSON object. Pure.

use crate::verified;
use serde_json::{Value, json};
use shoal_runner::breakdown::{self, Breakdown};
use shoal_runner::reading::{gradients, levels, live, pserver_totals};
use shoal_runner::waste::Waste;
use shoal_runner::{data_size, evaluations, rewinds, staleness};
use shoal_runtime::wire::proto::{PserverCounters, StatusReply};

/// The whole status as one JSON object.
pub(super) fn json_of(status: &StatusReply) -> Value {
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
