//! Experiments with schedulers, the evidence for the planner: a cluster simulated from a scenario, or a cluster that is watched,
//! each as one time series with its closing figures. Pure: whoever calls opens files, looks at clusters and prints.

#![forbid(unsafe_code)]

pub mod collector;
mod object;
mod page;
mod series;
pub mod simulator;
mod table;

pub use object::object;
pub use page::html;
pub use series::{Experiment, JobRow, Published, Sample, Summary};
pub use table::{figures, job_table, series_line, series_title};
