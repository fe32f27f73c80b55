//! Columns of a Parquet file, and their values row by row.
//! It must never take a value for another: what a type means is known, or the column is refused by name.

use anyhow::{Context, bail, ensure};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

/// One value of one row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    F32(f32),
    F64(f64),
    Text(String),
    Bytes(Vec<u8>),
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
    let known: Vec<String> = (0..schema.num_columns()).map(|leaf| name_of(schema, leaf)).collect();
    ensure!(!known.is_empty(), "the file has no columns");
    let wanted = if names.is_empty() { &known } else { names };
    let mut columns = Vec::with_capacity(wanted.len());
    for name in wanted {
        let leaves: Vec<usize> = (0..known.len()).filter(|leaf| known[*leaf] == *name).collect();
        let [leaf] = leaves[..] else {
            ensure!(!leaves.is_empty(), "there is no column {name:?}; there are {}", known.join(", "));
            bail!("column {name:?} is a list of groups or a map, or there are two: {OTHERS}");
        };
        columns.push(column(&schema.column(leaf), name, leaf).with_context(|| format!("column {name:?}"))?);
    }
    Ok(columns)
}

const OTHERS: &str = "name the columns to pack with --columns, or flatten it where the file is made";

/// A leaf's name: with dots where groups are nested, and without what a list has inside.
fn name_of(schema: &SchemaDescriptor, leaf: usize) -> String {
    let column = schema.column(leaf);
    let parts = column.path().parts();
    let mut group = schema.root_schema();
    for (depth, part) in parts.iter().enumerate() {
        let is_list = !group.is_schema() && group.get_basic_info().converted_type() == ConvertedType::LIST;
        let Some(node) = group.get_fields().iter().find(|field| field.name() == part) else { break };
        let info = node.get_basic_info();
        if info.has_repetition() && info.repetition() == Repetition::REPEATED {
            return parts[..if is_list { depth } else { depth + 1 }].join(".");
        }
        if node.is_primitive() {
            break;
        }
        group = node;
    }
    parts.join(".")
}

fn column(leaf: &ColumnDescriptor, name: &str, index: usize) -> anyhow::Result<Column> {
    ensure!(leaf.max_rep_level() <= 1, "holds lists of lists: {OTHERS}");
    Ok(Column {
        name: name.to_owned(),
        kind: kind(leaf)?,
        leaf: index,
        is_list: leaf.max_rep_level() == 1,
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
            ColumnReader::ByteArrayColumnReader(reader) => {
                self.rows(reader, rows, |v| self.bytes(v.data().to_vec()))
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                self.rows(reader, rows, |v| self.bytes(v.data().to_vec()))
            }
            ColumnReader::Int96ColumnReader(_) => bail!("holds INT96"),
        }
    }

    fn bytes(&self, bytes: Vec<u8>) -> anyhow::Result<Value> {
        match self.kind {
            Kind::Text => Ok(Value::Text(String::from_utf8(bytes).context("a text is not UTF-8")?)),
            _ => Ok(Value::Bytes(bytes)),
        }
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
            let some =
                reader.read_records(rows - read, Some(&mut levels), Some(&mut repeats), &mut values)?;
            if some.0 == 0 {
                break;
            }
            read += some.0;
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
