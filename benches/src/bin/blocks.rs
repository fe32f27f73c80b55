//! The bench `blocks`, which lies in the library with its tests.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    shoal_benches::blocks::main()
}
