//! What kustomize and Helm make of the files in deploy/, as objects that can be compared.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Objects by kind, namespace and name.
pub(crate) type Objects = BTreeMap<String, Value>;

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// The programs that people install with.
pub(crate) struct Tools {
    /// Of each major version.
    pub(crate) helms: Vec<PathBuf>,
    /// Of today, and of before there were most of kustomize's fields.
    pub(crate) kubectls: Vec<PathBuf>,
}

impl Tools {
    /// None where they cannot be had.
    pub(crate) fn find() -> Option<Tools> {
        let paths = |variable: &str| -> Vec<PathBuf> {
            std::env::var_os(variable).map(|all| std::env::split_paths(&all).collect()).unwrap_or_default()
        };
        let (helms, mut kubectls) = (paths("SHOAL_HELM"), paths("SHOAL_KUBECTL"));
        kubectls.extend(paths("KUBEBUILDER_ASSETS").iter().map(|folder| folder.join("kubectl")));
        let is_whole = helms.len() >= 2 && kubectls.len() >= 2;
        if !is_whole {
            let why = "SHOAL_HELM (two of them), SHOAL_KUBECTL and KUBEBUILDER_ASSETS do not name helm and kubectl: \
                       .ci/helm and .ci/control-plane make them";
            assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{why}");
            eprintln!("nothing was tested: {why}");
        }
        is_whole.then_some(Tools { helms, kubectls })
    }

    pub(crate) fn newest_helm(&self) -> &Path {
        &self.helms[0]
    }
}

/// What a program prints; what it says of its failing is the error.
pub(crate) fn said(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(String::from_utf8_lossy(&output.stdout).into_owned()) } else { Err(told) }
}

pub(crate) fn objects(yaml: &str) -> Objects {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap_or_else(|why| panic!("{why}\n{yaml}"));
    let mut objects = Objects::new();
    for mut object in all.into_iter().filter(|one| !one.is_null()) {
        without_fractions(&mut object);
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
        assert!(!text("/apiVersion").is_empty(), "{object}");
        let [kind, namespace, name] = ["/kind", "/metadata/namespace", "/metadata/name"].map(text);
        assert!(!kind.is_empty() && !name.is_empty(), "{object}");
        let key = format!("{kind} {namespace} {name}");
        assert!(objects.insert(key.clone(), object).is_none(), "{key} twice");
    }
    objects
}

/// One number is written in two ways: 0 and 0.0.
fn without_fractions(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(without_fractions),
        Value::Array(list) => list.iter_mut().for_each(without_fractions),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
            whole.into_iter().for_each(|whole| *value = json!(whole as i64));
        }
        _ => {}
    }
}

pub(crate) fn kustomized(kubectl: &Path, folder: &Path) -> Objects {
    objects(&said(kubectl, &["kustomize", &folder.to_string_lossy()]).unwrap())
}

/// What is applied by itself, in the namespace that it would be.
pub(crate) fn applied(file: &str, namespace: Option<&str>) -> Objects {
    let text = std::fs::read_to_string(deploy().join(file)).unwrap();
    let mut all = objects(&text);
    if let Some(namespace) = namespace {
        let placed = |mut object: Value| {
            object["metadata"]["namespace"] = json!(namespace);
            object
        };
        all = objects(&all.into_values().map(|one| format!("---\n{}\n", placed(one))).collect::<String>());
    }
    all
}

pub(crate) fn rendered(helm: &Path, namespace: &str, set: &[&str]) -> Result<Objects, String> {
    let chart = deploy().join("chart");
    let mut arguments = vec!["template", "shoal", &*chart.to_string_lossy(), "--namespace", namespace]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let folder = tempfile::tempdir().unwrap();
    for one in set {
        let file = folder.path().join("values.json");
        let is_file = one.starts_with('{');
        if is_file {
            std::fs::write(&file, one).unwrap();
        }
        arguments.extend(if is_file {
            ["--values".to_owned(), file.display().to_string()]
        } else {
            ["--set".to_owned(), (*one).to_owned()]
        });
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    said(helm, &arguments).map(|yaml| objects(&yaml))
}

/// Without the labels by which Helm's users find what belongs to a release, all of which everything has.
pub(crate) fn without_helms_marks(mut all: Objects) -> Objects {
    for (name, object) in &mut all {
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        for label in [
            "app.kubernetes.io/instance",
            "app.kubernetes.io/managed-by",
            "app.kubernetes.io/version",
            "helm.sh/chart",
        ] {
            assert!(labels.remove(label).is_some(), "{name} has no label {label}");
        }
        if labels.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("labels");
        }
        if object["kind"] == "CustomResourceDefinition" {
            let notes = object["metadata"].as_object_mut().unwrap().remove("annotations");
            assert_eq!(notes, Some(json!({ "helm.sh/resource-policy": "keep" })), "{name}");
        }
    }
    all
}

#[track_caller]
pub(crate) fn assert_same(one: &Objects, other: &Objects) {
    let names = |all: &Objects| all.keys().cloned().collect::<BTreeSet<String>>();
    assert_eq!(names(one), names(other));
    for (name, object) in one {
        assert_eq!(object, &other[name], "{name}");
    }
}
