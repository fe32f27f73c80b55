//! A status for programs, as one JSON object. Pure.

use crate::{recorded, verified};
use serde_json::{Value, json};
use shoal_job::counters::{Counters, LeaseCounters, TrainerCounters};
use shoal_runner::breakdown::{self, Breakdown};
use shoal_runner::reading::{gradients, live, pserver_totals};
use shoal_runner::waste::Waste;
use shoal_runner::{data_size, evaluations, rewinds, staleness, standstill};
use shoal_runtime::wire::proto::{StatusReply, TrainerStatus};

/// The whole status as one JSON object.
pub(super) fn json_of(status: &StatusReply) -> Value {
    let settings = status.settings.clone().unwrap_or_default();
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
        "trainers": status.trainers.iter().map(json_of_trainer).collect::<Vec<_>>(),
        "pservers": status.pservers.iter().map(|pserver| json!({
            "name": pserver.name, "address": pserver.address, "pid": pserver.process, "lost": pserver.lost,
            "leaving": pserver.is_leaving, "blocks": pserver.blocks, "bytes": pserver.bytes,
            "copies": pserver.followers, "pushes": pserver.counters.unwrap_or_default().pushes,
        })).collect::<Vec<_>>(),
        "time": Breakdown::of(&status.trainer_totals.unwrap_or_default()).json(), "advice": breakdown::advice(status),
        "staleness": staleness::of(status).map(|staleness| staleness::json(&staleness)),
    });
    let others = json!({
        "data_set": data_size::json(status), "evaluations": evaluations::json(status), "version": status.version,
        "evaluations_planned": status.evaluations_planned, "stopped_early": status.is_stopped_early,
        "is_progress_known": status.is_progress_known, "standstill": standstill::json(status),
    });
    let leases = LeaseCounters::from(status.leases.unwrap_or_default()).json();
    let counted = [leases.into(), pserver_totals(status).json().into()];
    let more = [
        others,
        json_of_checkpoints(status),
        Waste::of(status).json(),
        verified::json(status),
        recorded::json(status),
    ];
    for more in counted.into_iter().chain(more) {
        if let (Value::Object(all), Value::Object(more)) = (&mut object, more) {
            debug_assert!(more.keys().all(|name| !all.contains_key(name)), "{more:?} has names of {all:?}");
            all.extend(more);
        }
    }
    object
}

fn json_of_trainer(trainer: &TrainerStatus) -> Value {
    let mut object = TrainerCounters::from(trainer.counters.unwrap_or_default()).json();
    object.insert("name".to_owned(), trainer.name.as_str().into());
    object.insert("state".to_owned(), trainer.state.as_str().into());
    object.insert("pid".to_owned(), trainer.process.into());
    object.insert("tasks_in_hand".to_owned(), trainer.tasks_in_hand.into());
    object.into()
}

fn json_of_checkpoints(status: &StatusReply) -> Value {
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_takes_the_name_of_something_else_in_a_status() {
        let status = StatusReply { trainers: vec![TrainerStatus::default()], ..StatusReply::default() };
        let object = json_of(&status);
        for name in ["pushes", "table_rows", "tasks_leased", "levels", "records", "checkpoint_memory_peak"] {
            assert!(object.get(name).is_some(), "{name}");
        }
        assert_eq!(object["trainers"][0].as_object().unwrap().len(), 4 + TrainerCounters::COUNTERS.len());
    }
}
