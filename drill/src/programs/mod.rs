//! The digits example, compiled into the command as well, so that the demo needs nothing built beside it.

#[allow(dead_code)] // The example packs by path; the demo uses the rest.
#[path = "../../../trainer-sdk/examples/digits/data.rs"]
pub(crate) mod data;
#[path = "../../../trainer-sdk/examples/digits/model.rs"]
pub(crate) mod digits;
#[allow(dead_code)] // `predict` is for people.
#[path = "../../../trainer-sdk/examples/digits/mlp.rs"]
mod mlp;
#[allow(dead_code)] // Its tests and its tally are the runner's.
#[path = "../../../trainer-sdk/examples/count/oracle.rs"]
mod oracle;
