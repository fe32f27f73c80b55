//! An experiment on a cluster, simulated or watched: its time series and its closing figures. Pure.

mod object;
mod page;
mod series;
mod table;

pub(crate) use object::object;
pub(crate) use page::html;
pub(crate) use series::{Experiment, JobRow, Published, Sample};
pub(crate) use table::{figures, job_table, series_line, series_title};
