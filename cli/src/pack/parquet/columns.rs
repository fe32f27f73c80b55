//! Columns of a Parquet file, and their values row by row.
//! It must never take a value for another: what a type means is known, or the column is refused by name.

use anyhow::{Context, bail, ensure};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

use super::names;

/// One value of one row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    F32(f32),
    F64(f64),
    /// A text's bytes; the pages that they came in stay as long as they do.
    Text(ByteArray),
    Bytes(ByteArray),
    List(Vec<Value>),
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    UInt,
    Float,
    Text,
    Bytes,
}

/// A column that can be read.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Which leaf of the schema it is.
    pub(super) leaf: usize,
    is_list: bool,
    /// The definition level of a value that is there.
    value_level: i16,
    /// Of lists: the definition level of an element, null or not.
    element_level: i16,
}

/// The columns `names`, in that order; all of them, in the file's order, where none is named.
pub(super) fn choose(schema: &SchemaDescriptor, names: &[String]) -> anyhow::Result<Vec<Column>> {
    let mut known = Vec::with_capacity(schema.num_columns());
    leaves_of(schema.root_schema(), &mut Vec::new(), &mut known);
    ensure!(!known.is_empty(), "the file has no columns");
    let all: Vec<String> = known.iter().map(|leaf| leaf.name.clone()).collect();
    let wanted = if names.is_empty() { &all } else { names };
    let mut columns: Vec<Column> = Vec::with_capacity(wanted.len());
    for name in wanted {
        let leaves: Vec<usize> = (0..known.len()).filter(|leaf| known[*leaf].name == *name).collect();
        let Some(&leaf) = leaves.first() else {
            bail!("there is no column {name:?}; there are {}", names::said(&all));
        };
        if let Shape::Other(what) = known[leaf].shape {
            bail!("column {name:?} holds {what}: {OTHERS}");
        }
        ensure!(leaves.len() == 1, "there are {} columns {name:?}: {OTHERS}", leaves.len());
        ensure!(columns.iter().all(|column| column.leaf != leaf), "column {name:?} is named twice");
        let is_list = known[leaf].shape == Shape::List;
        let column = column(&schema.column(leaf), name, leaf, is_list);
        columns.push(column.with_context(|| format!("column {name:?}"))?);
    }
    Ok(columns)
}

const OTHERS: &str = "name the columns to pack with --columns, or flatten it where the file is made";

/// A leaf of the schema as users know it.
struct Leaf {
    /// With dots where groups are nested, and without what a list has inside.
    name: String,
    shape: Shape,
}

/// What one row has of a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    List,
    /// What no record can say.
    Other(&'static str),
}

/// Appends the leaves of a group in the schema's order. `path` is the group's.
///
/// Found by their place and not by their names, which may be those of others.
fn leaves_of<'s>(group: &'s Type, path: &mut Vec<&'s str>, leaves: &mut Vec<Leaf>) {
    for node in group.get_fields() {
        path.push(node.name());
        if is_repeated(node) {
            // What repeats by itself has a name of its own; a list or a map has that of the group around.
            let named = path.len() - usize::from(annotation(group) != ConvertedType::NONE);
            let (name, shape) = (path[..named].join("."), shape_of_repeated(group, node));
            leaves.extend((0..leaf_count(node)).map(|_| Leaf { name: name.clone(), shape }));
        } else if node.is_primitive() {
            leaves.push(Leaf { name: path.join("."), shape: Shape::One });
        } else {
            leaves_of(node, path, leaves);
        }
        path.pop();
    }
}

fn leaf_count(node: &Type) -> usize {
    if node.is_primitive() { 1 } else { node.get_fields().iter().map(|field| leaf_count(field)).sum() }
}

