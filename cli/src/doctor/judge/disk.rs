//! Whether runs may be kept in a folder: what it lies on, how much is free, and how long it takes until bytes are there for good.

use crate::doctor::outcome::{Outcome, bytes, millis};
use serde_json::json;
use std::path::PathBuf;

/// Below this nothing runs: a job of digits writes tens of MiB of logs, journal and checkpoints.
const FREE_MIN: u64 = 64 << 20;
/// Below this a longer run fills the disk: each log alone may have 128 MiB.
const FREE_WARN: u64 = 1 << 30;
/// A master answers once its state is written: more than this is seen in every change of members.
const SETTLED_WARN_SECONDS: f64 = 0.1;
/// A lease lasts 5 s by default: a write that takes half of that may end it.
const WORST_WARN_SECONDS: f64 = 2.5;

/// What a folder lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    /// The folder that was looked at in its place, as it is not there yet.
    pub(crate) instead: Option<PathBuf>,
    pub(crate) free_bytes: u64,
    /// The kernel's number of the kind of file system.
    pub(crate) magic: u64,
    /// Whether it is mounted to be read only.
    pub(crate) is_read_only: bool,
}

/// What kind of disk a file system is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Local,
    Memory,
    Network,
    Unknown,
}

/// The kernel's numbers, of `linux/magic.h` and of the file systems' own sources.
fn kind(magic: u64) -> (&'static str, Kind) {
    match magic {
        0xef53 => ("ext4", Kind::Local),
        0x5846_5342 => ("xfs", Kind::Local),
        0x9123_683e => ("btrfs", Kind::Local),
        0x2fc1_2fc1 => ("zfs", Kind::Local),
        0xf2f5_2010 => ("f2fs", Kind::Local),
        0x794c_7630 => ("overlay", Kind::Local),
        0x0102_1994 => ("tmpfs", Kind::Memory),
        0x8584_58f6 => ("ramfs", Kind::Memory),
        0x6969 => ("NFS", Kind::Network),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => ("SMB", Kind::Network),
        0x00c3_6400 => ("Ceph", Kind::Network),
        0x0bd0_0bd0 => ("Lustre", Kind::Network),
        0x4750_4653 => ("GPFS", Kind::Network),
        0x0102_1997 => ("9p", Kind::Network),
        0x6573_5546 => ("FUSE", Kind::Network),
        0x5346_414f | 0x6b41_4653 => ("AFS", Kind::Network),
        _ => ("unknown", Kind::Unknown),
    }
}

/// Judges the place.
pub(crate) fn judge_place(place: &Place) -> Outcome {
    let (name, kind) = kind(place.magic);
    let name =
        if kind == Kind::Unknown { format!("file system {:#x}", place.magic) } else { name.to_owned() };
    let at = place.folder.display();
    let seen = place
        .instead
        .as_ref()
        .map_or_else(String::new, |above| format!(" (not there yet: looked at {})", above.display()));
    let found = format!("{at}{seen}: {}, {} free", name, bytes(place.free_bytes));
    let elsewhere = "keep runs on a local disk: shoal run --folder DIR, and shoal doctor --folder DIR before";
    let outcome = if place.is_read_only {
        Outcome::failed(format!("{found}, mounted read-only"), elsewhere)
    } else if place.free_bytes < FREE_MIN {
        Outcome::failed(found, format!("make room (du -sh runs/*), or {elsewhere}"))
    } else if kind == Kind::Network {
        Outcome::warning(format!("{found}; on a network or in a program, which may hang"), elsewhere)
    } else if kind == Kind::Memory {
        Outcome::warning(format!("{found}; in memory, gone with the next boot"), elsewhere)
    } else if place.free_bytes < FREE_WARN {
        Outcome::warning(found, format!("make room (du -sh runs/*), or {elsewhere}"))
    } else {
        Outcome::ok(found)
    };
    // As it is shown: not every path is text.
    let looked_at = place.instead.as_ref().unwrap_or(&place.folder).display().to_string();
    outcome.with(json!({
        "folder": place.folder.display().to_string(), "looked_at": looked_at, "file_system": name,
        "free_bytes": place.free_bytes, "is_read_only": place.is_read_only,
    }))
}

/// How long writing and `fsync` took together, each time, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Times {
    pub(crate) small_seconds: Vec<f64>,
    pub(crate) mebibyte_seconds: f64,
}

