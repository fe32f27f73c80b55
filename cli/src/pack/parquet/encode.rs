//! A row as a record. It must never write what the reader of the record could take for something else.

use std::fmt::Write;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::RowForm;
use super::columns::{Column, Kind, Value};

/// Makes records of rows, one after another in the same memory.
#[derive(Debug)]
pub(super) struct Encoder {
    form: RowForm,
    record: Vec<u8>,
    /// Of f32 records: how many numbers each column had in the first row.
    widths: Vec<usize>,
}

impl Encoder {
    pub(super) fn new(form: RowForm) -> Encoder {
        Encoder { form, record: Vec::new(), widths: Vec::new() }
    }

    /// Refuses columns that this form cannot say.
    pub(super) fn expect(&self, columns: &[Column]) -> anyhow::Result<()> {
        for Column { name, kind, .. } in columns {
            ensure!(
                self.form == RowForm::Json || !matches!(kind, Kind::Text | Kind::Bytes),
                "column {name:?} holds no numbers: leave it out of --columns, or pack --as json"
            );
        }
        Ok(())
    }

    /// The record of one row.
    pub(super) fn encode<'v>(
        &mut self,
        columns: &[Column],
        row: impl Iterator<Item = &'v Value>,
    ) -> anyhow::Result<&[u8]> {
        self.record.clear();
        match self.form {
            RowForm::Json => self.json(columns, row)?,
            RowForm::F32 => self.f32s(columns, row)?,
        }
        Ok(&self.record)
    }

    fn json<'v>(&mut self, columns: &[Column], row: impl Iterator<Item = &'v Value>) -> anyhow::Result<()> {
        let mut text = String::from("{");
        for (at, (column, value)) in columns.iter().zip(row).enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(text, "{comma}{}:", serde_json::to_string(&column.name)?)?;
            json_value(value, &mut text).with_context(|| format!("column {:?}", column.name))?;
        }
        text.push('}');
        self.record.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn f32s<'v>(&mut self, columns: &[Column], row: impl Iterator<Item = &'v Value>) -> anyhow::Result<()> {
        for (at, (column, value)) in columns.iter().zip(row).enumerate() {
            let before = self.record.len();
            let at_column = || format!("column {:?}", column.name);
            match value {
                Value::List(list) => list.iter().try_for_each(|value| self.number(value)),
                value => self.number(value),
            }
            .with_context(at_column)?;
            let width = (self.record.len() - before) / 4;
            if self.widths.len() == at {
                self.widths.push(width);
            }
            let expected = self.widths[at];
            ensure!(
                width == expected,
                "column {:?}: has {width} numbers here and {expected} in the first row: records would differ in length",
                column.name
            );
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) -> anyhow::Result<()> {
        let number = match value {
            Value::Bool(value) => f32::from(u8::from(*value)),
            Value::Int(value) => *value as f32,
            Value::UInt(value) => *value as f32,
            Value::F32(value) => *value,
            Value::F64(value) => {
                let narrow = *value as f32;
                ensure!(narrow.is_finite() || !value.is_finite(), "{value:e} is too large for an f32");
                narrow
            }
            Value::Null => {
                bail!("is null, which an f32 cannot say: fill it where the file is made, or pack --as json")
            }
            Value::Text(_) | Value::Bytes(_) | Value::List(_) => bail!("is no number"),
        };
        self.record.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }
}

fn json_value(value: &Value, text: &mut String) -> anyhow::Result<()> {
    let finite = |is_finite: bool| -> anyhow::Result<()> {
        ensure!(
            is_finite,
            "is not finite, which JSON cannot say: mend it where the file is made, or pack --as f32"
        );
        Ok(())
    };
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => write!(text, "{value}")?,
        Value::Int(value) => write!(text, "{value}")?,
        Value::UInt(value) => write!(text, "{value}")?,
        Value::F32(value) => {
            finite(value.is_finite())?;
            text.push_str(&serde_json::to_string(value)?);
        }
        Value::F64(value) => {
            finite(value.is_finite())?;
            text.push_str(&serde_json::to_string(value)?);
        }
        Value::Text(value) => text.push_str(&serde_json::to_string(value.as_utf8()?)?),
        Value::Bytes(value) => write!(text, "\"{}\"", BASE64_STANDARD.encode(value.data()))?,
        Value::List(values) => {
            for (at, value) in values.iter().enumerate() {
                text.push(if at == 0 { '[' } else { ',' });
                json_value(value, text)?;
            }
            text.push_str(if values.is_empty() { "[]" } else { "]" });
        }
    }
    Ok(())
}
