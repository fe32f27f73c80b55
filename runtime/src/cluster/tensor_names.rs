//! The names under which a model is exported: of each parameter its own, and beside it those of its table's keys and of its rule's
//! state. Pure. What is declared must make a file whose tensors all have names of their own, and that readers take.

use super::Parameter;
use super::parameter::DeclarationFault;
use std::collections::BTreeMap;

/// What a table's keys are called beside it.
pub const KEYS: &str = "keys";
/// The longest header of a safetensors file, in bytes: what the reference implementation reads.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The name of what is no tensor in the header of a safetensors file.
const RESERVED: &str = "__metadata__";
/// What a tensor adds to a header beside its name and its shape, in bytes at most: punctuation, kind, two places of 20 digits.
const ENTRY_BYTES_MAX: u64 = 100;

/// The name of what lies beside a parameter's values: a table's keys, a slot of the rule's state.
pub fn beside(parameter: &str, what: &str) -> String {
    format!("{parameter}.{what}")
}

/// What may be exported beside a parameter's values.
fn others(parameter: &Parameter) -> impl Iterator<Item = &'static str> {
    let (keys, slots) = match parameter.table {
        Some(_) => (Some(KEYS), parameter.rule.slots()),
        None => (None, parameter.slots()),
    };
    keys.into_iter().chain(slots.iter().copied())
}

/// The first parameter that no export could hold, and why.
pub(super) fn fault(parameters: &[Parameter]) -> Option<DeclarationFault> {
    let by_name: BTreeMap<&str, &Parameter> =
        parameters.iter().map(|parameter| (parameter.name.as_str(), parameter)).collect();
    let fault =
        |parameter: &str, what: String| Some(DeclarationFault { parameter: parameter.to_owned(), what });
    for name in by_name.keys() {
        if *name == RESERVED {
            return fault(name, "safetensors files keep this name for themselves: take another".to_owned());
        }
        // No name of what lies beside a parameter has a dot, so that two of them can meet only under one parameter.
        let taken = name.rsplit_once('.').filter(|(of, what)| {
            by_name.get(of).is_some_and(|parameter| others(parameter).any(|other| other == *what))
        });
        if let Some((of, what)) = taken {
            let whose = if what == KEYS { "table" } else { "parameter" };
            return fault(
                name,
                format!("exports give this name to the {what} of the {whose} {of:?}: take another"),
            );
        }
    }
    let bytes: u64 = parameters.iter().map(header_bytes_max).fold(0, u64::saturating_add);
    if bytes > HEADER_BYTES_MAX {
        let what = format!(
            "names and shapes make up to {bytes} bytes at the head of an exported model, and readers take \
             {HEADER_BYTES_MAX}: declare fewer parameters, or give them shorter names"
        );
        return fault("", what);
    }
    None
}

/// What a parameter adds to the header of an export with all state, at most.
fn header_bytes_max(parameter: &Parameter) -> u64 {
    // The characters that JSON writes as two.
    let escaped = parameter.name.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    let digits = |dimension: &u64| u64::from(dimension.checked_ilog10().unwrap_or(0)) + 2;
    let shape: u64 = parameter.shape.iter().map(digits).sum();
    // A table has its number of rows before its shape.
    let each = (parameter.name.len() + escaped) as u64 + shape + digits(&u64::MAX) + ENTRY_BYTES_MAX;
    others(parameter).map(|other| each + other.len() as u64).sum::<u64>() + each
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::initial::Initial;
    use crate::cluster::{Declaration, Group, Rule, Schedule, Table};

    fn parameter(name: &str, rule: Rule) -> Parameter {
        Parameter::new(name, &[2], rule, Schedule::constant(0.1), Initial::Zeros)
    }

    fn fault(parameters: &[Parameter]) -> Option<(String, String)> {
        let declaration = Declaration { parameters: parameters.to_vec(), block_elements: 0 };
        declaration.check().err().map(|fault| (fault.parameter, fault.what))
    }

    #[test]
    fn a_name_that_an_exported_model_keeps_for_itself_is_refused_by_name() {
        let (name, what) = fault(&[parameter("__metadata__", Rule::Sgd)]).unwrap();
        assert!(name == "__metadata__" && what.contains("take another"), "{what}");
        assert_eq!(fault(&[parameter("__metadata__.x", Rule::Sgd), parameter("metadata", Rule::Sgd)]), None);
    }

    #[test]
    fn a_name_that_an_export_gives_to_state_or_keys_is_refused_with_whose_it_is_in_either_order() {
        let table = parameter("t", Rule::ADAM).as_table(Table::default());
        let momentum = Rule::Momentum { momentum: 0.5 };
        for (owner, name, whose) in [
            (parameter("w", momentum), "w.velocity", "the velocity of the parameter \"w\""),
            (parameter("a.b", Rule::ADAM), "a.b.first_moment", "the first_moment of the parameter \"a.b\""),
            (table.clone(), "t.keys", "the keys of the table \"t\""),
            (table.clone(), "t.second_moment", "the second_moment of the parameter \"t\""),
        ] {
            let other = parameter(name, Rule::Sgd);
            for both in [[owner.clone(), other.clone()], [other, owner]] {
                let (found, what) = fault(&both).unwrap();
                assert!(found == name && what.contains(whose), "{found}: {what}");
            }
        }
    }

    #[test]
    fn what_no_export_gives_away_is_free_to_be_taken() {
        let frozen = parameter("f", Rule::ADAM).in_group(Group::FROZEN);
        let free = ["w.keys", "w.velocity", "f.first_moment", "W", ".", "..", "/", "a/b", "w.", ".w"];
        let mut parameters = vec![parameter("w", Rule::ADAM), frozen];
        parameters.extend(free.map(|name| parameter(name, Rule::Sgd)));
        assert_eq!(fault(&parameters), None);
    }

    #[test]
    fn names_and_shapes_that_make_a_longer_header_than_readers_take_are_refused_together() {
        let long = |at: usize| format!("{at:06}{}", "\"".repeat(240));
        let many =
            |count: usize| (0..count).map(|at| parameter(&long(at), Rule::AMSGRAD)).collect::<Vec<_>>();
        assert_eq!(fault(&many(30_000)), None);
        assert!(fault(&many(60_000)).unwrap().1.contains("shorter names"));
    }
}
