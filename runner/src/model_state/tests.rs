//! Models exported under names of all sorts, and read again by the formats' own readers.

use super::*;
use crate::table_state::samples::copy_of;
use proptest::prelude::*;
use safetensors::SafeTensors;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{Metric, Rule, Schedule, Table};
use shoal_runtime::wire::tensors::{Header, header_end};
use std::collections::BTreeSet;

/// Names that files, readers or other names might take for something else.
fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("w"),
        Just("W"),
        Just("t"),
        Just("keys"),
        Just("velocity"),
        Just("first_moment"),
        Just("summed_squares"),
        Just("__metadata__"),
        Just(""),
        Just("."),
        Just(".."),
        Just("/"),
        Just("\\"),
        Just("\""),
        Just("\u{e9}"),
        Just("e\u{301}"),
        Just("\u{202e}"),
        Just("\u{2028}"),
        Just("\n"),
        Just("\0"),
        Just("key"),
        Just("embedding"),
        Just("decisions"),
        Just("data_offsets"),
        Just("-"),
        Just(" "),
        Just("\u{10ffff}"),
    ];
    let whole = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("."));
    prop_oneof![9 => whole, 1 => "\\PC{1,120}", 1 => (250usize..260).prop_map(|length| "x".repeat(length))]
}

fn parameter() -> impl Strategy<Value = Parameter> {
    let rules = prop_oneof![
        Just(Rule::Sgd),
        Just(Rule::Momentum { momentum: 0.5 }),
        Just(Rule::ADAM),
        Just(Rule::AMSGRAD),
        Just(Rule::Adagrad { epsilon: 1e-8 }),
        Just(Rule::RowwiseAdagrad { epsilon: 1e-8 }),
        Just(Rule::Sum),
    ];
    let shape = prop_oneof![Just(vec![]), Just(vec![1]), Just(vec![2]), Just(vec![2, 3])];
    (name(), rules, shape, 0..4u8).prop_map(|(name, rule, shape, kind)| {
        let one = Parameter::new(&name, &shape, rule, Schedule::constant(0.1), Initial::Zeros);
        match kind {
            0 | 1 => one,
            2 => one.as_table(Table { buckets: 1, ..Table::default() }),
            _ => Parameter::metric(&name, Metric::Accuracy),
        }
    })
}

/// Parameter `at` holds `at` everywhere, its slot `s` that and `(s + 1) / 16`; a table in one row.
fn model(declaration: &Declaration) -> ModelState {
    let mut model = ModelState::empty(declaration.clone(), 3);
    for (at, parameter) in declaration.parameters.iter().enumerate() {
        model.values[at].fill(at as f32);
        (0..parameter.slots().len()).for_each(|slot| model.slots[slot][at].fill(of_slot(at, slot)));
        if let Some(table) = &mut model.tables[at] {
            let dimension = parameter.elements() as usize;
            let width = parameter.rule.row_slots(dimension) / parameter.rule.slots().len().max(1);
            let slots = (0..parameter.rule.slots().len()).flat_map(|slot| vec![of_slot(at, slot); width]);
            let row: Vec<f32> = std::iter::repeat_n(at as f32, dimension).chain(slots).collect();
            table.take(&copy_of(&[7], |_| row.clone()), &mut Settled::default()).unwrap();
        }
    }
    model
}

fn of_slot(at: usize, slot: usize) -> f32 {
    at as f32 + (slot + 1) as f32 / 16.0
}

fn holds(bytes: &[u8], value: f32) -> bool {
    bytes.as_chunks().0.iter().all(|word| f32::from_le_bytes(*word) == value)
}

fn check_file(declaration: &Declaration, bytes: &[u8], with_state: bool) {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let head = header_end(&bytes[..8], bytes.len() as u64).unwrap();
    let ours = Header::parse(&bytes[..head as usize], bytes.len() as u64).unwrap();
    let mut left: BTreeSet<&str> = file.names().into_iter().collect();
    for (at, parameter) in declaration.parameters.iter().enumerate() {
        let name = parameter.name.as_str();
        assert!(left.remove(name) && holds(file.tensor(name).unwrap().data(), at as f32), "{name:?}");
        let (values, rows) = (ours.values_of(parameter).unwrap(), ours.rows_of(parameter).unwrap());
        assert_eq!(
            values.is_some() || rows.is_some(),
            parameter.rule.begins_anywhere(),
            "a job may begin here"
        );
        if parameter.table.is_some() {
            assert!(left.remove(beside(name, "keys").as_str()), "{name:?}");
        }
        let slots = if parameter.table.is_some() { parameter.rule.slots() } else { parameter.slots() };
        for (slot, of) in slots.iter().enumerate().filter(|_| with_state) {
            let (beside, value) = (beside(name, of), of_slot(at, slot));
            assert!(left.remove(beside.as_str()), "{beside:?}");
            assert!(holds(file.tensor(&beside).unwrap().data(), value), "{beside:?}");
        }
    }
    assert!(left.is_empty(), "{left:?}");
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_exported_and_read_back_with_every_name_told_apart(
        parameters in prop::collection::vec(parameter(), 1..6), with_state in any::<bool>()
    ) {
        let declaration = Declaration { parameters, block_elements: 0 };
        if declaration.check().is_ok() {
            let (model, folder) = (model(&declaration), tempfile::tempdir().unwrap());
            let path = folder.path().join("model");
            model.export(&path, with_state).unwrap();
            check_file(&declaration, &std::fs::read(&path).unwrap(), with_state);
        }
    }
}
