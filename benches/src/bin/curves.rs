//! The bench `curves`, which lies in the library with its tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    shoal_benches::curves::main()
}
