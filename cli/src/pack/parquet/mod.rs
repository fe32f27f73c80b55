//! One record a row of Parquet files: a JSON object, or the row's numbers as little-endian f32.
//! It must never hold more than a batch of rows, nor pass a value that the record cannot say.

#[cfg(test)]
mod column_tests;
mod columns;
mod encode;
mod names;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use clap::ValueEnum;
use parquet::basic::Compression;
use parquet::column::reader::ColumnReader;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;

use super::Emit;
use super::content::{self, Wanted};
use columns::{Column, Value};
use encode::Encoder;
pub(crate) use names::ColumnNames;

/// What a row becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowForm {
    /// A JSON object on one line, keys in the columns' order; bytes as base64, lists as arrays
    Json,
    /// Each number as a little-endian f32, in the columns' order, lists flattened; equally many in each row
    F32,
}

/// Bytes of rows that are decoded at a time.
const BATCH_BYTES: u64 = 16 << 20;
const BATCH_ROWS_MAX: u64 = 1024;

pub(crate) fn pack(files: &[PathBuf], form: RowForm, names: &[String], emit: Emit<'_>) -> anyhow::Result<()> {
    let mut encoder = Encoder::new(form);
    let mut first: Option<Vec<String>> = None;
    for file in files {
        let opened = || {
            let reader = open(file)?;
            let schema = reader.metadata().file_metadata().schema_descr();
            let columns = match &first {
                Some(first) if names.is_empty() => columns_of_first(schema, first)?,
                _ => columns::choose(schema, names)?,
            };
            encoder.expect(&columns)?;
            Ok((reader, columns))
        };
        let opened: anyhow::Result<_> = opened();
        let (reader, columns) = opened.with_context(|| file.display().to_string())?;
        first.get_or_insert_with(|| columns.iter().map(|column| column.name.clone()).collect());
        for group in 0..reader.num_row_groups() {
            let at = || format!("{}: row group {group}", file.display());
            pack_group(&reader, group, &columns, &mut encoder, emit).with_context(at)?;
        }
    }
    Ok(())
}

fn open(file: &Path) -> anyhow::Result<SerializedFileReader<File>> {
    let mut opened = File::open(file).context("cannot be read")?;
    let mut sample = Vec::new();
    (&mut opened).take(content::SAMPLE_BYTES as u64).read_to_end(&mut sample).context("cannot be read")?;
    content::check(&sample, file.display(), Wanted::Parquet)?;
    sheltered(|| Ok(SerializedFileReader::new(opened)?)).context("is not a Parquet file, or it is damaged")
}

/// All columns of a file after the first, in the order of the first's, which must be the same ones: records are of one form.
fn columns_of_first(schema: &SchemaDescriptor, first: &[String]) -> anyhow::Result<Vec<Column>> {
    let unlike = "records of several files have the same columns: name them with --columns";
    let columns = columns::choose(schema, first).context(unlike)?;
    let all = columns::choose(schema, &[]).context(unlike)?;
    match all.iter().find(|column| !first.contains(&column.name)) {
        None => Ok(columns),
        Some(more) => bail!("there is a column {:?}, which the first file has not; {unlike}", more.name),
    }
}

fn pack_group(
    reader: &SerializedFileReader<File>,
    group: usize,
    columns: &[Column],
    encoder: &mut Encoder,
    emit: Emit<'_>,
) -> anyhow::Result<()> {
    let meta = reader.metadata().row_group(group);
    let rows = u64::try_from(meta.num_rows()).context("has fewer than no rows: the file is damaged")?;
    let mut bytes = 0;
    let mut readers = Vec::with_capacity(columns.len());
    for column in columns {
        let at = || format!("column {:?}", column.name);
        let stored = meta.column(column.leaf);
        check_compression(stored.compression()).with_context(at)?;
        bytes += u64::try_from(stored.uncompressed_size()).unwrap_or(0);
        let opened = sheltered(|| Ok(reader.get_row_group(group)?.get_column_reader(column.leaf)?));
        readers.push(opened.with_context(at)?);
    }
    let batch_rows = (BATCH_BYTES / (bytes / rows.max(1)).max(1)).clamp(1, BATCH_ROWS_MAX);
    let mut first = 0;
    while first < rows {
        let batch = read_batch(&mut readers, columns, first, batch_rows.min(rows - first))?;
        for row in 0..batch[0].len() {
            let values = batch.iter().map(|values| &values[row]);
            let record = encoder.encode(columns, values);
            emit(record.with_context(|| format!("row {}", first + row as u64))?)?;
        }
        first += batch_rows;
    }
    Ok(())
}

/// The values of `rows` rows from `first` on, column by column.
fn read_batch(
    readers: &mut [ColumnReader],
    columns: &[Column],
    first: u64,
    rows: u64,
) -> anyhow::Result<Vec<Vec<Value>>> {
    let mut batch = Vec::with_capacity(columns.len());
    for (reader, column) in readers.iter_mut().zip(columns) {
        let at = || format!("rows {first} to {}, column {:?}", first + rows - 1, column.name);
        let values = sheltered(|| column.read(reader, rows as usize)).with_context(at)?;
        ensure!(
            values.len() as u64 == rows,
            "{}: {} rows are left: the file is damaged or was cut short",
            at(),
            values.len()
        );
        batch.push(values);
    }
    Ok(batch)
}

fn check_compression(compression: Compression) -> anyhow::Result<()> {
    let name = match compression {
        Compression::ZSTD(_) => "zstd",
        Compression::LZO => "lzo",
        _ => return Ok(()),
    };
    bail!(
        "is compressed with {name}, which cannot be read here: write the file with snappy, gzip, brotli, lz4 or without \
         compression, for example with pyarrow.parquet.write_table(table, file, compression=\"snappy\")"
    )
}

/// The library panics on some damaged files; here that is an error like others.
fn sheltered<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(anyhow!("cannot be decoded: the file is damaged")))
}
