//! The shoal command.
fn main() {}
