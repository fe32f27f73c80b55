//! RecordIO: files of records in chunks, each chunk behind one checksum. Reads both layouts in the wild, writes one.
//! It must never trust a length it has read: memory grows with bytes that exist, and a bad file is an error, not a panic.
//!
//! A chunk is a 20-byte header and a payload of `(u32 length, bytes)` records, everything little-endian:
//!
//! | bytes | Go | Fluid C++ |
//! | --- | --- | --- |
//! | 0–4 | magic `0x01020304` | magic `0x01020304` |
//! | 4–8 | CRC32-IEEE of the stored payload | records |
//! | 8–12 | compressor: 0 none, 1 snappy (framed), 2 gzip | CRC32-IEEE of the stored payload |
//! | 12–16 | stored payload bytes | compressor |
//! | 16–20 | records | stored payload bytes |
//!
//! What the format cannot tell: the header is outside the checksum (every changed field is still found, because it
//! disagrees with the payload, but only once the payload is read), and a file cut exactly between two chunks is a
//! valid shorter file. Whoever must notice that keeps the expected size and record count elsewhere, as Shoal's
//! data-set manifest does.
//!
//! ```
//! use shoal_recordio::{Reader, Writer, WriterOptions};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("words.recordio");
//! let mut writer = Writer::new(std::fs::File::create(&path)?, WriterOptions::default());
//! writer.write(b"one")?;
//! writer.write(b"two")?;
//! writer.finish()?;
//!
//! let reader = Reader::open(&path)?;
//! assert_eq!(reader.index().records(), 2);
//! assert_eq!(reader.chunk(0)?.record(1), b"two");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunk;
mod compression;
mod error;
mod header;
mod index;
mod limits;
mod map;
pub mod numbered;
mod reader;
mod scan;
mod stream;
mod verify;
mod writer;

pub use chunk::{Chunk, decode_chunk};
pub use error::{Error, HeaderFault, PayloadFault};
pub use header::{ChunkEntry, Compressor, HEADER_BYTES, Layout};
pub use index::Index;
pub use limits::Limits;
pub use reader::Reader;
pub use scan::Scan;
pub use stream::StreamReader;
pub use verify::verify;
pub use writer::{Writer, WriterOptions};
