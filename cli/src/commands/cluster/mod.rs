//! Jobs of a Kubernetes cluster: `shoal submit`, `get`, `logs`, `why`, `wait`, `collect`, `delete`, and what `shoal ui` needs.

mod collect;
mod delete;
mod get;
mod logs;
mod submit;
mod ui;
mod wait;
mod why;

pub(crate) use collect::{CollectArguments, collect};
pub(crate) use delete::{DeleteArguments, delete};
pub(crate) use get::{GetArguments, get};
pub(crate) use logs::{LogsArguments, logs};
pub(crate) use submit::{SubmitArguments, submit};
pub(crate) use ui::source;
pub(crate) use wait::{WaitArguments, wait};
pub(crate) use why::why;

use shoal_operator::api::Moment;
use shoal_runtime::host::clock::wall_seconds;

/// The time of this machine.
fn now() -> Moment {
    Moment(i64::try_from(wall_seconds()).unwrap_or(i64::MAX))
}
