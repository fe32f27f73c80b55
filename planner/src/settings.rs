//! What the planner may be told to do otherwise.

/// How a cluster is planned for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The share of all cpu and memory that trainers beyond their job's least leave free, from 0 to 1.
    pub headroom: f64,
    /// A job that gave trainers to something else than training grows again after so many seconds.
    pub regrow_seconds: u64,
    /// A job that has waited for so many seconds is not overtaken any more.
    pub overtaken_seconds: u64,
    /// No room is kept for a pod that has waited for so many seconds although there was room: something else holds it up.
    pub unplaced_seconds: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { headroom: 0.03, regrow_seconds: 60, overtaken_seconds: 1800, unplaced_seconds: 120 }
    }
}
