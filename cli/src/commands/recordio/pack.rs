//! `shoal recordio pack`: a RecordIO file of files of other kinds. It must never leave a half-written output under its final name.

#[cfg(feature = "parquet")]
use crate::pack::parquet::{self, ColumnNames, RowForm};
use crate::pack::text::TextEncoding;
use crate::pack::{csv, idx, lines, tfrecord};
use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use shoal_recordio::{Compressor, Writer, WriterOptions};
use shoal_runner::folder::refuse_kept;
use shoal_runtime::host::files::NewFile;
use std::collections::BTreeSet;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct PackArgs {
    #[command(subcommand)]
    source: PackSource,
}

#[derive(Debug, Subcommand)]
enum PackSource {
    /// One record a line, without its ending, of one or more text files in the order given
    ///
    /// Records are UTF-8. Lines end at \n, \r\n or \r.
    #[command(
        after_help = "Example: shoal recordio pack lines a.txt b.txt --output text.recordio --compressor snappy"
    )]
    Lines {
        /// Text files; gzip is recognised by its content
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        text: TextArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// One record a CSV row: its text as it is, without the line ending
    ///
    /// Records are UTF-8. Rows begin and end as pandas has it: at \n, \r\n or \r outside quotes; blank lines are skipped.
    /// Rows must have equally many columns.
    #[command(
        after_help = "Example: shoal recordio pack csv housing.csv --skip-header --output housing.recordio"
    )]
    Csv {
        /// The CSV file; gzip is recognised by its content
        file: PathBuf,
        /// Leave out the first row that is not blank
        #[arg(long)]
        skip_header: bool,
        #[command(flatten)]
        text: TextArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// One record an IDX image (such as MNIST's): its label's byte, then its pixels
    #[command(
        after_help = "Example: shoal recordio pack idx --images train-images-idx3-ubyte.gz --labels train-labels-idx1-ubyte.gz --output mnist.recordio"
    )]
    Idx {
        /// IDX file of unsigned bytes, the first dimension counting the images; gzip is recognised by its content
        #[arg(long, value_name = "FILE")]
        images: PathBuf,
        /// IDX file of unsigned bytes with one dimension; gzip is recognised by its content
        #[arg(long, value_name = "FILE")]
        labels: PathBuf,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// One record a row of one or more Parquet files, in the order given
    ///
    /// Numbers, booleans, texts, bytes and lists of these are packed; groups by their leaves, named with dots; dates and
    /// times as the numbers that the file holds. Compressed with snappy, gzip, brotli or lz4, or not at all; zstd is
    /// refused.
    #[cfg(feature = "parquet")]
    #[command(
        after_help = "Example: shoal recordio pack parquet houses.parquet --columns price,rooms,area --as f32 --output houses.recordio"
    )]
    Parquet {
        /// Parquet files with these columns
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// What a row becomes
        #[arg(long = "as", value_enum, default_value_t = RowForm::Json, value_name = "FORM")]
        form: RowForm,
        /// The columns to pack, in this order, with commas between them; all of them where none is named
        ///
        /// A name that holds a comma or a quote stands in quotes, as in CSV: --columns 'id,"price, usd"'.
        #[arg(long, value_name = "NAMES")]
        columns: Vec<ColumnNames>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// One record a TFRecord: its payload as it is, of one or more files in the order given
    ///
    /// Both checksums of every record are checked; damage is refused by file, record and offset.
    #[command(
        after_help = "Example: shoal recordio pack tfrecord train-00000-of-00004.tfrecord --output train-0.recordio"
    )]
    Tfrecord {
        /// TFRecord files; gzip is recognised by its content
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
struct TextArgs {
    /// What the text is written in, such as latin-1, utf-16 or shift_jis; bytes takes it as it is
    ///
    /// Without it the mark at a file's beginning counts, and where there is none it is UTF-8. Names are those of the web's
    /// Encoding Standard and Python's.
    #[arg(long, value_name = "NAME", value_parser = TextEncoding::parse)]
    encoding: Option<TextEncoding>,
}

#[derive(Debug, Args)]
struct OutputArgs {
    /// The file to make; one that exists is replaced once the new one is complete
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// How chunks are stored
    #[arg(long, value_enum, default_value_t = CompressorName::None)]
    compressor: CompressorName,
    /// Bytes of records in a chunk, before compression
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=256 << 20))]
    chunk_bytes: u64,
    /// Records in a chunk, at most: 16384 cuts as --data records:N is cut. By default as many as the bytes hold
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
    chunk_records: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompressorName {
    None,
    Snappy,
    Gzip,
}

