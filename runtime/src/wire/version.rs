//! The version of the wire: one number for all that travels between roles, told with every call and with every answer.
//! It must never let anybody guess: who does not speak this version is refused, whoever is the older one.

use crate::cluster::{Refusal, RefusalKind};

/// A version of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireVersion(pub u32);

impl WireVersion {
    /// What this build speaks. It is raised when a message of one build could be misunderstood by another: see
    /// `docs/versions.md`.
    pub const PRESENT: WireVersion = WireVersion(5);

    /// The entry of gRPC metadata that carries it, in calls and in answers.
    pub const ENTRY: &'static str = "shoal-wire-version";

    /// Checks what the other side of a call told of itself; none where it told nothing.
    ///
    /// # Errors
    /// It speaks another version, none, or something that is no version: who is to be upgraded, and what says why.
    pub fn check(self, side: Side, told: Option<&[u8]>) -> Result<(), Refusal> {
        let (them, us) = side.words();
        let parsed = |told: &[u8]| std::str::from_utf8(told).ok()?.parse::<u32>().ok();
        let number = told.map(parsed);
        let (theirs, older) = match number {
            Some(Some(theirs)) if theirs == self.0 => return Ok(()),
            Some(Some(theirs)) => (format!("wire version {theirs}"), if theirs < self.0 { them } else { us }),
            Some(None) => (String::from("a wire version that is no number"), them),
            None => (String::from("no wire version: it is older than the first"), them),
        };
        let detail = format!(
            "{them} speaks {theirs}, {us} speaks wire version {}; one job's processes speak one version: upgrade {older} \
             (docs/versions.md)",
            self.0
        );
        Err(Refusal::new(RefusalKind::OtherVersion, them, detail))
    }
}

/// The other side of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who calls.
    Caller,
    /// Who is called.
    Called,
}

impl Side {
    /// How the other side is named, and how this one.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Side::Caller => ("the caller", "the called process"),
            Side::Called => ("the called process", "the caller"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(side: Side, told: Option<&str>) -> Result<(), Refusal> {
        WireVersion(7).check(side, told.map(str::as_bytes))
    }

    #[test]
    fn only_the_same_version_is_taken() {
        for side in [Side::Caller, Side::Called] {
            assert_eq!(check(side, Some("7")), Ok(()));
            for told in [None, Some(""), Some("6"), Some("8"), Some("7 "), Some("-7"), Some("99999999999")] {
                let refusal = check(side, told).unwrap_err();
                assert_eq!(refusal.kind, RefusalKind::OtherVersion, "{told:?}");
            }
        }
    }

    #[test]
    fn a_refusal_names_both_versions_the_older_side_and_the_document() {
        for (side, told, older) in [
            (Side::Caller, "6", "upgrade the caller"),
            (Side::Caller, "8", "upgrade the called process"),
            (Side::Called, "6", "upgrade the called process"),
            (Side::Called, "8", "upgrade the caller"),
        ] {
            let refusal = check(side, Some(told)).unwrap_err().to_string();
            for word in [older, "wire version 7", &format!("wire version {told}"), "docs/versions.md"] {
                assert!(refusal.contains(word), "{refusal}: {word}");
            }
        }
        assert!(check(Side::Caller, None).unwrap_err().to_string().contains("upgrade the caller"));
    }
}
