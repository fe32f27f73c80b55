//! The admission policies of deploy/admission.yaml, evaluated by another implementation of their language: what this operator makes is let
//! through, and what else its account could make is refused, each by its message. Where there is the API server's own evaluator, both must
//! say the same of each request. Tests only.

mod evaluator;

use crate::api::TrainingJob;
use crate::decide::{PodPlan, Role};
use crate::manifest::{BudgetApi, Defaults, disruption_budget, network_policy, pod, service};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const OPERATOR: &str = "system:serviceaccount:shoal-system:shoal-operator";

/// A request of the API server's, as policies see it.
pub(crate) struct Request {
    user: &'static str,
    namespace: Value,
    kind: &'static str,
    object: Value,
    old: Value,
}

impl Request {
    pub(crate) fn of(kind: &'static str, object: Value, old: Value) -> Request {
        let namespace = json!({ "metadata": { "name": "team" } });
        Request { user: OPERATOR, namespace, kind, object, old }
    }

    pub(crate) fn creates(kind: &'static str, object: Value) -> Request {
        Request::of(kind, object, Value::Null)
    }

    pub(crate) fn within(mut self, namespace: Value) -> Request {
        self.namespace = namespace;
        self
    }

    fn context(&self) -> cel::Context<'static, 'static> {
        let mut context = cel::Context::default();
        let request = json!({
            "userInfo": { "username": self.user }, "kind": { "kind": self.kind },
            "namespace": self.namespace["metadata"]["name"],
        });
        for (name, value) in [
            ("request", &request),
            ("namespaceObject", &self.namespace),
            ("object", &self.object),
            ("oldObject", &self.old),
        ] {
            context.add_variable_from_value(name, cel::to_value(value).unwrap());
        }
        context
    }

    /// The messages of what it is refused for. Policies that are not for its kind, or not for who asks, say nothing.
    pub(crate) fn refused(&self) -> Vec<String> {
        let policies: Vec<Value> =
            serde_saphyr::from_multiple(include_str!("../../deploy/admission.yaml")).unwrap();
        let policies = policies.iter().filter(|one| one["kind"] == "ValidatingAdmissionPolicy");
        let mut refused: Vec<String> = policies.flat_map(|policy| self.refused_by(&policy["spec"])).collect();
        refused.sort();
        if let Some(mut said) = evaluator::refused(self) {
            said.sort();
            assert_eq!(said, refused, "the API server says otherwise of {} {}", self.object, self.old);
        }
        refused
    }

