//! Jobs of a cluster as people and programs read them. Pure.

use kube::ResourceExt;
use serde_json::{Value, json};
use shoal_operator::api::{Moment, TrainingJob, TrainingJobStatus};

/// The status of a job; that of one which nobody has looked at yet, if it has none.
pub(crate) fn status_of(job: &TrainingJob) -> TrainingJobStatus {
    job.status.clone().unwrap_or_default()
}

/// The phase as people are told it: of a job that is being deleted that, whatever else it is.
pub(crate) fn phase(job: &TrainingJob) -> String {
    match job.metadata.deletion_timestamp {
        Some(_) => "Deleting".to_owned(),
        None => status_of(job).phase.to_string(),
    }
}

/// When a job may end; nothing of one that is over or being deleted.
fn eta(job: &TrainingJob) -> String {
    let status = status_of(job);
    let goes_on = !status.phase.is_over() && job.metadata.deletion_timestamp.is_none();
    status.progress.filter(|_| goes_on).map(|progress| progress.eta).unwrap_or_default()
}

/// A condition's reason and message, if it is true.
pub(crate) fn condition<'a>(status: &'a TrainingJobStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    let found = status.conditions.iter().find(|one| one.type_ == type_ && one.status == "True")?;
    Some((&found.reason, &found.message))
}

/// A job in one line, as it is shown while it is watched.
pub(crate) fn line(job: &TrainingJob) -> String {
    let status = status_of(job);
    let progress = status.progress.unwrap_or_default();
    let mut parts = vec![job.name_any(), phase(job)];
    parts.extend(Some(progress.text).filter(|text| !text.is_empty()));
    parts.extend(Some(eta(job)).filter(|eta| !eta.is_empty()).map(|eta| format!("ETA {eta}")));
    parts.extend(
        Some(status.trainer.text).filter(|text| !text.is_empty()).map(|text| format!("trainers {text}")),
    );
    parts.extend(
        Some(status.pserver.text).filter(|text| !text.is_empty()).map(|text| format!("pservers {text}")),
    );
    let message = status.message.split('\n').collect::<Vec<_>>().join("; ");
    parts.extend(Some(message).filter(|message| !message.is_empty()));
    parts.join("  ")
}

/// A job for programs.
pub(crate) fn object(job: &TrainingJob) -> Value {
    let status = status_of(job);
    let role = |min: u32, max: Option<u32>, wanted: u32, ready: u32| json!({ "min": min, "max": max.unwrap_or(min), "wanted": wanted, "ready": ready });
    let (trainer, pserver) = (&job.spec.trainer, &job.spec.pserver);
    json!({
        "name": job.name_any(),
        "namespace": job.namespace(),
        "phase": status.phase.to_string(),
        "is_being_deleted": job.metadata.deletion_timestamp.is_some(),
        "message": status.message,
        "progress": status.progress,
        "checkpoint": status.checkpoint,
        "trainers": role(trainer.min_replicas, trainer.max_replicas, status.trainer.wanted, status.trainer.ready),
        "pservers": role(pserver.min_replicas, pserver.max_replicas, status.pserver.wanted, status.pserver.ready),
        "conditions": status.conditions,
        "decisions": status.decisions,
        "ends": status.ends,
        "last_failure": status.last_failure,
    })
}

/// Jobs as a table, with their namespaces where they are of several.
pub(crate) fn table(jobs: &[TrainingJob], has_namespaces: bool, now: Moment) -> String {
    let head = ["NAMESPACE", "NAME", "PHASE", "PROGRESS", "ETA", "TRAINERS", "PSERVERS", "AGE"];
    let rows = jobs.iter().map(|job| {
        let status = status_of(job);
        let progress = status.progress.unwrap_or_default();
        let made = job.creation_timestamp().map(|time| now.since(Moment::from(time.0)));
        [
            job.namespace().unwrap_or_default(),
            job.name_any(),
            phase(job),
            progress.text,
            eta(job),
            status.trainer.text,
            status.pserver.text,
            made.map(age).unwrap_or_default(),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let from = usize::from(!has_namespaces);
    let widths: Vec<usize> = (0..8)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(&widths).skip(from).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A time that has passed, in two units at most.
pub(crate) fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// A time as people write it: 90, 90s, 10m, 2h.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("{text:?} is no time: give it as 90s, 10m or 2h");
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(std::time::Duration::from_secs(u64::from(number) * unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_operator::api::Progress;
    use std::time::Duration;

    pub(super) fn job(name: &str, status: Value) -> TrainingJob {
        let manifest = json!({
            "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": { "name": name, "namespace": "n", "creationTimestamp": "2026-11-24T12:00:00Z" },
            "spec": { "trainer": { "minReplicas": 2, "maxReplicas": 6 } }, "status": status,
        });
        serde_json::from_value(manifest).unwrap()
    }

    #[test]
    fn jobs_are_a_table_with_columns_under_one_another() {
        let running = json!({
            "phase": "Running", "progress": { "text": "23%", "eta": "90s" },
            "trainer": { "text": "4/2–6" }, "pserver": { "text": "1/1–4" },
        });
        let jobs = [job("digits", running), job("a-longer-name", json!({}))];
        let now = Moment(1_795_521_600 + 30);
        assert_eq!(
            table(&jobs, false, now),
            "NAME            PHASE     PROGRESS   ETA   TRAINERS   PSERVERS   AGE\n\
             digits          Running   23%        90s   4/2–6      1/1–4      30s\n\
             a-longer-name   Pending                                          30s"
        );
        assert!(table(&jobs, true, now).starts_with("NAMESPACE   NAME "));
    }

    #[test]
    fn a_line_has_what_is_known() {
        let mut known = job("digits", json!({ "phase": "Running", "message": "as wanted" }));
        assert_eq!(line(&known), "digits  Running  as wanted");
        known.status.as_mut().unwrap().progress =
            Some(Progress { text: "5%".to_owned(), eta: "3m".to_owned(), ..Progress::default() });
        assert_eq!(line(&known), "digits  Running  5%  ETA 3m  as wanted");
        assert_eq!(
            (object(&known)["trainers"]["max"].as_u64(), object(&known)["phase"].as_str()),
            (Some(6), Some("Running"))
        );
        known.status.as_mut().unwrap().message = "out of room\nless would fit".to_owned();
        assert_eq!(line(&known), "digits  Running  5%  ETA 3m  out of room; less would fit");
    }

    #[test]
    fn a_job_that_is_over_or_being_deleted_has_no_time_to_end_at() {
        let status = |phase: &str| json!({ "phase": phase, "progress": { "text": "97%", "eta": "3m" } });
        assert_eq!(line(&job("digits", status("Succeeded"))), "digits  Succeeded  97%");
        let mut going = job("digits", status("Running"));
        going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
        assert_eq!(line(&going), "digits  Deleting  97%");
        assert_eq!(
            (object(&going)["phase"].as_str(), object(&going)["is_being_deleted"].as_bool()),
            (Some("Running"), Some(true))
        );
        assert!(table(&[going], false, Moment(0)).contains("digits   Deleting   97%"));
    }

    #[test]
    fn times_are_read_and_written_as_people_do() {
        let ages =
            [(0, "0s"), (119, "119s"), (120, "2m0s"), (3599, "59m59s"), (7260, "2h1m"), (90_000, "1d1h")];
        for (seconds, text) in ages {
            assert_eq!(age(seconds), text);
        }
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "s", "-1s", "1.5h", "1d", "ten", "5000000000"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
