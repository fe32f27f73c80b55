//! Why storage could not do what it was asked, grouped by what the caller does next. Every variant names the place and
//! the object (`at`); none may leave out the way out.

use std::error::Error;
use std::io::{self, ErrorKind};

/// Why an operation on storage failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// No answer, or not in time: it may or may not have taken effect.
    #[error("{at}: no answer: {what}; it is tried again")]
    Unreachable {
        /// Place and object.
        at: String,
        /// What was said.
        what: String,
    },
    /// Storage says no until somebody acts: frees space, gives rights, mends the disk, names another place.
    #[error("{at}: {what}; {advice}")]
    Refused {
        /// Place and object.
        at: String,
        /// What was said.
        what: String,
        /// What to do about it.
        advice: String,
    },
    /// There is no such object.
    #[error("{at}: nothing is there; was it deleted, and do all processes see the same place?")]
    Missing {
        /// Place and object.
        at: String,
    },
    /// The name is taken by other content. Nothing was changed.
    #[error("{at}: holds something else already, and objects are never overwritten; take another name")]
    Taken {
        /// Place and object.
        at: String,
    },
    /// The object is not what was written.
    #[error(
        "{at}: damaged at offset {offset}: {what}; restore it from a copy, or go on from another checkpoint"
    )]
    Damaged {
        /// Place and object.
        at: String,
        /// Where in it, in bytes.
        offset: u64,
        /// What was expected and what is there.
        what: String,
    },
    /// The object is of a format that this build does not read. Nothing is wrong with it.
    #[error("{at}: {what}")]
    OtherFormat {
        /// Place and object.
        at: String,
        /// Both formats, and the way out.
        what: String,
    },
    /// The object is whole, but not the one that was there a moment ago.
    #[error("{at}: {what}; publish changed objects under new names, then start again")]
    Changed {
        /// Place and object.
        at: String,
        /// What was there, and what is.
        what: String,
    },
    /// What was to be written makes no sense. Nothing was changed.
    #[error("{at}: not written: {what}")]
    Invalid {
        /// Place and object.
        at: String,
        /// What is wrong with it.
        what: String,
    },
}

/// What the caller of a failed operation does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The same again, after a pause.
    Retry,
    /// Tell a person, who has to act first; then the same again.
    Fix,
    /// Never this object again: another name, another checkpoint.
    GiveUp,
}

impl StorageError {
    /// What the caller does next.
    pub fn remedy(&self) -> Remedy {
        match self {
            StorageError::Unreachable { .. } => Remedy::Retry,
            StorageError::Refused { .. } => Remedy::Fix,
            StorageError::Missing { .. }
            | StorageError::Taken { .. }
            | StorageError::Damaged { .. }
            | StorageError::Changed { .. }
            | StorageError::OtherFormat { .. }
            | StorageError::Invalid { .. } => Remedy::GiveUp,
        }
    }

    /// Sorts what the storage library says about the object `at`.
    pub(super) fn sort(at: String, error: object_store::Error) -> StorageError {
        use object_store::Error as Said;
        let what = error.to_string();
        match &error {
            Said::NotFound { .. } => StorageError::Missing { at },
            Said::AlreadyExists { .. } => StorageError::Taken { at },
            Said::Generic { .. } => match system_error(&error) {
                Some(error) => StorageError::sort_io(at, error),
                // The clients of remote stores have already tried again for a while.
                None => StorageError::Unreachable { at, what },
            },
            Said::JoinError { .. } => StorageError::Unreachable { at, what },
            _ => {
                let advice = "give this process the credentials and rights to read, write and delete there";
                StorageError::Refused { at, what, advice: advice.into() }
            }
        }
    }

    /// Sorts what the operating system says about `at`.
    pub(super) fn sort_io(at: String, error: &io::Error) -> StorageError {
        let what = error.to_string();
        let advice = match error.kind() {
            ErrorKind::NotFound => return StorageError::Missing { at },
            ErrorKind::Interrupted
            | ErrorKind::TimedOut
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::ResourceBusy => return StorageError::Unreachable { at, what },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "free some space there, or name another place"
            }
            ErrorKind::ReadOnlyFilesystem => "mount it writable, or name another place",
            ErrorKind::PermissionDenied | ErrorKind::Unsupported => {
                "give this process the right to write there, on a file system that has hard links"
            }
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "name a folder, not a file",
            _ => "look at the disk and the system's log, or name another place",
        };
        StorageError::Refused { at, what, advice: advice.into() }
    }
}

/// The operating system's error at the root of another, if there is one.
fn system_error(error: &object_store::Error) -> Option<&io::Error> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>().filter(|io| io.raw_os_error().is_some()) {
            return Some(io);
        }
        source = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(source: Box<dyn Error + Send + Sync>) -> StorageError {
        StorageError::sort("place/object".into(), object_store::Error::Generic { store: "test", source })
    }

    #[test]
    fn a_full_a_read_only_and_a_failing_disk_are_fixed_by_a_person() {
        // ENOSPC, EDQUOT, EROFS, EACCES, EIO on Linux.
        for (code, advice) in [(28, "space"), (122, "space"), (30, "writable"), (13, "right"), (5, "disk")] {
            let error = sorted(Box::new(io::Error::from_raw_os_error(code)));
            assert_eq!(error.remedy(), Remedy::Fix, "{error}");
            let text = error.to_string();
            assert!(text.starts_with("place/object: ") && text.contains(advice), "{text}");
        }
    }

    #[test]
    fn what_the_network_did_is_tried_again() {
        assert_eq!(sorted("HTTP 503 after ten tries".into()).remedy(), Remedy::Retry);
        // ETIMEDOUT, ECONNRESET, EINTR, EBUSY on Linux.
        for code in [110, 104, 4, 16] {
            let error = sorted(Box::new(io::Error::from_raw_os_error(code)));
            assert_eq!(error.remedy(), Remedy::Retry, "{error}");
        }
    }

    #[test]
    fn missing_taken_and_forbidden_are_told_apart() {
        let source = || "said the server".into();
        let path = || "object".to_owned();
        let sort = |error| StorageError::sort("place/object".into(), error);
        let missing = sort(object_store::Error::NotFound { path: path(), source: source() });
        assert_eq!(missing, StorageError::Missing { at: "place/object".into() });
        let taken = sort(object_store::Error::AlreadyExists { path: path(), source: source() });
        assert_eq!(taken, StorageError::Taken { at: "place/object".into() });
        let forbidden = sort(object_store::Error::Unauthenticated { path: path(), source: source() });
        assert_eq!(forbidden.remedy(), Remedy::Fix);
    }
}
