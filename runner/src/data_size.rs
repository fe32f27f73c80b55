//! How large a job's data set is, in words and as JSON. Reads a status and nothing else.

use serde_json::{Value, json};
use shoal_runtime::wire::proto::{DataSize, StatusReply};

/// The parts of the data set, each with what becomes of it.
fn parts(status: &StatusReply) -> [(&'static str, Option<DataSize>); 3] {
    let predicts = status.settings.as_ref().and_then(|settings| settings.evaluated.as_ref());
    let predicts = predicts.is_some_and(|evaluated| !evaluated.outputs.is_empty());
    let (evaluated, predicted) = if predicts { (None, status.evaluated) } else { (status.evaluated, None) };
    [("trained", status.trained_on), ("evaluated", evaluated), ("predicted", predicted)]
}

/// One line; nothing by a master that does not say.
pub fn line(status: &StatusReply) -> Option<String> {
    let part = |(what, size): (&str, Option<DataSize>)| {
        let DataSize { files, records, bytes } = size?;
        let (file, record) =
            (if files == 1 { "file" } else { "files" }, if records == 1 { "record" } else { "records" });
        Some(match files {
            0 => format!("{what}: {records} {record} without files"),
            _ => format!("{what}: {files} {file}, {records} {record}, {bytes} bytes"),
        })
    };
    let parts: Vec<String> = parts(status).into_iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Each part's files, records and bytes; null for what there is none of.
pub fn json(status: &StatusReply) -> Value {
    let size = |size: DataSize| json!({"files": size.files, "records": size.records, "bytes": size.bytes});
    parts(status).into_iter().map(|(what, part)| (what.to_owned(), json!(part.map(size)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::{Evaluated, JobSettings};

    #[test]
    fn what_is_evaluated_is_told_from_what_is_predicted() {
        let size = |files, records, bytes| Some(DataSize { files, records, bytes });
        let mut status =
            StatusReply { trained_on: size(2, 1, 30), evaluated: size(1, 7, 9), ..Default::default() };
        assert_eq!(
            line(&status).unwrap(),
            "trained: 2 files, 1 record, 30 bytes; evaluated: 1 file, 7 records, 9 bytes"
        );
        assert_eq!(json(&status)["evaluated"], json!({"files": 1, "records": 7, "bytes": 9}));
        status.trained_on = size(0, 60_000, 0);
        assert!(
            line(&status).unwrap().starts_with("trained: 60000 records without files; evaluated: 1 file")
        );
        status.trained_on = None;
        let evaluated = Some(Evaluated { outputs: "out".to_owned(), ..Default::default() });
        status.settings = Some(JobSettings { evaluated, ..Default::default() });
        assert_eq!(line(&status).unwrap(), "predicted: 1 file, 7 records, 9 bytes");
        assert_eq!((&json(&status)["trained"], &json(&status)["evaluated"]), (&Value::Null, &Value::Null));
        assert_eq!(line(&StatusReply::default()), None);
    }
}
