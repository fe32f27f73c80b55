//! The bench `rows`, which lies in the library with its tests.

fn main() -> anyhow::Result<()> {
    shoal_benches::rows::main()
}
