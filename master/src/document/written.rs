//! The document as bytes: `{"format":4,"document":{...}}`, the format first whatever follows it. A document of another format
//! is refused before anything of it is believed.

use super::Document;
use serde::{Deserialize, Serialize};
use shoal_runtime::cluster::Declaration;
use shoal_runtime::wire::OtherFormat;

/// The format that is written. Formats from 1 on are read. What is not in those before: with 2 came tables,
/// with 3 the precision of gradients, with 4 when the checkpoint under way was named.
const FORMAT: u32 = 4;

/// Why bytes are no document of this build.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// Another build's.
    #[error(transparent)]
    OtherFormat(#[from] OtherFormat),
    /// No document at all, or one from before formats were numbered.
    #[error(
        "something else than a job's document ({0}): use another store, or the build that wrote it (docs/versions.md)"
    )]
    NoDocument(serde_json::Error),
    /// It says what no job can be, so that something else than a master has written it.
    #[error("a job's document that no master has written ({0}): restore the store, or use another")]
    NoJob(String),
}

impl From<serde_json::Error> for Unread {
    fn from(error: serde_json::Error) -> Unread {
        Unread::NoDocument(error)
    }
}

/// What is read first, and stands in every format.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Written<D> {
    format: u32,
    document: D,
}

impl Document {
    /// The document as bytes, for the store.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&Written { format: FORMAT, document: self }).unwrap_or_default()
    }

    /// A document from the store.
    ///
    /// # Errors
    /// What is no document of this format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Document, Unread> {
        let Head { format: found } = serde_json::from_slice(bytes)?;
        if !(1..=FORMAT).contains(&found) {
            return Err(OtherFormat { what: "a job's document", found, read: FORMAT }.into());
        }
        let document = serde_json::from_slice::<Written<Document>>(bytes)?.document;
        // A number beyond f32 is read as an infinity, say, which is written as nothing that can be read.
        let declared = document.declaration.as_ref().map_or(Ok(()), Declaration::check);
        declared.map_err(|fault| Unread::NoJob(fault.to_string()))?;
        document.job.check().map_err(|fault| Unread::NoJob(fault.to_string()))?;
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Wanted;
    use crate::fixture;

    #[test]
    fn a_document_of_what_no_job_can_be_is_refused_and_says_where() {
        let wanted = Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 0 };
        let mut document = Document::new(fixture::settings(64, 2, 8, 2), wanted);
        document.declaration = Some(fixture::declaration());
        let text = String::from_utf8(document.to_bytes()).unwrap();
        let infinite = text.replacen("\"weight_decay\":0.0", "\"weight_decay\":1e300", 1);
        let said = Document::from_bytes(infinite.as_bytes()).unwrap_err().to_string();
        assert!(said.contains("weight_decay") && said.contains("another"), "{said}");
        let endless = text.replacen("\"lease_ttl_millis\":", "\"lease_ttl_millis\":9999999", 1);
        let said = Document::from_bytes(endless.as_bytes()).unwrap_err().to_string();
        assert!(said.contains("lease_ttl_millis"), "{said}");
        assert!(Document::from_bytes(text.as_bytes()).is_ok());
    }

    #[test]
    fn a_document_of_another_format_is_refused_by_both_formats_whatever_it_says() {
        let wanted = Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 0 };
        let text =
            String::from_utf8(Document::new(fixture::settings(64, 2, 8, 2), wanted).to_bytes()).unwrap();
        assert!(text.starts_with("{\"format\":4,"));
        for (found, way_out) in [(0, "the build that wrote it"), (5, "at least as new")] {
            let other = text.replacen("\"format\":4", &format!("\"format\":{found}"), 1);
            let unread = Document::from_bytes(other.as_bytes()).unwrap_err();
            assert!(matches!(&unread, Unread::OtherFormat(other) if (other.found, other.read) == (found, 4)));
            let said = unread.to_string();
            assert!(said.contains(way_out) && said.contains("docs/versions.md"), "{said}");
        }
        for older in ["\"format\":1", "\"format\":2", "\"format\":3"] {
            let older = text.replacen("\"format\":4", older, 1);
            assert!(Document::from_bytes(older.as_bytes()).is_ok(), "what is older is read");
        }
        let unknown = br#"{"format":7,"blocks":"are elsewhere now"}"#;
        assert!(matches!(Document::from_bytes(unknown), Err(Unread::OtherFormat(_))));
        let before = &text.as_bytes()["{\"format\":4,\"document\":".len()..text.len() - 1];
        assert!(matches!(Document::from_bytes(before), Err(Unread::NoDocument(_))));
    }
}
