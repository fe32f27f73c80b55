//! A job that has begun, held against what a master that takes it up is told: which settings are others, in the words of
//! flags. Pure.

use shoal_runtime::cluster::{Evaluated, JobSettings, Mode, Period, WarmStart};

/// One setting, as it was when the job began and as it is said now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    flag: &'static str,
    was: String,
    is: String,
}

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} was {} and is now {}", self.flag, self.was, self.is)
    }
}

/// A setting in words; none where a job has none.
type Said = (&'static str, Option<String>);

/// The settings in which a job is another than the one that began.
pub(crate) fn changed(began: &JobSettings, now: &JobSettings) -> Vec<Changed> {
    let word = |said: Option<String>| said.unwrap_or_else(|| "not given".to_owned());
    let pairs = said(began).into_iter().zip(said(now));
    // What says more of a mode, or of evaluations, is no other where there was none or will be none.
    let is_whole = |flag| match flag {
        "--delay" | "--staleness-window" | "--scale-by-staleness" => began.is_sync() == now.is_sync(),
        "--eval-steps" | "--eval-epochs" => began.evaluated.is_some() == now.evaluated.is_some(),
        _ => true,
    };
    let mut all: Vec<Changed> = pairs
        .filter(|((flag, was), (_, is))| was != is && is_whole(flag))
        .map(|((flag, was), (_, is))| Changed { flag, was: word(was), is: word(is) })
        .collect();
    let is_counted = |change: &Changed| ["--data", "--eval-data"].contains(&change.flag);
    if began.manifest_fingerprint != now.manifest_fingerprint && !all.iter().any(is_counted) {
        let data = |job: &JobSettings| format!("{} records", job.all_records());
        let is = "as many others, in other files, or in another order".to_owned();
        all.push(Changed { flag: "--data", was: data(began), is });
    }
    all
}

/// Every setting under the flag that says it, always in the same order.
fn said(settings: &JobSettings) -> Vec<Said> {
    let JobSettings {
        job,
        seed,
        epochs,
        microbatch_records,
        microbatches_per_step,
        shuffle_run,
        records,
        manifest_fingerprint: _,
        lease_ttl_millis,
        mode,
        gradients,
        warm_start,
        evaluated,
    } = settings;
    let number = |number: &dyn std::fmt::Display| Some(number.to_string());
    let mut all = vec![
        ("--job", Some(format!("{:?}", job.0))),
        ("--data", Some(format!("{records} records"))),
        ("--epochs", number(epochs)),
        ("--seed", number(seed)),
        ("--microbatch-records", number(microbatch_records)),
        ("--microbatches-per-step", number(microbatches_per_step)),
        ("--shuffle-run", number(shuffle_run)),
        ("--lease-ttl-millis", number(lease_ttl_millis)),
        ("--gradients", Some(gradients.name().to_owned())),
        ("--warm-start", warm_start.as_ref().map(file)),
    ];
    all.extend(of_mode(*mode));
    all.extend(of_evaluations(evaluated.as_ref()));
    all
}

/// Another file under the same name is told by its content.
fn file(warm_start: &WarmStart) -> String {
    let WarmStart { place, file, bytes, header_sha256 } = warm_start;
    let header: String = header_sha256.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{place}/{file} ({bytes} bytes, header {header}…)")
}

fn of_mode(mode: Mode) -> [Said; 4] {
    let (word, delay, window, is_scaled) = match mode {
        Mode::Sync { delay } => ("sync", Some(delay), None, None),
        Mode::Async { staleness_window, scale_by_staleness } => {
            ("async", None, Some(staleness_window), Some(scale_by_staleness))
        }
    };
    [
        ("--mode", Some(word.to_owned())),
        ("--delay", delay.map(|delay| delay.to_string())),
        ("--staleness-window", window.map(|window| window.to_string())),
        ("--scale-by-staleness", is_scaled.map(|is_scaled| is_scaled.to_string())),
    ]
}

fn of_evaluations(evaluated: Option<&Evaluated>) -> [Said; 4] {
    let (steps, epochs) = match evaluated.map(|evaluated| evaluated.every) {
        Some(Period::Steps(steps)) => (Some(steps), None),
        Some(Period::Epochs(epochs)) => (None, Some(epochs)),
        None => (None, None),
    };
    let outputs = evaluated.and_then(|evaluated| evaluated.outputs.clone());
    [
        ("--eval-data", evaluated.map(|evaluated| format!("{} records", evaluated.records))),
        ("--eval-steps", steps.map(|steps| steps.to_string())),
        ("--eval-epochs", epochs.map(|epochs| epochs.to_string())),
        ("--predict", outputs),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use shoal_runtime::cluster::{JobId, Precision};

    fn words(began: &JobSettings, now: &JobSettings) -> Vec<String> {
        changed(began, now).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_setting_that_is_another_is_named_with_what_it_was_and_is() {
        let began = fixture::settings(64, 2, 8, 1);
        assert_eq!(changed(&began, &began), []);
        let evaluated = |every| Some(Evaluated { records: 9, every, outputs: None });
        let warm = WarmStart { place: "p".into(), file: "f".into(), bytes: 8, header_sha256: [7; 32] };
        let windowed = Mode::Async { staleness_window: 3, scale_by_staleness: true };
        for (now, said) in [
            (JobSettings { job: JobId("other".into()), ..began.clone() }, vec!["--job was "]),
            (JobSettings { epochs: 5, ..began.clone() }, vec!["--epochs was 1 and is now 5"]),
            (JobSettings { seed: 99, ..began.clone() }, vec!["--seed was "]),
            (
                JobSettings { microbatch_records: 7, ..began.clone() },
                vec!["--microbatch-records was 2 and is now 7"],
            ),
            (
                JobSettings { microbatches_per_step: 9, ..began.clone() },
                vec!["--microbatches-per-step was 8"],
            ),
            (JobSettings { shuffle_run: 6, ..began.clone() }, vec!["--shuffle-run was "]),
            (JobSettings { lease_ttl_millis: 77, ..began.clone() }, vec!["--lease-ttl-millis was "]),
            (
                JobSettings { gradients: Precision::Bf16, ..began.clone() },
                vec!["--gradients was f32 and is now bf16"],
            ),
            (
                JobSettings { warm_start: Some(warm), ..began.clone() },
                vec!["--warm-start was not given and is now p/f (8"],
            ),
            (
                JobSettings { mode: Mode::Sync { delay: 2 }, ..began.clone() },
                vec!["--delay was 0 and is now 2"],
            ),
            (
                JobSettings { records: 70, manifest_fingerprint: [9; 32], ..began.clone() },
                vec!["--data was 64 records and is now 70"],
            ),
            (
                JobSettings { manifest_fingerprint: [9; 32], ..began.clone() },
                vec!["--data was 64 records and is now as many others"],
            ),
            (JobSettings { mode: windowed, ..began.clone() }, vec!["--mode was sync and is now async"]),
            (
                JobSettings { evaluated: evaluated(Period::Steps(4)), ..began.clone() },
                vec!["--eval-data was not given and is now 9 records"],
            ),
        ] {
            let words = words(&began, &now);
            assert_eq!(words.len(), said.len(), "{words:?}");
            assert!(words.iter().zip(&said).all(|(word, said)| word.starts_with(said)), "{words:?}");
        }
    }
}
