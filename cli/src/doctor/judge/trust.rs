//! What a machine has to be trusted with: its clock, its device, its certificates.

use crate::doctor::outcome::Outcome;
use serde_json::json;
use shoal_runner::shell;
use std::path::Path;

/// 2025-01-01: no clock that is right has ever said an earlier time to this code.
const EARLIEST: u64 = 1_735_689_600;
const DAY: u64 = 86_400;
/// Who renews by hand needs that many days.
const DAYS_WARN: u64 = 14;

/// What the clocks have said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// How often the monotonic clock went back, of how many readings.
    pub(crate) steps_back: u64,
    pub(crate) readings: u64,
    /// Seconds since 1970.
    pub(crate) wall_seconds: u64,
    /// What the kernel counts by.
    pub(crate) source: Option<String>,
}

/// Judges the clocks. How far they are from other machines' is not measured.
pub(crate) fn judge_clocks(found: &Clocks) -> Outcome {
    let Clocks { steps_back, readings, wall_seconds, source } = found;
    let source_said = source.as_deref().unwrap_or("unknown");
    let said = format!(
        "monotonic in {readings} readings (by {source_said}); its offset from other machines is not measured"
    );
    let outcome = if *steps_back > 0 {
        Outcome::failed(
            format!(
                "the monotonic clock went back {steps_back} times in {readings} readings (by {source_said})"
            ),
            "leases are counted by it: see dmesg | grep -i clocksource, and boot with another, such as clocksource=hpet",
        )
    } else if *wall_seconds < EARLIEST {
        Outcome::warning(
            format!(
                "{said}; the calendar says {wall_seconds} s since 1970, which is before this code was written"
            ),
            "certificates are judged by it: timedatectl set-ntp true",
        )
    } else {
        Outcome::ok(said)
    };
    outcome.with(json!({ "steps_back": steps_back, "readings": readings, "wall_seconds": wall_seconds, "source": source }))
}

/// The first CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// There is none; whether the kernel has a driver for one nevertheless.
    Absent { why: String, is_there: bool },
    /// It cannot be used.
    Unsuitable(String),
    /// It updates to the processor's bits.
    Usable(String),
}

/// Judges the device.
pub(crate) fn judge_device(found: &Device) -> Outcome {
    let cpu = "updates run on the processor unless --device says otherwise";
    match found {
        Device::Absent { why, is_there: false } => Outcome::not_applicable(format!("{why}; {cpu}")),
        Device::Absent { why, is_there: true } => Outcome::warning(
            format!("the kernel has a device, but: {why}"),
            "nvidia-smi; in a container, docker run --gpus all, or nvidia.com/gpu among the pod's limits",
        ),
        Device::Unsuitable(why) => {
            Outcome::warning(why, "nvidia-smi; docs/devices.md says which devices are used")
        }
        Device::Usable(name) => Outcome::ok(format!("cuda:0 is {name}, and has the processor's bits")),
    }
    .with(json!({ "is_usable": matches!(found, Device::Usable(_)) }))
}

/// A folder with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub(crate) folder: String,
    /// For whom it is, as words.
    pub(crate) identity: String,
    /// Seconds since 1970.
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// Why it cannot be used, if so.
    pub(crate) fault: Option<String>,
    /// Whether everybody on this machine may read the key.
    pub(crate) is_key_open: bool,
}

/// Judges certificates at a time, in seconds since 1970; of each folder what it has, or why it cannot be read. The worst counts.
pub(crate) fn judge_certificates(found: &[Result<Certificate, String>], now: u64) -> Outcome {
    let judged = found.iter().map(|one| match one {
        Ok(certificate) => judge_certificate(certificate, now),
        Err(why) => Outcome::failed(
            why,
            "shoal certs issue --authority AUTHORITY --job JOB FOLDER makes it; shoal certs show FOLDER reads it",
        ),
    });
    let all: Vec<Outcome> = judged.collect();
    let Some(worst) = all.iter().max_by_key(|outcome| outcome.level) else {
        return Outcome::not_applicable("neither --tls nor SHOAL_TLS names a folder");
    };
    let said: Vec<&str> = all.iter().map(|outcome| outcome.found.as_str()).collect();
    let facts: Vec<_> = all.iter().map(|outcome| json!(outcome.facts)).collect();
    Outcome { found: said.join("; "), ..worst.clone() }.with(json!({ "certificates": facts }))
}

