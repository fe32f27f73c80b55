//! What is read from places that others write: files of a checkpoint, a store's frame, tensors, etcd's replies.

use super::assert_same;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use shoal_runtime::cluster::block_copy::WHOLE;
use shoal_runtime::cluster::{BlockCopy, BlockId, PieceRef, Rewind, StateName, Term, Version};
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial};
use shoal_runtime::host::store::{EtcdStore, FileStore, Revision, Store};
use shoal_runtime::wire::checkpoint::{decode_manifest, encode_manifest};
use shoal_runtime::wire::pieces::{check_header, check_trailer, decode_piece, header_range, trailer_range};
use shoal_runtime::wire::tensors::{Header, header_end};
use std::time::Duration;

/// A manifest that is read is sound, and is written with the bytes of what was read.
pub(crate) fn manifest(bytes: &[u8]) {
    sealed(bytes, read_manifest);
}

fn read_manifest(bytes: &[u8]) {
    let Ok(manifest) = decode_manifest(bytes) else { return };
    assert_eq!(manifest.check(), Ok(()));
    let again =
        decode_manifest(&encode_manifest(&manifest).expect("not larger")).expect("it was read before");
    assert_same(&again, &manifest);
    for piece in &manifest.pieces {
        assert!(piece.offset + piece.bytes <= manifest.files[piece.file as usize].bytes);
        assert!(manifest.pieces_of(piece.block).contains(piece));
    }
}

/// Bytes as they are, and with the checksum over their payload put right, so that what is behind it is met.
fn sealed(bytes: &[u8], read: fn(&[u8])) {
    read(bytes);
    if let Some((prefix, payload)) = bytes.split_at_checked(24) {
        let mut sealed = prefix.to_vec();
        sealed[12..20].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        sealed[20..24].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        sealed.extend(payload);
        read(&sealed);
    }
}

/// The recorded manifest's first piece, which the bytes may or may not be; and the bytes as a header and as a trailer.
pub(crate) fn pieces(bytes: &[u8]) {
    const MANIFEST: &[u8] = include_bytes!("../../tests/fixtures/v1/manifest");
    let manifest = decode_manifest(MANIFEST).expect("it is recorded");
    let file = &manifest.files[0];
    let at =
        |range: std::ops::Range<u64>| bytes.get(range.start as usize..range.end as usize).unwrap_or(bytes);
    if check_header(at(header_range(&manifest)), &manifest, file).is_ok() {
        assert!(bytes.len() as u64 >= header_range(&manifest).end);
    }
    let _ = check_trailer(bytes, file).is_ok_and(|()| true)
        || check_trailer(at(trailer_range(file)), file).is_ok();
    let Some((_, message)) = bytes.split_at_checked(8) else { return };
    // Believed by its own checksum, so that what is behind it is met.
    let piece = PieceRef {
        block: BlockId(0),
        rewind: Rewind(112),
        name: StateName { term: Term(111), version: Version(7) },
        slots: WHOLE,
        is_delta: false,
        file: 0,
        offset: 0,
        bytes: bytes.len() as u64,
        crc32: crc32fast::hash(message),
    };
    for crc32 in [None, Some(piece.crc32)] {
        let mut frame = bytes.to_vec();
        if let Some(crc32) = crc32 {
            frame[..4].copy_from_slice(&(message.len() as u32).to_le_bytes());
            frame[4..8].copy_from_slice(&crc32.to_le_bytes());
        }
        if let Ok(copy) = decode_piece(frame.into(), &piece) {
            let _ = BlockCopy::try_from(copy);
        }
    }
}

/// A header that is taken lies inside its file, and so do its tensors.
pub(crate) fn tensors(bytes: &[u8]) {
    let declaration = decode_manifest(include_bytes!("../../tests/fixtures/v1/manifest"));
    let declaration = declaration.expect("it is recorded").declaration;
    let Ok(end) = header_end(bytes, bytes.len() as u64) else { return };
    let Ok(header) = Header::parse(&bytes[..end as usize], bytes.len() as u64) else { return };
    let _ = header.check(&declaration, true);
    for parameter in &declaration.parameters {
        if let Ok(Some(values)) = header.values_of(parameter) {
            let range = values.range(0, parameter.elements());
            assert!(end <= range.start && range.end <= bytes.len() as u64);
            let mut decoded = vec![0.0; parameter.elements() as usize];
            values.decode(&bytes[range.start as usize..range.end as usize], &mut decoded);
        }
    }
}

/// A store in a folder reads what it wrote, or refuses.
pub(crate) fn store(bytes: &[u8]) {
    let read = |bytes: &[u8]| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("master.state"), bytes).expect("written");
        let store = FileStore::open(folder.path()).expect("a folder");
        if let Ok(Some((revision, document))) = wait(store.load()) {
            assert_eq!(bytes.len(), document.len() + 32, "frame and document, and nothing else");
            let _ = revision;
        }
    };
    read(bytes);
    if let Some(body) = bytes.len().checked_sub(4).filter(|body| *body >= 28) {
        let mut sealed = bytes[..body].to_vec();
        let checksum = crc32fast::hash(&sealed);
        sealed.extend(checksum.to_le_bytes());
        read(&sealed);
    }
}

/// An etcd that answers every call with these bytes.
#[derive(Clone)]
struct Replies(Bytes);

impl Dial for Replies {
    fn dial(&self, _: &str, _: Option<Role>) -> Result<Channel, String> {
        let Replies(bytes) = self.clone();
        let answer = move |_: http::Request<tonic::body::Body>| {
            let envelope = [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat();
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
            let body = Full::new(Bytes::from(envelope)).map_err(|never| match never {});
            let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
            let mut response = http::Response::new(tonic::body::Body::new(body));
            let kind = http::HeaderValue::from_static("application/grpc");
            response.headers_mut().insert("content-type", kind);
            std::future::ready(Ok(response))
        };
        Ok(Channel::new(tower::service_fn(answer)))
    }
}

/// Whatever etcd says, a store has a document, a revision or an error.
pub(crate) fn etcd(bytes: &[u8]) {
    let replies = Replies(Bytes::copy_from_slice(bytes));
    let store = EtcdStore::new(&replies, &[String::from("etcd:1")], "/job", Duration::from_secs(1));
    let store = store.expect("an address");
    wait(async {
        let _ = store.load().await;
        let _ = store.swap(None, Bytes::from_static(b"a document")).await;
        let _ = store.swap(Some(Revision(u64::MAX)), Bytes::from_static(b"a document")).await;
    });
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}
