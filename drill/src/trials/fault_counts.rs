//! How often each role was hit by each kind of fault. Pure.

use serde_json::{Value, json};
use shoal_runner::report::Fault;
use std::collections::BTreeMap;

const ROLES: [&str; 3] = ["trainer", "pserver", "master"];

/// How many faults there were.
#[derive(Debug, Default)]
pub(super) struct FaultCounts(BTreeMap<String, BTreeMap<String, u64>>);

impl FaultCounts {
    pub(super) fn add(&mut self, fault: &Fault) {
        // Numbers are changed of nobody in particular.
        let kind = if fault.name.is_empty() { "scale" } else { &fault.kind };
        *self.0.entry(kind.to_owned()).or_default().entry(fault.role.clone()).or_default() += 1;
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().flat_map(BTreeMap::values).sum()
    }

    pub(super) fn json(&self) -> Value {
        json!(self.0)
    }

    /// A line for each kind, a column for each role.
    pub(super) fn text(&self) -> String {
        let line = |head: &str, cells: [String; 4]| {
            let [trainer, pserver, master, all] = cells;
            format!("{head:<10} {trainer:>8} {pserver:>8} {master:>8} {all:>8}")
        };
        let [trainer, pserver, master] = ROLES.map(str::to_owned);
        let mut lines = vec![line("", [trainer, pserver, master, "all".to_owned()])];
        let of = |role: &str, of_kind: &BTreeMap<String, u64>| of_kind.get(role).copied().unwrap_or(0);
        for (kind, of_kind) in &self.0 {
            let [trainer, pserver, master] = ROLES.map(|role| of(role, of_kind).to_string());
            lines.push(line(kind, [trainer, pserver, master, of_kind.values().sum::<u64>().to_string()]));
        }
        let sum = |role| self.0.values().map(|of_kind| of(role, of_kind)).sum::<u64>().to_string();
        let [trainer, pserver, master] = ROLES.map(sum);
        lines.push(line("all", [trainer, pserver, master, self.total().to_string()]));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_counted_by_kind_and_role() {
        let mut table = FaultCounts::default();
        for (kind, role, name) in
            [("kill", "master", "master"), ("kill", "trainer", "trainer-3"), ("leave", "pserver", "")]
        {
            let [kind, role, name] = [kind, role, name].map(str::to_owned);
            table.add(&Fault { kind, role, name, at_seconds: 0.0, what: String::new() });
        }
        assert_eq!(table.total(), 3);
        let words: Vec<Vec<String>> =
            table.text().lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
        assert_eq!(words[1], ["kill", "1", "0", "1", "2"]);
        assert_eq!(words[2], ["scale", "0", "1", "0", "1"]);
        assert_eq!(words[3], ["all", "1", "1", "1", "3"]);
        assert_eq!(table.json()["kill"]["master"], 1);
    }
}
