//! An API server that misbehaves on demand: a reverse proxy on loopback, without TLS, that counts what goes through it.
//! It must never change a request that it lets through.

mod call;
mod serve;

pub use call::Call;

use anyhow::Context;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a request is answered with instead of being passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The `reason` of the Kubernetes status in the body.
    pub reason: &'static str,
    /// Seconds of a `Retry-After`.
    pub retry_after: Option<u32>,
    /// Only requests of this verb and resource, where given; others go through.
    pub only: Option<Call>,
    /// Only requests for the object of this name, where given.
    pub name: Option<String>,
    /// Whether there is no answer at all, for as long as the caller waits: the code is not used then.
    pub is_silent: bool,
}

impl Refusal {
    /// Of every request, with a status as the API server words it: 410, 429 (which asks for a second), 500, 503.
    pub fn of(code: u16) -> Refusal {
        let reason = match code {
            410 => "Expired",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            _ => "InternalError",
        };
        Refusal {
            code,
            reason,
            retry_after: (code == 429).then_some(1),
            only: None,
            name: None,
            is_silent: false,
        }
    }

    /// Of every request, by silence: it is taken and never answered.
    pub fn silence() -> Refusal {
        Refusal { is_silent: true, ..Refusal::of(503) }
    }

    /// The same for one object alone.
    pub fn named(mut self, name: &str) -> Refusal {
        self.name = Some(name.to_owned());
        self
    }

    /// The same of one kind of request alone.
    pub fn only(mut self, verb: &str, resource: &str) -> Refusal {
        self.only = Some(Call { verb: verb.to_owned(), resource: resource.to_owned() });
        self
    }
}

/// How open watches end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The connection breaks, without a word.
    Silent,
    /// With the event by which the server says that the version is too old: the client has to list again.
    Expired,
}

#[derive(Debug, Default)]
struct State {
    refusals: Vec<Refusal>,
    counts: BTreeMap<Call, u64>,
    refused: u64,
}

/// What the proxy's tasks share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    cuts: watch::Sender<Option<Cut>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The proxy; it ends when dropped.
#[derive(Debug)]
pub struct Faults {
    shared: Arc<Shared>,
    folder: TempDir,
    task: JoinHandle<()>,
}

impl Faults {
    /// A proxy before the API server that this kubeconfig names, with that one's user.
    ///
    /// # Errors
    /// No such kubeconfig, no free port.
    pub async fn start(kubeconfig: &Path) -> anyhow::Result<Faults> {
        let read = Kubeconfig::read_from(kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        // What the server refuses is the caller's affair.
        config.default_retry = false;
        let client = kube::Client::try_from(config)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
        let port = listener.local_addr()?.port();
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("kubeconfig"), plain_kubeconfig(port))?;
        let shared = Arc::new(Shared { state: Mutex::default(), cuts: watch::channel(None).0 });
        let task = tokio::spawn(serve::serve(listener, client, Arc::clone(&shared)));
        Ok(Faults { shared, folder, task })
    }

    /// A kubeconfig that leads here.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// From now on answers so instead of passing on. The first refusal that fits a request is taken.
    pub fn refuse(&self, refusal: Refusal) {
        self.shared.state().refusals.push(refusal);
    }

    /// From now on passes everything on.
    pub fn pass(&self) {
        self.shared.state().refusals.clear();
    }

    /// Ends the watches that are open now.
    pub fn cut_watches(&self, how: Cut) {
        self.shared.cuts.send_replace(Some(how));
    }

    /// How many requests there were by kind, those refused here included.
    pub fn counts(&self) -> BTreeMap<Call, u64> {
        self.shared.state().counts.clone()
    }

    /// How many of them were refused here.
    pub fn refused(&self) -> u64 {
        self.shared.state().refused
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A kubeconfig that leads to a server of this machine which asks nobody who they are.
pub fn plain_kubeconfig(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: plain\n\
         clusters: [{{name: plain, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
         users: [{{name: nobody, user: {{}}}}]\n\
         contexts: [{{name: plain, context: {{cluster: plain, user: nobody, namespace: default}}}}]\n"
    )
}
