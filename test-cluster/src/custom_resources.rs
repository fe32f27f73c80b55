//! A server for custom resources alone, of a newer Kubernetes than the control plane: schemas with their rules, scale, tables. There are no
//! pods, no namespaces and no admission in it, and kubectl, which asks for those, cannot speak with it. Made by `.ci/custom-resource-server`.

use super::servers::{Servers, free_port};
use anyhow::{Context, ensure};
use http::{Request, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The name of the server's program.
const SERVER: &str = "custom-resource-server";
/// Where definitions are.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// What needs an API server beside it, for namespaces, webhooks and policies.
const WITHOUT: &str = "NamespaceLifecycle,MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook";

/// A running server, with an etcd of its own. Both end with it.
pub struct CustomResources {
    servers: Servers,
    client: Client,
}

/// What the server said to one call.
#[derive(Debug)]
pub struct Answer {
    /// The status of HTTP.
    pub code: u16,
    /// The warnings that kubectl would print.
    pub warnings: Vec<String>,
    /// The object, or the status that says what is wrong.
    pub body: Value,
}

impl Answer {
    /// What is wrong, if anything is.
    pub fn message(&self) -> &str {
        if self.code < 300 { "" } else { self.body["message"].as_str().unwrap_or_default() }
    }
}

fn programs() -> (PathBuf, PathBuf) {
    let folder = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_default());
    (folder("SHOAL_CUSTOM_RESOURCES"), folder("KUBEBUILDER_ASSETS"))
}

impl CustomResources {
    /// Why there can be none here; none if there can.
    pub fn missing() -> Option<String> {
        let (server, etcd) = programs();
        if !server.join(SERVER).is_file() {
            return Some(format!(
                "SHOAL_CUSTOM_RESOURCES names no folder with {SERVER}: bash .ci/custom-resource-server makes one"
            ));
        }
        let has_etcd = etcd.join("etcd").is_file();
        let how = "KUBEBUILDER_ASSETS names no folder with etcd: bash .ci/control-plane makes one";
        (!has_etcd).then(|| how.to_owned())
    }

    /// Starts one, and waits until it is ready.
    ///
    /// # Errors
    /// A program is missing, ended or was never ready, with its last words.
    pub async fn start() -> anyhow::Result<CustomResources> {
        let (programs, etcd) = programs();
        let mut servers = Servers::new()?;
        let etcd = servers.start_etcd(&etcd)?;
        let port = free_port()?;
        let address = format!("https://127.0.0.1:{port}");
        write_certificates(&servers)?;
        // The server insists on a cluster that it is a part of, and never calls it.
        let nowhere = config("https://127.0.0.1:1", &servers);
        std::fs::write(servers.file("nowhere"), nowhere.to_string())?;
        let nowhere = servers.path("nowhere");
        let [authority, certificate, key] =
            ["ca.pem", "server.pem", "server.key"].map(|name| servers.path(name));
        servers.start(
            &programs,
            SERVER,
            &[
                "--etcd-servers",
                &etcd,
                "--bind-address=127.0.0.1",
                &format!("--secure-port={port}"),
                &format!("--tls-cert-file={certificate}"),
                &format!("--tls-private-key-file={key}"),
                &format!("--client-ca-file={authority}"),
                "--authentication-skip-lookup",
                &format!("--kubeconfig={nowhere}"),
                &format!("--authentication-kubeconfig={nowhere}"),
                &format!("--authorization-kubeconfig={nowhere}"),
                &format!("--disable-admission-plugins={WITHOUT}"),
            ],
        )?;
        let config: Kubeconfig = serde_json::from_value(config(&address, &servers))?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        // Its informers of the other cluster never are in step, so that `readyz` never says that it is ready.
        let is_there = async || {
            let answer = ask(&client, "GET", DEFINITIONS, "application/json", None).await?;
            ensure!(answer.code == 200, "{answer:?}");
            Ok(())
        };
        servers.wait_for("the server of custom resources", is_there).await?;
        Ok(CustomResources { servers, client })
    }

