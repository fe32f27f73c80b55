//! What the operator may do, and what the pods that it makes may: on a real control plane, with the rights that are installed.
//! Without one the test says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.

use crate::world::{OPERATOR, World};
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use std::path::Path;

/// What `kubectl auth can-i --list` said when somebody last looked at it and found it right.
const KNOWN: &str = "tests/operator/rights.txt";

/// One line for each right, in order, without the spaces that columns are made of.
fn rights(world: &World, user: &str, namespace: &str) -> String {
    let groups = ["--as-group=system:serviceaccounts", "--as-group=system:authenticated"];
    let listed = world.kubectl(&[
        "auth",
        "can-i",
        "--list",
        "--no-headers",
        "-n",
        namespace,
        "--as",
        user,
        groups[0],
        groups[1],
    ]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    // Everybody may ask which APIs there are and what he himself may; how, servers of other ages say otherwise.
    let is_own = |line: &String| !line.starts_with('[') && !line.starts_with("self");
    let mut lines: Vec<String> = listed.lines().map(words).filter(is_own).collect();
    lines.sort();
    format!("{namespace}:\n  {}\n", lines.join("\n  "))
}

fn is_allowed(world: &World, verb: &str, resource: &str) -> bool {
    let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
    let sub = format!("--subresource={sub}");
    world.plane.kubectl(&["auth", "can-i", verb, resource, &sub, "--quiet", "--as", OPERATOR]).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_has_the_rights_it_needs_and_no_others_and_its_pods_have_none() {
    let Some(world) = World::start(2, Run::Pretended).await else { return };
    let now = rights(&world, OPERATOR, "default") + &rights(&world, OPERATOR, "shoal-system");
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join(KNOWN);
    if std::env::var_os("SHOAL_UPDATE").is_some() {
        std::fs::write(&known, &now).unwrap();
    }
    let known = std::fs::read_to_string(&known).unwrap_or_default();
    assert_eq!(now, known, "other rights than in {KNOWN}: look at them, then run with SHOAL_UPDATE=1");
    assert!(!now.contains('*'), "no wildcards:\n{now}");
    let never = [
        ("get", "secrets"),
        ("list", "secrets"),
        ("watch", "secrets"),
        ("update", "secrets"),
        ("delete", "secrets"),
        ("create", "pods/exec"),
        ("get", "pods/log"),
        ("create", "serviceaccounts"),
        ("patch", "pods"),
        ("get", "configmaps"),
        ("create", "clusterrolebindings"),
        ("get", "nodes"),
        ("patch", "nodes"),
        ("create", "trainingjobs"),
    ];
    for (verb, resource) in never {
        assert!(!is_allowed(&world, verb, resource), "{verb} {resource}");
    }
    assert!(is_allowed(&world, "create", "pods"), "the question is asked rightly");

    world.apply(&world.pretended("j", json!({})));
    world.wait_for_condition("j", "Ready").await;
    let pods: Value = serde_json::from_str(&world.kubectl(&["get", "pods", "-o", "json"])).unwrap();
    let pods = pods["items"].as_array().unwrap();
    assert_eq!(pods.len(), 4);
    pods.iter().for_each(assert_restricted);
}

/// The leases of operators of single namespaces, to which an operator of the cluster leaves those.
const OTHERS: &str = "leases.coordination.k8s.io [] [shoal-operator]";

fn without_what_planning_takes(rights: &str) -> String {
    let is_for_planning =
        |line: &&str| ["nodes ", "priorityclasses.", OTHERS].iter().any(|one| line.trim().starts_with(one));
    let kept: Vec<&str> = rights.lines().filter(|line| !is_for_planning(line)).collect();
    kept.join("\n") + "\n"
}

/// What is installed of a kind under the operator's name.
fn installed(world: &World, kind: &str, namespace: &str) -> Value {
    let found = world.kubectl(&["get", kind, "shoal-operator", "--namespace", namespace, "-o", "json"]);
    serde_json::from_str(&found).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_one_namespace_looks_after_its_jobs_and_has_no_rights_elsewhere() {
    let Some(mut world) = World::start(2, Run::Pretended).await else { return };
    world.kill_operator();
    world.kubectl(&["create", "namespace", "shoal"]);
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/namespaced");
    world.kubectl(&["apply", "--validate=false", "-k", &deploy.to_string_lossy()]);

    const ALONE: &str = "system:serviceaccount:shoal:shoal-operator";
    let of = |said: String, namespace: &str| said.replace(&format!("{namespace}:\n"), "");
    assert_eq!(
        of(rights(&world, ALONE, "shoal"), "shoal"),
        without_what_planning_takes(&of(rights(&world, OPERATOR, "shoal-system"), "shoal-system")),
        "where it is, it may do what the cluster's operator may, but plan for a cluster"
    );
    assert_eq!(of(rights(&world, ALONE, "default"), "default").trim(), "");

    let of_cluster = installed(&world, "deployment", "shoal-system");
    let mut alone = installed(&world, "deployment", "shoal");
    let variables = alone["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    variables.retain(|variable| variable["name"] != "SHOAL_NAMESPACE");
    assert_eq!(alone["spec"]["template"], of_cluster["spec"]["template"], "but for SHOAL_NAMESPACE");
    // The test's server is of before policy/v1.
    let budget = std::fs::read_to_string(deploy.with_file_name("budget.yaml")).unwrap();
    std::fs::write(world.path("budget.yaml"), budget.replace("policy/v1", "policy/v1beta1")).unwrap();
    world.kubectl(&["apply", "--namespace", "shoal", "-f", &world.path("budget.yaml").to_string_lossy()]);
    let budget = installed(&world, "poddisruptionbudget", "shoal");
    assert_eq!(budget["spec"]["selector"], alone["spec"]["selector"], "it is of the operators, all of them");
    assert_eq!((&budget["spec"]["maxUnavailable"], &alone["spec"]["replicas"]), (&json!(1), &json!(2)));
    let policy = |namespace: &str| installed(&world, "networkpolicy", namespace)["spec"].clone();
    assert_eq!(policy("shoal"), policy("shoal-system"));

    let kubeconfig = world.plane.kubeconfig_as(ALONE).unwrap();
    world.start_operator_with(&kubeconfig, &["--namespace", "shoal", "--lease-namespace", "shoal"]);
    let mut job = world.pretended("j", json!({}));
    world.apply(&job);
    job["metadata"]["namespace"] = json!("shoal");
    world.apply(&job);
    let is_ready = async |world: &World| {
        let job = world.kubectl(&["get", "trainingjob", "j", "--namespace", "shoal", "-o", "json"]);
        let job: Value = serde_json::from_str(&job).unwrap();
        let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    world.wait_for("the job in its namespace is ready", is_ready).await;
    assert_eq!(world.job("j")["status"], Value::Null, "the one in another it does not see");
}

/// The rules of the restricted pod security standard, and no token.
fn assert_restricted(pod: &Value) {
    let (name, spec) = (&pod["metadata"]["name"], &pod["spec"]);
    assert_eq!(spec["automountServiceAccountToken"], json!(false), "{name}");
    let security = &spec["securityContext"];
    assert_eq!(security["runAsNonRoot"], json!(true), "{name}");
    assert_eq!(security["seccompProfile"]["type"], json!("RuntimeDefault"), "{name}");
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        assert_ne!(spec[host], json!(true), "{name}: {host}");
    }
    for container in spec["containers"].as_array().unwrap() {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], json!(false), "{name}");
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{name}");
        assert_ne!(security["privileged"], json!(true), "{name}");
        let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
        assert!(
            !mounts.iter().any(|one| one["mountPath"].as_str().unwrap().contains("serviceaccount")),
            "{name}"
        );
    }
}
