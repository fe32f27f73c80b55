//! `shoal recordio`: make, list, read and check RecordIO files.
//! It must never leave a half-written output under its final name, nor print anything but results on stdout.

use std::collections::BTreeSet;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::commands::{print, print_outcome};
use crate::runner::folder::refuse_kept;
use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use shoal_recordio::{Compressor, Index, Limits, Reader, Writer, WriterOptions, verify};
use shoal_runtime::host::files::NewFile;
use shoal_runtime::host::output::Results;

#[path = "pack/mod.rs"]
mod pack;

use pack::text::TextEncoding;

#[cfg(feature = "parquet")]
use pack::parquet::{ColumnNames, RowForm};

/// Make, list, read and check RecordIO files
#[derive(Debug, Args)]
pub(crate) struct RecordioArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg_attr(
        feature = "parquet",
        doc = "Make a RecordIO file of lines, CSV rows, images with labels, Parquet rows or TFRecords"
    )]
    #[cfg_attr(
        not(feature = "parquet"),
        doc = "Make a RecordIO file of lines, CSV rows, images with labels or TFRecords"
    )]
    #[command(
        after_help = "Example: shoal recordio pack csv housing.csv --skip-header --output housing.recordio"
    )]
    Pack(PackArgs),
    /// Show a file's size, records, chunks, layout and compressor, reading its headers only
    #[command(after_help = "Example: shoal recordio ls train.recordio -o json")]
    Ls(LsArgs),
    /// Write one record's bytes to stdout
    ///
    /// Records are counted by the chunk headers, which no checksum covers: where that matters, run `verify` first.
    #[command(after_help = "Example: shoal recordio cat train.recordio --record 41 | xxd | head")]
    Cat(CatArgs),
    /// Read whole files and name every fault, one a line; exit 1 if there is any
    ///
    /// A file cut exactly between two chunks is a valid shorter file: only a data set's manifest can tell.
    #[command(after_help = "Example: shoal recordio verify data/*.recordio")]
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
struct PackArgs {
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

#[derive(Debug, Args)]
struct LsArgs {
    /// The RecordIO file
    file: PathBuf,
    /// How to print it
    #[arg(short, long = "output", value_enum, default_value_t = ListFormat::Text, value_name = "FORMAT")]
    output: ListFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ListFormat {
    /// One aligned line a field
    Text,
    /// One object on one line
    Json,
}

#[derive(Debug, Args)]
struct CatArgs {
    /// The RecordIO file
    file: PathBuf,
    /// Which record of the file, from 0
    #[arg(long, value_name = "N")]
    record: u64,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// RecordIO files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs the command. Faults found by `verify` are exit code 1, everything else that fails is an error.
pub(crate) fn run(args: RecordioArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Pack(args) => pack(&args.source),
        Command::Ls(args) => list(&args),
        Command::Cat(args) => cat(&args),
        Command::Verify(args) => verify_files(&args.files),
    }
}

fn pack(source: &PackSource) -> anyhow::Result<ExitCode> {
    match source {
        PackSource::Lines { files, text, output } => write_output(output, files, |emit| {
            let mut converted = BTreeSet::new();
            for file in files {
                converted.extend(pack::lines::pack(file, text.encoding, emit)?);
            }
            Ok(converted)
        }),
        PackSource::Csv { file, skip_header, text, output } => write_output(output, [file], |emit| {
            Ok(pack::csv::pack(file, *skip_header, text.encoding, emit)?.into_iter().collect())
        }),
        PackSource::Idx { images, labels, output } => write_output(output, [images, labels], |emit| {
            pack::idx::pack(images, labels, emit).map(|()| BTreeSet::new())
        }),
        #[cfg(feature = "parquet")]
        PackSource::Parquet { files, form, columns, output } => write_output(output, files, |emit| {
            let columns: Vec<String> = columns.iter().flat_map(|names| names.0.clone()).collect();
            pack::parquet::pack(files, *form, &columns, emit).map(|()| BTreeSet::new())
        }),
        PackSource::Tfrecord { files, output } => write_output(output, files, |emit| {
            files.iter().try_for_each(|file| pack::tfrecord::pack(file, emit))?;
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

/// What `ls` tells of a file.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Listing {
    file: String,
    records: u64,
    chunks: usize,
    bytes: u64,
    layout: String,
    compressor: String,
}

impl Listing {
    fn of(file: &Path, index: &Index) -> Self {
        let compressor = match index.chunks.split_first() {
            None => Compressor::None.to_string(),
            Some((first, rest)) if rest.iter().all(|chunk| chunk.compressor == first.compressor) => {
                first.compressor.to_string()
            }
            Some(_) => "mixed".to_owned(),
        };
        Self {
            file: file.display().to_string(),
            records: index.records(),
            chunks: index.chunks.len(),
            bytes: index.file_bytes,
            layout: index.layout.to_string(),
            compressor,
        }
    }

    fn text(&self) -> String {
        let Self { file, records, chunks, bytes, layout, compressor } = self;
        format!(
            "file        {file}\nrecords     {records}\nchunks      {chunks}\nbytes       {bytes}\n\
             layout      {layout}\ncompressor  {compressor}"
        )
    }
}

fn list(args: &LsArgs) -> anyhow::Result<ExitCode> {
    let reader = Reader::open(&args.file)?;
    let listing = Listing::of(&args.file, reader.index());
    let shown = match args.output {
        ListFormat::Text => listing.text(),
        ListFormat::Json => serde_json::to_string(&listing)?,
    };
    print(shown)?;
    Ok(ExitCode::SUCCESS)
}

fn cat(args: &CatArgs) -> anyhow::Result<ExitCode> {
    let reader = Reader::open(&args.file)?;
    let index = reader.index();
    let Some((chunk, record)) = index.locate(args.record) else {
        let (file, records) = (args.file.display(), index.records());
        bail!("{file}: record {} was asked for but the file has {records}, counted from 0", args.record);
    };
    let chunk = reader.chunk(chunk)?;
    Results.print(chunk.record(record))?;
    Ok(ExitCode::SUCCESS)
}

fn verify_files(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let mut faults = 0_usize;
    for file in files {
        for fault in verify(file, &Limits::default()) {
            faults += 1;
            // `{:#}` adds the operating system's reason, which only the error's source holds.
            print_outcome(format_args!("{:#}", anyhow::Error::from(fault)))?;
        }
    }
    note!("verified {} file(s): {faults} fault(s)", files.len());
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
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

    fn output(folder: &Path, compressor: CompressorName) -> OutputArgs {
        OutputArgs { output: folder.join("out.recordio"), compressor, chunk_bytes: 8, chunk_records: None }
    }

    #[test]
    fn a_listing_is_one_json_line_in_the_documented_order() {
        let folder = tempfile::tempdir().unwrap();
        let args = output(folder.path(), CompressorName::Snappy);
        write_output(&args, [], |emit| {
            [b"one", b"two"].iter().try_for_each(|record| emit(*record))?;
            Ok(BTreeSet::new())
        })
        .unwrap();
        let reader = Reader::open(&args.output).unwrap();
        let json = serde_json::to_string(&Listing::of(Path::new("a"), reader.index())).unwrap();
        let bytes = std::fs::metadata(&args.output).unwrap().len();
        let expected = format!(
            r#"{{"file":"a","records":2,"chunks":2,"bytes":{bytes},"layout":"go","compressor":"snappy"}}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn a_file_of_several_compressors_is_called_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let mut joined = Vec::new();
        for compressor in [CompressorName::None, CompressorName::Gzip] {
            let args = output(folder.path(), compressor);
            write_output(&args, [], |emit| emit(b"one").map(|()| BTreeSet::new())).unwrap();
            joined.extend(std::fs::read(&args.output).unwrap());
        }
        let index = Index::of_bytes(Path::new("joined"), &joined, &Limits::default()).unwrap();
        assert_eq!(Listing::of(Path::new("joined"), &index).compressor, "mixed");
    }

    #[test]
    fn a_pack_that_fails_leaves_the_former_output_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let args = output(folder.path(), CompressorName::None);
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
