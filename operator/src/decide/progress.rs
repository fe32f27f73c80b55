//! How far a job is, how fast it goes, and when it will be done. Pure.

use super::view::MasterView;
use crate::api::{CheckpointStatus, Moment, Progress, Speed, TrainingJobStatus};

/// How much of the speed that is told is the newest measurement's.
const NEWEST_SHARE: f64 = 0.4;
/// Speeds are measured over so many seconds at least.
const MEASURED_SECONDS: u64 = 5;

/// Of how many numbers of trainers the speed is remembered.
const SPEEDS_MAX: usize = 8;

/// Takes in what the master says, with so many trainers ready.
pub(super) fn see(status: &mut TrainingJobStatus, master: &MasterView, ready: u32, now: Moment) {
    if master.checkpoint > 0 {
        let (number, version) = (master.checkpoint, master.checkpoint_version);
        status.checkpoint =
            Some(CheckpointStatus { place: master.checkpoint_place.clone(), number, version });
    }
    if !master.is_progress_known {
        return;
    }
    let before = status.progress.take().unwrap_or_default();
    let speed = before.steps_per_second.parse::<f64>().ok();
    let speed = match before.at {
        Some(at) if master.step >= before.step && now.since(at) >= MEASURED_SECONDS => {
            let newest = (master.step - before.step) as f64 / now.since(at) as f64;
            // The status is written when who is ready changes: since then they were as many.
            if ready == status.trainer.ready && ready == status.trainer.wanted {
                note_speed(&mut status.trainer.speeds, ready, newest);
            }
            Some(speed.map_or(newest, |speed| speed + NEWEST_SHARE * (newest - speed)))
        }
        Some(_) if master.step >= before.step => speed,
        // A job that has gone back is measured anew.
        _ => None,
    };
    let left = master.steps.saturating_sub(master.step);
    let seconds = speed.filter(|speed| *speed > 0.0).map(|speed| left as f64 / speed);
    status.progress = Some(Progress {
        text: text(master.step, master.steps),
        step: master.step,
        steps: master.steps,
        epoch: master.epoch,
        records: master.records,
        steps_per_second: speed.map_or_else(String::new, |speed| format!("{speed:.1}")),
        eta: seconds.map_or_else(String::new, duration),
        at: Some(now),
    });
}

/// Takes in how fast the job was with so many trainers; the newest number of trainers is last.
fn note_speed(speeds: &mut Vec<Speed>, trainers: u32, newest: f64) {
    if newest <= 0.0 {
        return;
    }
    let known = speeds.iter().position(|one| one.trainers == trainers).map(|at| speeds.remove(at));
    let steps_per_second = known
        .map_or(newest, |known| known.steps_per_second + NEWEST_SHARE * (newest - known.steps_per_second));
    // Three places are more than the measurement has.
    let steps_per_second = (steps_per_second * 1000.0).round() / 1000.0;
    speeds.push(Speed { trainers, steps_per_second });
    let beyond = speeds.len().saturating_sub(SPEEDS_MAX);
    speeds.drain(..beyond);
}

/// A job that is done is at its end, whoever heard its master's last word.
pub(super) fn complete(status: &mut TrainingJobStatus) {
    if let Some(progress) = &mut status.progress {
        progress.eta = String::new();
        if progress.step >= progress.steps {
            progress.text = "100%".to_owned();
        }
    }
}

fn text(step: u64, steps: u64) -> String {
    let percent = step.min(steps).saturating_mul(100).checked_div(steps).unwrap_or(0);
    format!("{percent}%")
}

/// Seconds as people say them: 45s, 12m, 3h05m, 2d4h.
fn duration(seconds: f64) -> String {
    let seconds = seconds.clamp(0.0, 1e9) as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if minutes < 2 => format!("{seconds}s"),
        () if hours < 1 => format!("{minutes}m"),
        () if days < 1 => format!("{hours}h{:02}m", minutes % 60),
        () => format!("{days}d{}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(step: u64) -> MasterView {
        MasterView { is_progress_known: true, step, steps: 1000, ..MasterView::default() }
    }

    #[test]
    fn speed_and_time_left_follow_from_what_was_done_meanwhile() {
        let mut status = TrainingJobStatus::default();
        see(&mut status, &said(0), 0, Moment(100));
        assert_eq!(status.progress.as_ref().unwrap().eta, "");
        see(&mut status, &said(100), 0, Moment(110));
        let progress = status.progress.clone().unwrap();
        assert_eq!(
            (progress.text.as_str(), progress.steps_per_second.as_str(), progress.eta.as_str()),
            ("10%", "10.0", "90s")
        );
        see(&mut status, &said(100), 0, Moment(120));
        let progress = status.progress.clone().unwrap();
        assert_eq!((progress.steps_per_second.as_str(), progress.eta.as_str()), ("6.0", "2m"));
        // It went back.
        see(&mut status, &said(50), 0, Moment(130));
        let progress = status.progress.unwrap();
        assert_eq!((progress.step, progress.steps_per_second.as_str()), (50, ""));
    }

    #[test]
    fn speeds_are_measured_while_as_many_trainers_are_ready_as_are_wanted() {
        let mut status = TrainingJobStatus::default();
        (status.trainer.ready, status.trainer.wanted) = (2, 2);
        see(&mut status, &said(0), 2, Moment(100));
        see(&mut status, &said(100), 2, Moment(110));
        assert_eq!(status.trainer.speeds, [Speed { trainers: 2, steps_per_second: 10.0 }]);
        see(&mut status, &said(120), 1, Moment(120));
        assert_eq!(status.trainer.speeds.len(), 1, "one of two was lost meanwhile");
        see(&mut status, &said(320), 2, Moment(130));
        assert_eq!(status.trainer.speeds, [Speed { trainers: 2, steps_per_second: 14.0 }]);
        for trainers in 3..20 {
            (status.trainer.ready, status.trainer.wanted) = (trainers, trainers);
            let (step, at) = (u64::from(trainers) * 1000, 1000 + 10 * i64::from(trainers));
            see(&mut status, &said(step), trainers, Moment(at));
        }
        let known: Vec<u32> = status.trainer.speeds.iter().map(|one| one.trainers).collect();
        assert_eq!(known, (12..20).collect::<Vec<_>>());
    }

    #[test]
    fn durations_are_told_as_people_say_them() {
        let known = [(5.0, "5s"), (119.0, "119s"), (150.0, "2m"), (3900.0, "1h05m"), (187_200.0, "2d4h")];
        for (seconds, wanted) in known {
            assert_eq!(duration(seconds), wanted);
        }
    }
}