    /// Installs a definition, and waits until it is served. The answer is that to the call that installs it.
    ///
    /// # Errors
    /// It was not taken, or not established in time: the message has its conditions.
    pub async fn install(&mut self, definition: &Value) -> anyhow::Result<Answer> {
        let strictly = format!("{DEFINITIONS}?fieldValidation=Strict");
        let answer = self.ask("POST", &strictly, Some(definition)).await?;
        ensure!(answer.code == 201, "{}", answer.message());
        let name = definition["metadata"]["name"].as_str().context("a definition without a name")?;
        let (client, path) = (&self.client, format!("{DEFINITIONS}/{name}"));
        let is_established = async || {
            let now = ask(client, "GET", &path, "application/json", None).await?.body;
            let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_true = |one: &Value| one["type"] == "Established" && one["status"] == "True";
            ensure!(conditions.iter().any(is_true), "{conditions:?}");
            // Established is said a moment before it is served.
            let versions = now["spec"]["versions"][0]["name"].as_str().unwrap_or_default();
            let group = now["spec"]["group"].as_str().unwrap_or_default();
            let plural = now["spec"]["names"]["plural"].as_str().unwrap_or_default();
            let list = format!("/apis/{group}/{versions}/{plural}");
            let served = ask(client, "GET", &list, "application/json", None).await?;
            ensure!(served.code == 200, "{served:?}");
            Ok(())
        };
        self.servers.wait_for(&format!("the definition {name}"), is_established).await?;
        Ok(answer)
    }

    /// One call, with JSON.
    ///
    /// # Errors
    /// No answer, or one that is no JSON. What the server refuses is an answer.
    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        ask(&self.client, method, path, "application/json", body).await
    }

    /// What `kubectl get` prints of that path: a table.
    ///
    /// # Errors
    /// As [`CustomResources::ask`].
    pub async fn table(&self, path: &str) -> anyhow::Result<Answer> {
        ask(&self.client, "GET", path, "application/json;as=Table;v=v1;g=meta.k8s.io", None).await
    }
}

async fn ask(
    client: &Client,
    method: &str,
    path: &str,
    accept: &str,
    body: Option<&Value>,
) -> anyhow::Result<Answer> {
    let patch = "application/merge-patch+json";
    let kind = if method == "PATCH" { patch } else { "application/json" };
    let content = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path);
    let request = request.header(header::ACCEPT, accept).header(header::CONTENT_TYPE, kind);
    let response = client.send(request.body(Body::from(content))?).await?;
    let warnings = response.headers().get_all(header::WARNING).iter();
    let warnings = warnings.map(|one| String::from_utf8_lossy(one.as_bytes()).into_owned()).collect();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await?.to_bytes();
    let body = serde_json::from_slice(&bytes)
        .with_context(|| format!("{method} {path}: {code}: {}", String::from_utf8_lossy(&bytes)))?;
    Ok(Answer { code, warnings, body })
}

/// What a client needs to call that address as an administrator.
fn config(address: &str, servers: &Servers) -> Value {
    let path = |name: &str| servers.path(name);
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": { "server": address, "certificate-authority": path("ca.pem") } }],
        "users": [{ "name": "admin", "user": { "client-certificate": path("admin.pem"), "client-key": path("admin.key") } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "admin" } }],
    })
}

/// An authority, and what it signs: the server's certificate and the administrator's.
fn write_certificates(servers: &Servers) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(servers.file("ca.pem"), authority.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(authority, key);
    let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut admin = CertificateParams::default();
    admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
    admin.distinguished_name.push(DnType::CommonName, "admin");
    admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    for (name, parameters) in [("server", server), ("admin", admin)] {
        let key = KeyPair::generate()?;
        std::fs::write(servers.file(&format!("{name}.pem")), parameters.signed_by(&key, &issuer)?.pem())?;
        std::fs::write(servers.file(&format!("{name}.key")), key.serialize_pem())?;
    }
    Ok(())
}
