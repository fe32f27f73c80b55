//! One embedding table as a Parquet file, bucket by bucket in ascending order, each bucket's rows in key order: equal rows
//! make equal files. It must never hold more rows than those of one bucket and of one row group.

#[cfg(test)]
pub(crate) mod tests;

use anyhow::{Context, ensure};
use parquet::basic::Compression;
use parquet::data_type::{FloatType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use shoal_runner::at_rest::AtRest;
use shoal_runner::exit::Exit;
use shoal_runner::table_state::{Row, Stretch, TableState, stretches};
use shoal_runtime::cluster::{BlockId, Declaration, Parameter};
use shoal_runtime::host::files::{NewFile, Unwritten};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A row group has the rows of as many buckets as make this many, the last bucket's all. Fewer would be slow to read.
const GROUP_ROWS: usize = 1 << 14;

/// Writes the rows of the table `name`, with `with_state` the rule's slots and counts as well; how many there are. The file
/// appears whole or not at all.
pub(crate) async fn export(
    job: &AtRest<'_>,
    name: &str,
    with_state: bool,
    path: &Path,
) -> anyhow::Result<u64> {
    let (index, table) = find(&job.declaration, name)?;
    let unwritten = |why: anyhow::Error| Unwritten::of(path, format!("{why:#}"));
    let file = NewFile::begin(path)?;
    let mut writer = TableWriter::begin(file, table, with_state, job.version).map_err(unwritten)?;
    for (block, layout) in job.layout.iter() {
        if layout.bucket.is_some_and(|bucket| bucket.parameter == index) {
            let rows = rows(job, block, table).await?;
            writer.add(rows).map_err(unwritten)?;
        }
    }
    let (file, rows) = writer.finish().map_err(unwritten)?;
    file.settle()?;
    Ok(rows)
}

/// The rows of one bucket of a table.
async fn rows(job: &AtRest<'_>, bucket: BlockId, table: &Parameter) -> anyhow::Result<TableState> {
    let mut rows = TableState::new(table);
    job.read(&[bucket], |copy, settled| rows.take(&copy.try_into()?, settled)).await?;
    Ok(rows)
}

fn find<'a>(declaration: &'a Declaration, name: &str) -> Result<(usize, &'a Parameter), Exit> {
    let found = declaration.parameters.iter().enumerate().find(|(_, parameter)| parameter.name == name);
    let what = match found {
        Some((index, table)) if table.table.is_some() => return Ok((index, table)),
        Some(_) => format!("{name:?} is dense, not a table: it is exported without --table"),
        None => format!("there is no table {name:?}"),
    };
    let tables = declaration.parameters.iter().filter(|parameter| parameter.table.is_some());
    let tables: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
    Err(Exit::Usage(match tables[..] {
        [] => format!("--table: {what}; the job has no tables"),
        _ => format!("--table: {what}; the job's tables are: {}", tables.join(", ")),
    }))
}

/// What a column has of each row.
#[derive(Clone, Debug)]
enum Column {
    Key,
    Values(Range<usize>),
    Last,
    Occurrences,
}

/// The columns, and the schema that says so. Lists have the three levels that all readers know.
fn columns(table: &Parameter, with_state: bool) -> (Vec<Column>, String) {
    let mut columns = vec![Column::Key];
    let mut schema = String::from("message rows { required int64 key (INTEGER(64, false));");
    for Stretch { slot, range } in stretches(table, with_state) {
        let name = slot.unwrap_or("embedding");
        schema +=
            &format!(" required group {name} (LIST) {{ repeated group list {{ required float element; }} }}");
        columns.push(Column::Values(range));
    }
    if with_state {
        schema += " required int32 last_update (INTEGER(32, false)); required int32 occurrences (INTEGER(32, false));";
        columns.extend([Column::Last, Column::Occurrences]);
    }
    (columns, schema + " }")
}

impl Column {
    fn write(&self, writer: &mut SerializedColumnWriter<'_>, rows: &[Row<'_>]) -> anyhow::Result<()> {
        // Parquet keeps unsigned numbers as signed ones of the same bits.
        match self {
            Column::Key => {
                let keys: Vec<i64> = rows.iter().map(|row| row.key.cast_signed()).collect();
                writer.typed::<Int64Type>().write_batch(&keys, None, None)?;
            }
            Column::Values(range) => {
                let values: Vec<f32> =
                    rows.iter().flat_map(|row| &row.values[range.clone()]).copied().collect();
                // Every element is there; the first of each row begins a list.
                let levels = vec![1; values.len()];
                let repeats: Vec<i16> =
                    (0..values.len()).map(|at| i16::from(at % range.len() != 0)).collect();
                writer.typed::<FloatType>().write_batch(&values, Some(&levels), Some(&repeats))?;
            }
            Column::Last => {
                let counts: Vec<i32> = rows.iter().map(|row| row.last.cast_signed()).collect();
                writer.typed::<Int32Type>().write_batch(&counts, None, None)?;
            }
            Column::Occurrences => {
                let counts: Vec<i32> = rows.iter().map(|row| row.occurrences.cast_signed()).collect();
                writer.typed::<Int32Type>().write_batch(&counts, None, None)?;
            }
        }
        Ok(())
    }
}

/// A file that buckets are added to.
struct TableWriter<'a, W: Write + Send> {
    file: SerializedFileWriter<W>,
    table: &'a Parameter,
    columns: Vec<Column>,
    /// Buckets of the next row group, and how many rows they have.
    waiting: Vec<TableState>,
    waiting_rows: usize,
    rows: u64,
}

impl<'a, W: Write + Send> TableWriter<'a, W> {
    fn begin(file: W, table: &'a Parameter, with_state: bool, version: u64) -> anyhow::Result<Self> {
        let (columns, schema) = columns(table, with_state);
        let metadata =
            [("format", "shoal".to_owned()), ("version", version.to_string()), ("table", table.name.clone())];
        let metadata = metadata.into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Hardly a number comes twice.
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(Some(metadata.collect()));
        let schema = Arc::new(parse_message_type(&schema)?);
        let file = SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?;
        Ok(TableWriter { file, table, columns, waiting: Vec::new(), waiting_rows: 0, rows: 0 })
    }

    /// Adds the next bucket.
    fn add(&mut self, bucket: TableState) -> anyhow::Result<()> {
        if bucket.row_count() > 0 {
            self.waiting_rows += bucket.row_count();
            self.waiting.push(bucket);
        }
        if self.waiting_rows >= GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> anyhow::Result<()> {
        self.rows += std::mem::take(&mut self.waiting_rows) as u64;
        let buckets = std::mem::take(&mut self.waiting);
        let buckets = buckets.iter().map(|bucket| bucket.rows(&self.table.name));
        let buckets: Vec<Vec<Row<'_>>> = buckets.collect::<Result<_, _>>()?;
        let mut group = self.file.next_row_group()?;
        for column in &self.columns {
            let mut writer = group.next_column()?.context("the schema has fewer columns")?;
            buckets.iter().try_for_each(|rows| column.write(&mut writer, rows))?;
            writer.close()?;
        }
        ensure!(group.next_column()?.is_none(), "the schema has more columns");
        group.close()?;
        Ok(())
    }

    /// The file with all that was added, and how many rows there are.
    fn finish(mut self) -> anyhow::Result<(W, u64)> {
        if self.waiting_rows > 0 {
            self.write_group()?;
        }
        Ok((self.file.into_inner()?, self.rows))
    }
}
