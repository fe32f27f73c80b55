//! Jobs and plans, and what the rules of their definitions say of each. Tests only: those of this package read them with another implementation
//! of CEL, those of test-cluster with an API server. Must know nothing but JSON, so that both can have this file.

use serde_json::{Value, json};

/// An object that is made, or the change of one that is there.
pub(crate) struct Case {
    /// What was there before; none where it is made.
    pub(crate) before: Option<Value>,
    pub(crate) now: Value,
    /// How the one message begins by which it is refused; none where it is taken.
    pub(crate) said: Option<&'static str>,
}

/// What is to be set, by its place; null removes.
type Change = (&'static str, Value);

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let wrong = [wrong_jobs(), wrong_tls()].concat();
    for (good, wrong, fine) in [(job(), wrong, fine_jobs()), (plan(), wrong_plans(), fine_plans())] {
        let taken = std::iter::once(good.clone()).chain(fine.into_iter().map(|one| with(&good, one)));
        all.extend(taken.map(|now| Case { before: None, now, said: None }));
        for (change, said) in wrong {
            let now = with(&good, change);
            // A name never changes.
            let before = (now["metadata"]["name"] == good["metadata"]["name"]).then(|| good.clone());
            for before in std::iter::once(None).chain(before.map(Some)) {
                all.push(Case { before, now: now.clone(), said: Some(said) });
            }
        }
    }
    for (before, now, said) in changed_numbers() {
        all.push(Case { before: Some(with(&job(), before)), now: with(&job(), now), said });
    }
    all.extend(changed_pins());
    all
}

/// Jobs that a server took before it had all of these rules.
pub(crate) fn stored() -> Vec<Value> {
    let rules_before = ["spec.data", "spec.pserver.maxReplicas", "spec.trainer.maxReplicas"];
    let is_new = |said: &str| !rules_before.iter().any(|before| said.starts_with(before));
    let wrong = [wrong_jobs(), wrong_tls()].concat().into_iter().filter(|(_, said)| is_new(said));
    wrong.map(|(change, _)| with(&job(), change)).collect()
}

/// A job with nothing wrong.
pub(crate) fn job() -> Value {
    json!({
        "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": "j" },
        "spec": { "data": ["/d"], "checkpoint": { "place": "/c" }, "trainer": {
            "template": { "spec": { "containers": [{ "name": "mine", "image": "i" }] } } } },
    })
}

/// The same job once it has begun.
pub(crate) fn begun(job: &Value) -> Value {
    with(job, vec![("/status", json!({ "phase": "Running", "pinned": "{}" }))])
}

/// A plan with nothing wrong.
fn plan() -> Value {
    let numbers = json!({ "worker": { "replicas": 1 } });
    json!({
        "apiVersion": "shoal.dev/v1alpha1", "kind": "ScalePlan", "metadata": { "name": "p" },
        "spec": { "ownerJob": "j", "replicaResourceSpecs": numbers },
    })
}

/// The object with changes; what lies on the way to a place is made.
pub(crate) fn with(object: &Value, changes: Vec<Change>) -> Value {
    let mut changed = object.clone();
    for (at, value) in changes {
        let (parent, name) = at.rsplit_once('/').unwrap();
        let mut place = &mut changed;
        for key in parent.split('/').skip(1) {
            place = place.as_object_mut().unwrap().entry(key).or_insert_with(|| json!({}));
        }
        let fields = place.as_object_mut().unwrap();
        if value.is_null() {
            fields.remove(name);
        } else {
            fields.insert(name.to_owned(), value);
        }
    }
    changed
}

/// Certificates of one's own.
fn secrets() -> Value {
    json!({ "master": "m", "pserver": "p", "trainer": "t" })
}

fn wrong_tls() -> Vec<(Vec<Change>, &'static str)> {
    let mut king = secrets();
    king["king"] = json!("k");
    let all = [
        (json!({ "mode": "Given" }), "spec.tls: certificates of your own"),
        (json!({ "job": "j" }), "spec.tls: certificates of your own"),
        (json!({ "secrets": secrets() }), "spec.tls: certificates of your own"),
        (
            json!({ "job": "j", "secrets": { "master": "m", "trainer": "t" } }),
            "spec.tls: certificates of your own",
        ),
        (json!({ "mode": "Issued", "job": "j" }), "spec.tls: job and secrets are for mode Given"),
        (
            json!({ "mode": "Plaintext", "secrets": secrets() }),
            "spec.tls: job and secrets are for mode Given",
        ),
        (json!({ "job": "j", "secrets": king }), "spec.tls.secrets: roles are"),
    ];
    all.map(|(tls, said)| (vec![("/spec/tls", tls)], said)).into()
}

