//! etcd, API server, controller manager and scheduler as child processes, each test with its own. Found by the field's
//! convention `KUBEBUILDER_ASSETS`: a folder with kube-apiserver, kube-controller-manager, kube-scheduler, etcd and kubectl.

use super::servers::{Servers, free_port};
use anyhow::{Context, bail, ensure};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the folder must have.
const PROGRAMS: [&str; 5] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd", "kubectl"];
/// The administrator's token.
const TOKEN: &str = "admin-token";

/// A running control plane. Its processes end with it.
pub struct ControlPlane {
    servers: Servers,
    programs: PathBuf,
    port: u16,
    etcd: String,
}

/// Why there can be no control plane here; none if there can.
pub fn missing() -> Option<String> {
    let how = "bash .ci/control-plane makes one, and says what to set";
    let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
        return Some(format!("KUBEBUILDER_ASSETS names no folder with a Kubernetes control plane: {how}"));
    };
    let lacks = PROGRAMS.iter().find(|program| !folder.join(program).is_file());
    lacks.map(|program| format!("KUBEBUILDER_ASSETS: {} is missing: {how}", folder.join(program).display()))
}

impl ControlPlane {
    /// Starts one. `definitions` are applied before the controller manager starts: what is defined later it learns of after
    /// up to 30 s only.
    pub async fn start(definitions: &Path) -> anyhow::Result<ControlPlane> {
        if let Some(why) = missing() {
            bail!("{why}");
        }
        let programs = PathBuf::from(std::env::var_os("KUBEBUILDER_ASSETS").unwrap_or_default());
        let mut servers = Servers::new()?;
        let etcd = servers.start_etcd(&programs)?;
        let mut plane = ControlPlane { servers, programs, port: free_port()?, etcd };
        plane.write_credentials()?;
        plane.start_api_server().await?;
        plane.kubectl(&["apply", "--validate=false", "-f", &definitions.to_string_lossy()])?;
        // Asked again where kubectl 1.20 takes a definition whose conditions are still null for an error.
        let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        plane.wait_for("the definitions", &established).await?;
        plane.start_controllers()?;
        let account = ["get", "serviceaccount", "default", "--namespace", "default"];
        plane.wait_for("the default service account", &account).await?;
        Ok(plane)
    }

    /// Installs what a folder of manifests says, as a platform engineer does. There are no images of operators here: they are
    /// run beside it.
    pub fn install(&self, deploy: &Path) -> anyhow::Result<()> {
        self.kubectl(&["apply", "--validate=false", "-k", &deploy.to_string_lossy()])?;
        self.kubectl(&["scale", "deployment", "--all", "--namespace=shoal-system", "--replicas=0"]).map(drop)
    }

    /// A file that kubectl and every client take.
    pub fn kubeconfig(&self) -> PathBuf {
        self.servers.file("kubeconfig")
    }

