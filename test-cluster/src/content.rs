//! What a pod's container is here: a process, a container of an image, or nothing that seems to run. How each is told to end, and
//! how it has ended.

use super::annotations::{ENFORCE_MEMORY, RUN_SECONDS, STOP_SECONDS};
use super::container::{Exit, Running};
use super::kubelet::now;
use super::pod::annotation;
use k8s_openapi::api::core::v1::{Container, Pod};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Child;
use tokio::time::Instant;

/// Of a log, so much is a container's message.
const MESSAGE_BYTES_MAX: usize = 2048;
/// How long a pretended pod takes to end that says nothing of it, and one that is killed.
const STOP: Duration = Duration::from_millis(200);

/// What runs, or seems to.
pub(super) enum Content {
    Process { child: Child, log: PathBuf },
    Container(Running),
    Pretended { started: Instant, stops: Option<Instant>, exit_code: i32, reason: Option<String> },
}

/// How a container ended.
pub(super) struct End {
    pub(super) exit_code: i32,
    pub(super) reason: String,
    pub(super) message: String,
}

impl End {
    /// Of one that never ran.
    pub(super) fn unstarted(why: String) -> End {
        End { exit_code: 128, reason: "StartError".to_owned(), message: why }
    }

    /// The state of the container from now on.
    pub(super) fn state(&self) -> Value {
        let End { exit_code, reason, message } = self;
        json!({ "terminated": { "exitCode": exit_code, "reason": reason, "message": message, "finishedAt": now() } })
    }
}

impl Content {
    /// Whether there is something that answers probes and has a log.
    pub(super) fn is_real(&self) -> bool {
        !matches!(self, Content::Pretended { .. })
    }

    /// Tells it to end.
    pub(super) fn signal(&mut self, pod: &Pod, signal: Signal) {
        match self {
            Content::Process { child, .. } => {
                let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
                if let Some(pid) = pid {
                    let _ = kill_process(pid, signal);
                }
            }
            Content::Container(running) => running.signal(signal),
            Content::Pretended { stops, exit_code, .. } => {
                let takes =
                    if signal == Signal::KILL { STOP } else { seconds(pod, STOP_SECONDS).unwrap_or(STOP) };
                let then = Instant::now() + takes;
                *stops = Some(stops.map_or(then, |earlier| earlier.min(then)));
                *exit_code = 143;
            }
        }
    }

    /// Ends it with its machine, which tells nobody of it.
    pub(super) async fn lose(&mut self) {
        match self {
            Content::Process { child, .. } => drop(child.kill().await),
            Content::Container(running) => {
                running.signal(Signal::KILL);
                running.wait().await;
                drop(running.exit());
            }
            Content::Pretended { .. } => {}
        }
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self, pod: &Pod, container: &Container) -> Option<End> {
        match self {
            Content::Pretended { started, stops, exit_code, reason } => {
                let runs_until = seconds(pod, RUN_SECONDS).map(|runs| *started + runs);
                runs_until.into_iter().chain(*stops).find(|end| Instant::now() >= *end)?;
                let reason = reason.clone().unwrap_or_else(|| plain(*exit_code).to_owned());
                Some(End { exit_code: *exit_code, reason, message: String::new() })
            }
            Content::Process { child, log } => {
                let status = child.try_wait().ok().flatten()?;
                let message = last_words(log);
                // Rust's allocator says so before it ends a process that may have no more.
                let is_short = status.signal() == Some(Signal::ABORT.as_raw())
                    && message.contains("memory allocation of");
                let exit_code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                let is_killed = is_short && annotation(pod, ENFORCE_MEMORY).is_some();
                Some(if is_killed { said(137, true, message) } else { said(exit_code, false, message) })
            }
            Content::Container(running) => {
                let Exit { code, is_out_of_memory, unstarted } = running.exit()?;
                if let Some(why) = unstarted {
                    return Some(End::unstarted(why));
                }
                let is_kept =
                    container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
                let message = if is_kept { last_words(&running.log) } else { String::new() };
                Some(said(code, is_out_of_memory, message))
            }
        }
    }
}

fn said(exit_code: i32, is_out_of_memory: bool, message: String) -> End {
    let reason = if is_out_of_memory { "OOMKilled" } else { plain(exit_code) };
    let message = if exit_code == 0 { String::new() } else { message };
    End { exit_code, reason: reason.to_owned(), message }
}

fn plain(exit_code: i32) -> &'static str {
    if exit_code == 0 { "Completed" } else { "Error" }
}

/// The end of a log.
fn last_words(log: &Path) -> String {
    let said = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&said[said.len().saturating_sub(MESSAGE_BYTES_MAX)..]).into_owned()
}

fn seconds(pod: &Pod, name: &str) -> Option<Duration> {
    annotation(pod, name).and_then(|text| text.parse().ok()).map(Duration::from_secs_f64)
}