fn wrong_jobs() -> Vec<(Vec<Change>, &'static str)> {
    let below = json!({ "minReplicas": 3, "maxReplicas": 2 });
    let trainers: Vec<Change> =
        vec![("/spec/trainer/minReplicas", json!(3)), ("/spec/trainer/maxReplicas", json!(2))];
    vec![
        (vec![("/spec/data", json!([]))], "spec.data: name the RecordIO files"),
        (vec![("/spec/data", Value::Null)], "spec.data: name the RecordIO files"),
        (vec![("/spec/checkpoint", json!({}))], "spec.checkpoint.place: say where"),
        (vec![("/spec/checkpoint", Value::Null)], "spec.checkpoint.place: say where"),
        (vec![("/spec/checkpoint/place", json!("models"))], "spec.checkpoint.place: say where"),
        (vec![("/spec/pserver", below)], "spec.pserver.maxReplicas: below minReplicas"),
        (trainers, "spec.trainer.maxReplicas: below minReplicas"),
        (vec![("/spec/pserver/replicas", json!(0))], "spec.pserver.replicas: 0 would stop"),
        (vec![("/spec/trainer/replicas", json!(0))], "spec.trainer.replicas: 0 would stop"),
        (vec![("/spec/pserver/replicas", json!(2))], "spec.pserver.replicas: more than"),
        (vec![("/spec/trainer/replicas", json!(2))], "spec.trainer.replicas: more than"),
        (vec![("/metadata/name", json!("a.b"))], "metadata.name: it names pods"),
        (vec![("/metadata/name", json!("9a"))], "metadata.name: it names pods"),
        (vec![("/metadata/name", json!("x".repeat(46)))], "metadata.name: it names pods"),
    ]
}

fn fine_jobs() -> Vec<Vec<Change>> {
    vec![
        vec![("/spec/data", Value::Null), ("/spec/evalData", json!(["/e"]))],
        vec![("/spec/trainer/minReplicas", json!(2))],
        vec![("/spec/checkpoint/place", json!("s3://b/m"))],
        vec![("/metadata/name", json!("x".repeat(45)))],
        vec![("/spec/trainer/maxReplicas", json!(8)), ("/spec/trainer/replicas", json!(8))],
        vec![("/spec/tls", json!({}))],
        vec![("/spec/tls", json!({ "mode": "Issued" }))],
        vec![("/spec/tls", json!({ "mode": "Plaintext" }))],
        vec![("/spec/tls", json!({ "mode": "Given", "job": "j", "secrets": secrets() }))],
        vec![(
            "/spec/tls",
            json!({ "job": "j", "secrets": with(&secrets(), vec![("/client", json!("c"))]) }),
        )],
    ]
}

/// What `kubectl scale` changes of a job that somebody has looked at, and its bounds.
fn changed_numbers() -> Vec<(Vec<Change>, Vec<Change>, Option<&'static str>)> {
    let seen = ("/status", json!({ "phase": "Running" }));
    let mut all = Vec::new();
    let roles = [
        ("/spec/pserver", "spec.pserver.replicas: more than", "spec.pserver.replicas: 0 would stop"),
        ("/spec/trainer", "spec.trainer.replicas: more than", "spec.trainer.replicas: 0 would stop"),
    ];
    for (role, more, none) in roles {
        let [most, replicas] = match role {
            "/spec/pserver" => ["/spec/pserver/maxReplicas", "/spec/pserver/replicas"],
            _ => ["/spec/trainer/maxReplicas", "/spec/trainer/replicas"],
        };
        let at =
            |bound: u32, number: u32| vec![(most, json!(bound)), (replicas, json!(number)), seen.clone()];
        let bound = vec![(most, json!(8)), seen.clone()];
        all.push((bound.clone(), at(8, 8), None));
        all.push((bound, at(8, 9), Some(more)));
        all.push((vec![seen.clone()], vec![(replicas, json!(2)), seen.clone()], Some(more)));
        // The bound may be lowered below a number that is there.
        all.push((at(8, 8), at(4, 8), None));
        all.push((at(8, 8), at(4, 7), Some(more)));
        all.push((at(8, 8), at(8, 0), Some(none)));
    }
    all
}

