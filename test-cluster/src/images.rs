//! Images that containers are made of: those of an OCI layout, a folder as `buildah push IMAGE oci:FOLDER:NAME` makes it, unpacked.

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The annotation that has an image's name.
const NAME: &str = "org.opencontainers.image.ref.name";

/// An unpacked image.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// Its files, which no container changes.
    pub(super) root: PathBuf,
    /// What it says of the process: `Env`, `User`, `Entrypoint`, `Cmd`, `WorkingDir`.
    pub(super) config: Value,
}

/// The images of a layout by their names, unpacked into `folder`.
///
/// # Errors
/// It is no such folder, or something of it cannot be unpacked; the message names it.
pub(super) fn unpack(layout: &Path, folder: &Path) -> anyhow::Result<BTreeMap<String, Image>> {
    let index = read(&layout.join("index.json"))?;
    let mut images = BTreeMap::new();
    for (number, entry) in list(&index["manifests"]).iter().enumerate() {
        let Some(name) = entry["annotations"][NAME].as_str() else { continue };
        let image = unpack_one(layout, entry, &folder.join(number.to_string()));
        images.insert(name.to_owned(), image.with_context(|| format!("image {name}"))?);
    }
    ensure!(!images.is_empty(), "{}: no image there has a name", layout.display());
    Ok(images)
}

fn unpack_one(layout: &Path, entry: &Value, root: &Path) -> anyhow::Result<Image> {
    let manifest = read(&blob(layout, entry)?)?;
    let config = read(&blob(layout, &manifest["config"])?)?;
    std::fs::create_dir_all(root)?;
    for layer in list(&manifest["layers"]) {
        let layer = blob(layout, layer)?;
        let mut tar = Command::new("tar");
        let output = tar.args(["--numeric-owner", "-xf"]).arg(&layer).arg("-C").arg(root).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", layer.display(), said.trim());
        if let Some(file) = whiteout(root)? {
            bail!("{}: a layer removes files, which is not unpacked here", file.display());
        }
    }
    Ok(Image { root: root.to_owned(), config: config["config"].clone() })
}

/// A file by which a layer says that one of a layer below is gone.
fn whiteout(folder: &Path) -> std::io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(".wh.") {
            return Ok(Some(entry.path()));
        }
        if entry.file_type()?.is_dir()
            && let Some(found) = whiteout(&entry.path())?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn blob(layout: &Path, descriptor: &Value) -> anyhow::Result<PathBuf> {
    let digest = descriptor["digest"].as_str().context("a descriptor has a digest")?;
    let (algorithm, hash) = digest.split_once(':').with_context(|| format!("no digest: {digest}"))?;
    Ok(layout.join("blobs").join(algorithm).join(hash))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn read(file: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read(file).with_context(|| file.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| file.display().to_string())
}
