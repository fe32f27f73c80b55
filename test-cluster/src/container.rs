//! A container of an image, by `runc` in a kubelet's machine: it is made, told to end, and asked how it ended.

use super::bundle::{self, Made};
use super::images::Image;
use super::machine::Machine;
use super::spec::{self, Place};
use anyhow::Context;
use k8s_openapi::api::core::v1::{Container, Pod};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use tokio::process::Child;

/// Lays what the container writes over its image, then runs it: folder, image, runtime's state, its log, bundle, id.
const RUN: &str = r#"set -e
mkdir "$1" "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
exec runc --root "$3" --log "$4" --log-format json run --keep --bundle "$5" "$6""#;
/// What is left of one that has ended.
const DELETE: &str = r#"runc --root "$3" delete --force "$2"; umount "$1/root"; rm -rf "$1""#;

/// What system calls engines allow by default.
const PROFILE: &str = "/usr/share/containers/seccomp.json";

/// Why a container does not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its pod asks for what must not be: a kubelet says so and tries again, for ever.
    Config(String),
    /// It could not be started.
    Start(String),
}

impl<E: Into<anyhow::Error>> From<E> for Refusal {
    fn from(why: E) -> Refusal {
        Refusal::Start(format!("{:#}", why.into()))
    }
}

/// One that runs, or has.
pub(super) struct Running {
    machine: Arc<Machine>,
    id: String,
    child: Child,
    /// What its program says.
    pub(super) log: PathBuf,
    /// What its runtime says.
    runtime_log: PathBuf,
}

/// How it ended.
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) is_out_of_memory: bool,
    /// Why it never ran; none if it did.
    pub(super) unstarted: Option<String>,
}

/// Starts a container of a pod under an id that none had before.
pub(super) fn start(
    machine: &Arc<Machine>,
    image: &Image,
    pod: &Pod,
    container: &Container,
    place: &Place<'_>,
    network: &Path,
    id: &str,
) -> Result<Running, Refusal> {
    let files = machine.folder.join("containers").join(id);
    let group = machine.groups.of_container(id);
    let profile = if bundle::is_bounded(pod, container) { Some(profile()?) } else { None };
    let made = Made {
        root: &files.join("root"),
        network,
        control_group: &group,
        mounts: &spec::mounts(pod, container, place)?,
        image: &image.config,
        seccomp: profile.as_ref(),
    };
    let config = bundle::config(pod, container, place, &made).map_err(Refusal::Config)?;
    let bundle = place.folder.join(id);
    std::fs::create_dir_all(&bundle)?;
    std::fs::write(bundle.join("config.json"), config.to_string())?;
    let (log, runtime_log) = (place.folder.join("log"), bundle.join("runtime.log"));
    let out = File::options().create(true).append(true).open(&log)?;
    let mut run = machine.command("sh");
    run.args(["-c", RUN, "run"]).arg(&files).arg(&image.root).arg(machine.folder.join("runc"));
    run.arg(&runtime_log).arg(&bundle).arg(id).stdout(out.try_clone()?).stderr(out);
    Ok(Running { machine: Arc::clone(machine), id: id.to_owned(), child: run.spawn()?, log, runtime_log })
}

fn profile() -> Result<Value, Refusal> {
    let text = std::fs::read(PROFILE).with_context(|| format!("{PROFILE}: what RuntimeDefault means"))?;
    Ok(serde_json::from_slice(&text).context(PROFILE)?)
}

impl Running {
    /// Sends a signal to its first process. One that has no handler for it does not end by it, as first processes do not.
    pub(super) fn signal(&self, signal: Signal) {
        let mut kill = self.machine.command("runc");
        kill.arg("--root").arg(self.machine.folder.join("runc")).args(["kill", &self.id]);
        kill.arg(signal.as_raw().to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        // One that has ended meanwhile needs none.
        let _ = kill.spawn();
    }

    /// Waits until it has ended.
    pub(super) async fn wait(&mut self) {
        let _ = self.child.wait().await;
    }

    /// How it ended, if it has. What it had is removed then.
    pub(super) fn exit(&mut self) -> Option<Exit> {
        let status = self.child.try_wait().ok().flatten()?;
        let is_out_of_memory = self.machine.groups.killed_for_memory(&self.id) > 0;
        let mut delete = self.machine.command("sh");
        delete.args(["-c", DELETE, "delete"]).arg(self.machine.folder.join("containers").join(&self.id));
        delete.arg(&self.id).arg(self.machine.folder.join("runc"));
        // What cannot be removed now goes with the machine.
        let _ = delete.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let said = std::fs::read_to_string(&self.runtime_log).unwrap_or_default();
        Some(Exit { code: code(status), is_out_of_memory, unstarted: failure(&said) })
    }
}

/// As a shell says it, because one is in between.
fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// What a runtime says of a container that it could not start.
fn failure(log: &str) -> Option<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = lines.filter(|line| line["level"] == "error");
    errors.next_back().and_then(|line| line["msg"].as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::failure;

    #[test]
    fn what_could_not_be_started_is_told_by_the_runtimes_last_error() {
        let log = "{\"level\":\"warning\",\"msg\":\"a\"}\n{\"level\":\"error\",\"msg\":\"no such file\"}\n";
        assert_eq!(failure(log).as_deref(), Some("no such file"));
        assert_eq!(failure("{\"level\":\"warning\",\"msg\":\"a\"}\n"), None);
    }
}
