//! What Helm makes of deploy/chart, held against what kustomize makes of deploy/. Needs the two programs and no cluster; without
//! them a test says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.

use crate::rendering::{
    Objects, Tools, applied, assert_same, deploy, kustomized, objects, rendered, said, without_helms_marks,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_charts_default_values_give_what_kustomize_gives() {
    let Some(tools) = Tools::find() else { return };
    for kubectl in &tools.kubectls {
        let mut wanted = kustomized(kubectl, &deploy());
        // Helm makes it, if it is asked to.
        assert!(wanted.remove("Namespace  shoal-system").is_some());
        wanted.extend(applied("budget.yaml", Some("shoal-system")));
        wanted.extend(applied("admission.yaml", None));
        for helm in &tools.helms {
            assert_same(&without_helms_marks(rendered(helm, "shoal-system", &[]).unwrap()), &wanted);
        }
        let monitors = kustomized(kubectl, &deploy().join("monitoring"));
        assert_eq!(monitors.len(), 3);
        wanted.extend(monitors);
        let monitored = rendered(tools.newest_helm(), "shoal-system", &["monitoring.enabled=true"]).unwrap();
        assert_same(&without_helms_marks(monitored), &wanted);
    }
}

/// What whoever has no rights beyond a namespace leaves to others.
const LEFT_TO_OTHERS: [&str; 4] = [
    "crds.install=false",
    "userRoles.create=false",
    "elasticPriorityClass.create=false",
    "admissionPolicy.enabled=false",
];

#[test]
fn of_one_namespace_the_chart_gives_what_the_overlay_gives() {
    let Some(tools) = Tools::find() else { return };
    let set = [&["watchNamespace=shoal"][..], &LEFT_TO_OTHERS].concat();
    for kubectl in &tools.kubectls {
        let mut wanted = kustomized(kubectl, &deploy().join("namespaced"));
        wanted.extend(applied("budget.yaml", Some("shoal")));
        for helm in &tools.helms {
            assert_same(&without_helms_marks(rendered(helm, "shoal", &set).unwrap()), &wanted);
        }
    }
    // From elsewhere the cluster's operator would not see that it is there.
    let apart = rendered(tools.newest_helm(), "ops", &["watchNamespace=team"]).unwrap_err();
    assert!(apart.contains("is installed into it: helm install --namespace team"), "{apart}");
}

#[test]
fn one_value_says_where_all_images_are_and_which_version() {
    let Some(tools) = Tools::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    copy(&deploy(), folder.path());
    for root in ["", "namespaced"] {
        let file = folder.path().join(root).join("kustomization.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let changed = text.replace("newName: shoal-operator", "newName: r.example/a/shoal-operator");
        assert_ne!(text, changed);
        std::fs::write(
            &file,
            changed.replace(&format!("newTag: {}", env!("CARGO_PKG_VERSION")), "newTag: v9"),
        )
        .unwrap();
        for kubectl in &tools.kubectls {
            assert_images(&kustomized(kubectl, &folder.path().join(root)), "r.example/a/shoal-operator:v9");
        }
    }
    let registry = "image.registry=r.example/a";
    for (set, image) in [
        (vec![registry, "image.tag=v9"], "r.example/a/shoal-operator:v9"),
        (
            vec!["image.registry=r.example/a/"],
            concat!("r.example/a/shoal-operator:", env!("CARGO_PKG_VERSION")),
        ),
        (vec![], concat!("shoal-operator:", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_images(&rendered(tools.newest_helm(), "n", &set).unwrap(), image);
    }
}

/// The operator's image is that one, and nothing else names any.
fn assert_images(all: &Objects, image: &str) {
    let text = |one: &Value| one.to_string();
    let named = all.values().filter(|one| one["kind"] != "CustomResourceDefinition").map(text);
    let named: Vec<String> =
        named.filter(|one| one.contains("\"image\"") || one.contains("_IMAGE")).collect();
    assert_eq!(named.len(), 1, "the Deployment alone");
    assert!(
        named[0].contains(&format!("\"image\":\"{image}\"")) && !named[0].contains("_IMAGE"),
        "{}",
        named[0]
    );
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

#[test]
fn the_version_is_the_same_wherever_it_is_written() {
    let read = |file: &str| std::fs::read_to_string(deploy().join(file)).unwrap();
    let chart: Value = serde_saphyr::from_str(&read("chart/Chart.yaml")).unwrap();
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!(env!("CARGO_PKG_VERSION")))
    );
    for file in ["kustomization.yaml", "namespaced/kustomization.yaml"] {
        let file: Value = serde_saphyr::from_str(&read(file)).unwrap();
        assert_eq!(file["images"][0]["newTag"], env!("CARGO_PKG_VERSION"));
    }
}

/// Servers take such a reference whole from the merge by their side on: without its default it would be somebody else's value.
#[test]
fn references_to_a_pods_own_fields_are_written_with_the_version_that_servers_add() {
    let Some(tools) = Tools::find() else { return };
    for folder in [deploy(), deploy().join("namespaced")] {
        let text = kustomized(&tools.kubectls[0], &folder)
            .into_values()
            .map(|one| one.to_string())
            .collect::<String>();
        let (all, whole) = (
            text.matches("\"fieldRef\":").count(),
            text.matches("\"fieldRef\":{\"apiVersion\":\"v1\"").count(),
        );
        assert!(all >= 2 && all == whole, "{whole} of {all} in {}", folder.display());
    }
}

#[test]
fn the_chart_passes_helms_own_check() {
    let Some(tools) = Tools::find() else { return };
    for helm in &tools.helms {
        said(helm, &["lint", "--strict", "--quiet", &deploy().join("chart").to_string_lossy()]).unwrap();
    }
}

#[test]
fn values_that_are_wrong_are_refused_by_their_name() {
    let Some(tools) = Tools::find() else { return };
    for (set, names) in [
        ("replicas=two", "replicas"),
        ("replicas=-1", "replicas"),
        ("image.pullPolicy=Sometimes", "image.pullPolicy"),
        ("image.tag=a:b", "image.tag"),
        ("image.digest=00ff", "image.digest"),
        ("imagee.tag=1", "imagee"),
        ("image.repository=r", "repository"),
        ("store=s3://bucket", "store"),
        ("watchNamespace=A_B", "watchNamespace"),
        ("tls.default=true", "tls.default"),
        ("tls.certificateLife=long", "tls.certificateLife"),
        ("tls.issuer=internal", "tls.issuer"),
        ("monitoring.enabled=yes", "monitoring.enabled"),
        ("monitoring.interval=often", "monitoring.interval"),
        ("admissionPolicy.enabled=1", "admissionPolicy.enabled"),
        ("resources.request.cpu=1", "request"),
        ("extraEnv[0].value=x", "name"),
        (r#"{"podLabels":{"app.kubernetes.io/name":"mine"}}"#, "app.kubernetes.io.name"),
    ] {
        for helm in &tools.helms {
            let why = rendered(helm, "n", &[set]).expect_err(set);
            // Helm 3 writes a.b where Helm 4 writes /a/b.
            let why = why.replace("(root)", "").replace('/', ".");
            assert!(why.contains("specifications of the schema") && why.contains(names), "{set}: {why}");
        }
    }
}

/// What each switch adds, by kind and name.
const SWITCHES: [(&str, &[&str]); 7] = [
    (
        "crds.install",
        &["CustomResourceDefinition trainingjobs.shoal.dev", "CustomResourceDefinition scaleplans.shoal.dev"],
    ),
    ("userRoles.create", &["ClusterRole shoal-edit", "ClusterRole shoal-view"]),
    ("elasticPriorityClass.create", &["PriorityClass shoal-elastic"]),
    ("networkPolicy.enabled", &["NetworkPolicy shoal-operator"]),
    ("podDisruptionBudget.enabled", &["PodDisruptionBudget shoal-operator"]),
    (
        "admissionPolicy.enabled",
        &[
            "ValidatingAdmissionPolicy shoal-operator-pods",
            "ValidatingAdmissionPolicyBinding shoal-operator-pods",
            "ValidatingAdmissionPolicy shoal-operator-objects",
            "ValidatingAdmissionPolicyBinding shoal-operator-objects",
            "ValidatingAdmissionPolicy shoal-operator-secrets",
            "ValidatingAdmissionPolicyBinding shoal-operator-secrets",
        ],
    ),
    (
        "monitoring.enabled",
        &["Service shoal-operator-metrics", "ServiceMonitor shoal-operator", "PodMonitor shoal-jobs"],
    ),
];

#[test]
fn each_combination_of_switches_gives_the_objects_of_those_that_are_on() {
    let Some(tools) = Tools::find() else { return };
    let names = |all: Objects| -> BTreeSet<String> {
        let name = |one: &Value| {
            format!("{} {}", one["kind"].as_str().unwrap(), one["metadata"]["name"].as_str().unwrap())
        };
        all.values().map(name).collect()
    };
    let with = |on: usize, helm: &Path| {
        let set: Vec<String> = SWITCHES
            .iter()
            .enumerate()
            .map(|(at, (switch, _))| format!("{switch}={}", on >> at & 1 == 1))
            .collect();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        names(rendered(helm, "shoal-system", &set).unwrap())
    };
    let bare = with(0, tools.newest_helm());
    assert_eq!(bare.len(), 6, "{bare:?}");
    for on in 0..1 << SWITCHES.len() {
        let added = SWITCHES
            .iter()
            .enumerate()
            .filter(|(at, _)| on >> at & 1 == 1)
            .flat_map(|(_, (_, added))| *added);
        let wanted: BTreeSet<String> =
            bare.iter().cloned().chain(added.map(|name| (*name).to_owned())).collect();
        assert_eq!(with(on, tools.newest_helm()), wanted, "{on:b}");
        if on.count_ones() % 6 == 1 {
            tools.helms.iter().for_each(|helm| assert_eq!(with(on, helm), wanted, "{on:b}"));
        }
    }
}

#[test]
fn older_servers_are_given_what_they_know() {
    let Some(tools) = Tools::find() else { return };
    let kinds = |version: &str| -> BTreeSet<String> {
        let chart = deploy().join("chart");
        let yaml = said(
            tools.newest_helm(),
            &["template", "s", &chart.to_string_lossy(), "--kube-version", version],
        );
        objects(&yaml.unwrap()).into_values().map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
    };
    for (version, budget, policy) in [
        ("v1.20.2", false, false),
        ("v1.21.0", true, false),
        ("v1.29.9-eks-1", true, false),
        ("v1.30.0", true, true),
    ] {
        let kinds = kinds(version);
        assert_eq!(
            (kinds.contains("PodDisruptionBudget"), kinds.contains("ValidatingAdmissionPolicy")),
            (budget, policy),
            "{version}"
        );
    }
}

/// Where the authority is another, and certificates are cert-manager's.
fn assert_certificates(all: &Objects) {
    let lease = all["Role ops shoal-operator-lease"]["rules"].to_string();
    assert!(lease.contains(r#""resourceNames":["ours"]"#) && !lease.contains("shoal-authority"), "{lease}");
    let policy = all["ValidatingAdmissionPolicy  shoal-operator-secrets"].to_string();
    assert!(policy.contains("ours") && !policy.contains("shoal-authority"), "{policy}");
    let rules = all["ClusterRole  shoal-operator"]["rules"].to_string();
    assert!(rules.contains("certificaterequests"), "{rules}");
}

/// Variables of the operator, without `SHOAL_`, and what the values of the test below make of them.
const VARIABLES: [(&str, &str); 10] = [
    ("MASTER_IMAGE", "m:1"),
    ("PSERVER_IMAGE", "p:1"),
    ("JOB_STORE", "etcds://e:2379/jobs"),
    ("JOB_STORE_SECRET", "etcd"),
    ("TLS_DEFAULT", "off"),
    ("CERTIFICATE_LIFE", "1h"),
    ("AUTHORITY", "ours"),
    ("ISSUER", "ClusterIssuer/internal"),
    ("LOG", "debug"),
    ("ELASTIC_PRIORITY_CLASS", "spare"),
];

#[test]
fn every_other_value_reaches_what_it_is_for() {
    let Some(tools) = Tools::find() else { return };
    let digest = format!("sha256:{}", "0f".repeat(32));
    let values = json!({
        "image": { "digest": digest, "pullPolicy": "Always", "pullSecrets": [{ "name": "pull" }], "master": "m:1", "pserver": "p:1" },
        "replicas": 3, "store": "etcds://e:2379/jobs", "storeSecret": "etcd",
        "tls": { "default": "off", "certificateLife": "1h", "authority": "ours", "issuer": "ClusterIssuer/internal" },
        "priorityClassName": "system-cluster-critical",
        "serviceAccount": { "annotations": { "a": "b" } }, "podLabels": { "l": "m" }, "podAnnotations": { "n": "o" },
        "resources": { "limits": { "memory": "1Gi" } }, "nodeSelector": { "pool": "ops" },
        "tolerations": [{ "key": "ops", "operator": "Exists" }], "affinity": { "nodeAffinity": { "x": 1 } },
        "extraEnv": [{ "name": "SHOAL_LOG", "value": "debug" }], "extraArgs": ["--headroom", "0.1"],
        "elasticPriorityClass": { "name": "spare", "value": -5 }, "crds": { "keep": false },
        "monitoring": { "enabled": true, "interval": "5s", "labels": { "release": "prom" } },
    });
    for helm in &tools.helms {
        let all = rendered(helm, "ops", &[&values.to_string()]).unwrap();
        let deployment = &all["Deployment ops shoal-operator"]["spec"];
        let (pod, container) =
            (&deployment["template"]["spec"], &deployment["template"]["spec"]["containers"][0]);
        assert_eq!(deployment["replicas"], 3);
        assert_eq!(container["image"], format!("shoal-operator:{}@{digest}", env!("CARGO_PKG_VERSION")));
        assert_eq!(
            (&container["imagePullPolicy"], &pod["imagePullSecrets"]),
            (&json!("Always"), &json!([{ "name": "pull" }]))
        );
        for (name, value) in VARIABLES {
            let variable = json!({ "name": format!("SHOAL_{name}"), "value": value });
            assert!(container["env"].as_array().unwrap().contains(&variable), "{variable}");
        }
        assert_eq!(
            (&container["args"], &container["resources"]),
            (
                &json!(["--headroom", "0.1"]),
                &json!({ "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "1Gi" } })
            )
        );
        assert_eq!(
            (&pod["priorityClassName"], &pod["nodeSelector"]),
            (&json!("system-cluster-critical"), &json!({ "pool": "ops" }))
        );
        assert_eq!((&pod["tolerations"], &pod["affinity"]), (&values["tolerations"], &values["affinity"]));
        let metadata = &deployment["template"]["metadata"];
        assert_eq!((&metadata["labels"]["l"], &metadata["annotations"]), (&json!("m"), &json!({ "n": "o" })));
        assert_eq!(all["ServiceAccount ops shoal-operator"]["metadata"]["annotations"], json!({ "a": "b" }));
        assert_eq!(all["PriorityClass  spare"]["value"], -5);
        assert_eq!(
            all["CustomResourceDefinition  trainingjobs.shoal.dev"]["metadata"].get("annotations"),
            None
        );
        for monitor in [&all["ServiceMonitor ops shoal-operator"], &all["PodMonitor ops shoal-jobs"]] {
            assert_eq!(monitor["metadata"]["labels"]["release"], "prom");
            assert!(monitor.to_string().contains(r#""interval":"5s""#));
        }
        assert_eq!(all["ClusterRoleBinding  shoal-operator"]["subjects"][0]["namespace"], "ops");
        assert_certificates(&all);
        let policy = all["ValidatingAdmissionPolicy  shoal-operator-pods"].to_string();
        assert!(
            policy.contains("system:serviceaccount:ops:shoal-operator") && !policy.contains("shoal-system")
        );
    }
}
