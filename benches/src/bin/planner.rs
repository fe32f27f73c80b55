//! The bench `planner`, which lies in the library with its tests.

fn main() -> anyhow::Result<()> {
    shoal_benches::planner::main()
}
