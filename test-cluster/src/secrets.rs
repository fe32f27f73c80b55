//! Secrets as volumes of pods: written before a container starts, and kept as they are in the cluster while it runs, each set in the
//! place of the one before at one moment, as kubelets do it.

use super::kubelet::Shared;
use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, Client, ResourceExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often a mounted secret is looked at. Kubelets take a minute or so.
const LOOK: Duration = Duration::from_millis(500);
/// How long one look may take.
const ANSWER: Duration = Duration::from_secs(2);
/// What kubelets call the link by which a set is changed.
const LINK: &str = "..data";

/// The folder of a pod's volume.
pub(super) fn folder(pod: &Path, volume: &str) -> PathBuf {
    pod.join("volumes").join(volume)
}

/// One volume.
#[derive(Clone, Debug)]
struct Volume {
    namespace: String,
    secret: String,
    is_optional: bool,
    folder: PathBuf,
}

fn volumes(pod: &Pod, place: &Path) -> Vec<Volume> {
    let all = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let of_secrets = all.filter_map(|volume| {
        let source = volume.secret.as_ref()?;
        Some(Volume {
            namespace: pod.namespace().unwrap_or_default(),
            secret: source.secret_name.clone()?,
            is_optional: source.optional == Some(true),
            folder: folder(place, &volume.name),
        })
    });
    of_secrets.collect()
}

/// Writes all secrets that a pod mounts. Returns the name of one that is not there, if one is not.
pub(super) async fn write_all(client: &Client, pod: &Pod, place: &Path) -> anyhow::Result<Option<String>> {
    for volume in volumes(pod, place) {
        std::fs::create_dir_all(&volume.folder)?;
        if volume.write(client, None).await?.is_none() && !volume.is_optional {
            return Ok(Some(volume.secret));
        }
    }
    Ok(None)
}

/// Keeps them as they are in the cluster until what is returned is dropped.
pub(super) fn keep_all(shared: &Arc<Shared>, pod: &Pod, place: &Path) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for volume in volumes(pod, place) {
        let shared = Arc::clone(shared);
        tasks.spawn(async move {
            let mut version = None;
            loop {
                tokio::time::sleep(LOOK).await;
                // What cannot be read now, or is gone, stays as it is.
                let written =
                    tokio::time::timeout(ANSWER, volume.write(&shared.client, version.clone())).await;
                if let Ok(Ok(Some(now))) = written {
                    version = Some(now);
                }
            }
        });
    }
    tasks
}

impl Volume {
    /// Writes the secret, if it is another than the version before. Returns its version; none if it is not there.
    async fn write(&self, client: &Client, before: Option<String>) -> anyhow::Result<Option<String>> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let Some(secret) = secrets.get_opt(&self.secret).await? else { return Ok(None) };
        let version = secret.resource_version().context("a version")?;
        if before.as_ref() != Some(&version) {
            let data = secret.data.unwrap_or_default().into_iter().map(|(name, bytes)| (name, bytes.0));
            replace(&self.folder, &version, data)?;
        }
        Ok(Some(version))
    }
}

/// Puts a set of files in the place of another.
fn replace(
    folder: &Path,
    version: &str,
    files: impl Iterator<Item = (String, Vec<u8>)>,
) -> anyhow::Result<()> {
    let set = format!("..{version}");
    if std::fs::read_link(folder.join(LINK)).is_ok_and(|there| there == Path::new(&set)) {
        return Ok(());
    }
    let place = folder.join(&set);
    std::fs::create_dir_all(&place)?;
    for (name, bytes) in files {
        let file = place.join(&name);
        std::fs::write(&file, bytes)?;
        // What the field has by default, so that whoever the pod runs as may read it.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
        if !folder.join(&name).is_symlink() {
            symlink(Path::new(LINK).join(&name), folder.join(&name))?;
        }
    }
    let before = std::fs::read_link(folder.join(LINK)).ok();
    let next = folder.join("..data_tmp");
    symlink(&set, &next)?;
    std::fs::rename(&next, folder.join(LINK))?;
    before.map_or(Ok(()), |before| std::fs::remove_dir_all(folder.join(before)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_files_is_replaced_at_one_moment_and_the_names_stay() {
        let folder = tempfile::tempdir().unwrap();
        let set = |text: &str| ["a", "b"].map(|name| (name.to_owned(), text.as_bytes().to_vec())).into_iter();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        replace(folder.path(), "1", set("one")).unwrap();
        let held = std::fs::canonicalize(folder.path().join("a")).unwrap();
        replace(folder.path(), "1", set("again")).unwrap();
        assert_eq!(
            (read("a"), read("b")),
            ("one".to_owned(), "one".to_owned()),
            "one version is written once"
        );
        replace(folder.path(), "2", set("two")).unwrap();
        assert_eq!((read("a"), read("b")), ("two".to_owned(), "two".to_owned()));
        assert!(!held.exists(), "the set before is gone");
    }
}
