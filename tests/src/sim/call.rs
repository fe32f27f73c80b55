//! One call on its way, as the network sees it.

use super::trace::hash_of;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use prost::Message;
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::wire::proto;
use tonic::body::Body;

/// A request and who sent it to whom.
#[derive(Clone, Debug)]
pub struct Call {
    /// The caller's host.
    pub from: String,
    /// The callee's address.
    pub to: String,
    /// The method's name, without its service.
    pub method: String,
    /// Counts calls of this method between these two from 1.
    pub number: u64,
    pub(super) parts: http::request::Parts,
    pub(super) body: Bytes,
}

/// gRPC's envelope: a flag and a length before each message.
const ENVELOPE_BYTES: usize = 5;

impl Call {
    /// Whether it is the given method between the given two.
    pub fn is(&self, from: &str, to: &str, method: &str) -> bool {
        self.from == from && self.to == to && self.method == method
    }

    /// The request's message; the method must take an `M`.
    pub fn message<M: Message + Default>(&self) -> M {
        let bytes = self.body.get(ENVELOPE_BYTES..).unwrap_or_default();
        M::decode(bytes).expect("the method takes another message")
    }

    /// A number of its own among all calls of a run.
    pub(super) fn key(&self, seed: u64) -> u64 {
        let names = [&self.from, &self.to, &self.method];
        let named = names.iter().flat_map(|name| name.bytes().chain([0xFF]));
        mix(named.fold(mix(seed), |key, byte| mix(key ^ u64::from(byte))) ^ self.number)
    }

    /// A number for what the request says, equal whenever the same seed is played.
    pub(super) fn content_hash(&self) -> u64 {
        match self.method.as_str() {
            _ if self.tells_process() => 0,
            // Its counts of bytes may or may not include what is sent at the same moment.
            "Report" => {
                let report = proto::ReportRequest { counters: None, ..self.message() };
                hash_of(&report.encode_to_vec())
            }
            _ => hash_of(&self.body),
        }
    }

    /// Whether messages of the method carry the process id, which is another in every process that plays the seed.
    pub(super) fn tells_process(&self) -> bool {
        matches!(self.method.as_str(), "Join" | "Register" | "Status")
    }

    pub(super) fn request(&self) -> http::Request<Body> {
        let mut parts = self.parts.clone();
        parts.extensions = http::Extensions::new();
        http::Request::from_parts(parts, Body::new(Full::new(self.body.clone()).map_err(never)))
    }
}

/// A reply, taken apart so that it can wait.
#[derive(Debug)]
pub(super) struct Response {
    parts: http::response::Parts,
    pub(super) body: Bytes,
    trailers: Option<http::HeaderMap>,
}

impl Response {
    pub(super) async fn collect(response: http::Response<Body>) -> Response {
        let (parts, body) = response.into_parts();
        let collected = body.collect().await.expect("a reply in memory cannot fail half-way");
        let trailers = collected.trailers().cloned();
        Response { parts, body: collected.to_bytes(), trailers }
    }

    /// The gRPC status code; 0 is success.
    pub(super) fn code(&self) -> u64 {
        let trailers = self.trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
        let status = self.parts.headers.get("grpc-status").or(trailers);
        status.and_then(|code| code.to_str().ok()?.parse().ok()).unwrap_or(0)
    }

    /// The message of a successful reply.
    pub(super) fn message(&self) -> &[u8] {
        self.body.get(ENVELOPE_BYTES..).unwrap_or_default()
    }

    /// A successful reply with its message changed; the method must answer with an `M`.
    pub(super) fn changed<M: Message + Default>(mut self, change: impl FnOnce(&mut M)) -> Response {
        let mut message = M::decode(self.message()).expect("the method answers with another message");
        change(&mut message);
        let mut body = vec![0; ENVELOPE_BYTES];
        message.encode(&mut body).expect("a vector grows");
        let length = (body.len() - ENVELOPE_BYTES) as u32;
        body[1..ENVELOPE_BYTES].copy_from_slice(&length.to_be_bytes());
        self.body = body.into();
        self
    }

    /// What the status says in words, if anything.
    pub(super) fn words(&self) -> &str {
        let trailers = self.trailers.as_ref().and_then(|trailers| trailers.get("grpc-message"));
        let words = self.parts.headers.get("grpc-message").or(trailers);
        words.and_then(|words| words.to_str().ok()).unwrap_or_default()
    }

    pub(super) fn into_http(self) -> http::Response<Body> {
        let trailers = self.trailers.map(Ok);
        let body = Full::new(self.body).map_err(never).with_trailers(std::future::ready(trailers));
        http::Response::from_parts(self.parts, Body::new(body))
    }
}

fn never(error: std::convert::Infallible) -> tonic::Status {
    match error {}
}
