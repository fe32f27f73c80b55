//! Environments of trainers on the wire.

use super::{malformed, proto};
use crate::cluster::{Environment, Refusal};
use std::collections::BTreeMap;

impl From<&Environment> for Vec<proto::EnvironmentEntry> {
    fn from(environment: &Environment) -> Self {
        let entry = |(name, value): (&String, &String)| proto::EnvironmentEntry {
            name: name.clone(),
            value: value.clone(),
        };
        environment.0.iter().map(entry).collect()
    }
}

impl TryFrom<Vec<proto::EnvironmentEntry>> for Environment {
    type Error = Refusal;

    /// The environment, checked ([`Environment::check`]).
    fn try_from(wire: Vec<proto::EnvironmentEntry>) -> Result<Self, Refusal> {
        let mut entries = BTreeMap::new();
        for proto::EnvironmentEntry { name, value } in wire {
            if let Some(_twice) = entries.insert(name.clone(), value) {
                return Err(malformed("environment", format!("{name:.64} is there twice")));
            }
        }
        let environment = Environment(entries);
        environment.check().map_err(|fault| malformed("environment", fault))?;
        Ok(environment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_comes_as_it_was_sent_and_no_other_does() {
        let entries = [("a", "1"), ("b", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Environment(entries.into());
        let wire = Vec::from(&environment);
        assert_eq!(Environment::try_from(wire.clone()).unwrap(), environment);
        let twice = [wire.clone(), wire].concat();
        assert!(Environment::try_from(twice).unwrap_err().detail.contains("a is there twice"));
        let empty = vec![proto::EnvironmentEntry::default()];
        assert!(Environment::try_from(empty).unwrap_err().detail.contains("no name"));
    }
}
