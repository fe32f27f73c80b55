//! A container as a process of this machine: in mounts of its own, with its volumes, its hosts file and its environment.

use super::annotations::ENFORCE_MEMORY;
use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::{Child, Command};

/// Mounts, then becomes the program: pairs of what and where up to `--`.
const MOUNT: &str =
    r#"while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 128; shift 2; done; shift; exec "$@""#;

/// What a process needs to know of its pod.
pub(super) struct Place<'a> {
    pub(super) ip: &'a str,
    pub(super) hosts: &'a Path,
    /// A folder of the pod's own.
    pub(super) folder: &'a Path,
    /// Folders in which programs are looked for first.
    pub(super) path: &'a [PathBuf],
}

/// Starts the pod's first container.
pub(super) fn start(pod: &Pod, place: &Place<'_>) -> anyhow::Result<(Child, PathBuf)> {
    let spec = pod.spec.as_ref().context("a pod has a spec")?;
    let [container] = &spec.containers[..] else { bail!("pods of several containers are not run here") };
    let environment = environment(pod, container, place);
    let expand = |text: &String| expanded(text, &environment);
    let command: Vec<String> =
        container.command.iter().flatten().chain(container.args.iter().flatten()).map(expand).collect();
    if container.command.is_none() {
        bail!("images are not run here: give a command");
    }
    let log = place.folder.join("log");
    let out = File::options().create(true).append(true).open(&log)?;
    let mut path: Vec<String> = place.path.iter().map(|folder| folder.display().to_string()).collect();
    path.extend(std::env::var("PATH"));
    let mut process = Command::new("unshare");
    process.args(["--mount", "--propagation", "private", "sh", "-c", MOUNT, "pod"]);
    process.arg(place.hosts).arg("/etc/hosts");
    for (from, to) in mounts(pod, container, place)? {
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

fn environment(pod: &Pod, container: &Container, place: &Place<'_>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let value = match &variable.value {
            Some(value) => expanded(value, &all),
            None => of_field(pod, variable, place).unwrap_or_default(),
        };
        all.insert(variable.name.clone(), value);
    }
    all
}

/// What the downward API says.
fn of_field(pod: &Pod, variable: &EnvVar, place: &Place<'_>) -> Option<String> {
    let field = &variable.value_from.as_ref()?.field_ref.as_ref()?.field_path;
    match field.as_str() {
        "metadata.name" => pod.metadata.name.clone(),
        "metadata.namespace" => pod.metadata.namespace.clone(),
        "metadata.uid" => pod.metadata.uid.clone(),
        "spec.nodeName" => pod.spec.as_ref()?.node_name.clone(),
        "status.podIP" => Some(place.ip.to_owned()),
        _ => None,
    }
}

/// `$(NAME)` replaced by the variable's value, `$$` by `$`, as Kubernetes does it; unknown names stay.
fn expanded(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest.strip_prefix("$(").and_then(|inside| inside.split_once(')'));
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((value, after)) =
            name.and_then(|(name, after)| Some((variables.get(name)?, after)))
        {
            out.push_str(value);
            rest = after;
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out + rest
}

/// What is mounted where.
fn mounts(pod: &Pod, container: &Container, place: &Place<'_>) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let volumes: BTreeMap<&str, _> = volumes.map(|volume| (volume.name.as_str(), volume)).collect();
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume =
            volumes.get(mount.name.as_str()).with_context(|| format!("there is no volume {}", mount.name))?;
        let from = match (&volume.host_path, &volume.empty_dir) {
            (Some(host), _) => PathBuf::from(&host.path),
            (None, Some(_)) => place.folder.join("volumes").join(&mount.name),
            (None, None) => bail!("volume {}: only hostPath and emptyDir are there", mount.name),
        };
        std::fs::create_dir_all(&from).with_context(|| from.display().to_string())?;
        mounts.push((from, PathBuf::from(&mount.mount_path)));
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_kubernetes_does_it() {
        let variables = BTreeMap::from([("IP".to_owned(), "127.64.0.1".to_owned())]);
        let known = [
            ("$(IP):80", "127.64.0.1:80"),
            ("$$(IP)", "$(IP)"),
            ("$(NO) $IP $", "$(NO) $IP $"),
            ("a$(IP)b$(IP)", "a127.64.0.1b127.64.0.1"),
        ];
        for (text, wanted) in known {
            assert_eq!(expanded(text, &variables), wanted);
        }
    }
}
