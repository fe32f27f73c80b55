//! What the fuzz target and the corpus test assert: the indexed and the streaming reader say the same of any bytes.
//! It must never look at why a file is refused, since the two meet faults in another order.

use std::path::Path;

use shoal_recordio::{Error, Index, Limits, StreamReader, decode_chunk};

/// Limits that the seed named `bomb` passes.
pub(crate) const SMALL: Limits =
    Limits { max_chunk_bytes: 64 << 10, max_record_bytes: 32 << 10, max_chunks: 1_000 };

/// The records of `bytes`, after checking that both readers find the same ones or both refuse.
pub(crate) fn read_both_ways(bytes: &[u8], limits: &Limits) -> Result<Vec<Vec<u8>>, String> {
    let indexed = read_indexed(bytes, limits);
    let streamed = read_streamed(bytes, limits).map_err(|error| error.to_string());
    match (&indexed, &streamed) {
        (Ok(indexed), Ok(streamed)) => assert_eq!(indexed, streamed, "the readers found other records"),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => panic!("only the stream refuses: {error}"),
        (Err(error), Ok(_)) => panic!("only the index refuses: {error}"),
    }
    indexed
}

fn read_indexed(bytes: &[u8], limits: &Limits) -> Result<Vec<Vec<u8>>, String> {
    let said = |error: Error| error.to_string();
    let file = Path::new("fuzzed");
    let index = Index::of_bytes(file, bytes, limits).map_err(said)?;
    let mut records = Vec::new();
    for (number, entry) in index.chunks.iter().enumerate() {
        let bytes = &bytes[entry.offset as usize..entry.end() as usize];
        let chunk = decode_chunk(file, bytes, entry.offset, number, limits).map_err(said)?;
        // An empty chunk may be read in the layout that is not the file's: whoever has an index compares, as trainers do.
        if chunk.checksum() != entry.checksum {
            return Err(format!("chunk {number} is another one than that of the index"));
        }
        assert_eq!(chunk.len(), entry.records as usize);
        records.extend(chunk.iter().map(<[u8]>::to_vec));
    }
    Ok(records)
}

fn read_streamed(bytes: &[u8], limits: &Limits) -> Result<Vec<Vec<u8>>, Error> {
    let mut records = Vec::new();
    for chunk in StreamReader::new("fuzzed", bytes, *limits) {
        records.extend(chunk?.iter().map(<[u8]>::to_vec));
    }
    Ok(records)
}
