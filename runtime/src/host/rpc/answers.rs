//! What a call came to, told where it is known: at this end, between the two, or by the role that was called. The meaning
//! ([`Fault`]) goes with the status as its source; it must never be guessed from a code or from words.

use super::BoxError;
use crate::wire::{Fault, Side, WireVersion, causes, words};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::Frame;
use std::sync::{Arc, OnceLock};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

const DETAILS: &str = "grpc-status-details-bin";

/// Why a request could not be sent whole; empty while nothing kept it here.
#[derive(Clone, Default)]
pub(super) struct Unsent(Arc<OnceLock<Status>>);

impl Unsent {
    /// `body`, whose errors are kept here: of the connection's error they would not be part.
    pub(super) fn watch(&self, body: Body) -> Body {
        let unsent = self.clone();
        Body::new(body.map_err(move |status: Status| {
            let _ = unsent.0.set(Fault::Impossible(words(&status)).with(status.clone()));
            status
        }))
    }
}

/// The answer of a role that speaks `version`, its message still to come.
///
/// # Errors
/// The status that the call ended with; its source is the [`Fault`].
pub(super) fn heard(
    answer: Result<Response<Body>, BoxError>,
    unsent: &Unsent,
    version: WireVersion,
) -> Result<Response<Body>, Status> {
    if let Some(status) = unsent.0.get() {
        return Err(status.clone());
    }
    let answer = answer.map_err(lost)?;
    let headers = answer.headers();
    let told = headers.get(WireVersion::ENTRY).map(http::HeaderValue::as_bytes);
    if told.is_none() && !is_message(headers) {
        return Err(not_a_roles(&answer));
    }
    version.check(Side::Called, told).map_err(|refusal| Status::from(Fault::from(refusal)))?;
    if let Some(status) = status(headers).filter(|status| status.code() != Code::Ok) {
        return Err(Fault::said(&status).with(status));
    }
    Ok(answer.map(readable))
}

/// A message without a version is a role's that is older than versions are. A status without one may be anybody's.
fn is_message(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
        && !headers.contains_key(Status::GRPC_STATUS)
}

/// No answer came: what ended the call at this end, or on the way.
fn lost(error: BoxError) -> Status {
    let fault = causes(&*error).find_map(|cause| cause.downcast_ref::<Fault>()).cloned();
    let status = Status::from_error(error);
    fault.unwrap_or_else(|| Fault::Unreachable(words(&status))).with(status)
}

/// An answer of something that lies between, or of no process of Shoal: whatever it says is not the role's word.
fn not_a_roles(answer: &Response<Body>) -> Status {
    let said = status(answer.headers()).map(|status| words(&status));
    let said = said.unwrap_or_else(|| format!("HTTP status {}", answer.status()));
    Status::from(Fault::Unreachable(format!(
        "{said} (said without a wire version: by something in between, or by no process of Shoal)"
    )))
}

/// The status in headers or trailers. Tonic panics at details that are not base64.
pub(super) fn status(headers: &HeaderMap) -> Option<Status> {
    if has_garbled_details(headers) {
        return Some(Status::unknown("a status with garbled details"));
    }
    Status::from_header_map(headers)
}

fn has_garbled_details(headers: &HeaderMap) -> bool {
    headers.contains_key(DETAILS)
        && MetadataMap::from_headers(headers.clone())
            .get_bin(DETAILS)
            .is_some_and(|details| details.to_bytes().is_err())
}

/// The same body, whose trailers nobody panics at.
fn readable(body: Body) -> Body {
    Body::new(body.map_frame(|frame| match frame.into_trailers() {
        Ok(mut trailers) => {
            if has_garbled_details(&trailers) {
                trailers.remove(DETAILS);
            }
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }))
}
