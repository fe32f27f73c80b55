//! A container as a process of this machine: in mounts of its own, with its volumes, its hosts file and its environment.

use super::annotations::ENFORCE_MEMORY;
use super::spec::{self, Mount, Place};
use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// Mounts, then becomes the program: pairs of what and where up to `--`.
const MOUNT: &str =
    r#"while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 128; shift 2; done; shift; exec "$@""#;

/// Starts the pod's only container, and says where its log is.
pub(super) fn start(pod: &Pod, place: &Place<'_>) -> anyhow::Result<(Child, PathBuf)> {
    let pod_spec = pod.spec.as_ref().context("a pod has a spec")?;
    let [container] = &pod_spec.containers[..] else { bail!("pods of several containers are not run here") };
    let environment = spec::environment(pod, container, place);
    // All addresses are one here, for these pods have no network of their own.
    let expand = |text: &String| {
        let text = spec::expanded(text, &environment);
        text.strip_prefix("0.0.0.0:").map(|port| format!("{}:{port}", place.ip)).unwrap_or(text)
    };
    let command: Vec<String> =
        container.command.iter().flatten().chain(container.args.iter().flatten()).map(expand).collect();
    if container.command.is_none() {
        bail!("images are not run as processes: give a command");
    }
    let log = place.folder.join("log");
    let out = File::options().create(true).append(true).open(&log)?;
    let mut path: Vec<String> = place.path.iter().map(|folder| folder.display().to_string()).collect();
    path.extend(std::env::var("PATH"));
    let mut process = Command::new("unshare");
    process.args(["--mount", "--propagation", "private", "sh", "-c", MOUNT, "pod"]);
    process.arg(place.hosts).arg("/etc/hosts");
    for Mount { from, to, .. } in spec::mounts(pod, container, place)? {
        std::fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
        process.arg(from).arg(to);
    }
    // Whatever becomes of the kubelet, no process outlives it.
    process.args(["--", "setpriv", "--pdeathsig", "KILL", "--"]);
    if let Some(bytes) = memory(pod, container) {
        process.args(["prlimit", &format!("--data={bytes}"), "--"]);
    }
    process.args(command).env_clear().env("PATH", path.join(":")).envs(environment);
    process.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).kill_on_drop(true);
    Ok((process.spawn().context("unshare")?, log))
}

/// What a process may have of memory, where the pod asks for that to be enforced.
fn memory(pod: &Pod, container: &Container) -> Option<u64> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(ENFORCE_MEMORY).filter(|is_on| *is_on == "true")?;
    let limit = container.resources.as_ref()?.limits.as_ref()?.get("memory")?;
    shoal_operator::api::bytes(&limit.0)
}
