//! A trainer's environment: what the program says of its own, and what the SDK adds. Asks the processor, and nobody else.

use crate::error::TrainError;
use shoal_runtime::cluster::Environment;
use std::collections::BTreeMap;

/// What bits of Rust programs depend on: see [`crate::Model::environment`].
const PROCESSOR: &str = "processor";

/// The whole environment of a program that declares `programs` of its own.
///
/// # Errors
/// It is too much: the message names the entry and the limit.
pub(crate) fn of(programs: BTreeMap<String, String>) -> Result<Environment, TrainError> {
    let mut environment = Environment(programs);
    environment.0.entry(PROCESSOR.to_owned()).or_insert_with(processor);
    environment.check().map_err(|fault| TrainError::Settings(fault.to_string()))?;
    Ok(environment)
}

/// The environment of a program that declares nothing of its own.
#[cfg(feature = "internals")]
pub fn usual_environment() -> Environment {
    Environment(BTreeMap::from([(PROCESSOR.to_owned(), processor())]))
}

fn processor() -> String {
    let fused = if fuses() { " with fma" } else { "" };
    format!("{}{fused}", std::env::consts::ARCH)
}

#[cfg(target_arch = "x86_64")]
fn fuses() -> bool {
    std::arch::is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
fn fuses() -> bool {
    // Of the other architectures that are built for, every processor does.
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_processor_is_added_unless_the_program_says_otherwise() {
        let Environment(all) = of(entries(&[("threads", "1")])).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["processor", "threads"]);
        assert!(all["processor"].starts_with(std::env::consts::ARCH), "{all:?}");
        let pinned = entries(&[("processor", "any")]);
        assert_eq!(of(pinned.clone()).unwrap(), Environment(pinned));
    }

    #[test]
    fn what_is_too_much_is_refused_before_anybody_is_called() {
        let error = of(entries(&[("flags", &"x".repeat(513))])).unwrap_err();
        assert!(matches!(&error, TrainError::Settings(said) if said.contains("flags")), "{error}");
    }
}