fn is_repeated(node: &Type) -> bool {
    let info = node.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

/// LIST, MAP or MAP_KEY_VALUE; NONE for all others.
fn annotation(group: &Type) -> ConvertedType {
    use ConvertedType as C;
    let annotated = if group.is_schema() { C::NONE } else { group.get_basic_info().converted_type() };
    if matches!(annotated, C::LIST | C::MAP | C::MAP_KEY_VALUE) { annotated } else { C::NONE }
}

/// What a repeated node in a group is, by the format's rules for lists.
fn shape_of_repeated(group: &Type, node: &Type) -> Shape {
    use ConvertedType as C;
    let annotated = annotation(group);
    if matches!(annotated, C::MAP | C::MAP_KEY_VALUE) {
        return Shape::Other("a map");
    }
    if node.is_primitive() {
        return Shape::List;
    }
    // So named, the group is the element and no layer around it.
    let is_element = node.name() == "array" || node.name() == format!("{}_tuple", group.name());
    match node.get_fields() {
        _ if annotated != C::LIST || is_element => Shape::Other("a list of groups"),
        [element] if element.is_primitive() && !is_repeated(element) => Shape::List,
        [element] if is_repeated(element) => Shape::Other("a list of lists"),
        [element] if annotation(element) == C::LIST => Shape::Other("a list of lists"),
        [element] if matches!(annotation(element), C::MAP | C::MAP_KEY_VALUE) => {
            Shape::Other("a list of maps")
        }
        _ => Shape::Other("a list of groups"),
    }
}

fn column(leaf: &ColumnDescriptor, name: &str, index: usize, is_list: bool) -> anyhow::Result<Column> {
    Ok(Column {
        name: name.to_owned(),
        kind: kind(leaf)?,
        leaf: index,
        is_list,
        value_level: leaf.max_def_level(),
        element_level: leaf.repeated_ancestor_def_level(),
    })
}

fn kind(leaf: &ColumnDescriptor) -> anyhow::Result<Kind> {
    use ConvertedType as C;
    let refuse = |what: &str| {
        bail!("holds {what}, which cannot be packed: cast it where the file is made, or {OTHERS}")
    };
    if leaf.logical_type_ref() == Some(&LogicalType::Float16) {
        return refuse("half floats");
    }
    match (leaf.physical_type(), leaf.converted_type()) {
        (_, C::DECIMAL) => refuse("decimals"),
        (_, C::INTERVAL) => refuse("intervals"),
        (Physical::INT96, _) => refuse("timestamps of the deprecated type INT96"),
        (Physical::BOOLEAN, _) => Ok(Kind::Bool),
        (Physical::INT32 | Physical::INT64, C::UINT_8 | C::UINT_16 | C::UINT_32 | C::UINT_64) => {
            Ok(Kind::UInt)
        }
        (Physical::INT32 | Physical::INT64, _) => Ok(Kind::Int),
        (Physical::FLOAT | Physical::DOUBLE, _) => Ok(Kind::Float),
        (Physical::BYTE_ARRAY, C::UTF8 | C::ENUM | C::JSON) => Ok(Kind::Text),
        (Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY, _) => Ok(Kind::Bytes),
    }
}

impl Column {
    /// The next `rows` rows; fewer where the column ends.
    pub(super) fn read(&self, reader: &mut ColumnReader, rows: usize) -> anyhow::Result<Vec<Value>> {
        let is_unsigned = self.kind == Kind::UInt;
        let int32 = |value| match is_unsigned {
            true => Value::UInt(u64::from(value as u32)),
            false => Value::Int(i64::from(value)),
        };
        let int64 = |value| if is_unsigned { Value::UInt(value as u64) } else { Value::Int(value) };
        match reader {
            ColumnReader::BoolColumnReader(reader) => self.rows(reader, rows, |v| Ok(Value::Bool(v))),
            ColumnReader::Int32ColumnReader(reader) => self.rows(reader, rows, |v| Ok(int32(v))),
            ColumnReader::Int64ColumnReader(reader) => self.rows(reader, rows, |v| Ok(int64(v))),
            ColumnReader::FloatColumnReader(reader) => self.rows(reader, rows, |v| Ok(Value::F32(v))),
            ColumnReader::DoubleColumnReader(reader) => self.rows(reader, rows, |v| Ok(Value::F64(v))),
            ColumnReader::ByteArrayColumnReader(reader) => self.rows(reader, rows, |v| self.bytes(v)),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                self.rows(reader, rows, |v| self.bytes(v.into()))
            }
            ColumnReader::Int96ColumnReader(_) => bail!("holds INT96"),
        }
    }

    fn bytes(&self, bytes: ByteArray) -> anyhow::Result<Value> {
        if self.kind != Kind::Text {
            return Ok(Value::Bytes(bytes));
        }
        std::str::from_utf8(bytes.data()).context("a text is not UTF-8")?;
        Ok(Value::Text(bytes))
    }

    fn rows<T: DataType>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        value: impl Fn(T::T) -> anyhow::Result<Value>,
    ) -> anyhow::Result<Vec<Value>> {
        let (mut levels, mut repeats, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut read = 0;
        while read < rows {
            let some = reader.read_records(rows - read, Some(&mut levels), Some(&mut repeats), &mut values);
            let (some, ..) =
                some.context("cannot be decoded: the file is damaged, or the column is encrypted")?;
            if some == 0 {
                break;
            }
            read += some;
        }
        let mut values = values.into_iter().map(value);
        let mut next = || values.next().context("a value is missing: the file is damaged")?;
        if self.value_level == 0 {
            return (0..read).map(|_| next()).collect();
        }
        let mut assembled = Vec::with_capacity(read);
        for (at, level) in levels.iter().enumerate() {
            let element = if *level == self.value_level { next()? } else { Value::Null };
            if !self.is_list {
                assembled.push(element);
            } else if *level < self.element_level {
                // No element: an empty list, or one level less, none at all.
                let is_empty = *level + 1 == self.element_level;
                assembled.push(if is_empty { Value::List(Vec::new()) } else { Value::Null });
            } else if repeats.get(at) == Some(&0) {
                assembled.push(Value::List(vec![element]));
            } else if let Some(Value::List(list)) = assembled.last_mut() {
                list.push(element);
            } else {
                bail!("a list goes on that has not begun: the file is damaged");
            }
        }
        Ok(assembled)
    }
}
