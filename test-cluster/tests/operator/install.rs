//! Installing, upgrading, rolling back and uninstalling on a real control plane, as docs/install.md tells it.

use crate::rendering::{Tools, deploy, objects, said};
use crate::world::World;
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use std::path::Path;

/// The lines of `kubectl apply` that say that something was made or changed. A server without CEL drops the rules of definitions, so
/// that these are written anew each time.
fn changed(applied: &str) -> Vec<&str> {
    let is_new =
        |line: &&str| !line.ends_with(" unchanged") && !line.starts_with("customresourcedefinition.");
    applied.lines().filter(is_new).collect()
}

/// What is left of the cluster's kinds.
fn left(world: &World, kinds: &str) -> String {
    world.kubectl(&["get", kinds, "--all-namespaces", "-o", "name"])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_as_the_page_says_leaves_definitions_and_jobs_behind() {
    let Some(world) = World::start(1, Run::Pretended).await else { return };
    world.apply(&world.pretended("j", json!({})));
    world.wait_for_condition("j", "Ready").await;
    let pods = world.uids();
    let file = |name: &str| deploy().join(name).display().to_string();
    world.kubectl(&["delete", "-f", &file("rbac.yaml"), "-f", &file("priority.yaml")]);
    world.kubectl(&["delete", "namespace", "shoal-system"]);
    assert_eq!(left(&world, "customresourcedefinitions").lines().count(), 2);
    assert!(!left(&world, "deployments,clusterroles,priorityclasses,namespaces").contains("shoal"));
    assert_eq!(world.uids(), pods, "jobs go on");
    // With the definitions jobs go, but that of an operator that is no more has to be let go.
    let unbound = r#"{"metadata":{"finalizers":null}}"#;
    world.kubectl(&["patch", "trainingjob", "j", "--type", "merge", "-p", unbound]);
    world.kubectl(&["delete", "-f", &file("crds.yaml")]);
    world.wait_for("its pods go with it", async |world| world.pods().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_applied_again_is_unchanged_and_may_be_applied_by_the_server_from_then_on() {
    let Some(world) = World::start(1, Run::Pretended).await else { return };
    world.kubectl(&["create", "namespace", "shoal"]);
    for folder in [deploy(), deploy().join("namespaced")] {
        let folder = folder.to_string_lossy();
        let apply = ["apply", "--validate=false", "-k", &folder];
        let first = world.kubectl(&apply);
        assert!(first.lines().count() >= 5 && !changed(&first).is_empty(), "{first}");
        let again = world.kubectl(&apply);
        assert_eq!(changed(&again), Vec::<&str>::new());
        assert_eq!(again.lines().count(), first.lines().count());
        let mut known = objects(&world.kubectl(&["kustomize", &folder]));
        known.retain(|_, object| object["kind"] != "CustomResourceDefinition");
        let manifest = world.path("known.json");
        std::fs::write(
            &manifest,
            json!({ "apiVersion": "v1", "kind": "List", "items": known.values().collect::<Vec<_>>() })
                .to_string(),
        )
        .unwrap();
        // A conflict would end it.
        let by_server = world.kubectl(&["apply", "--server-side", "-f", &manifest.to_string_lossy()]);
        assert_eq!(by_server.lines().count(), known.len());
    }
}

struct Helm<'a> {
    world: &'a World,
    program: &'a Path,
    kubeconfig: String,
    is_fourth: bool,
}

impl Helm<'_> {
    /// As docs/install.md says, for a server that knows no CEL and so not the rules of definitions.
    fn run(&self, verb: &str, more: &[&str]) -> Result<String, String> {
        let whose = ["--namespace", "shoal-system", "--kubeconfig", &self.kubeconfig];
        let chart = deploy().join("chart").display().to_string();
        let chart = [chart.as_str(), "--disable-openapi-validation"];
        let chart: &[&str] = if matches!(verb, "install" | "upgrade") { &chart } else { &[] };
        // Helm 4 would have the server merge.
        let merge: &[&str] =
            if self.is_fourth && verb != "uninstall" { &["--server-side=false"] } else { &[] };
        said(self.program, &[&[verb, "shoal"], chart, merge, &whose, more].concat())
    }

    fn deployment(&self) -> Value {
        let deployment = ["get", "deployment", "shoal-operator", "--namespace", "shoal-system", "-o", "json"];
        serde_json::from_str(&self.world.kubectl(&deployment)).unwrap()
    }

    fn store(&self) -> Option<String> {
        let deployment = self.deployment();
        let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
        let store = variables.iter().find(|one| one["name"] == "SHOAL_JOB_STORE")?;
        Some(store["value"].as_str().unwrap().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_takes_over_upgrades_rolls_back_and_leaves_definitions_and_jobs_behind() {
    let Some(tools) = Tools::find() else { return };
    for (at, program) in tools.helms.iter().enumerate() {
        let Some(world) = World::start(1, Run::Pretended).await else { return };
        let kubeconfig = world.plane.kubeconfig().display().to_string();
        let helm = Helm { world: &world, program, kubeconfig, is_fourth: at == 0 };
        world.apply(&world.pretended("j", json!({})));
        world.wait_for_condition("j", "Ready").await;
        let pods = world.uids();

        // What kubectl has installed is not Helm's until it is told to take it.
        let refused = helm.run("install", &[]).unwrap_err();
        assert!(refused.contains("cannot be imported into the current release"), "{refused}");
        helm.run("upgrade", &["--install", "--take-ownership", "--set", "replicas=0"]).unwrap();
        assert_eq!((helm.deployment()["spec"]["replicas"].clone(), helm.store()), (json!(0), None));

        helm.run("upgrade", &["--reset-then-reuse-values", "--set", "store=etcd://e:2379/jobs"]).unwrap();
        assert_eq!(helm.store().as_deref(), Some("etcd://e:2379/jobs"));
        assert_eq!(helm.deployment()["spec"]["replicas"], 0);
        helm.run("rollback", &["1"]).unwrap();
        assert_eq!(helm.store(), None);

        helm.run("uninstall", &[]).unwrap();
        assert_eq!(left(&world, "customresourcedefinitions").lines().count(), 2);
        assert!(!left(&world, "deployments,clusterroles,priorityclasses").contains("shoal"));
        assert_eq!(world.uids(), pods, "jobs go on");
        assert_eq!(world.job("j")["status"]["phase"], "Running");
        // What was left is no obstacle, and is the release's again.
        helm.run("install", &["--set", "replicas=0"]).unwrap();
        assert_eq!(world.uids(), pods);
    }
}
