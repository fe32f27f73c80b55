//! The life of one pod on its node: it starts, says how it is, and ends by itself, by its deletion, or with its node.

use super::annotations::{EXIT_CODE, REASON, START_SECONDS};
use super::container::{self, Refusal};
use super::content::{Content, End};
use super::hosts::Named;
use super::kubelet::{Run, Shared, locked, now};
use super::logs::Log;
use super::probe::get_page;
use super::process;
use super::secrets;
use super::spec::Place;
use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};
use shoal_operator::manifest::program_of;
use shoal_runtime::host::random::Random;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What a runtime says whose hook finds no driver, as on a node that is not set up yet.
const NO_DRIVER: &str = "failed to create containerd task: error running prestart hook #0: \
    nvidia-container-cli: initialization error: nvml error: driver not loaded";
/// How often a container is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// One pod, for as long as it is on its node.
struct Life {
    shared: Arc<Shared>,
    node: String,
    told: watch::Receiver<Pod>,
    ip: String,
    restarts: u32,
    is_ready: bool,
    /// The pod's network once it has one of its own.
    network: Option<PathBuf>,
    /// What keeps its secrets as they are in the cluster.
    secrets: JoinSet<()>,
}

/// Gives a pod its life. Returns when it is gone.
pub(super) async fn live(shared: Arc<Shared>, node: String, told: watch::Receiver<Pod>) {
    let pod = told.borrow().clone();
    if matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
    {
        return;
    }
    let ip = shared.address();
    let mut life =
        Life { shared, node, told, ip, restarts: 0, is_ready: false, network: None, secrets: JoinSet::new() };
    let key = pod.uid().unwrap_or_default();
    life.run(&pod).await;
    life.leave_network(&key).await;
    locked(&life.shared.named).remove(&key);
}

impl Life {
    async fn run(&mut self, pod: &Pod) {
        let image = container(pod).and_then(|one| one.image.clone()).unwrap_or_default();
        if !self.shared.settings.images.contains(&image) {
            let why = format!("image {image:?} is not there");
            return self.wait_in_vain(pod, &["ErrImagePull", "ImagePullBackOff"], &why).await;
        }
        loop {
            let started = self.start(pod).await;
            let end = match started {
                Err(Refusal::Start(why)) => End::unstarted(why),
                Err(Refusal::Config(why)) => {
                    return self.wait_in_vain(pod, &["CreateContainerConfigError"], &why).await;
                }
                Ok(mut running) => {
                    let has_probe = container(pod).is_some_and(|one| one.readiness_probe.is_some());
                    let is_ready = !has_probe || !running.is_real();
                    self.say_running(pod, is_ready).await;
                    match self.attend(pod, &mut running).await {
                        Some(end) => end,
                        // Its machine is lost: nobody says anything of it any more.
                        None => return,
                    }
                }
            };
            if self.deleted().is_none() && is_restarted(pod, end.exit_code) {
                self.restarts += 1;
                let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": end.message } });
                self.say(pod, "Running", &waiting, false).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
                continue;
            }
            if has_others(pod) && self.deleted().is_none() {
                self.say(pod, "Running", &end.state(), false).await;
                self.wait_until_deleted().await;
            }
            self.say_ended(pod, &end).await;
            return self.wait_for_deletion(pod).await;
        }
    }

