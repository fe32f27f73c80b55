//! The study `convergence`, which lies in the library with its tests.

fn main() -> anyhow::Result<()> {
    shoal_studies::convergence::main()
}