/// Fields that may not change once a job has begun, each with two values.
fn pinned() -> Vec<(&'static str, Value, Value, &'static str)> {
    let tls = |job: &str| json!({ "job": job, "secrets": secrets() });
    vec![
        ("/spec/checkpoint/place", json!("/c"), json!("/other"), "spec.checkpoint.place: may not change"),
        ("/spec/data", json!(["/d"]), json!(["/d", "/e"]), "spec.data: may not change"),
        ("/spec/delay", json!(0), json!(1), "spec.delay: may not change"),
        ("/spec/epochs", json!(3), json!(4), "spec.epochs: may not change"),
        ("/spec/evalData", json!(["/e"]), json!([]), "spec.evalData: may not change"),
        ("/spec/evalEpochs", json!(1), json!(2), "spec.evalEpochs: may not change"),
        ("/spec/evalSteps", json!(1), json!(2), "spec.evalSteps: may not change"),
        ("/spec/gradients", json!("f32"), json!("bf16"), "spec.gradients: may not change"),
        ("/spec/leaseTtlMillis", json!(50), json!(60), "spec.leaseTtlMillis: may not change"),
        ("/spec/master/store", json!("/s"), json!("/t"), "spec.master.store: may not change"),
        ("/spec/microbatchRecords", json!(8), json!(9), "spec.microbatchRecords: may not change"),
        ("/spec/microbatchesPerStep", json!(1), json!(2), "spec.microbatchesPerStep: may not change"),
        ("/spec/mode", json!("sync"), json!("async"), "spec.mode: may not change"),
        ("/spec/predict", json!("/p"), json!("/q"), "spec.predict: may not change"),
        ("/spec/scaleByStaleness", json!(false), json!(true), "spec.scaleByStaleness: may not change"),
        ("/spec/seed", json!(0), json!(1), "spec.seed: may not change"),
        ("/spec/shuffleRun", json!(1), json!(2), "spec.shuffleRun: may not change"),
        ("/spec/stalenessWindow", json!(1), json!(2), "spec.stalenessWindow: may not change"),
        ("/spec/tls", tls("a"), tls("b"), "spec.tls: may not change"),
        ("/spec/untrained", json!(false), json!(true), "spec.untrained: may not change"),
        ("/spec/warmStart", json!("/m"), json!("/n"), "spec.warmStart: may not change"),
    ]
}

/// Each of them given another value, taken away, given at all: before the job has begun, and afterwards.
fn changed_pins() -> Vec<Case> {
    let mut all = Vec::new();
    for (at, one, other, said) in pinned() {
        let mut changes = vec![(one.clone(), other)];
        // Without one of these two there is no job.
        if at != "/spec/data" && at != "/spec/checkpoint/place" {
            changes.extend([(one.clone(), Value::Null), (Value::Null, one)]);
        }
        for (before, now) in changes {
            let [before, now] = [before, now].map(|value| with(&job(), vec![(at, value)]));
            all.push(Case { before: Some(before.clone()), now: now.clone(), said: None });
            all.push(Case { before: Some(begun(&before)), now: begun(&now), said: Some(said) });
        }
    }
    let live = [
        ("/spec/copies", json!(1)),
        ("/spec/suspend", json!(true)),
        ("/spec/checkpoint/everySteps", json!(5)),
        ("/spec/trainer/maxReplicas", json!(5)),
    ];
    for change in live {
        let now = with(&job(), vec![change]);
        all.push(Case { before: Some(begun(&job())), now: begun(&now), said: None });
    }
    all
}

fn wrong_plans() -> Vec<(Vec<Change>, &'static str)> {
    let chief = json!({ "chief": { "replicas": 1 } });
    vec![
        (vec![("/spec/ownerJob", Value::Null)], "spec.ownerJob: name the job"),
        (vec![("/spec/ownerJob", json!(""))], "spec.ownerJob: name the job"),
        (vec![("/spec/replicaResourceSpecs", chief)], "spec.replicaResourceSpecs: a role is"),
        (vec![("/spec/replicaResourceSpecs", Value::Null)], "spec: it asks for nothing"),
        (vec![("/spec/replicaResourceSpecs", json!({}))], "spec: it asks for nothing"),
    ]
}

fn fine_plans() -> Vec<Vec<Change>> {
    let numbers = |role: &str| json!({ role: { "replicas": 1 } });
    let roles = ["worker", "trainer", "ps", "pserver"];
    let roles = roles.map(|role| vec![("/spec/replicaResourceSpecs", numbers(role))]);
    let moves = json!([{ "name": "ps-0" }]);
    let moves = vec![("/spec/replicaResourceSpecs", Value::Null), ("/spec/migratePods", moves)];
    roles.into_iter().chain([moves]).collect()
}
