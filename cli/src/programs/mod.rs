//! The digits example, compiled into the command as well, so that the demo needs nothing built beside it.

#[allow(dead_code)] // The example packs by path; the demo uses the rest.
#[path = "../../../trainer-sdk/examples/digits/data.rs"]
pub(crate) mod data;
#[path = "../../../trainer-sdk/examples/digits/model.rs"]
pub(crate) mod digits;
#[allow(dead_code)] // `predict` is for people.
#[path = "../../../trainer-sdk/examples/digits/mlp.rs"]
mod mlp;
#[path = "../../../trainer-sdk/examples/count/oracle.rs"]
pub(crate) mod oracle;
#[allow(dead_code)] // The example counts; the command reads the counts.
#[path = "../../../trainer-sdk/examples/count_rows/rows.rs"]
pub(crate) mod rows;
