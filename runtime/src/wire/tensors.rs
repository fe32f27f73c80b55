//! The header of a safetensors file: which tensors it has, of what kind, and where. Pure.
//!
//! It must never trust a length, an offset or a shape that a file states, nor allocate by one.

use super::pieces::Damage;
use crate::cluster::tensor_names::{HEADER_BYTES_MAX, KEYS, beside};
use crate::cluster::{Declaration, Parameter};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::ops::Range;

/// Bytes that say how long the header is.
pub const PREFIX_BYTES: u64 = 8;
/// Tensors of a file that a message names.
const NAMED_MAX: usize = 5;

/// What a file says of itself, checked: its tensors lie one after another and fill it to its end.
#[derive(Clone, Debug)]
pub struct Header {
    metadata: Metadata,
    /// Where the first tensor's bytes begin.
    data: u64,
}

/// Where one parameter's values lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    kind: Kind,
    first_byte: u64,
}

/// Where one table's rows lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsAt {
    /// How many.
    pub rows: u64,
    /// Where their embeddings lie, row by row.
    pub values: Values,
    first_key_byte: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F32,
    F16,
    Bf16,
}

/// Where the header ends, by the file's first [`PREFIX_BYTES`].
pub fn header_end(prefix: &[u8], file_bytes: u64) -> Result<u64, Damage> {
    let Some((prefix, _)) = prefix.split_first_chunk() else {
        return Err(Damage::new(prefix.len(), "not a safetensors file: it ends before its header"));
    };
    let bytes = u64::from_le_bytes(*prefix);
    if bytes > HEADER_BYTES_MAX {
        let what = format!(
            "not a safetensors file, or a header of {bytes} bytes; at most {HEADER_BYTES_MAX} are read"
        );
        return Err(Damage::new(0, what));
    }
    let end = PREFIX_BYTES + bytes;
    if end > file_bytes {
        return Err(Damage::new(
            0,
            format!("a header of {bytes} bytes is stated, the file has {file_bytes}"),
        ));
    }
    Ok(end)
}

impl Header {
    /// Reads `head`, the file from its first byte to where the header ends.
    pub fn parse(head: &[u8], file_bytes: u64) -> Result<Header, Damage> {
        let end = header_end(head, file_bytes)?;
        let Some((head, [])) = usize::try_from(end).ok().and_then(|end| head.split_at_checked(end)) else {
            return Err(Damage::new(
                0,
                format!("a header up to byte {end}, {} bytes of it came", head.len()),
            ));
        };
        let broken = |what: String| Damage::new(PREFIX_BYTES as usize, format!("not a header: {what}"));
        let metadata: Metadata = serde_json::from_slice(&head[PREFIX_BYTES as usize..])
            .map_err(|error| broken(error.to_string()))?;
        if (metadata.data_len() as u64).checked_add(end) != Some(file_bytes) {
            let data = metadata.data_len();
            return Err(broken(format!(
                "{data} bytes of tensors are stated, the file has {}",
                file_bytes - end
            )));
        }
        Ok(Header { metadata, data: end })
    }

    /// Whether a job with this declaration can begin here. One that does not train tells of the model as it is in the file, and
    /// needs all of it.
    ///
    /// # Errors
    /// What is wrong and the way out: a parameter of another shape or of a kind that is not taken, none at all, or one that is
    /// not there and would stay as it begins.
    pub fn check(&self, declaration: &Declaration, trains: bool) -> Result<(), String> {
        let (mut found, mut lacks) = (0, None);
        for parameter in declaration.parameters.iter().filter(|parameter| parameter.rule.begins_anywhere()) {
            match self.values_of(parameter)?.is_some() || self.rows_of(parameter)?.is_some() {
                true => found += 1,
                false => lacks = lacks.or(Some(&parameter.name)),
            }
        }
        if let Some(name) = lacks.filter(|_| found > 0 && !trains) {
            return Err(format!(
                "parameter {name:?} is not in it, and a job that does not train would leave it as it begins: name a file of the \
                 whole model"
            ));
        }
        if found > 0 {
            return Ok(());
        }
        let mut names = self.metadata.offset_keys();
        let more = if names.len() > NAMED_MAX { " and more" } else { "" };
        names.truncate(NAMED_MAX);
        let ours = declaration.parameters.iter().map(|parameter| &parameter.name).take(NAMED_MAX);
        Err(format!(
            "none of the declared parameters ({:?}, ...) is in it, it has {names:?}{more}: name its tensors as the \
             parameters are named, or begin without it",
            ours.collect::<Vec<_>>()
        ))
    }

    /// Where the values of a dense parameter lie; none if it is not there. Metrics count this job, so they never are.
    ///
    /// # Errors
    /// Another shape, or a kind that is not taken, and the way out.
    pub fn values_of(&self, parameter: &Parameter) -> Result<Option<Values>, String> {
        let name = parameter.name.as_str();
        let begins_here = parameter.rule.begins_anywhere() && parameter.table.is_none();
        let Some(info) = self.metadata.info(name).filter(|_| begins_here) else {
            return Ok(None);
        };
        check_shape(name, info, &parameter.shape)?;
        Ok(Some(self.values_at(name, info)?))
    }

