//! What a pod's spec means for one of its containers, however that is run: environment, command, volumes. It must never start
//! anything.

use super::secrets;
use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Volume};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What a container needs to know of its pod.
pub(super) struct Place<'a> {
    pub(super) ip: &'a str,
    pub(super) hosts: &'a Path,
    /// A folder of the pod's own.
    pub(super) folder: &'a Path,
    /// Folders in which programs are looked for first, by processes.
    pub(super) path: &'a [PathBuf],
}

/// A folder of this machine and where a container has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    pub(super) is_read_only: bool,
}

/// The variables of a container.
pub(super) fn environment(pod: &Pod, container: &Container, place: &Place<'_>) -> BTreeMap<String, String> {
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
pub(super) fn expanded(text: &str, variables: &BTreeMap<String, String>) -> String {
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

/// What a container is given of this machine's folders. They are there afterwards.
pub(super) fn mounts(pod: &Pod, container: &Container, place: &Place<'_>) -> anyhow::Result<Vec<Mount>> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let volumes: BTreeMap<&str, &Volume> = volumes.map(|volume| (volume.name.as_str(), volume)).collect();
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume =
            volumes.get(mount.name.as_str()).with_context(|| format!("there is no volume {}", mount.name))?;
        let own = || secrets::folder(place.folder, &mount.name);
        let from = match (&volume.host_path, &volume.empty_dir, &volume.secret) {
            (Some(host), ..) => folder(Path::new(&host.path), None)?,
            // Open to whoever the pod runs as.
            (None, Some(_), _) => folder(&own(), Some(0o777))?,
            (None, None, Some(_)) => folder(&own(), Some(0o755))?,
            (None, None, None) => {
                bail!("volume {}: only hostPath, emptyDir and secret are there", mount.name)
            }
        };
        let is_read_only = mount.read_only == Some(true);
        mounts.push(Mount { from, to: PathBuf::from(&mount.mount_path), is_read_only });
    }
    Ok(mounts)
}

fn folder(path: &Path, mode: Option<u32>) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
    if let Some(mode) = mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(path.to_owned())
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
