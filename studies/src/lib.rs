//! Studies of whole jobs that take minutes to hours: a program each, in `bin`; no test of the workspace runs them. Here lie those
//! whose judgement has tests of its own. docs/testing.md says what each of them shows.

#![forbid(unsafe_code)]

pub mod click_through;
pub mod convergence;
pub mod operator;
pub mod replay;