    fn version(&self) -> &'static str {
        match self.kind {
            "PodDisruptionBudget" => "policy/v1",
            "NetworkPolicy" => "networking.k8s.io/v1",
            _ => "v1",
        }
    }

    fn resource(&self) -> String {
        match self.kind {
            "NetworkPolicy" => "networkpolicies".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        }
    }

    fn refused_by(&self, policy: &Value) -> Vec<String> {
        let resource = self.resource();
        let operation = match (&self.object, &self.old) {
            (Value::Null, _) => "DELETE",
            (_, Value::Null) => "CREATE",
            _ => "UPDATE",
        };
        let has = |list: &Value, word: &str| list.as_array().unwrap().contains(&json!(word));
        let rules = policy["matchConstraints"]["resourceRules"].as_array().unwrap();
        if !rules.iter().any(|rule| has(&rule["resources"], &resource) && has(&rule["operations"], operation))
        {
            return Vec::new();
        }
        let mut context = self.context();
        let evaluated = |context: &cel::Context, rule: &Value| {
            let text = rule["expression"].as_str().unwrap();
            let program = cel::Program::compile(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            program.execute(context).unwrap_or_else(|why| panic!("{text}: {why} of {}", self.object))
        };
        let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
        if each(&policy["matchConditions"])
            .iter()
            .any(|one| evaluated(&context, one) != cel::Value::Bool(true))
        {
            return Vec::new();
        }
        #[allow(
            clippy::disallowed_types,
            reason = "the map of the language's implementation; nothing goes over it"
        )]
        let mut variables = std::collections::HashMap::new();
        for variable in each(&policy["variables"]) {
            let name: Arc<String> = Arc::new(variable["name"].as_str().unwrap().to_owned());
            variables.insert(cel::objects::Key::String(name), evaluated(&context, &variable));
            let map = cel::objects::Map { map: Arc::new(variables.clone()) };
            context.add_variable_from_value("variables", cel::Value::Map(map));
        }
        let validations = each(&policy["validations"]);
        let broken = validations.iter().filter(|one| evaluated(&context, one) != cel::Value::Bool(true));
        broken.map(|one| one["message"].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn job(more: Value) -> TrainingJob {
    let mut spec = json!({
        "data": ["/data/*.recordio"], "epochs": 3, "checkpoint": { "place": "/shared/digits" },
        "tls": { "job": "j", "secrets": { "master": "m", "pserver": "p", "trainer": "t" } },
        "trainer": { "minReplicas": 1, "template": { "spec": {
            "securityContext": { "fsGroup": 65532 },
            "volumes": [{ "name": "shared", "persistentVolumeClaim": { "claimName": "shared" } }],
            "containers": [{ "name": "trainer", "image": "digits", "command": ["/digits"],
                "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }] }],
        } } },
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
    let mut job = TrainingJob::new("digits", serde_json::from_value(spec).unwrap());
    job.metadata.namespace = Some("team".to_owned());
    job.metadata.uid = Some("0a1b2c3d-0000-0000-0000-000000000000".to_owned());
    job
}

fn made(job: &TrainingJob, role: Role) -> Value {
    let defaults =
        Defaults { master_image: "m".to_owned(), pserver_image: "p".to_owned(), ..Defaults::default() };
    let plan = PodPlan {
        role,
        ordinal: 0,
        is_elastic: false,
        resources: None,
        memory: None,
        pservers: 1,
        trainers: 1,
        avoids: Default::default(),
    };
    json!(pod(job, &defaults, &plan).unwrap())
}

/// The objects beside pods that a job has.
fn surroundings(job: &TrainingJob) -> [(&'static str, Value); 3] {
    let policy = network_policy(job, &Defaults::default()).unwrap();
    let mut with_two = job.clone();
    with_two.status.get_or_insert_default().pserver.wanted = 2;
    let api = BudgetApi { version: "v1", has_eviction_policy: true };
    [
        ("Service", json!(service(job))),
        ("PodDisruptionBudget", disruption_budget(&with_two, api).unwrap()),
        ("NetworkPolicy", json!(policy)),
    ]
}

/// The object with something at that place, or without it where that is null.
pub(crate) fn with(object: &Value, at: &str, value: Value) -> Value {
    let mut changed = object.clone();
    let (parent, name) = at.rsplit_once('/').unwrap();
    let parent = changed.pointer_mut(parent).unwrap_or_else(|| panic!("{at} in {object}"));
    match (parent, value) {
        (Value::Array(list), value) => list[name.parse::<usize>().unwrap()] = value,
        (parent, Value::Null) => drop(parent.as_object_mut().unwrap().remove(name)),
        (parent, value) => parent[name] = value,
    }
    changed
}

fn free() -> Value {
    json!({ "metadata": { "name": "team", "labels": { "shoal.dev/host-access": "allowed" } } })
}

pub(crate) const NONE: [&str; 0] = [];

#[test]
fn whatever_the_operator_makes_changes_and_deletes_is_let_through() {
    for job in [job(json!({})), job(json!({ "tls": null }))] {
        for role in [Role::Master, Role::Pserver, Role::Trainer] {
            let pod = made(&job, role);
            assert_eq!(Request::creates("Pod", pod.clone()).refused(), NONE, "{pod}");
            assert_eq!(Request::of("Pod", Value::Null, pod).refused(), NONE);
        }
        for (kind, object) in surroundings(&job) {
            assert_eq!(Request::creates(kind, object.clone()).refused(), NONE);
            assert_eq!(Request::of(kind, object.clone(), object.clone()).refused(), NONE);
            assert_eq!(Request::of(kind, Value::Null, object).refused(), NONE);
        }
    }
}

/// What a pod may be made into, and the words by which that is refused wherever it is.
fn never() -> Vec<(&'static str, Value, &'static str)> {
    let volume = |volume: Value| json!([volume]);
    let token = |token: Value| {
        volume(json!({ "name": "t", "projected": { "sources": [{ "serviceAccountToken": token }] } }))
    };
    vec![
        ("/metadata/ownerReferences", Value::Null, "what a TrainingJob of shoal.dev controls"),
        ("/metadata/ownerReferences/0/kind", json!("Job"), "what a TrainingJob of shoal.dev controls"),
        (
            "/metadata/ownerReferences/0/apiVersion",
            json!("other.dev/v1"),
            "what a TrainingJob of shoal.dev controls",
        ),
        ("/metadata/ownerReferences/0/controller", json!(false), "what a TrainingJob of shoal.dev controls"),
        ("/spec/automountServiceAccountToken", json!(true), "has no token:"),
        ("/spec/automountServiceAccountToken", Value::Null, "has no token:"),
        ("/spec/volumes", token(json!({ "path": "token" })), "no token for the API server"),
        (
            "/spec/volumes",
            token(json!({ "path": "token", "audience": "https://kubernetes.default.svc" })),
            "no token for the API server",
        ),
        ("/spec/ephemeralContainers", json!([{ "name": "e" }]), "adds no containers"),
    ]
}

/// What else it may be made into, and the words by which that is refused where nobody has allowed it.
fn of_nodes() -> Vec<(&'static str, Value, &'static str)> {
    let program = "/spec/containers/0";
    assert_eq!(made(&job(json!({})), Role::Trainer).pointer(program).unwrap()["name"], "trainer");
    let volume = |volume: Value| json!([volume]);
    let init = |more: Value| json!([{ "name": "i", "image": "i", "securityContext": more }]);
    vec![
        ("/spec/hostNetwork", json!(true), "hostNetwork"),
        ("/spec/hostPID", json!(true), "hostPID"),
        ("/spec/hostIPC", json!(true), "hostIPC"),
        ("/spec/volumes", volume(json!({ "name": "h", "hostPath": { "path": "/" } })), "hostPath only"),
        ("/spec/containers/0/ports/0/hostPort", json!(80), "hostPort only"),
        ("/spec/containers/0/securityContext/privileged", json!(true), "neither privileged"),
        ("/spec/containers/0/securityContext/procMount", json!("Unmasked"), "neither privileged"),
        (
            "/spec/containers/0/securityContext/allowPrivilegeEscalation",
            json!(true),
            "allowPrivilegeEscalation: false",
        ),
        (
            "/spec/containers/0/securityContext/allowPrivilegeEscalation",
            Value::Null,
            "allowPrivilegeEscalation: false",
        ),
        (
            "/spec/containers/0/securityContext/capabilities/add",
            json!(["SYS_ADMIN"]),
            "drop all capabilities",
        ),
        ("/spec/containers/0/securityContext/capabilities/drop", json!(["NET_RAW"]), "drop all capabilities"),
        ("/spec/containers/0/securityContext/runAsUser", json!(0), "runAsNonRoot must be true"),
        ("/spec/containers/0/securityContext/runAsNonRoot", json!(false), "runAsNonRoot must be true"),
        ("/spec/securityContext/runAsNonRoot", Value::Null, "runAsNonRoot must be true"),
        ("/spec/securityContext/runAsUser", json!(0), "runAsNonRoot must be true"),
        ("/spec/securityContext/seccompProfile/type", json!("Unconfined"), "seccompProfile must be"),
        (
            "/spec/containers/0/securityContext/seccompProfile",
            json!({ "type": "Unconfined" }),
            "seccompProfile must be",
        ),
        (
            "/spec/initContainers",
            init(json!({
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] }, "privileged": true
            })),
            "neither privileged",
        ),
        (
            "/spec/initContainers",
            init(json!({
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN"] }
            })),
            "drop all capabilities",
        ),
    ]
}

#[test]
fn each_way_to_a_node_or_a_token_is_refused_by_its_own_message_alone() {
    let pod = made(&job(json!({})), Role::Trainer);
    let mut told = BTreeSet::new();
    for (at, value, said) in never().into_iter().chain(of_nodes()) {
        let refused = Request::creates("Pod", with(&pod, at, value.clone())).refused();
        assert!(refused.len() == 1 && refused[0].contains(said), "{at} {value}: {refused:?}");
        told.extend(refused);
    }
    let system = Request::creates("Pod", pod).within(json!({ "metadata": { "name": "kube-system" } }));
    let refused = system.refused();
    assert!(refused.len() == 1 && refused[0].contains("(kube-*)"), "{refused:?}");
    // No rule about pods is without a pod that it refuses.
    let policies: Vec<Value> =
        serde_saphyr::from_multiple(include_str!("../../deploy/admission.yaml")).unwrap();
    let rules = policies[0]["spec"]["validations"].as_array().unwrap();
    let of_pods = told.iter().filter(|message| rules.iter().any(|rule| rule["message"] == **message)).count();
    assert_eq!(of_pods + 1, rules.len(), "{told:?}");
}

#[test]
fn a_namespaces_label_allows_what_pods_want_of_their_nodes_and_no_token_and_no_foreign_owner() {
    let pod = made(&job(json!({})), Role::Trainer);
    for (at, value, said) in never() {
        let refused = Request::creates("Pod", with(&pod, at, value)).within(free()).refused();
        assert!(refused.len() == 1 && refused[0].contains(said), "{at}: {refused:?}");
    }
    for (at, value, _) in of_nodes() {
        assert_eq!(Request::creates("Pod", with(&pod, at, value)).within(free()).refused(), NONE, "{at}");
    }
    let other = json!({ "metadata": { "name": "team", "labels": { "shoal.dev/host-access": "" } } });
    let host = with(&pod, "/spec/hostNetwork", json!(true));
    assert_eq!(Request::creates("Pod", host).within(other).refused().len(), 1);
}

#[test]
fn tokens_for_the_identity_services_of_clouds_are_let_through() {
    let source = json!({ "serviceAccountToken": { "audience": "sts.amazonaws.com", "path": "token" } });
    let volumes =
        json!([{ "name": "aws", "projected": { "sources": [source, { "configMap": { "name": "c" } }] } }]);
    let pod = with(&made(&job(json!({})), Role::Trainer), "/spec/volumes", volumes);
    assert_eq!(Request::creates("Pod", pod).refused(), NONE);
}

#[test]
fn what_is_no_jobs_is_neither_made_nor_changed_nor_deleted() {
    for (kind, object) in surroundings(&job(json!({}))) {
        let foreign = with(&object, "/metadata/ownerReferences", Value::Null);
        let others = with(&object, "/metadata/ownerReferences/0/uid", json!("other"));
        for (now, before, said) in [
            (foreign.clone(), Value::Null, "makes and changes"),
            (foreign.clone(), object.clone(), "makes and changes"),
            (object.clone(), foreign.clone(), "changes and deletes"),
            (Value::Null, foreign.clone(), "changes and deletes"),
            (others.clone(), object.clone(), "gives nothing to another"),
        ] {
            let refused = Request::of(kind, now, before).refused();
            assert!(refused.iter().any(|message| message.contains(said)), "{kind}: {said}: {refused:?}");
        }
    }
    let pod = with(&made(&job(json!({})), Role::Master), "/metadata/ownerReferences", Value::Null);
    assert_eq!(Request::of("Pod", Value::Null, pod).refused().len(), 1);
}

#[test]
fn objects_of_a_job_are_about_the_pods_of_that_job_alone() {
    for (kind, at, value) in [
        ("Service", "/spec/selector", json!({ "app": "bank" })),
        ("Service", "/spec/selector", Value::Null),
        ("Service", "/spec/selector/shoal.dev~1job", json!("other")),
        ("Service", "/spec/clusterIP", Value::Null),
        ("Service", "/spec/externalIPs", json!(["192.0.2.1"])),
        ("PodDisruptionBudget", "/spec/selector", json!({})),
        ("PodDisruptionBudget", "/spec/selector/matchLabels/shoal.dev~1job", json!("other")),
        ("NetworkPolicy", "/spec/podSelector", json!({})),
        ("NetworkPolicy", "/spec/podSelector/matchLabels/shoal.dev~1job", json!("other")),
    ] {
        let object = surroundings(&job(json!({}))).into_iter().find(|one| one.0 == kind).unwrap().1;
        let name = at.replace("~1", "/");
        let changed = match name.rsplit_once("/shoal.dev/job") {
            Some((parent, _)) => {
                let mut changed = object.clone();
                changed.pointer_mut(parent).unwrap()["shoal.dev/job"] = value.clone();
                changed
            }
            None => with(&object, at, value.clone()),
        };
        let refused = Request::creates(kind, changed).refused();
        assert!(refused.len() == 1 && refused[0].contains("of that job"), "{kind} {at} {value}: {refused:?}");
    }
}

#[test]
fn nobody_but_the_operator_is_bound() {
    let bare =
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let mut request = Request::creates("Pod", bare);
    assert!(!request.refused().is_empty());
    request.user = "kubernetes-admin";
    assert_eq!(request.refused(), NONE);
}
