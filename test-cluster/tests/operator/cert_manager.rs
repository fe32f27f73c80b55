//! Certificates by cert-manager, which cannot run here: the test stands in for it, with resources of its names and an authority, and does
//! what it is asked for. Without a control plane the test says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.

use crate::world::World;
use k8s_openapi::ByteString;
use rcgen::{CertificateSigningRequestParams, Issuer, KeyPair};
use serde_json::{Value, json};
use shoal_runtime::host::authority::Authority;
use shoal_runtime::host::clock::wall_seconds;
use shoal_runtime::host::rpc::tls::{Identity, PemSet, Validity};
use shoal_test_cluster::Run;
use std::path::Path;

/// A resource of cert-manager's, as far as it is asked for.
fn definition(plural: &str, kind: &str) -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": any, "status": any } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.cert-manager.io") },
        "spec": {
            "group": "cert-manager.io", "scope": "Namespaced", "names": { "kind": kind, "plural": plural },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

fn items(world: &World, what: &str) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&world.kubectl(&["get", what, "-o", "json"])).unwrap();
    listed["items"].as_array().unwrap().clone()
}

/// Writes what an object of cert-manager's says of itself.
fn say(world: &World, plural: &str, mut object: Value, status: Value) {
    object["status"] = status;
    let name = object["metadata"]["name"].as_str().unwrap();
    let path = format!("/apis/cert-manager.io/v1/namespaces/default/{plural}/{name}/status");
    let file = world.path("answered.json");
    std::fs::write(&file, object.to_string()).unwrap();
    world.kubectl(&["replace", "--raw", &path, "-f", &file.to_string_lossy()]);
}

/// cert-manager, once: secrets for certificates that have none, and answers to requests that have none.
fn attend(world: &World, pem: &PemSet) {
    let authority = Authority::of(pem).unwrap();
    for asked in items(world, "certificates.cert-manager.io") {
        if !asked["status"].is_null() {
            continue;
        }
        let name = asked["spec"]["secretName"].as_str().unwrap();
        let identity = Identity::of_uri(asked["spec"]["uris"][0].as_str().unwrap()).unwrap();
        let of_role = format!("managed-{}", identity.role);
        assert!(!world.pods().iter().any(|pod| pod.starts_with(&of_role)), "no pod comes before its secret");
        let issued = authority.issue(&identity, Validity::lasting(wall_seconds(), 3600)).unwrap();
        let PemSet { authorities, certificate, key } = issued.pem();
        world.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "type": "kubernetes.io/tls",
            "stringData": { "ca.crt": authorities, "tls.crt": certificate, "tls.key": key },
        }));
        let ready = json!({ "type": "Ready", "status": "True", "observedGeneration": asked["metadata"]["generation"] });
        say(world, "certificates", asked, json!({ "conditions": [ready] }));
    }
    for asked in items(world, "certificaterequests.cert-manager.io") {
        if !asked["status"].is_null() {
            continue;
        }
        let request: ByteString = serde_json::from_value(asked["spec"]["request"].clone()).unwrap();
        let request = String::from_utf8(request.0).unwrap();
        assert!(!request.contains("PRIVATE KEY"));
        let mut request = CertificateSigningRequestParams::from_pem(&request).unwrap();
        (request.params.not_before, request.params.not_after) =
            (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2100, 1, 1));
        let key = KeyPair::from_pem(&pem.key).unwrap();
        let signed = request.signed_by(&Issuer::from_ca_cert_pem(&pem.certificate, key).unwrap()).unwrap();
        let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let status = json!({ "certificate": bytes(&signed.pem()), "ca": bytes(&pem.certificate) });
        say(world, "certificaterequests", asked, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_trains_by_certificates_of_cert_manager_and_the_operator_is_believed_by_a_request_of_its_own() {
    let issuer = &["--issuer", "ClusterIssuer/internal"];
    let Some(world) = World::start_with(3, Run::Processes, issuer).await else { return };
    let job = crate::tls::digits(&world, "managed", 6, json!({}));
    world.apply(&job);
    let said =
        async |world: &World| world.job("managed")["status"]["message"].to_string().contains("--issuer");
    world.wait_for("without cert-manager the job says what is missing", said).await;
    for (plural, kind) in [("certificates", "Certificate"), ("certificaterequests", "CertificateRequest")] {
        world.apply(&definition(plural, kind));
    }
    let rights = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/cert-manager.yaml");
    world.kubectl(&["apply", "-f", &rights.to_string_lossy()]);
    // Not by `kubectl wait`: 1.20 takes a definition whose conditions are still null for an error.
    let is_true = |one: &Value| one["type"] == "Established" && one["status"] == "True";
    let is_established =
        |one: Value| one["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_true));
    let are_established = async |world: &World| items(world, "crd").into_iter().all(is_established);
    world.wait_for("the definitions are established", are_established).await;
    let pem = Authority::generate(Validity::lasting(wall_seconds(), 86_400)).unwrap();
    let is_seen = async |world: &World| {
        attend(world, &pem);
        world.job("managed")["status"]["progress"]["step"].as_u64() > Some(0)
    };
    world.wait_for("progress is seen", is_seen).await;
    let names: Vec<String> = items(&world, "certificates.cert-manager.io")
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        names,
        ["managed-client-tls", "managed-master-tls", "managed-pserver-tls", "managed-trainer-tls"]
    );
    let own =
        ["get", "secret", "shoal-authority", "--namespace=shoal-system", "--ignore-not-found", "-o", "name"];
    assert_eq!(world.kubectl(&own), "", "the operator needs no authority of its own");
    assert_eq!(
        items(&world, "certificaterequests.cert-manager.io"),
        [json!(null); 0],
        "what is answered is removed"
    );
    world.wait_for_condition("managed", "Succeeded").await;
    assert_eq!(world.trained("checkpoints-managed"), world.undisturbed(&job));
    world.kubectl(&["delete", "trainingjob", "managed"]);
    let is_gone = async |world: &World| items(world, "certificates.cert-manager.io").is_empty();
    world.wait_for("what was asked for goes with the job", is_gone).await;
}
