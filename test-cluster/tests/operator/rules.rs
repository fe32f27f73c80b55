//! The definitions of the resources on a server of today's Kubernetes, which has custom resources and nothing else: that it takes them, and
//! what it says of objects by their schemas, their rules, scale, selectors and columns.
//!
//! Without that server (`bash .ci/custom-resource-server`, `SHOAL_CUSTOM_RESOURCES`) and an etcd (`KUBEBUILDER_ASSETS`) the tests say so and
//! pass, or fail when `SHOAL_REQUIRE_ALL=1`.

#[path = "../../../operator/src/api/cases.rs"]
mod cases;

use crate::served::{self, Served};
use cases::{Case, begun, cases, job, stored, with};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn the_definitions_are_established_as_they_are_without_a_warning() {
    let Some((served, answers)) = Served::start_saying().await else { return };
    for (definition, answer) in served::definitions().iter().zip(answers) {
        assert_eq!(answer.warnings, Vec::<String>::new());
        let fields = |of: &Value| of["spec"]["versions"][0]["selectableFields"].clone();
        assert!(fields(definition).is_array());
        assert_eq!(fields(&answer.body), fields(definition));
    }
    let version = served.server.ask("GET", "/version", None).await.unwrap().body;
    eprintln!("custom resources of Kubernetes {}", version["gitVersion"]);
    assert!(version["minor"].as_str().unwrap().parse::<u32>().unwrap() >= 36, "{version}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_case_of_the_rules_is_refused_by_its_own_message_alone_or_taken() {
    let Some(served) = Served::start().await else { return };
    let mut wrong = Vec::new();
    for (number, Case { before, now, said }) in cases().into_iter().enumerate() {
        let namespace = format!("case-{number}");
        let answer = match &before {
            None => served.create(&namespace, &now).await,
            Some(before) => served.change(&namespace, before, &now).await,
        };
        let causes = answer.body["details"]["causes"].as_array().map_or(0, Vec::len);
        let is_said = said.is_some_and(|said| {
            answer.code == 422 && causes == 1 && answer.message().contains(&format!("Invalid value: {said}"))
        });
        if !is_said && (said.is_some() || answer.code >= 300) {
            wrong.push(format!("{before:?} {now}: {said:?}: {} {}", answer.code, answer.message()));
        }
        assert_eq!(answer.warnings, Vec::<String>::new());
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.shoal.dev";

/// Replaces the rules of jobs. Returns those before.
async fn replace_rules(served: &Served, of_job: Value, of_spec: Value) -> (Value, Value) {
    let mut definition = served.server.ask("GET", DEFINITION, None).await.unwrap().body;
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let rules = "x-kubernetes-validations";
    let before_of_spec = std::mem::replace(&mut schema["properties"]["spec"][rules], of_spec);
    let before = std::mem::replace(&mut schema[rules], of_job);
    let answer = served.server.ask("PUT", DEFINITION, Some(&definition)).await.unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    (before, before_of_spec)
}

/// Until a wrong job is answered so: a definition is served a moment after it was taken.
async fn until_answered(served: &Served, code: u16) {
    let wrong = &stored()[0];
    for number in 0..200 {
        if served.create(&format!("tried-{code}-{number}"), wrong).await.code == code {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("a wrong job is never answered with {code}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_were_taken_before_a_rule_are_seen_changed_and_freed() {
    let Some(served) = Served::start().await else { return };
    let rules = replace_rules(&served, json!([]), json!([])).await;
    until_answered(&served, 201).await;
    let held: Vec<Value> =
        stored().iter().map(|job| with(job, vec![("/metadata/finalizers", json!(["a/b"]))])).collect();
    for (number, job) in held.iter().enumerate() {
        assert_eq!(served.create(&format!("stored-{number}"), job).await.code, 201);
    }
    replace_rules(&served, rules.0, rules.1).await;
    until_answered(&served, 422).await;
    for (number, job) in held.iter().enumerate() {
        let place = served.place(&format!("stored-{number}"), job);
        let seen = json!({ "status": { "phase": "Pending" } });
        let changed = json!({ "spec": { "copies": 1 } });
        let freed = json!({ "metadata": { "finalizers": null } });
        for (verb, at, body) in [
            ("PATCH", format!("{place}/status"), Some(seen)),
            ("PATCH", place.clone(), Some(changed)),
            ("DELETE", place.clone(), None),
            ("PATCH", place.clone(), Some(freed)),
        ] {
            let answer = served.server.ask(verb, &at, body.as_ref()).await.unwrap();
            assert_eq!(answer.code, 200, "{verb} {body:?} of {job}: {}", answer.message());
        }
        assert_eq!(served.server.ask("GET", &place, None).await.unwrap().code, 404);
    }
}

/// To schemas, to what pins a field, and to scale.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_null_is_one_that_is_not_there() {
    let Some(served) = Served::start().await else { return };
    let begun = begun(&job());
    let mut null = begun.clone();
    for field in ["epochs", "tls", "mode", "gradients", "environment", "cleanPodPolicy", "warmStart"] {
        null["spec"][field] = Value::Null;
    }
    for role in ["pserver", "trainer"] {
        null["spec"][role]["replicas"] = Value::Null;
    }
    for (before, now) in [(&begun, &null), (&null, &begun)] {
        let answer = served.change(&format!("null-{}", served.next()), before, now).await;
        assert_eq!((answer.code, answer.message()), (200, ""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_nobody_knows_are_named_and_amounts_are_quantities() {
    let Some(served) = Served::start().await else { return };
    let misspelt = with(&job(), vec![("/spec/epoch", json!(3)), ("/spec/trainer/replica", json!(3))]);
    let strictly = format!("{}?fieldValidation=Strict", served::path("strict", &misspelt));
    let answer = served.server.ask("POST", &strictly, Some(&misspelt)).await.unwrap();
    assert_eq!(answer.code, 400, "{answer:?}");
    for field in ["unknown field \"spec.epoch\"", "unknown field \"spec.trainer.replica\""] {
        assert!(answer.message().contains(field), "{}", answer.message());
    }
    let answer = served.create("warned", &misspelt).await;
    assert!(answer.code == 201 && answer.warnings.len() == 2, "{answer:?}");
    assert_eq!(answer.body["spec"].get("epoch"), None, "it is dropped");

    // What templates have is Kubernetes' own, and kept.
    let any = with(&job(), vec![("/spec/trainer/template/spec/runtimeClassName", json!("gpu"))]);
    let answer = served.create("template", &any).await;
    assert!(answer.code == 201 && answer.warnings.is_empty(), "{answer:?}");
    assert_eq!(answer.body["spec"]["trainer"]["template"]["spec"]["runtimeClassName"], "gpu");

    for (number, role) in ["master", "pserver", "trainer"].into_iter().enumerate() {
        for (amount, is_one) in [
            (json!("500m"), true),
            (json!(2), true),
            (json!("64Gi"), true),
            (json!("1e3"), true),
            (json!("lots"), false),
            (json!("4GiB"), false),
            (json!(""), false),
            (json!(true), false),
        ] {
            let mut job = job();
            job["metadata"]["name"] = format!("j{number}").into();
            job["spec"][role]["resources"] = json!({ "limits": { "memory": amount } });
            let answer = served.create(&format!("amount-{}", served.next()), &job).await;
            let field = format!("spec.{role}.resources.limits.memory");
            let is_right = if is_one { answer.code == 201 } else { answer.message().contains(&field) };
            assert!(is_right, "{role} {amount}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scale_of_a_job_is_bound_by_the_rules_and_needs_a_number() {
    let Some(served) = Served::start().await else { return };
    let wide = with(&job(), vec![("/spec/trainer/maxReplicas", json!(8))]);
    let at = format!("{}/j", served::path("scaled", &wide));
    assert_eq!(served.create("scaled", &wide).await.code, 201);
    let scale = format!("{at}/scale");
    let ask = async |method: &str, body: Option<Value>| {
        served.server.ask(method, &scale, body.as_ref()).await.unwrap()
    };

    // Why the operator writes its own number: autoscalers and budgets ask for this.
    let without = ask("GET", None).await;
    assert_eq!(without.code, 500, "{without:?}");
    assert!(without.message().contains(".spec.trainer.replicas"), "{}", without.message());

    let planned = json!({ "spec": { "trainer": { "replicas": 2 } } });
    assert_eq!(served.server.ask("PATCH", &at, Some(&planned)).await.unwrap().code, 200);
    let now = ask("GET", None).await;
    assert_eq!((now.code, &now.body["spec"]["replicas"]), (200, &json!(2)), "{now:?}");

    let to = |replicas: u32| {
        let mut wanted = now.body.clone();
        wanted["spec"]["replicas"] = replicas.into();
        wanted["metadata"]["resourceVersion"] = Value::Null;
        Some(wanted)
    };
    let zero = ask("PUT", to(0)).await;
    assert!(zero.message().contains("spec.trainer.replicas: 0 would stop the job"), "{zero:?}");
    let beyond = ask("PUT", to(9)).await;
    assert!(beyond.message().contains("spec.trainer.replicas: more than maxReplicas"), "{beyond:?}");
    assert_eq!(ask("PUT", to(8)).await.code, 200);
    let job = served.server.ask("GET", &at, None).await.unwrap();
    assert_eq!(job.body["spec"]["trainer"]["replicas"], 8);

    let status = json!({ "status": { "trainer": { "replicas": 5, "selector": "shoal.dev/job=j" } } });
    let written = served.server.ask("PATCH", &format!("{at}/status"), Some(&status)).await.unwrap();
    assert_eq!(written.code, 200, "{written:?}");
    let seen = ask("GET", None).await.body;
    assert_eq!(seen["status"], json!({ "replicas": 5, "selector": "shoal.dev/job=j" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_and_plans_are_selected_by_their_phase_and_listed_with_their_columns() {
    let Some(served) = Served::start().await else { return };
    for (name, phase) in [("one", "Running"), ("two", "Pending")] {
        let progress = json!({ "text": "10%", "stepsPerSecond": "4.5" });
        let status = json!({ "phase": phase, "progress": progress, "message": "as said" });
        let job = with(&job(), vec![("/metadata/name", json!(name)), ("/status", status)]);
        served.there_is("listed", &job).await;
    }
    let jobs = served::path("listed", &job());
    let names = async |path: String| {
        let listed = served.server.ask("GET", &path, None).await.unwrap();
        let items = listed.body["items"].as_array().cloned().unwrap_or_else(|| panic!("{listed:?}"));
        items.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(format!("{jobs}?fieldSelector=status.phase=Running")).await, ["one"]);
    assert_eq!(names(format!("{jobs}?fieldSelector=status.phase!=Running")).await, ["two"]);
    let other = served.server.ask("GET", &format!("{jobs}?fieldSelector=spec.epochs=3"), None).await.unwrap();
    assert_eq!(other.code, 400, "{other:?}");

    for (name, owner) in [("p", "j"), ("q", "k")] {
        let spec = json!({ "ownerJob": owner, "migratePods": [{ "name": "ps-0" }] });
        let plan = json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "ScalePlan", "metadata": { "name": name }, "spec": spec });
        served.there_is("listed", &plan).await;
    }
    let plans = jobs.replace("trainingjobs", "scaleplans");
    assert_eq!(names(format!("{plans}?fieldSelector=spec.ownerJob=k")).await, ["q"]);

    let table = served.server.table(&jobs).await.unwrap().body;
    assert_eq!(
        served::columns(&table),
        ["Name", "Phase", "Progress", "ETA", "Trainers", "Pservers", "Age", "Steps/s 1", "Message 1"]
    );
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let cell = |number: usize| cells[number].as_str();
    let shown = [0, 1, 2, 7, 8].map(cell);
    assert_eq!(shown, [Some("one"), Some("Running"), Some("10%"), Some("4.5"), Some("as said")]);
    let table = served.server.table(&plans).await.unwrap().body;
    assert_eq!(served::columns(&table), ["Name", "Job", "Phase", "Message", "Age"]);
}

/// The compiler estimates what a rule costs at the largest that a schema lets through, and the server stops one that costs more.
#[tokio::test(flavor = "multi_thread")]
async fn the_largest_jobs_and_plans_cost_no_more_than_rules_may() {
    let Some(served) = Served::start().await else { return };
    let files: Vec<String> =
        (0..8_000).map(|n| format!("/data/of/a/team/that/has/a/lot/of/it/train-{n:020}.recordio")).collect();
    let container = |n: usize| json!({ "name": format!("container-{n:050}"), "image": "i".repeat(1024) });
    let mut containers: Vec<Value> = (0..32).map(container).collect();
    containers[31]["name"] = "trainer".into();
    let mut large = with(&job(), vec![("/spec/data", json!(files)), ("/spec/evalData", json!(files))]);
    large["spec"]["trainer"]["template"]["spec"]["containers"] = containers.into();
    let large = begun(&large);
    let answer = served.change("large", &large, &with(&large, vec![("/spec/copies", json!(1))])).await;
    assert_eq!((answer.code, answer.message()), (200, ""));
    let mut other = files.clone();
    other[7_999].push('x');
    let answer = served.change("pinned", &large, &with(&large, vec![("/spec/data", json!(other))])).await;
    assert!(answer.message().contains("spec.data: may not change"), "{}", answer.message());

    let pods: Vec<Value> = (0..10_000).map(|n| json!({ "name": format!("a-job-pserver-{n}") })).collect();
    let spec = json!({ "ownerJob": "j", "migratePods": pods });
    let plan = json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "ScalePlan", "metadata": { "name": "p" }, "spec": spec });
    let answer = served.create("large", &plan).await;
    assert_eq!((answer.code, answer.message()), (201, ""));
}
