//! What the fuzz target and the corpus test assert: the indexed and the streaming reader say the same of any bytes.
//! It must never look at why a file is refused, since the two meet faults in another order.

use std::path::Path;

use shoal_recordio::{Error, Index, Limits, StreamReader, decode_chunk};

/// Limits that the seed named `bomb` passes.
pub(crate) const SMALL: Limits =
    Limits { max_chunk_bytes: 64 << 10, max_record_bytes: 32 << 10, max_chunks: 1_000 };

/// The records of `bytes`, after checking that both readers find the same ones or both refuse.
pub(crate) fn read_both_ways(bytes: &[u8], limits: &Limits) -> Result<Vec<Vec<u8>>, Error> {
    let streamed = read_streamed(bytes, limits);
    match (read_indexed(bytes, limits), &streamed) {
        (Ok(Some(indexed)), Ok(streamed)) => {
            assert_eq!(&indexed, streamed, "the readers found other records");
        }
        (Err(error), Err(_)) => return Err(error),
        (Ok(None), Err(_)) => {}
        (Ok(Some(_)), Err(error)) => panic!("only the stream refuses: {error}"),
        (Ok(None), Ok(_)) => panic!("only the index refuses: a chunk is another one"),
        (Err(error), Ok(_)) => panic!("only the index refuses: {error}"),
    }
    streamed
}

/// The records; none if a chunk is another one than that of the index.
fn read_indexed(bytes: &[u8], limits: &Limits) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let file = Path::new("fuzzed");
    let index = Index::of_bytes(file, bytes, limits)?;
    let mut records = Vec::new();
    for (number, entry) in index.chunks.iter().enumerate() {
        let bytes = &bytes[entry.offset as usize..entry.end() as usize];
        let chunk = decode_chunk(file, bytes, entry.offset, number, limits)?;
        // An empty chunk may be read in the layout that is not the file's: whoever has an index compares, as trainers do.
        if chunk.checksum() != entry.checksum {
            return Ok(None);
        }
        assert_eq!(chunk.len(), entry.records as usize);
        records.extend(chunk.iter().map(<[u8]>::to_vec));
    }
    Ok(Some(records))
}

fn read_streamed(bytes: &[u8], limits: &Limits) -> Result<Vec<Vec<u8>>, Error> {
    let mut records = Vec::new();
    for chunk in StreamReader::new("fuzzed", bytes, *limits) {
        records.extend(chunk?.iter().map(<[u8]>::to_vec));
    }
    Ok(records)
}
