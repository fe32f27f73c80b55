//! The study `click_through`, which lies in the library with its tests.

fn main() -> anyhow::Result<()> {
    shoal_studies::click_through::main()
}
