//! A request for a certificate, for whoever has no authority of its own: the key never leaves this process.

use super::leaf;
use crate::host::rpc::tls::{Identity, PemSet, Validity};
use rcgen::KeyPair;

/// A key, and what an authority is asked to sign.
pub struct Request {
    key: String,
    /// The request, as PEM (PKCS #10).
    pub pem: String,
}

impl Request {
    /// A request for a certificate of `identity`. How long it is to count is said beside it.
    ///
    /// # Errors
    /// None that a name of a job can bring about.
    pub fn of(identity: &Identity) -> Result<Request, String> {
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        // A request has no time in it; these are what rcgen would write into a certificate.
        let mut parameters = leaf(identity, Validity { from: 0, until: 1 })?;
        parameters.use_authority_key_identifier_extension = false;
        let request = parameters.serialize_request(&key).map_err(|error| error.to_string())?;
        let pem = request.pem().map_err(|error| error.to_string())?;
        Ok(Request { key: key.serialize_pem(), pem })
    }

    /// The set of files that an authority's answer makes of it.
    pub fn answered(self, authorities: String, certificate: String) -> PemSet {
        PemSet { authorities, certificate, key: self.key }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}
