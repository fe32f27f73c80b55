//! Formats of what is stored: what is said of one that this build does not read. A stored thing is read in a format that this
//! build knows, or not at all: it must never be read in part.

/// Something stored, in a format that this build does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} of format {found}, this build reads formats 1 to {read}: start {way_out} (docs/versions.md)",
    way_out = if found > read { "a build that is at least as new as the one that wrote it" } else { "the build that wrote it" }
)]
pub struct OtherFormat {
    /// What it is.
    pub what: &'static str,
    /// Its format.
    pub found: u32,
    /// The newest that is read.
    pub read: u32,
}