    /// The same for whoever has the rights of `user`, and no others.
    pub fn kubeconfig_as(&self, user: &str) -> anyhow::Result<PathBuf> {
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(self.kubeconfig())?)?;
        config["users"][0]["user"]["as"] = user.into();
        // Service accounts are in groups, without which they may not even ask which APIs there are.
        let groups = ["system:serviceaccounts", "system:authenticated"];
        config["users"][0]["user"]["as-groups"] = groups.to_vec().into();
        let file = self.servers.file(&format!("kubeconfig-{}", user.replace(':', "-")));
        std::fs::write(&file, config.to_string())?;
        Ok(file)
    }

    /// A client with all rights.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let read = Kubeconfig::read_from(self.kubeconfig())?;
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// What kubectl prints.
    ///
    /// # Errors
    /// It failed; the message has what it said.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        kubectl(&self.programs, &self.kubeconfig(), arguments)
    }

    /// Applies what is written in a manifest.
    pub fn apply(&self, manifest: &str) -> anyhow::Result<String> {
        let file = self.servers.file("manifest.yaml");
        std::fs::write(&file, manifest)?;
        self.kubectl(&["apply", "-f", &file.to_string_lossy()])
    }

    fn write_credentials(&self) -> anyhow::Result<()> {
        let key = rcgen::KeyPair::generate()?;
        std::fs::write(self.servers.path("sa.key"), key.serialize_pem())?;
        std::fs::write(self.servers.path("sa.pub"), key.public_key_pem())?;
        std::fs::write(self.servers.path("tokens.csv"), format!("{TOKEN},admin,admin,\"system:masters\"\n"))?;
        let server = format!("https://127.0.0.1:{}", self.port);
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
            "users": [{ "name": "admin", "user": { "token": TOKEN } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "admin", "namespace": "default" } }],
        });
        std::fs::write(self.kubeconfig(), config.to_string())?;
        Ok(())
    }

    /// Starts the API server, at first or after [`ControlPlane::stop_api_server`].
    pub async fn start_api_server(&mut self) -> anyhow::Result<()> {
        let (etcd, port) = (self.etcd.clone(), self.port.to_string());
        let [certificates, tokens, key, public] =
            ["certificates", "tokens.csv", "sa.key", "sa.pub"].map(|name| self.servers.path(name));
        self.servers.start(
            &self.programs,
            "kube-apiserver",
            &[
                "--etcd-servers",
                &etcd,
                "--bind-address",
                "127.0.0.1",
                "--advertise-address",
                "127.0.0.1",
                "--secure-port",
                &port,
                "--cert-dir",
                &certificates,
                "--token-auth-file",
                &tokens,
                "--authorization-mode",
                "RBAC",
                "--service-cluster-ip-range",
                "10.0.0.0/24",
                "--service-account-issuer",
                "https://kubernetes.default.svc",
                "--service-account-key-file",
                &public,
                "--service-account-signing-key-file",
                &key,
                "--allow-privileged=true",
                "--default-not-ready-toleration-seconds",
                "5",
                "--default-unreachable-toleration-seconds",
                "5",
                "--endpoint-reconciler-type",
                "none",
            ],
        )?;
        self.wait_for("the API server", &["get", "--raw", "/readyz"]).await
    }

    /// Ends the API server, as an upgrade or a fault would.
    pub fn stop_api_server(&mut self) {
        self.servers.end("kube-apiserver");
    }

    fn start_controllers(&mut self) -> anyhow::Result<()> {
        let (config, key) = (self.kubeconfig().display().to_string(), self.servers.path("sa.key"));
        let certificates = self.servers.path("certificates");
        // Up to 1.23 there was a port without TLS, open unless it is closed.
        let is_old = self.minor_version()? < 24;
        let plain: &[&str] = if is_old { &["--port=0"] } else { &[] };
        let all = [
            "--kubeconfig",
            &config,
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            "0",
            "--leader-elect=false",
            "--kube-api-qps",
            "500",
            "--kube-api-burst",
            "1000",
        ];
        let nodes = [
            "--cert-dir",
            &certificates,
            "--service-account-private-key-file",
            &key,
            // A node that is silent for 6 s is taken for lost.
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=6s",
            "--node-startup-grace-period=6s",
            // What a pod uses counts from when it is ready, for pods here need no warming up.
            "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
            "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
        ];
        self.servers.start(
            &self.programs,
            "kube-controller-manager",
            &[&all[..], &nodes[..], plain].concat(),
        )?;
        self.servers.start(&self.programs, "kube-scheduler", &[&all[..], plain].concat())
    }

    /// 20 of v1.20.2.
    fn minor_version(&self) -> anyhow::Result<u32> {
        let output = Command::new(self.programs.join("kube-apiserver")).arg("--version").output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let minor = said.split('.').nth(1).and_then(|minor| minor.parse().ok());
        minor.with_context(|| format!("kube-apiserver --version said {said:?}"))
    }

    /// Waits until kubectl does what it is asked to.
    async fn wait_for(&mut self, what: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let (programs, config) = (self.programs.clone(), self.kubeconfig());
        self.servers.wait_for(what, async || kubectl(&programs, &config, arguments).map(drop)).await
    }
}

fn kubectl(programs: &Path, config: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut kubectl = Command::new(programs.join("kubectl"));
    let output = kubectl.arg("--kubeconfig").arg(config).args(arguments).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