    /// Where the rows of a table lie, `TABLE` of the shape `[rows, ...declared]` and `TABLE.keys` beside it; none if neither
    /// is there, or of a dense parameter. Tables of `Sum` count this job, so they never are.
    ///
    /// # Errors
    /// As [`values_of`](Self::values_of); keys without rows, rows without keys.
    pub fn rows_of(&self, table: &Parameter) -> Result<Option<RowsAt>, String> {
        if table.table.is_none() || !table.rule.begins_anywhere() {
            return Ok(None);
        }
        let (name, keys_name) = (table.name.as_str(), beside(&table.name, KEYS));
        let (values, keys) = match (self.metadata.info(name), self.metadata.info(&keys_name)) {
            (Some(values), Some(keys)) => (values, keys),
            (None, None) => return Ok(None),
            (values, _) => {
                let (there, absent) =
                    if values.is_some() { (name, keys_name.as_str()) } else { (&*keys_name, name) };
                return Err(format!(
                    "table {name:?}: {there:?} is there and {absent:?} is not: a table begins at rows with their keys, in \
                     ascending order; give both, or neither"
                ));
            }
        };
        if keys.dtype != Dtype::U64 || keys.shape.len() != 1 {
            let (kind, shape) = (keys.dtype, &keys.shape);
            return Err(format!(
                "{keys_name:?} is {kind:?} of the shape {shape:?}: keys are U64, one for each row"
            ));
        }
        let rows = keys.shape[0] as u64;
        let shape: Vec<u64> = std::iter::once(rows).chain(table.shape.iter().copied()).collect();
        check_shape(name, values, &shape)?;
        let first_key_byte = self.data + keys.data_offsets.0 as u64;
        Ok(Some(RowsAt { rows, values: self.values_at(name, values)?, first_key_byte }))
    }

    fn values_at(&self, name: &str, info: &TensorInfo) -> Result<Values, String> {
        let kind = match info.dtype {
            Dtype::F32 => Kind::F32,
            Dtype::F16 => Kind::F16,
            Dtype::BF16 => Kind::Bf16,
            other => {
                return Err(format!(
                    "parameter {name:?} is {other:?} there; F32, F16 and BF16 are taken: convert it to one of these"
                ));
            }
        };
        Ok(Values { kind, first_byte: self.data + info.data_offsets.0 as u64 })
    }
}

fn check_shape(name: &str, info: &TensorInfo, declared: &[u64]) -> Result<(), String> {
    let shape: Vec<u64> = info.shape.iter().map(|dimension| *dimension as u64).collect();
    if shape == declared {
        return Ok(());
    }
    Err(format!(
        "parameter {name:?} has the shape {shape:?} there, declared is {declared:?}: give it the declared shape, or take \
         the tensor out of the file"
    ))
}

impl RowsAt {
    /// Where the keys of rows `first .. first + rows` lie in the file, little-endian u64.
    pub fn keys(&self, first: u64, rows: u64) -> Range<u64> {
        let start = self.first_key_byte + 8 * first;
        start..start + 8 * rows
    }
}

impl Values {
    /// Where elements `first .. first + elements` of the parameter lie in the file.
    pub fn range(&self, first: u64, elements: u64) -> Range<u64> {
        let start = self.first_byte + first * self.element_bytes();
        start..start + elements * self.element_bytes()
    }

    /// The values in bytes of such a range, exactly; -0.0 becomes 0.0, as in all initial values.
    ///
    /// # Panics
    /// Where there are not as many bytes as values.
    pub fn decode(&self, bytes: &[u8], values: &mut [f32]) {
        assert_eq!(bytes.len() as u64, values.len() as u64 * self.element_bytes());
        match self.kind {
            Kind::F32 => each(bytes, values, f32::from_le_bytes),
            Kind::F16 => each(bytes, values, |bytes| from_f16(u16::from_le_bytes(bytes))),
            Kind::Bf16 => {
                each(bytes, values, |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16));
            }
        }
    }

    fn element_bytes(&self) -> u64 {
        match self.kind {
            Kind::F32 => 4,
            Kind::F16 | Kind::Bf16 => 2,
        }
    }
}

fn each<const N: usize>(bytes: &[u8], values: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    for (bytes, value) in bytes.as_chunks().0.iter().zip(values) {
        *value = decode(*bytes) + 0.0;
    }
}

/// An IEEE 754 binary16 value; every one is an f32.
fn from_f16(bits: u16) -> f32 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    sign * match exponent {
        // Subnormal: so many times 2^-24.
        0 => fraction as f32 / (1u32 << 24) as f32,
        31 => f32::from_bits(0xff << 23 | fraction << 13),
        _ => f32::from_bits((exponent + 127 - 15) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests;
