//! Jobs as people write them into a file: YAML or JSON, one document or several, checked by the schema that is installed in
//! clusters. Opens no file.

use super::job::TrainingJob;
use super::schema::definitions;
use super::validate::faults;
use super::{GROUP, VERSION};
use serde_json::{Value, json};
use shoal_job::spec::check_value;

/// One job of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenJob {
    /// What it says.
    pub job: TrainingJob,
    /// As it was written: without what the author left to the operator.
    pub manifest: Value,
}

/// The jobs of a file, in its order; at least one.
///
/// # Errors
/// Everything that is wrong, each with its place and the way out: what is no YAML, documents of other kinds, fields that
/// jobs do not have, values that they cannot have. The last document is the last to be read.
pub fn written_jobs(text: &str) -> Result<Vec<WrittenJob>, Vec<String>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|why| vec![format!("not YAML: {why}")])?;
    let documents: Vec<Value> = documents.into_iter().filter(|one| !one.is_null()).collect();
    if documents.is_empty() {
        return Err(vec!["there is nothing in it: write down a TrainingJob".to_owned()]);
    }
    let is_one = documents.len() == 1;
    let (mut jobs, mut wrong) = (Vec::new(), Vec::new());
    for (number, document) in (1..).zip(documents) {
        match written_job(document) {
            Ok(job) => jobs.push(job),
            Err(faults) if is_one => wrong.extend(faults),
            Err(faults) => {
                wrong.extend(faults.into_iter().map(|fault| format!("document {number}: {fault}")));
            }
        }
    }
    if wrong.is_empty() { Ok(jobs) } else { Err(wrong) }
}

fn written_job(manifest: Value) -> Result<WrittenJob, Vec<String>> {
    let (version, kind) = (format!("{GROUP}/{VERSION}"), "TrainingJob");
    if manifest["apiVersion"] != json!(version) || manifest["kind"] != json!(kind) {
        let (its_version, its_kind) = (said(&manifest["apiVersion"]), said(&manifest["kind"]));
        return Err(vec![format!(
            "apiVersion {its_version}, kind {its_kind}: give {version}, {kind}; everything else is for kubectl apply"
        )]);
    }
    let mut wrong = Vec::new();
    let schema =
        definitions()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].take();
    check_value(&schema, &manifest["spec"], &mut |path, what| {
        wrong.push(if path.is_empty() { format!("spec: {what}") } else { format!("spec.{path}: {what}") });
    });
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let job: TrainingJob =
        serde_json::from_value(without_null(manifest.clone())).map_err(|why| vec![why.to_string()])?;
    // Where states are kept is the operator's to know.
    let wrong = faults(&job, true);
    if wrong.is_empty() { Ok(WrittenJob { job, manifest }) } else { Err(wrong) }
}

/// Written as null, a field is not stated.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let stated = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(stated.map(|(key, value)| (key, without_null(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_null).collect()),
        other => other,
    }
}

fn said(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "apiVersion: shoal.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: digits}\nspec:\n  data: [/data/*.recordio]\n  \
                       epochs: 3\n  seed: null\n  checkpoint: {place: /shared/digits}\n  trainer:\n    template: {spec: {containers: [{name: t, image: i}]}}\n";

    #[test]
    fn jobs_are_read_from_one_document_or_several() {
        let one = written_jobs(JOB).unwrap();
        assert_eq!((one[0].job.spec.training.epochs, one[0].job.spec.trainer.min_replicas), (Some(3), 1));
        assert_eq!(one[0].manifest["spec"]["trainer"].get("minReplicas"), None, "only what was written");
        let two = format!("---\n{JOB}---\n---\n{}", JOB.replace("name: digits", "name: other"));
        let names = written_jobs(&two).unwrap().into_iter().map(|one| one.job.metadata.name.unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["digits", "other"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wrong = [
            ("", "there is nothing in it"),
            ("a: [1", "not YAML: "),
            ("kind: Pod\napiVersion: v1\n", "apiVersion v1, kind Pod: give shoal.dev/v1alpha1, TrainingJob"),
            (&JOB.replace("epochs", "epoch"), "spec.epoch: there is no such field"),
            (&JOB.replace("epochs: 3", "epochs: three"), "spec.epochs: \"three\" is no integer"),
            (&JOB.replace("epochs: 3", "epochs: 1000001"), "spec.epochs: 1000001 is above 1000000"),
            (&JOB.replace("epochs: 3", "mode: synch"), "spec.mode: \"synch\" is none of sync, async"),
            (&JOB.replace("place:", "palce:"), "spec.checkpoint.palce: there is no such field"),
            (&JOB.replace("[/data/*.recordio]", "[3]"), "spec.data[0]: 3 is no string"),
            (&JOB.replace("[/data/*.recordio]", "[]"), "spec.data: name the RecordIO files"),
            (&JOB.replace("image: i", "imag: i"), "spec.trainer.template.spec.containers[0].imag: "),
            (&format!("{JOB}---\nkind: Pod\n"), "document 2: apiVersion null, kind Pod: "),
        ];
        for (text, begins) in wrong {
            let said = written_jobs(text).unwrap_err();
            assert!(said.len() == 1 && said[0].starts_with(begins), "{text}\n{said:?}");
        }
        let both = JOB.replace("epochs: 3", "epochs: x\n  mode: y");
        assert_eq!(written_jobs(&both).unwrap_err().len(), 2, "all of it at once");
    }
}