/// Packs what the arguments name.
pub(super) fn run(args: &PackArgs) -> anyhow::Result<ExitCode> {
    match &args.source {
        PackSource::Lines { files, text, output } => write_output(output, files, |emit| {
            let mut converted = BTreeSet::new();
            for file in files {
                converted.extend(lines::pack(file, text.encoding, emit)?);
            }
            Ok(converted)
        }),
        PackSource::Csv { file, skip_header, text, output } => write_output(output, [file], |emit| {
            Ok(csv::pack(file, *skip_header, text.encoding, emit)?.into_iter().collect())
        }),
        PackSource::Idx { images, labels, output } => write_output(output, [images, labels], |emit| {
            idx::pack(images, labels, emit).map(|()| BTreeSet::new())
        }),
        #[cfg(feature = "parquet")]
        PackSource::Parquet { files, form, columns, output } => write_output(output, files, |emit| {
            let columns: Vec<String> = columns.iter().flat_map(|names| names.0.clone()).collect();
            parquet::pack(files, *form, &columns, emit).map(|()| BTreeSet::new())
        }),
        PackSource::Tfrecord { files, output } => write_output(output, files, |emit| {
            files.iter().try_for_each(|file| tfrecord::pack(file, emit))?;
            Ok(BTreeSet::new())
        }),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Bytes of records after which it is said how far it is.
const TELL_BYTES: u64 = 1 << 30;

/// The encodings that were converted to UTF-8.
type Converted = BTreeSet<&'static str>;

/// Writes what `produce` emits of what is `read`.
fn write_output<'a>(
    args: &OutputArgs,
    read: impl IntoIterator<Item = &'a PathBuf>,
    produce: impl FnOnce(&mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<Converted>,
) -> anyhow::Result<()> {
    let output = &args.output;
    refuse_kept(output)?;
    let file = NewFile::begin_from(output, read.into_iter().map(PathBuf::as_path))?;
    let options = WriterOptions {
        compressor: args.compressor.into(),
        chunk_bytes: args.chunk_bytes,
        chunk_records: args.chunk_records.unwrap_or(u32::MAX),
        ..Default::default()
    };
    let mut writer = Writer::new(BufWriter::new(file), options);
    let (mut records, mut bytes, mut told) = (0_u64, 0_u64, 0_u64);
    let converted = produce(&mut |record| {
        records += 1;
        bytes += record.len() as u64;
        if bytes / TELL_BYTES > told {
            told = bytes / TELL_BYTES;
            note!("packing {}: {records} records, {told} GiB so far", output.display());
        }
        writer.write(record).with_context(|| format!("{}: record {}", output.display(), records - 1))
    })?;
    let file = writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    let bytes = file.settle()?;
    let converted = match Vec::from_iter(converted) {
        none if none.is_empty() => String::new(),
        some => format!(", converted from {} to UTF-8", some.join(" and ")),
    };
    note!("packed {}: {records} record(s), {bytes} bytes{converted}", output.display());
    Ok(())
}

impl From<CompressorName> for Compressor {
    fn from(name: CompressorName) -> Self {
        match name {
            CompressorName::None => Self::None,
            CompressorName::Snappy => Self::Snappy,
            CompressorName::Gzip => Self::Gzip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn a_pack_that_fails_leaves_the_former_output_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out.recordio");
        let args =
            OutputArgs { output, compressor: CompressorName::None, chunk_bytes: 8, chunk_records: None };
        std::fs::write(&args.output, "former").unwrap();
        let failed = write_output(&args, [], |emit| {
            emit(b"one")?;
            bail!("the source broke")
        });
        assert_eq!(failed.unwrap_err().to_string(), "the source broke");
        assert_eq!(std::fs::read(&args.output).unwrap(), b"former");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
