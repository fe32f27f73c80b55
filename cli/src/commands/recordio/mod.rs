//! `shoal recordio`: make, list, read and check RecordIO files.
//! It must never print anything but results on stdout.

#[cfg(feature = "pack")]
mod pack;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use shoal_recordio::{Compressor, Index, Limits, Reader, verify};
use shoal_runner::output::{print, print_outcome};
use shoal_runtime::host::output::Results;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make, list, read and check RecordIO files
#[derive(Debug, Args)]
pub(crate) struct RecordioArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "pack")]
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
    Pack(pack::PackArgs),
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
pub(crate) fn run(args: RecordioArguments) -> anyhow::Result<ExitCode> {
    match args.command {
        #[cfg(feature = "pack")]
        Command::Pack(args) => pack::run(&args),
        Command::Ls(args) => list(&args),
        Command::Cat(args) => cat(&args),
        Command::Verify(args) => verify_files(&args.files),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_recordio::{Writer, WriterOptions};

    /// A file of these records, two chunks of two of them.
    fn stored(compressor: Compressor, records: &[&[u8]]) -> Vec<u8> {
        let options = WriterOptions { compressor, chunk_bytes: 8, ..Default::default() };
        let mut writer = Writer::new(Vec::new(), options);
        records.iter().for_each(|record| writer.write(record).unwrap());
        writer.finish().unwrap()
    }

    #[test]
    fn a_listing_is_one_json_line_in_the_documented_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.recordio");
        std::fs::write(&path, stored(Compressor::Snappy, &[b"one", b"two"])).unwrap();
        let reader = Reader::open(&path).unwrap();
        let json = serde_json::to_string(&Listing::of(Path::new("a"), reader.index())).unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len();
        let expected = format!(
            r#"{{"file":"a","records":2,"chunks":2,"bytes":{bytes},"layout":"go","compressor":"snappy"}}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn a_file_of_several_compressors_is_called_mixed() {
        let joined =
            [Compressor::None, Compressor::Gzip].map(|compressor| stored(compressor, &[b"one"])).concat();
        let index = Index::of_bytes(Path::new("joined"), &joined, &Limits::default()).unwrap();
        assert_eq!(Listing::of(Path::new("joined"), &index).compressor, "mixed");
    }
}
