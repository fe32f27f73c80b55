//! What pods become of templates. Tests only.

use super::*;
use crate::decide::{Avoids, PodPlan, Role};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

fn job(more: Value) -> TrainingJob {
    let mut spec = json!({
        "data": ["/data/*.recordio"], "epochs": 3, "checkpoint": { "place": "/shared/digits" },
        "priorityClassName": "important",
        "trainer": { "minReplicas": 1, "template": {
            "metadata": { "labels": { "team": "a", "shoal.dev/job": "other" } },
            "spec": { "containers": [
                { "name": "sidecar", "image": "s" },
                { "name": "trainer", "image": "digits", "command": ["/digits"],
                  "env": [{ "name": "SHOAL_JOB", "value": "theirs" }, { "name": "RATE", "value": "1" }] },
            ] },
        } },
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
    let mut job = TrainingJob::new("digits", serde_json::from_value(spec).unwrap());
    job.metadata.namespace = Some("ns".to_owned());
    job.metadata.uid = Some("0a1b2c3d-0000-0000-0000-000000000000".to_owned());
    job
}

fn defaults() -> Defaults {
    Defaults {
        master_image: "m".to_owned(),
        pserver_image: "p".to_owned(),
        elastic_class: Some("shoal-elastic".to_owned()),
        namespace: "operators".to_owned(),
        store: None,
        store_secret: None,
    }
}

fn plan(role: Role, ordinal: u32) -> PodPlan {
    PodPlan {
        role,
        ordinal,
        is_elastic: false,
        resources: None,
        memory: None,
        pservers: 2,
        trainers: 3,
        avoids: Avoids::default(),
    }
}

fn made(job: &TrainingJob, plan: &PodPlan) -> Value {
    json!(pod(job, &defaults(), plan).unwrap())
}

#[test]
fn a_trainer_is_the_authors_container_with_the_jobs_names_in_its_environment() {
    let pod = made(&job(json!({})), &plan(Role::Trainer, 4));
    assert_eq!(pod["metadata"]["name"], "digits-trainer-4");
    assert_eq!(pod["metadata"]["labels"]["team"], "a");
    assert_eq!(pod["metadata"]["labels"]["shoal.dev/job"], "digits");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "0a1b2c3d-0000-0000-0000-000000000000");
    let containers = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    let program = containers.iter().find(|one| one["name"] == "trainer").unwrap();
    assert_eq!((&program["image"], &program["command"]), (&json!("digits"), &json!(["/digits"])));
    let value = |name: &str| {
        let env = program["env"].as_array().unwrap();
        assert_eq!(env.iter().filter(|one| one["name"] == name).count(), 1, "{name}");
        env.iter().find(|one| one["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!(value("SHOAL_JOB"), "digits-0a1b2c3d");
    assert_eq!(value("SHOAL_MASTER"), "digits-master.ns.svc:7400");
    assert_eq!(value("SHOAL_TRAINER_NAME"), "digits-trainer-4");
    assert_eq!(value("RATE"), "1");
    // Nothing was said of threads.
    assert_eq!(value("OMP_NUM_THREADS"), "1");
}

#[test]
fn every_pod_is_restricted_and_has_no_token() {
    for role in [Role::Master, Role::Pserver, Role::Trainer] {
        let pod = made(&job(json!({})), &plan(role, 0));
        let spec = &pod["spec"];
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(spec["restartPolicy"], "Never");
        let of_role =
            spec["containers"].as_array().unwrap().iter().find(|one| one["name"] == role.name()).unwrap();
        assert_eq!(of_role["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(of_role["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 30);
    }
}

#[test]
fn what_a_job_says_nothing_of_it_asks_a_little_of() {
    let resources = |pserver: Value| {
        made(&job(json!({ "pserver": pserver })), &plan(Role::Pserver, 0))["spec"]["containers"][0]
            ["resources"]
            .clone()
    };
    let small = json!({ "requests": { "cpu": "250m", "memory": "256Mi" } });
    assert_eq!(resources(json!({})), small);
    let stated = json!({ "resources": { "requests": { "cpu": "3" }, "limits": { "memory": "1Gi" } } });
    assert_eq!(resources(stated.clone()), stated["resources"]);
    let limits = json!({ "resources": { "limits": { "cpu": "1" } } });
    assert_eq!(resources(limits), json!({ "requests": { "memory": "256Mi" }, "limits": { "cpu": "1" } }));
}

#[test]
fn only_trainers_beyond_the_least_may_be_preempted_by_anything() {
    let class = |plan: &PodPlan| made(&job(json!({})), plan)["spec"]["priorityClassName"].clone();
    assert_eq!(class(&plan(Role::Trainer, 0)), "important");
    assert_eq!(class(&PodPlan { is_elastic: true, ..plan(Role::Trainer, 1) }), "shoal-elastic");
}

#[test]
fn a_master_is_told_what_the_job_says_and_where_its_state_is() {
    let arguments =
        |job: &TrainingJob| made(job, &plan(Role::Master, 0))["spec"]["containers"][0]["args"].to_string();
    let said = arguments(&job(json!({ "data": ["/data/$(X)"] })));
    for wanted in [
        r#""--store","/shared/digits/state/digits-0a1b2c3d""#,
        r#""--pservers","2","--trainers","3""#,
        r#""--spec","{\"checkpoint\":{\"place\":\"/shared/digits\"},\"data\":[\"/data/$$(X)\"],\"epochs\":3}""#,
        r#""--listen","0.0.0.0:7400""#,
    ] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
    assert!(
        arguments(&job(json!({ "master": { "store": "etcd://e:2379/x" } })))
            .contains(r#""--store","etcd://e:2379/x""#)
    );
    let kept = Defaults { store: Some("etcd://e:2379/jobs/".to_owned()), ..defaults() };
    let pod = json!(pod(&job(json!({})), &kept, &plan(Role::Master, 0)).unwrap());
    assert!(pod.to_string().contains("etcd://e:2379/jobs/ns/digits-0a1b2c3d"));
}

/// A node forwards ports to a pod's loopback.
#[test]
fn a_pserver_listens_on_all_addresses_of_its_pod_and_advertises_the_one_that_others_know() {
    let made = made(&job(json!({})), &plan(Role::Pserver, 0));
    let said = made["spec"]["containers"][0]["args"].to_string();
    let wanted = r#""--listen","0.0.0.0:7500","--advertise","$(SHOAL_POD_IP):7500""#;
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn a_template_adds_to_the_operators_pods_and_takes_their_commands_whole() {
    let template = json!({ "spec": {
        "volumes": [{ "name": "shared", "hostPath": { "path": "/shared" } }],
        "affinity": { "nodeAffinity": {} },
        "tolerations": [{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 5 }],
        "containers": [{ "name": "pserver", "command": ["/other"], "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }] }],
    } });
    let job =
        job(json!({ "pserver": { "template": template, "resources": { "limits": { "memory": "1Gi" } } } }));
    let pod = made(&job, &PodPlan { memory: Some(1 << 31), ..plan(Role::Pserver, 1) });
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["/other"]));
    assert_eq!(
        (&container["image"], &container["volumeMounts"][0]["mountPath"]),
        (&json!("p"), &json!("/shared"))
    );
    assert_eq!(pod["spec"]["affinity"], json!({ "nodeAffinity": {} }));
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(pod["spec"]["tolerations"][0]["tolerationSeconds"], 5);
    assert_eq!(container["resources"]["limits"]["memory"], (1u64 << 31).to_string());
    let own =
        json!({ "requests": { "cpu": "2", "memory": "4Gi" }, "limits": { "cpu": "2", "memory": "4Gi" } });
    let moved = made(&job, &PodPlan { resources: Some(own.clone()), ..plan(Role::Pserver, 2) });
    assert_eq!(moved["spec"]["containers"][0]["resources"], own);
}

/// The disruption controller counts pods for a number of those that stay; for one of those that may go it asks the scale of their owner,
/// which is the number of trainers.
#[test]
fn of_several_pservers_all_but_one_stay_and_a_single_one_may_go() {
    let api = BudgetApi { version: "v1beta1", has_eviction_policy: false };
    let budget = |pservers: u32, api| {
        let mut job = job(json!({}));
        job.status.get_or_insert_default().pserver.wanted = pservers;
        disruption_budget(&job, api)
    };
    assert_eq!((budget(0, api), budget(1, api)), (None, None));
    let of_three = budget(3, api).unwrap();
    assert_eq!(of_three["apiVersion"], "policy/v1beta1");
    let labels = json!({ "shoal.dev/job": "digits", "shoal.dev/role": "pserver" });
    assert_eq!(of_three["spec"], json!({ "minAvailable": 2, "selector": { "matchLabels": labels } }));
    let api = BudgetApi { version: "v1", has_eviction_policy: true };
    assert_eq!(budget(2, api).unwrap()["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
}

#[test]
fn the_surroundings_are_the_jobs_own() {
    let mut job = job(json!({}));
    job.status.get_or_insert_default().pserver.wanted = 2;
    let budget = disruption_budget(&job, BudgetApi { version: "v1", has_eviction_policy: true }).unwrap();
    let service = json!(service(&job));
    assert_eq!(service["spec"]["selector"], json!({ "shoal.dev/job": "digits", "shoal.dev/role": "master" }));
    let policy = json!(network_policy(&job, &defaults()).unwrap());
    assert_eq!(policy["spec"]["ingress"].as_array().unwrap().len(), 3);
    let operators = &policy["spec"]["ingress"][1]["from"][0];
    assert_eq!(
        operators["namespaceSelector"]["matchLabels"],
        json!({ "kubernetes.io/metadata.name": "operators" })
    );
    let beside = Defaults { namespace: "ns".to_owned(), ..defaults() };
    let beside = json!(network_policy(&job, &beside).unwrap());
    assert_eq!(beside["spec"]["ingress"][1]["from"][0].get("namespaceSelector"), None);
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!([&service, &budget, &policy].map(name), ["digits-master", "digits-pserver", "digits-shoal"]);
    for one in [service, budget, policy] {
        assert_eq!(one["metadata"]["ownerReferences"][0]["controller"], true);
    }
}

#[test]
fn a_container_has_half_an_hour_until_it_answers_and_only_silence_ends_it_afterwards() {
    for role in [Role::Master, Role::Pserver, Role::Trainer] {
        let pod = made(&job(json!({})), &plan(role, 0));
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let ours = containers.iter().find(|one| one["name"] == role.name()).unwrap();
        let (startup, liveness) = (&ours["startupProbe"], &ours["livenessProbe"]);
        let budget = |probe: &Value| {
            probe["periodSeconds"].as_i64().unwrap() * probe["failureThreshold"].as_i64().unwrap()
        };
        assert_eq!((&startup["httpGet"]["path"], budget(startup)), (&json!("/healthz"), 1800));
        assert_eq!((&liveness["httpGet"]["path"], budget(liveness)), (&json!("/healthz"), 60));
    }
    let own = json!({ "name": "trainer", "startupProbe": { "exec": { "command": ["true"] } } });
    let mut job = job(json!({}));
    job.spec.trainer.template = serde_json::from_value(json!({ "spec": { "containers": [own] } })).unwrap();
    let pod = made(&job, &plan(Role::Trainer, 0));
    assert_eq!(pod["spec"]["containers"][0]["startupProbe"], json!({ "exec": { "command": ["true"] } }));
}

/// Beside whatever the author says of nodes: one of the author's terms must hold, so that each has to keep the pod away.
#[test]
fn a_pod_is_kept_from_nodes_by_each_way_that_its_author_leaves_it() {
    let avoids = |is_strict| Avoids { nodes: vec!["a".to_owned(), "b".to_owned()], is_strict };
    let made_with = |affinity: Value, is_strict| {
        let container = json!({ "name": "trainer", "image": "i" });
        let template = json!({ "spec": { "affinity": affinity, "containers": [container] } });
        let job = job(json!({ "trainer": { "template": template } }));
        let pod = made(&job, &PodPlan { avoids: avoids(is_strict), ..plan(Role::Trainer, 0) });
        pod["spec"]["affinity"]["nodeAffinity"].clone()
    };
    let not = |name: &str| json!({ "key": "metadata.name", "operator": "NotIn", "values": [name] });
    let fields = json!([not("a"), not("b")]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let plain = made_with(Value::Null, true);
    assert_eq!(plain, json!({ required: { "nodeSelectorTerms": [{ "matchFields": fields }] } }));
    let zone =
        |zone: &str| json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] });
    let theirs = json!({ "nodeAffinity": { required: { "nodeSelectorTerms": [zone("x"), zone("y")] } } });
    let terms = made_with(theirs.clone(), true)[required]["nodeSelectorTerms"].clone();
    for (at, name) in ["x", "y"].into_iter().enumerate() {
        let mut wanted = zone(name);
        wanted["matchFields"] = fields.clone();
        assert_eq!(terms[at], wanted);
    }
    let rather = made_with(theirs.clone(), false);
    assert_eq!(rather[required], theirs["nodeAffinity"][required], "who must be put there is");
    let preferred = &rather["preferredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!((&preferred["weight"], &preferred["preference"]["matchFields"]), (&json!(100), &fields));
}

#[test]
fn the_container_that_a_pod_is_about_is_said_by_the_fields_own_annotation() {
    let name = |containers: Value| {
        let job = job(json!({ "trainer": { "template": { "spec": { "containers": containers } } } }));
        let pod = made(&job, &plan(Role::Trainer, 0));
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        // As meshes do that hold the program until their proxy is ready.
        let proxy = serde_json::from_value(json!({ "name": "proxy" })).unwrap();
        pod.spec.as_mut().unwrap().containers.insert(0, proxy);
        program_of(&pod).unwrap().to_owned()
    };
    assert_eq!(
        name(json!([{ "name": "log", "image": "l" }, { "name": "trainer", "image": "i" }])),
        "trainer"
    );
    assert_eq!(name(json!([{ "name": "mine", "image": "i" }, { "name": "log", "image": "l" }])), "mine");
}

/// The mounted secret of a role's pod, and what its program is told of it.
fn secured(job: &TrainingJob, role: Role) -> (Value, Value) {
    let pod = made(job, &plan(role, 0));
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let program = containers.iter().find(|one| one["name"] == role.name()).unwrap();
    let said = program["env"].as_array().unwrap().iter().find(|one| one["name"] == "SHOAL_TLS");
    let mount =
        program["volumeMounts"].as_array().into_iter().flatten().find(|one| one["name"] == "shoal-tls");
    assert_eq!(said.map(|one| &one["value"]), mount.map(|one| &one["mountPath"]));
    let plain = program["env"].as_array().unwrap().iter().find(|one| one["name"] == "SHOAL_PLAINTEXT");
    assert_eq!(plain.is_some(), said.is_none(), "one or the other");
    let volume =
        pod["spec"]["volumes"].as_array().into_iter().flatten().find(|one| one["name"] == "shoal-tls");
    (
        volume.map_or(Value::Null, |one| one["secret"]["secretName"].clone()),
        said.map_or(Value::Null, |one| one["value"].clone()),
    )
}

#[test]
fn a_pod_has_the_certificate_of_its_own_role_as_the_job_began() {
    let began = |tls: Value, status: Value| {
        let mut job = job(json!({ "tls": tls }));
        job.status = Some(serde_json::from_value(status).unwrap());
        job
    };
    let issued = began(Value::Null, json!({ "pinned": "{}", "tls": "Issued" }));
    for role in [Role::Master, Role::Pserver, Role::Trainer] {
        let wanted = format!("digits-{role}-tls");
        assert_eq!(secured(&issued, role), (json!(wanted), json!("/var/run/shoal/tls")));
    }
    assert_eq!(identity(&issued), "digits-0a1b2c3d", "a name that nobody else can have");
    // A spec that the schema refuses, and the operator after it: what it says of a name counts for nothing even so.
    let forged = began(
        json!({ "mode": "Issued", "job": "other-99999999" }),
        json!({ "pinned": "{}", "tls": "Issued" }),
    );
    assert_eq!(identity(&forged), "digits-0a1b2c3d");
    let given = json!({ "job": "mine", "secrets": { "master": "m", "pserver": "p", "trainer": "t" } });
    let given = began(given, json!({ "pinned": "{}" }));
    assert_eq!(secured(&given, Role::Pserver).0, "p");
    assert_eq!(identity(&given), "mine");
    let before = began(Value::Null, json!({ "pinned": "{}" }));
    assert_eq!(secured(&before, Role::Trainer), (Value::Null, Value::Null), "of an operator before");
}

#[test]
fn a_master_with_a_store_over_tls_is_shown_its_secret_and_no_other_pod_is() {
    let job = |more: Value| job(json!({ "master": more }));
    let over_tls = job(json!({ "store": "etcds://e:2379/x", "storeSecret": "s" }));
    let pod_of = |job: &TrainingJob, role| json!(pod(job, &defaults(), &plan(role, 0)).unwrap());
    let master = pod_of(&over_tls, Role::Master);
    assert_eq!(master["spec"]["volumes"][0]["secret"]["secretName"], "s");
    assert_eq!(master["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], "/var/run/shoal/store");
    assert!(master.to_string().contains(r#""--store-tls","/var/run/shoal/store""#));
    assert!(!pod_of(&over_tls, Role::Trainer).to_string().contains("shoal-store"));
    assert!(
        !pod_of(&job(json!({ "store": "etcd://e:2379/x" })), Role::Master).to_string().contains("store-tls")
    );
    let without = job(json!({ "store": "etcds://e:2379/x" }));
    assert!(
        pod(&without, &defaults(), &plan(Role::Master, 0)).unwrap_err().contains("spec.master.storeSecret")
    );
    let of_all = Defaults { store_secret: Some("all".to_owned()), ..defaults() };
    let made = json!(pod(&without, &of_all, &plan(Role::Master, 0)).unwrap());
    assert_eq!(made["spec"]["volumes"][0]["secret"]["secretName"], "all");
}

#[test]
fn cert_manager_is_asked_for_the_same_names_and_never_for_a_key() {
    use shoal_runtime::host::rpc::tls::{Identity, Role};
    let issuer = "ClusterIssuer/internal".parse::<Issuer>().unwrap();
    let asked = certificate(
        &job(json!({})),
        &Identity { job: "digits-0a1b2c3d".to_owned(), role: Role::Pserver },
        &issuer,
        86_400,
    );
    assert_eq!(asked["metadata"]["name"], "digits-pserver-tls");
    assert_eq!(asked["metadata"]["ownerReferences"][0]["controller"], true);
    let spec = &asked["spec"];
    assert_eq!(spec["secretName"], "digits-pserver-tls");
    assert_eq!(spec["uris"], json!(["urn:shoal:job:digits-0a1b2c3d:role:pserver"]));
    assert_eq!((&spec["duration"], &spec["renewBefore"]), (&json!("86400s"), &json!("28800s")));
    assert_eq!(spec["usages"], json!(["digital signature", "server auth", "client auth"]));
    assert_eq!(
        spec["issuerRef"],
        json!({ "group": "cert-manager.io", "kind": "ClusterIssuer", "name": "internal" })
    );
    assert_eq!(spec["privateKey"]["rotationPolicy"], "Always");
    for wrong in ["internal", "Issuer/", "Other/x", "Issuer/a/b", ""] {
        assert!(wrong.parse::<Issuer>().unwrap_err().contains("ClusterIssuer/NAME"), "{wrong}");
    }
}
