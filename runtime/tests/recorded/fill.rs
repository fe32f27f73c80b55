//! Fills any message of the protocol with values of which none is the default and no two are alike, as its description in
//! `proto/` says. It must never draw anything: the same description gives the same bytes.

use prost::Message;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value,
};

/// What `proto/` describes.
pub(crate) fn described() -> Vec<MessageDescriptor> {
    let files = ["shoal", "block", "piece", "checkpoint"].map(|file| format!("shoal/v1/{file}.proto"));
    let set = protox::compile(files, ["proto"]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(set).unwrap();
    pool.all_messages().collect()
}

/// How many ways there are to fill a message: one for each choice that it has.
pub(crate) fn choices(message: &MessageDescriptor) -> usize {
    let choices = message.oneofs().filter(|one| !one.is_synthetic()).map(|one| one.fields().len());
    choices.max().unwrap_or(1)
}

/// The bytes of a filled message, with the given choice where it has one.
pub(crate) fn filled(message: &MessageDescriptor, choice: usize) -> Vec<u8> {
    fill(message, choice, &mut 0).encode_to_vec()
}

fn fill(message: &MessageDescriptor, choice: usize, count: &mut u64) -> DynamicMessage {
    let mut filled = DynamicMessage::new(message.clone());
    for field in message.fields() {
        let one = field.containing_oneof().filter(|one| !one.is_synthetic());
        let is_chosen = one.is_none_or(|one| one.fields().position(|other| other == field) == Some(choice));
        if is_chosen {
            let value = match field.cardinality() {
                Cardinality::Repeated => Value::List(vec![value(&field, count), value(&field, count)]),
                Cardinality::Optional | Cardinality::Required => value(&field, count),
            };
            filled.set_field(&field, value);
        }
    }
    filled
}

fn value(field: &FieldDescriptor, count: &mut u64) -> Value {
    *count += 1;
    // More than one byte from time to time, so that widths are seen.
    let number = *count * 37;
    match field.kind() {
        Kind::Bool => Value::Bool(true),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(number as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(number | 1 << 40),
        Kind::Float => Value::F32(number as f32 + 0.5),
        Kind::Double => Value::F64(number as f64 + 0.25),
        Kind::String => Value::String(format!("{}-{number}", field.name())),
        Kind::Bytes => Value::Bytes(vec![number as u8, 0, 255].into()),
        Kind::Enum(described) => {
            let values: Vec<i32> =
                described.values().map(|value| value.number()).filter(|n| *n != 0).collect();
            Value::EnumNumber(values[number as usize % values.len()])
        }
        Kind::Message(message) => Value::Message(fill(&message, 0, count)),
        other => panic!("{}: nobody has taught me to fill {other:?}", field.full_name()),
    }
}