/// Judges how long it takes until bytes are on the disk; `Err` says what could not be done.
pub(crate) fn judge_times(times: Result<&Times, &str>) -> Outcome {
    let times = match times {
        Ok(times) => times,
        Err(why) => {
            let advice = "choose a folder that you may write to: shoal run --folder DIR, and shoal doctor --folder DIR before";
            return Outcome::failed(why, advice);
        }
    };
    let mut sorted = times.small_seconds.clone();
    sorted.sort_by(f64::total_cmp);
    let (Some(&median), Some(&worst)) = (sorted.get(sorted.len() / 2), sorted.last()) else {
        return Outcome::not_applicable("nothing was measured");
    };
    let found = format!(
        "write and fsync of 4 KiB: median {}, worst of {} {}; of 1 MiB: {}; a file is renamed and its folder settled",
        millis(median),
        sorted.len(),
        millis(worst),
        millis(times.mebibyte_seconds)
    );
    let is_slow = median > SETTLED_WARN_SECONDS || worst > WORST_WARN_SECONDS;
    let outcome = if is_slow {
        let advice = "the master waits for the disk at every change of members: keep runs on a faster one (--folder DIR), \
                      or see who else writes: iostat -x 1";
        Outcome::warning(found, advice)
    } else {
        Outcome::ok(found)
    };
    outcome.with(json!({
        "fsync_4kib_median_seconds": median, "fsync_4kib_worst_seconds": worst, "fsync_4kib_count": sorted.len(),
        "fsync_1mib_seconds": times.mebibyte_seconds,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::outcome::Level;

    fn place(magic: u64, free_bytes: u64, is_read_only: bool) -> Outcome {
        judge_place(&Place { folder: "runs".into(), instead: None, free_bytes, magic, is_read_only })
    }

    #[test]
    fn a_path_that_is_no_text_is_judged_and_shown_as_far_as_it_can_be() {
        use std::os::unix::ffi::OsStringExt;
        let folder: PathBuf = std::ffi::OsString::from_vec(b"/mnt/\xff".to_vec()).into();
        let place = Place { folder, instead: None, free_bytes: 1 << 40, magic: 0xef53, is_read_only: false };
        let outcome = judge_place(&place);
        assert_eq!((outcome.level, &outcome.facts["folder"]), (Level::Ok, &json!("/mnt/\u{fffd}")));
    }

    #[test]
    fn a_place_is_judged_by_what_is_free_and_what_it_is_on() {
        for (magic, free, is_read_only, level, word) in [
            (0xef53, 1 << 40, false, Level::Ok, "ext4, 1.0 TiB free"),
            (0x794c_7630, 1 << 30, false, Level::Ok, "overlay"),
            (0xef53, (1 << 30) - 1, false, Level::Warning, "free"),
            (0xef53, (64 << 20) - 1, false, Level::Failed, "64.0 MiB free"),
            (0x6969, 1 << 40, false, Level::Warning, "NFS"),
            (0x0102_1994, 1 << 40, false, Level::Warning, "memory"),
            (0x0102_1994, 4096, false, Level::Failed, "4.0 KiB free"),
            (0xef53, 1 << 40, true, Level::Failed, "read-only"),
            (0x1234, 1 << 40, false, Level::Ok, "file system 0x1234"),
        ] {
            let outcome = place(magic, free, is_read_only);
            assert!(outcome.level == level && outcome.found.contains(word), "{outcome:?}");
            assert_eq!(outcome.advice.is_some(), level > Level::Ok, "{outcome:?}");
        }
    }

    #[test]
    fn a_folder_that_is_to_be_made_says_where_was_looked() {
        let place = Place {
            folder: "new/runs".into(),
            instead: Some("new".into()),
            free_bytes: 1 << 40,
            magic: 0xef53,
            is_read_only: false,
        };
        assert!(judge_place(&place).found.contains("looked at new"));
    }

    #[test]
    fn a_disk_is_slow_by_its_median_or_by_its_worst() {
        let judge =
            |small: &[f64]| judge_times(Ok(&Times { small_seconds: small.to_vec(), mebibyte_seconds: 0.01 }));
        let fine = judge(&[0.003, 0.001, 0.002]);
        assert_eq!(fine.level, Level::Ok);
        assert!(fine.found.contains("median 2.00 ms, worst of 3 3.00 ms"), "{}", fine.found);
        assert_eq!(judge(&[0.2, 0.2, 0.001]).level, Level::Warning);
        assert_eq!(judge(&[0.001, 0.001, 3.0]).level, Level::Warning);
        assert_eq!(judge(&[]).level, Level::NotApplicable);
        let refused = judge_times(Err("cannot write"));
        assert!(
            refused.level == Level::Failed
                && refused.advice.is_some_and(|advice| advice.contains("--folder"))
        );
    }
}