fn judge_certificate(found: &Certificate, now: u64) -> Outcome {
    let Certificate { folder, identity, from, until, fault, is_key_open } = found;
    let left = until.saturating_sub(now);
    let said = format!("{folder}: {identity}, another {}", days(left));
    let renew = format!(
        "shoal certs issue --authority AUTHORITY --job JOB --role ROLE {folder}: running processes take it within seconds"
    );
    // Who renews often has short ones: a third of their life is early enough.
    let early = (DAYS_WARN * DAY).min(until.saturating_sub(*from) / 3);
    let outcome = match fault {
        Some(fault) => Outcome::failed(format!("{folder}: {identity}: {fault}"), renew),
        None if left < early => Outcome::warning(said, renew),
        None if *is_key_open => Outcome::warning(
            format!("{said}; everybody on this machine may read its key"),
            format!("chmod 600 {}", shell::quoted(Path::new(folder).join("key.pem").as_os_str())),
        ),
        None => Outcome::ok(said),
    };
    outcome
        .with(json!({ "folder": folder, "identity": identity, "valid_until": until, "seconds_left": left }))
}

fn days(seconds: u64) -> String {
    match seconds / DAY {
        0 => format!("{} h", seconds / 3600),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::outcome::Level;

    #[test]
    fn a_clock_that_goes_back_fails_and_a_wrong_calendar_is_warned_of() {
        let clocks = |steps_back, wall_seconds| {
            judge_clocks(&Clocks { steps_back, readings: 1000, wall_seconds, source: None }).level
        };
        assert_eq!(clocks(0, EARLIEST), Level::Ok);
        assert_eq!(clocks(1, EARLIEST), Level::Failed);
        assert_eq!(clocks(0, EARLIEST - 1), Level::Warning);
    }

    #[test]
    fn no_device_is_no_fault_unless_the_kernel_has_one() {
        let absent = |is_there| judge_device(&Device::Absent { why: "no driver".to_owned(), is_there }).level;
        assert_eq!((absent(false), absent(true)), (Level::NotApplicable, Level::Warning));
        assert_eq!(judge_device(&Device::Unsuitable("too old".to_owned())).level, Level::Warning);
        assert_eq!(judge_device(&Device::Usable("H100".to_owned())).level, Level::Ok);
    }

    fn certificate(from: u64, until: u64) -> Certificate {
        let (folder, identity) = ("certs".to_owned(), "client of job digits".to_owned());
        Certificate { folder, identity, from, until, fault: None, is_key_open: false }
    }

    #[test]
    fn a_certificate_is_warned_of_two_weeks_before_its_end_or_in_its_last_third() {
        let at = |certificate: Certificate, now| judge_certificates(&[Ok(certificate)], now).level;
        assert_eq!(at(certificate(0, 90 * DAY), 76 * DAY), Level::Ok);
        assert_eq!(at(certificate(0, 90 * DAY), 76 * DAY + 1), Level::Warning);
        assert_eq!(at(certificate(0, DAY), DAY * 2 / 3), Level::Ok);
        assert_eq!(at(certificate(0, DAY), DAY * 2 / 3 + 1), Level::Warning);
        assert_eq!(at(Certificate { is_key_open: true, ..certificate(0, 90 * DAY) }, 0), Level::Warning);
        let fault = Some("the certificate has expired".to_owned());
        assert_eq!(at(Certificate { fault, ..certificate(0, DAY) }, 2 * DAY), Level::Failed);
    }

    #[test]
    fn of_several_certificates_the_worst_counts_and_all_are_told() {
        let all = [Ok(certificate(0, 90 * DAY)), Err("store: no cert.pem".to_owned())];
        let outcome = judge_certificates(&all, DAY);
        assert_eq!(outcome.level, Level::Failed);
        assert!(
            outcome.found.contains("another 89 days") && outcome.found.contains("no cert.pem"),
            "{outcome:?}"
        );
        assert_eq!(judge_certificates(&[], 0).level, Level::NotApplicable);
    }
}
