//! What can be wrong, grouped by what the caller does next.
//! A message about content must never leave out the file, the chunk, its offset and the advice.

use std::io;
use std::path::{Path, PathBuf};

use crate::Compressor;

/// Everything this crate can fail with. `offset` is always that of the chunk's header in the file, in bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused: look at the path, the permissions and the disk, then try again.
    #[error("{}: cannot be read", file.display())]
    Io {
        /// The file that was being read.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file ends inside a chunk: fetch it again. Chunks before this one are whole.
    #[error(
        "{}: chunk {chunk} at offset {offset}: {needed_bytes} bytes are needed but {found_bytes} are left; \
         the file was cut short: copy it again",
        file.display()
    )]
    Truncated {
        /// The file that was being read.
        file: PathBuf,
        /// Where the chunk begins.
        offset: u64,
        /// Which chunk, from 0.
        chunk: usize,
        /// Bytes that the header or payload takes.
        needed_bytes: u64,
        /// Bytes that are there.
        found_bytes: u64,
    },
    /// This header makes no sense, so nothing after it can be found: restore the file from its source.
    #[error(
        "{}: chunk {chunk} at offset {offset}: {fault}; \
         this is not a RecordIO file, or it is damaged from here on: restore it from its source",
        file.display()
    )]
    BrokenHeader {
        /// The file that was being read.
        file: PathBuf,
        /// Where the chunk begins.
        offset: u64,
        /// Which chunk, from 0.
        chunk: usize,
        /// What is wrong with it.
        fault: HeaderFault,
    },
    /// This chunk's content is damaged; the others may be whole.
    #[error(
        "{}: chunk {chunk} at offset {offset}: {fault}; run `shoal recordio verify {}` to see how much is damaged, \
         then restore the file from its source",
        file.display(), file.display()
    )]
    Corrupt {
        /// The file that was being read.
        file: PathBuf,
        /// Where the chunk begins.
        offset: u64,
        /// Which chunk, from 0.
        chunk: usize,
        /// What is wrong with it.
        fault: PayloadFault,
    },
    /// The content is larger than the reader's [`Limits`](crate::Limits): raise the limit only for a trusted file.
    #[error(
        "{}: chunk {chunk} at offset {offset}: {what} is larger than the limit of {limit}; \
         write the file with smaller chunks or, if its source is trusted, raise the limit",
        file.display()
    )]
    TooLarge {
        /// The file that was being read.
        file: PathBuf,
        /// Where the chunk begins.
        offset: u64,
        /// Which chunk, from 0.
        chunk: usize,
        /// What is too large, with its unit.
        what: &'static str,
        /// The limit that it passes.
        limit: u64,
    },
    /// The caller asked for a chunk that the file lacks: make the index or manifest anew.
    #[error("{}: chunk {chunk} was asked for but the file has {chunks}; index the file again", file.display())]
    NoSuchChunk {
        /// The file that was being read.
        file: PathBuf,
        /// The chunk asked for.
        chunk: usize,
        /// Chunks in the file.
        chunks: usize,
    },
    /// The output failed while writing: what was written so far is to be thrown away.
    #[error("the records cannot be written; throw away the unfinished output")]
    Write {
        /// What the output said.
        #[from]
        source: io::Error,
    },
    /// A record given to the writer would not be read back under its limits: split the record.
    #[error(
        "a record of {bytes} bytes is larger than the limit of {limit}; split it, or raise the limit of writer and readers"
    )]
    RecordTooLarge {
        /// Bytes of the record.
        bytes: u64,
        /// The limit that it passes.
        limit: u64,
    },
}

/// Why a header cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The header does not begin with the magic number.
    #[error("the magic number is {found:#010x} and not 0x01020304")]
    Magic {
        /// The four bytes found, as a little-endian number.
        found: u32,
    },
    /// The compressor field of the file's layout holds an unknown code.
    #[error("compressor {code} is unknown")]
    Compressor {
        /// The code found.
        code: u32,
    },
    /// Read as either layout, the first header names an unknown compressor.
    #[error("the header fits neither the Go nor the Fluid layout")]
    NoLayout,
    /// The bytes given to [`decode_chunk`](crate::decode_chunk) go on after the payload.
    #[error("the header claims {claimed_bytes} payload bytes but {found_bytes} were given")]
    Surplus {
        /// Payload bytes by the header.
        claimed_bytes: u64,
        /// Payload bytes given.
        found_bytes: u64,
    },
}

/// Why a payload cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadFault {
    /// The stored payload is not what was written.
    #[error("the checksum is {computed:#010x} and not {stored:#010x}")]
    Checksum {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes that are there.
        computed: u32,
    },
    /// The payload passes its checksum but is not in the named compression.
    #[error("the payload cannot be decompressed as {compressor}: {reason}")]
    Undecodable {
        /// The compressor by the header.
        compressor: Compressor,
        /// What the decompressor said.
        reason: String,
    },
    /// A record's length runs past the end of the payload.
    #[error("record {record} claims {claimed_bytes} bytes but {left_bytes} are left in the payload")]
    RecordPastEnd {
        /// Which record of the chunk, from 0.
        record: usize,
        /// Bytes claimed, or the 4 bytes of the length itself.
        claimed_bytes: u64,
        /// Bytes left.
        left_bytes: u64,
    },
    /// The header's record count is not the payload's.
    #[error("the header claims {claimed} records but the payload holds {found}")]
    RecordCount {
        /// Records by the header.
        claimed: u32,
        /// Records found.
        found: usize,
    },
}

/// Where in which file something is: the part that all errors about content share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a Path,
    pub(crate) offset: u64,
    pub(crate) chunk: usize,
}

impl Place<'_> {
    pub(crate) fn io(self, source: io::Error) -> Error {
        Error::Io { file: self.file.to_path_buf(), source }
    }

    pub(crate) fn truncated(self, needed_bytes: u64, found_bytes: u64) -> Error {
        let Self { file, offset, chunk } = self;
        Error::Truncated { file: file.to_path_buf(), offset, chunk, needed_bytes, found_bytes }
    }

    pub(crate) fn broken(self, fault: HeaderFault) -> Error {
        let Self { file, offset, chunk } = self;
        Error::BrokenHeader { file: file.to_path_buf(), offset, chunk, fault }
    }

    pub(crate) fn corrupt(self, fault: PayloadFault) -> Error {
        let Self { file, offset, chunk } = self;
        Error::Corrupt { file: file.to_path_buf(), offset, chunk, fault }
    }

    /// No layout fits: none that the header could be in, or none whose checksum holds.
    pub(crate) fn no_layout(self, fault: Option<PayloadFault>) -> Error {
        fault.map_or_else(|| self.broken(HeaderFault::NoLayout), |fault| self.corrupt(fault))
    }

    pub(crate) fn too_large(self, what: &'static str, limit: u64) -> Error {
        let Self { file, offset, chunk } = self;
        Error::TooLarge { file: file.to_path_buf(), offset, chunk, what, limit }
    }
}
