//! `shoal ui JOB`: the live page of a job, served here and fed through the API server by the rights of who asks. Without a control plane
//! the test says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.

use crate::tls::digits;
use crate::world::World;
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use shoal_tests::browser::ask;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The command, as whoever the kubeconfig says.
fn command(world: &World, kubeconfig: &Path, job: &str) -> Command {
    let mut command = Command::new(&world.programs.shoal);
    command.args(["ui", job]).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    command
}

/// What a command that is refused says.
fn refused(world: &World, kubeconfig: &Path, job: &str, code: i32) -> String {
    let output = command(world, kubeconfig, job).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// A page that is served, its port and its token.
struct Page {
    child: Child,
    port: u16,
    token: String,
}

impl Page {
    fn of(mut command: Command) -> Page {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let (place, token) = address.trim().split_once("/?token=").unwrap();
        Page { child, port: place.rsplit(':').next().unwrap().parse().unwrap(), token: token.to_owned() }
    }

    fn frame(&self) -> Value {
        let header = format!("Authorization: Bearer {}\r\n", self.token);
        serde_json::from_str(&ask(self.port, "GET /frame", &header, "").unwrap()).unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A kubeconfig of somebody who may do what these roles allow.
fn person(world: &World, name: &str, roles: &[(&str, &[&str], &str)]) -> PathBuf {
    for (role, verbs, resource) in roles {
        let verbs = format!("--verb={}", verbs.join(","));
        world.kubectl(&["create", "role", role, &verbs, &format!("--resource={resource}")]);
        world.kubectl(&["create", "rolebinding", role, &format!("--role={role}"), &format!("--user={name}")]);
    }
    let own = std::fs::read_to_string(world.plane.kubeconfig()).unwrap();
    let mut config: Value = serde_saphyr::from_str(&own).unwrap();
    config["users"][0]["user"]["as"] = json!(name);
    let path = world.path(name);
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_cluster_is_looked_at_through_the_api_server_by_the_rights_of_who_asks() {
    let Some(world) = World::start(2, Run::Processes).await else { return };
    let job = digits(&world, "seen", 60, json!({}));
    world.apply(&job);
    world.wait_for_condition("seen", "Running").await;
    assert_eq!(world.job("seen")["status"]["tls"], "Issued");

    let eve = person(&world, "eve", &[("reads-jobs", &["get", "list"], "trainingjobs.shoal.dev,pods")]);
    let said = refused(&world, &eve, "seen", 5);
    assert!(said.contains("\"eve\" cannot get resource \"secrets\"") && !said.contains("panicked"), "{said}");
    let said = {
        let kubeconfig = person(&world, "eve", &[("reads-secrets", &["get"], "secrets")]);
        refused(&world, &kubeconfig, "seen", 5)
    };
    assert!(said.contains("pods/portforward"), "{said}");
    let eve = person(&world, "eve", &[("forwards-ports", &["get", "create"], "pods/portforward")]);
    let page = Page::of(command(&world, &eve, "seen"));

    let is_seen = async |_: &World| {
        let now = page.frame();
        now["phase"] == "training" && now["curves"]["loss"].is_array() && now["numbers"]["trainers"] == 1
    };
    world.wait_for("the page tells of the job, with losses", is_seen).await;
    assert!(ask(page.port, "GET /frame", "", "").unwrap().contains("token"), "nobody gets it without");
    // A master that is begun anew is found under the same name.
    let term = page.frame()["numbers"]["term"].as_u64().unwrap();
    world.kubectl(&["delete", "pod", "seen-master", "--wait=false"]);
    let is_followed =
        async |_: &World| page.frame()["numbers"]["term"].as_u64().is_some_and(|newer| newer > term);
    world.wait_for("the page follows the next master", is_followed).await;
    drop(page);

    world.kubectl(&["delete", "trainingjob", "seen"]);
    let said = refused(&world, &eve, "seen", 2);
    assert!(said.contains("no job seen in namespace default"), "{said}");
}
