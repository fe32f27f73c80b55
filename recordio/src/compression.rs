//! Payloads between their stored and their plain form.
//! Decompression must never allocate by a claimed size, nor produce more than the ceiling.

use std::io::{self, Read, Write};

use crate::Compressor;

/// Why a payload has no plain form.
#[derive(Debug)]
pub(crate) enum Failure {
    /// More than the ceiling came out.
    TooLarge,
    /// The bytes are not in this compression.
    Undecodable(io::Error),
}

/// The plain form of `stored`, of at most `ceiling_bytes`. Memory grows with what comes out.
pub(crate) fn decompress(
    compressor: Compressor,
    stored: &[u8],
    ceiling_bytes: u64,
) -> Result<Vec<u8>, Failure> {
    let mut plain = Vec::new();
    // One byte more than allowed tells "exactly full" from "too much".
    let allowed = ceiling_bytes + 1;
    match compressor {
        Compressor::None => stored.take(allowed).read_to_end(&mut plain),
        Compressor::Snappy => snap::read::FrameDecoder::new(stored).take(allowed).read_to_end(&mut plain),
        Compressor::Gzip => flate2::read::MultiGzDecoder::new(stored).take(allowed).read_to_end(&mut plain),
    }
    .map_err(Failure::Undecodable)?;
    if plain.len() as u64 > ceiling_bytes { Err(Failure::TooLarge) } else { Ok(plain) }
}

/// The stored form of `plain`, appended to `stored`.
pub(crate) fn compress(compressor: Compressor, plain: &[u8], stored: &mut Vec<u8>) -> io::Result<()> {
    match compressor {
        Compressor::None => stored.extend_from_slice(plain),
        Compressor::Snappy => {
            let mut encoder = snap::write::FrameEncoder::new(stored);
            encoder.write_all(plain)?;
            encoder.flush()?;
        }
        Compressor::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(stored, flate2::Compression::default());
            encoder.write_all(plain)?;
            encoder.finish()?;
        }
    }
    Ok(())
}
