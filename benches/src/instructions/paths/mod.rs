//! The hot paths that are counted: pure, deterministic, each called as its role calls it.
//! None may wait, draw numbers or depend on addresses: two walks of one path take the same instructions.

mod kernels;
mod leases;
mod recordio;
mod tables;
mod wire;

use anyhow::Context;

/// One repetition of a path; what it needs was made before.
pub(crate) type Walk = Box<dyn FnMut() -> anyhow::Result<()>>;

/// Something whose instructions are worth counting.
pub(crate) struct HotPath {
    pub(crate) name: &'static str,
    /// Of what an instruction count is told, and how many of them one repetition has.
    pub(crate) unit: &'static str,
    pub(crate) units: u32,
    /// How many are counted.
    pub(crate) repetitions: u32,
    begin: Box<dyn Fn() -> anyhow::Result<Walk>>,
}

impl HotPath {
    fn new(
        name: &'static str,
        (units, unit): (u32, &'static str),
        repetitions: u32,
        begin: impl Fn() -> anyhow::Result<Walk> + 'static,
    ) -> HotPath {
        HotPath { name, unit, units, repetitions, begin: Box::new(begin) }
    }
}

/// All of them, in the order in which they are told.
pub(crate) fn all() -> Vec<HotPath> {
    let groups = [recordio::paths(), kernels::paths(), wire::paths(), leases::paths(), tables::paths()];
    groups.into_iter().flatten().collect()
}

/// Walks one of them so often.
pub(crate) fn walk(name: &str, repetitions: u32) -> anyhow::Result<()> {
    let path = all().into_iter().find(|path| path.name == name).context("no such path")?;
    let mut walk = (path.begin)()?;
    (0..repetitions).try_for_each(|_| walk())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_path_can_be_walked_again_and_again() {
        for path in all() {
            walk(path.name, 3).unwrap_or_else(|fault| panic!("{}: {fault:#}", path.name));
        }
    }

    #[test]
    fn every_path_has_a_name_of_its_own_and_fits_on_a_line_of_the_baseline() {
        let paths = all();
        let names: BTreeSet<&str> = paths.iter().map(|path| path.name).collect();
        assert_eq!(names.len(), paths.len());
        for HotPath { name, unit, units, repetitions, .. } in paths {
            assert!(!name.contains(|c: char| c.is_whitespace() || c == ':') && !unit.contains(' '), "{name}");
            assert!(units > 0 && repetitions > 0, "{name}");
        }
    }
}