    /// Kubelets try for ever.
    async fn wait_in_vain(&mut self, pod: &Pod, reasons: &[&str], why: &str) {
        for reason in reasons {
            let waiting = json!({ "waiting": { "reason": reason, "message": why } });
            self.say(pod, "Pending", &waiting, false).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.wait_for_deletion(pod).await;
    }

    async fn start(&mut self, pod: &Pod) -> Result<Content, Refusal> {
        if self.shared.is_broken(&self.node) {
            return Err(Refusal::Start(NO_DRIVER.to_owned()));
        }
        let starts = annotation(pod, START_SECONDS).and_then(|text| drawn(&text));
        if self.shared.settings.run == Run::Pretended {
            self.pull(starts.unwrap_or(Duration::from_millis(200))).await;
            return Ok(Content::Pretended {
                started: Instant::now(),
                stops: None,
                exit_code: annotation(pod, EXIT_CODE).and_then(|code| code.parse().ok()).unwrap_or(0),
                reason: annotation(pod, REASON),
            });
        }
        // An image comes once to a container that is started again.
        self.pull(starts.filter(|_| self.restarts == 0).unwrap_or_default()).await;
        let uid = pod.uid().unwrap_or_default();
        let folder = self.shared.folder.path().join(&uid);
        std::fs::create_dir_all(&folder)?;
        self.wait_for_secrets(pod, &folder).await?;
        let hosts = locked(&self.shared.hosts).path().to_owned();
        let shared = Arc::clone(&self.shared);
        let (content, log) = match &shared.machine {
            None => {
                let place =
                    Place { ip: &self.ip, hosts: &hosts, folder: &folder, path: &shared.settings.path };
                let (child, log) = process::start(pod, &place)?;
                (Content::Process { child, log: log.clone() }, log)
            }
            Some(machine) => {
                if self.network.is_none() {
                    self.network = Some(machine.join(&uid, &self.ip).await?);
                }
                let place = Place { ip: &self.ip, hosts: &hosts, folder: &folder, path: &[] };
                let (container, network) = (container(pod).context("a container")?, self.network.as_deref());
                let image = shared.images.get(container.image.as_deref().unwrap_or_default());
                let id = format!("{uid}-{}", self.restarts);
                let (image, network) = (image.context("an image")?, network.context("a network")?);
                let running = container::start(machine, image, pod, container, &place, network, &id)?;
                let log = running.log.clone();
                (Content::Container(running), log)
            }
        };
        locked(&shared.logs).insert(log_key(pod), Log { file: log, is_over: false });
        Ok(content)
    }

    /// As a kubelet does: the container is not made before all that it mounts is there.
    async fn wait_for_secrets(&mut self, pod: &Pod, folder: &Path) -> anyhow::Result<()> {
        let mut said = None;
        while let Some(missing) = secrets::write_all(&self.shared.client, pod, folder).await? {
            if self.deleted().is_some() {
                bail!("secret {missing} is not there");
            }
            if said.as_ref() != Some(&missing) {
                let why = format!("secret {missing} not found");
                let waiting = json!({ "waiting": { "reason": "ContainerCreating", "message": why } });
                self.say(pod, "Pending", &waiting, false).await;
                said = Some(missing);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.secrets = secrets::keep_all(&self.shared, pod, folder);
        Ok(())
    }

    async fn leave_network(&mut self, pod: &str) {
        if let (Some(machine), Some(_)) = (&self.shared.machine, self.network.take()) {
            // What stays of it goes with the machine.
            let _ = machine.leave(pod).await;
        }
    }

    /// Waits for an image that takes so long to come, unless the pod is deleted meanwhile.
    async fn pull(&mut self, takes: Duration) {
        let until = Instant::now() + takes;
        while self.deleted().is_none() {
            let changed = tokio::time::timeout_at(until, self.told.changed()).await;
            if changed.is_err() {
                return;
            }
        }
    }

    /// Until the container has ended; none if its machine is lost.
    async fn attend(&mut self, pod: &Pod, running: &mut Content) -> Option<End> {
        let probe = container(pod).and_then(|one| one.readiness_probe.clone()).filter(|_| running.is_real());
        let mut next_probe = Instant::now();
        let mut next_word = Instant::now() + Duration::from_secs(1);
        let mut killed_after = None;
        loop {
            if self.shared.is_dead(&self.node) {
                running.lose().await;
                return None;
            }
            let end = container(pod).and_then(|one| running.ended(&self.told.borrow(), one));
            if end.is_some() {
                return end;
            }
            // While a node is silent, the controller manager says for it that its pods are not ready.
            if self.deleted().is_none()
                && self.is_ready
                && !self.is_said_to_be_ready()
                && Instant::now() >= next_word
            {
                next_word = Instant::now() + Duration::from_secs(1);
                self.say_running(pod, true).await;
            }
            if let Some(grace) = self.deleted() {
                let now = Instant::now();
                let (told, until) = *killed_after.get_or_insert_with(|| {
                    running.signal(pod, Signal::TERM);
                    (grace, now + grace)
                });
                // Whoever deletes it once more may give it less time, and never more.
                let until = if grace < told { until.min(now + grace) } else { until };
                killed_after = Some((grace.min(told), until));
                if now >= until {
                    running.signal(pod, Signal::KILL);
                }
            } else if let Some(probe) = probe.as_ref().filter(|_| Instant::now() >= next_probe) {
                next_probe =
                    Instant::now() + Duration::from_secs(probe.period_seconds.unwrap_or(10).max(1) as u64);
                let is_ready = self.answers(probe).await;
                if is_ready != self.is_ready {
                    self.say_running(pod, is_ready).await;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How long a deleted pod may take; none for one that is not.
    fn deleted(&self) -> Option<Duration> {
        let pod = self.told.borrow();
        pod.metadata.deletion_timestamp.as_ref()?;
        Some(Duration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0).max(0) as u64))
    }

    fn is_said_to_be_ready(&self) -> bool {
        let pod = self.told.borrow();
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
    }

    async fn answers(&self, probe: &Probe) -> bool {
        let Some(get) = &probe.http_get else { return true };
        let asked = tokio::time::timeout(Duration::from_secs(1), get_page(&self.ip, get)).await;
        asked.is_ok_and(|answered| answered.is_ok_and(|code| (200..400).contains(&code)))
    }

    async fn say_running(&mut self, pod: &Pod, is_ready: bool) {
        self.is_ready = is_ready;
        self.say(pod, "Running", &json!({ "running": { "startedAt": now() } }), is_ready).await;
    }

    async fn say_ended(&mut self, pod: &Pod, end: &End) {
        if let Some(log) = locked(&self.shared.logs).get_mut(&log_key(pod)) {
            log.is_over = true;
        }
        let phase = if end.exit_code == 0 { "Succeeded" } else { "Failed" };
        self.say(pod, phase, &end.state(), false).await;
    }

    /// Writes the pod's status: of this pod, and of none that has its name later.
    async fn say(&self, pod: &Pod, phase: &str, state: &Value, is_ready: bool) {
        let Some(container) = container(pod) else { return };
        let condition = |type_: &str, is: bool| json!({ "type": type_, "status": if is { "True" } else { "False" }, "lastTransitionTime": now() });
        let of_others = match phase {
            "Running" => json!({ "running": { "startedAt": now() } }),
            "Pending" => json!({ "waiting": { "reason": "ContainerCreating" } }),
            _ => json!({ "terminated": { "exitCode": 0, "reason": "Completed", "finishedAt": now() } }),
        };
        let all = pod.spec.iter().flat_map(|spec| &spec.containers).map(|one| {
            let state = if one.name == container.name { state } else { &of_others };
            json!({
                "name": one.name, "image": one.image, "imageID": "", "ready": is_ready,
                "restartCount": self.restarts, "state": state,
            })
        });
        let all: Vec<Value> = all.collect();
        let status = json!({
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": self.ip,
            "podIPs": [{ "ip": self.ip }],
            "startTime": pod.status.as_ref().and_then(|status| status.start_time.clone()).map_or_else(|| json!(now()), |at| json!(at)),
            "conditions": [
                condition("Initialized", true), condition("Ready", is_ready),
                condition("ContainersReady", is_ready), condition("PodScheduled", true),
            ],
            "containerStatuses": all,
        });
        let patch = json!({ "metadata": { "uid": pod.uid() }, "status": status });
        let named = Named {
            name: pod.name_any(),
            namespace: pod.namespace().unwrap_or_default(),
            labels: pod.labels().clone(),
            ip: self.ip.clone(),
            is_ready,
        };
        locked(&self.shared.named).insert(pod.uid().unwrap_or_default(), named);
        // An API server that is away for a while is told later; one that knows no such pod, never.
        for _ in 0..600 {
            let said = self
                .pods(pod)
                .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&patch))
                .await;
            match said {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
                Ok(_) => return,
            }
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.shared.client.clone(), &pod.namespace().unwrap_or_default())
    }

    /// Until somebody has told it to end, or it is gone.
    async fn wait_until_deleted(&mut self) {
        while self.deleted().is_none() && self.told.changed().await.is_ok() {}
    }

    /// What has ended stays until somebody deletes it; then its object goes.
    async fn wait_for_deletion(&mut self, pod: &Pod) {
        self.wait_until_deleted().await;
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let how = DeleteParams::default().grace_period(0).preconditions(preconditions);
        while !self.shared.is_dead(&self.node) {
            match self.pods(pod).delete(&pod.name_any(), &how).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
                Ok(_) => return,
            }
        }
    }
}

/// The container that a pod is about. Others beside it run from when it does until the pod is deleted, and do nothing.
fn container(pod: &Pod) -> Option<&Container> {
    let name = program_of(pod)?;
    pod.spec.as_ref()?.containers.iter().find(|one| one.name == name)
}

fn has_others(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.containers.len() > 1)
}

/// As the API server asks for it.
fn log_key(pod: &Pod) -> String {
    let container = container(pod).map(|one| one.name.clone()).unwrap_or_default();
    format!("{}/{}/{container}", pod.namespace().unwrap_or_default(), pod.name_any())
}

pub(super) fn annotation(pod: &Pod, name: &str) -> Option<String> {
    pod.metadata.annotations.as_ref()?.get(name).cloned()
}

fn is_restarted(pod: &Pod, exit_code: i32) -> bool {
    match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => exit_code != 0,
        _ => true,
    }
}

/// A time between the least and the most that a text names, or just the one.
fn drawn(text: &str) -> Option<Duration> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most): (f64, f64) = (least.parse().ok()?, most.parse().ok()?);
    let place = Random::from_os().below(1 << 20) as f64 / (1 << 20) as f64;
    Some(Duration::from_secs_f64(least + (most - least) * place))
}
