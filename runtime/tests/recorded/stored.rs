//! Files that are stored, made by today's code, and what must be read in them.

use super::values::{copy, declaration, delta, name, segment, synchronous};
use prost::bytes::Bytes;
use shoal_runtime::cluster::checkpoint::{CheckpointId, CheckpointManifest, Cut, Origin, WrittenFile};
use shoal_runtime::cluster::{
    BlockCopy, BlockId, Declaration, Incarnation, JobSettings, Layout, Precision, Rewind,
};
use shoal_runtime::host::store::{FileStore, Revision, Store};
use shoal_runtime::wire::checkpoint::{decode_manifest, encode_manifest};
use shoal_runtime::wire::pieces::{
    PieceWriter, check_header, check_trailer, decode_piece, header_range, trailer_range,
};

const MANIFEST: &str = "manifest";
const PIECES: &str = "pieces.blocks";
const STATE: &str = "master.state";
const DOCUMENT: &[u8] = b"a document";

/// Names of all files.
pub(crate) const NAMES: [&str; 3] = [PIECES, MANIFEST, STATE];

/// Name and bytes of every file.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let (pieces, manifest) = checkpoint(&declaration());
    vec![
        (PIECES, pieces),
        (MANIFEST, encode_manifest(&manifest).unwrap().to_vec()),
        (STATE, state().to_vec()),
    ]
}

/// Asserts that a file, of a job with that declaration, says what it is meant to.
pub(crate) fn check(file: &str, bytes: &[u8], declaration: &Declaration) {
    let (_, expected) = checkpoint(declaration);
    match file {
        MANIFEST => assert_eq!(decode_manifest(bytes).unwrap(), expected),
        PIECES => {
            let at = expected.files.iter().position(|file| file.checkpoint == expected.checkpoint).unwrap();
            let (file, index) = (&expected.files[at], at as u32);
            let at = |range: std::ops::Range<u64>| &bytes[range.start as usize..range.end as usize];
            check_header(at(header_range(&expected)), &expected, file).unwrap();
            check_trailer(at(trailer_range(file)), file).unwrap();
            for piece in expected.pieces.iter().filter(|piece| piece.file == index) {
                let frame = Bytes::copy_from_slice(at(piece.offset..piece.offset + piece.bytes));
                let read = BlockCopy::try_from(decode_piece(frame, piece).unwrap()).unwrap();
                let copies = copies(declaration, piece.block);
                assert!(copies.contains(&read), "{read:?}");
            }
        }
        STATE => {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(STATE), bytes).unwrap();
            let loaded = of(FileStore::open(folder.path()).unwrap().load());
            assert_eq!(loaded.unwrap(), Some((Revision(1), Bytes::from_static(DOCUMENT))));
        }
        other => panic!("{other}: nobody checks it"),
    }
}

/// What a file has of a block: of a bucket two segments, of every other one what changed since the checkpoint before.
fn copies(declaration: &Declaration, block: BlockId) -> Vec<BlockCopy> {
    let copies = match Layout::new(declaration).block(block).unwrap().bucket {
        Some(bucket) if bucket.number % 2 == 1 => vec![delta(0..9), delta(9..u32::MAX)],
        Some(_) => vec![segment(0..9), segment(9..u32::MAX)],
        None => vec![copy(7)],
    };
    copies.into_iter().map(|copy| BlockCopy { block, ..copy }).collect()
}

/// A file of all blocks of a declaration, and the manifest over it.
fn checkpoint(declaration: &Declaration) -> (Vec<u8>, CheckpointManifest) {
    let blocks = (0..Layout::new(declaration).len() as u32).map(BlockId);
    let newest: Vec<BlockCopy> = blocks.flat_map(|block| copies(declaration, block)).collect();
    let changed = newest.iter().filter(|copy| copy.segment.as_ref().is_some_and(|of| of.freed.is_some()));
    let whole = |copy: &BlockCopy| BlockCopy {
        block: copy.block,
        name: name(6),
        ..segment(copy.segment.as_ref().unwrap().slots.clone())
    };
    // The file before is named, and not recorded itself.
    let (_, before) = file(3, changed.map(whole).collect());
    let (bytes, written) = file(4, newest);
    let cut = Some(Cut { rewind: Rewind(112), version: name(7).version });
    // As in every version of these files: what is from before there was a choice says the same.
    let settings = JobSettings { gradients: Precision::F32, ..synchronous() };
    let written = vec![before, written];
    let manifest = CheckpointManifest::assemble(settings, declaration.clone(), CheckpointId(4), cut, written);
    (bytes, manifest.unwrap())
}

fn file(checkpoint: u64, copies: Vec<BlockCopy>) -> (Vec<u8>, WrittenFile) {
    let (job, writer, checkpoint) = (synchronous().job, Incarnation::new(1, 3), CheckpointId(checkpoint));
    let (mut file, header) = PieceWriter::begin(&Origin { job, checkpoint, writer, sequence: 9 }).unwrap();
    let mut bytes = header.to_vec();
    for copy in copies {
        bytes.extend(file.add(&copy.into()).unwrap());
    }
    let (trailer, written) = file.finish();
    bytes.extend(trailer);
    (bytes, written)
}

/// The frame that a store in a folder puts around its document.
fn state() -> Bytes {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::open(folder.path()).unwrap();
    of(store.swap(None, Bytes::from_static(DOCUMENT))).unwrap();
    std::fs::read(folder.path().join(STATE)).unwrap().into()
}

fn of<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
