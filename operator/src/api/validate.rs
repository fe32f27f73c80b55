//! What is wrong with a job's spec, each fault with its place and the way out. Pure.
//!
//! The API server checks types and ranges, and where it knows CEL much of this; a server that does not, or an object that
//! was written around it, must not get further than here.

use super::job::{TrainingJob, TrainingJobSpec};
use super::quantity;
use super::template::{TRAINER_CONTAINER, container, typed_template};
use super::tls;
use k8s_openapi::api::core::v1::{PodTemplateSpec, ResourceRequirements};
use serde_json::{Value, json};
use shoal_job::spec::{Change, Naming, fields};
use std::sync::LazyLock;

/// Fields of the spec that may not change once a job has begun: its data, its plan, and where it is kept.
pub(super) static PINNED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let fields = fields::<TrainingJobSpec>().into_iter();
    fields.filter(|field| field.change == Change::Pinned).map(|field| field.path).collect()
});

/// The longest name: its pods' names are host names, of 63 bytes at most.
pub(super) const NAME_MAX: usize = 45;

/// Everything that is wrong with a job; `has_store` says whether the operator has a place for the states of jobs.
pub fn faults(job: &TrainingJob, has_store: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let is_label = name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    if name.len() > NAME_MAX || !is_label || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(format!(
            "metadata.name: {name:?} names pods and a service: at most {NAME_MAX} lower-case letters, digits and dashes, a letter first"
        ));
    }
    faults.extend(job.spec.training.faults(Naming::Fields));
    places(&job.spec, has_store, &mut faults);
    tls::faults(&job.spec, &mut faults);
    numbers(&job.spec, &mut faults);
    templates(&job.spec, &mut faults);
    faults
}

/// Where a job keeps what must outlive its pods.
fn places(spec: &TrainingJobSpec, has_store: bool, faults: &mut Vec<String>) {
    let place = &spec.training.checkpoint.place;
    if place.is_empty() {
        faults.push(
            "spec.checkpoint.place: say where the model is saved: a folder on a volume that master and pservers mount, or a URL"
                .to_owned(),
        );
    } else if !place.starts_with('/') && !place.contains("://") {
        faults.push(format!("spec.checkpoint.place: {place:?} is neither a folder from the root nor a URL"));
    }
    if spec.master.store.is_none() && !has_store && place.contains("://") && !place.starts_with("file://") {
        faults.push(
            "spec.master.store: this operator keeps no states of jobs, and a bucket cannot: name a folder on a volume, or etcd://HOST:PORT/PREFIX"
                .to_owned(),
        );
    }
}

/// How many of whom.
fn numbers(spec: &TrainingJobSpec, faults: &mut Vec<String>) {
    let pserver = (spec.pserver.min_replicas, spec.pserver.max_replicas, spec.pserver.replicas);
    let trainer = (spec.trainer.min_replicas, spec.trainer.max_replicas, spec.trainer.replicas);
    for (role, (min, max, replicas)) in [("pserver", pserver), ("trainer", trainer)] {
        if min == 0 {
            faults.push(format!(
                "spec.{role}.minReplicas: a job needs at least 1; to stop it, set spec.suspend"
            ));
        }
        let most = max.unwrap_or(min);
        if most < min {
            faults.push(format!(
                "spec.{role}.maxReplicas: {most} is below minReplicas, {min}: raise it or lower that"
            ));
        }
        if most > 10_000 {
            faults
                .push(format!("spec.{role}.maxReplicas: {most} is more than the 10000 that a master serves"));
        }
        // Zero is what `kubectl scale --replicas=0` says; it is refused in so many words, not clamped in silence.
        if replicas == Some(0) {
            faults.push(format!("spec.{role}.replicas: 0 would stop the job: set spec.suspend to do so"));
        }
    }
    if let Some(most) = &spec.failure_policy.memory_max
        && quantity::bytes(most).is_none()
    {
        faults.push(format!("spec.failurePolicy.memoryMax: {most:?} is no quantity; give one such as 64Gi"));
    }
}

/// What pods are made of.
fn templates(spec: &TrainingJobSpec, faults: &mut Vec<String>) {
    match typed_template(&spec.trainer.template, "spec.trainer.template") {
        Err(fault) => faults.push(fault),
        Ok(template) => {
            let program = container(&template, TRAINER_CONTAINER);
            if program.and_then(|one| one.image.as_ref()).is_none_or(String::is_empty) {
                faults.push(
                    "spec.trainer.template.spec.containers[0].image: name the image with your program"
                        .to_owned(),
                );
            }
            let program = program.map_or(TRAINER_CONTAINER, |one| &one.name);
            faults.extend(without_image(&template, TRAINER_CONTAINER, program));
        }
    }
    for (role, template) in [("master", &spec.master.template), ("pserver", &spec.pserver.template)] {
        match template.as_ref().map(|template| typed_template(template, &format!("spec.{role}.template"))) {
            None => {}
            Some(Err(fault)) => faults.push(fault),
            Some(Ok(template)) => faults.extend(without_image(&template, role, role)),
        }
    }
    let all = [
        ("master", &spec.master.resources),
        ("pserver", &spec.pserver.resources),
        ("trainer", &spec.trainer.resources),
    ];
    for (role, resources) in all {
        if let Some(Err(why)) =
            resources.as_ref().map(|one| serde_json::from_value::<ResourceRequirements>(one.clone()))
        {
            faults.push(format!("spec.{role}.resources: {why}; give requests and limits as in a pod"));
        }
    }
    let resources =
        all.into_iter().filter_map(|(role, one)| Some((format!("spec.{role}.resources"), one.clone()?)));
    let of_templates = [
        ("master", spec.master.template.as_ref()),
        ("pserver", spec.pserver.template.as_ref()),
        ("trainer", Some(&spec.trainer.template)),
    ];
    let of_templates = of_templates.into_iter().flat_map(|(role, template)| {
        let containers = template.and_then(|template| template.pointer("/spec/containers")?.as_array());
        containers.into_iter().flatten().enumerate().filter_map(move |(number, one)| {
            let at = format!("spec.{role}.template.spec.containers[{number}].resources");
            Some((at, one.get("resources")?.clone()))
        })
    });
    faults.extend(resources.chain(of_templates).filter_map(|(at, resources)| no_quantity(&at, &resources)));
}

/// The first container beside the role's own, which is called `own`, that has no image: most likely it was meant to be that one.
fn without_image(template: &PodTemplateSpec, role: &str, own: &str) -> Option<String> {
    let containers = template.spec.iter().flat_map(|spec| &spec.containers).enumerate();
    let mut others = containers.filter(|(_, one)| one.name != own);
    let (number, _) = others.find(|(_, one)| one.image.as_ref().is_none_or(String::is_empty))?;
    Some(format!(
        "spec.{role}.template.spec.containers[{number}].image: name one, or call the container {own:?} if it is the {role}'s own"
    ))
}

/// The first amount of resources that is no quantity.
fn no_quantity(at: &str, resources: &Value) -> Option<String> {
    ["requests", "limits"].into_iter().find_map(|list| {
        let amounts = resources.get(list)?.as_object()?;
        amounts.iter().find_map(|(name, amount)| {
            let is_quantity =
                amount.as_str().map_or(amount.is_number(), |text| quantity::quantity_value(text).is_some());
            let fault =
                format!("{at}.{list}.{name}: {amount} is no quantity; give one such as 2, 500m or 4Gi");
            (!is_quantity).then_some(fault)
        })
    })
}

/// What of the spec may not change, as one object.
pub(crate) fn pinned(spec: &TrainingJobSpec) -> Value {
    let spec = json!(spec);
    let fields = PINNED.iter().filter_map(|path| {
        let value = path.split('.').try_fold(&spec, |value, key| value.get(key))?;
        Some(((*path).to_owned(), value.clone()))
    });
    Value::Object(fields.collect())
}

/// The first field that differs from what a job began with; none if all are as they were.
pub fn changed(spec: &TrainingJobSpec, began_with: &str) -> Option<String> {
    let before: Value = serde_json::from_str(began_with).ok()?;
    let now = pinned(spec);
    let field = PINNED
        .iter()
        .find(|path| before.get(*path).unwrap_or(&Value::Null) != now.get(*path).unwrap_or(&Value::Null))?;
    let was = before.get(field).map_or_else(|| "not stated".to_owned(), Value::to_string);
    Some(format!(
        "spec.{field}: may not change once a job has begun; it was {was}: set it back, or make another job"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: Value) -> TrainingJob {
        let mut all = json!({
            "data": ["/data/*.recordio"],
            "checkpoint": { "place": "/shared/digits" },
            "trainer": { "template": { "spec": { "containers": [{ "name": "trainer", "image": "digits" }] } } },
        });
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        TrainingJob::new("digits", serde_json::from_value(all).unwrap())
    }

    #[test]
    fn a_plain_job_has_no_fault() {
        for spec in [json!({}), json!({ "data": ["records:60000"], "evalData": ["records:10000"] })] {
            assert_eq!(faults(&job(spec), false), Vec::<String>::new());
        }
    }

    #[test]
    fn each_fault_is_named_with_its_place() {
        let image =
            json!({ "template": { "spec": { "containers": [{ "name": "trainer", "image": "i" }] } } });
        let trainer = |more: Value| {
            let mut trainer = image.clone();
            more.as_object().unwrap().iter().for_each(|(key, value)| trainer[key] = value.clone());
            json!({ "trainer": trainer })
        };
        let wrong = [
            (json!({ "data": [] }), "spec.data"),
            (json!({ "data": [], "evalData": ["e"] }), "spec.data"),
            (json!({ "data": ["records:0"] }), "spec.data: records:0: no record in it"),
            (
                json!({ "data": ["records:5", "a.recordio"] }),
                "spec.data: records:5: a number of records stands alone",
            ),
            (
                json!({ "evalData": ["records:1e6"] }),
                "spec.evalData: \"records:1e6\": a number of records is written in digits",
            ),
            (json!({ "evalSteps": 1, "evalEpochs": 1 }), "spec.evalSteps"),
            (json!({ "predict": "/told" }), "spec.warmStart"),
            (json!({ "data": [], "evalData": ["e"], "epochs": 0 }), "spec.warmStart"),
            (json!({ "untrained": true }), "spec.untrained"),
            (json!({ "predict": "/told", "untrained": true, "warmStart": "/m" }), "spec.untrained"),
            (json!({ "mode": "async", "delay": 1 }), "spec.delay"),
            (json!({ "stalenessWindow": 4 }), "spec.stalenessWindow"),
            (json!({ "checkpoint": {} }), "spec.checkpoint.place"),
            (json!({ "checkpoint": { "place": "relative" } }), "spec.checkpoint.place"),
            (json!({ "checkpoint": { "place": "s3://bucket/x" } }), "spec.master.store"),
            (json!({ "pserver": { "minReplicas": 3, "maxReplicas": 2 } }), "spec.pserver.maxReplicas"),
            (json!({ "pserver": { "resources": { "requests": 3 } } }), "spec.pserver.resources"),
            (
                json!({ "master": { "template": { "spec": { "volume": [1] } } } }),
                "spec.master.template.spec.volume",
            ),
            (trainer(json!({ "minReplicas": 0 })), "spec.trainer.minReplicas"),
            (trainer(json!({ "replicas": 0 })), "spec.trainer.replicas"),
            (json!({ "trainer": { "template": {} } }), "spec.trainer.template.spec.containers[0].image"),
            (
                trainer(json!({ "resources": { "requests": { "cpu": "lots" } } })),
                "spec.trainer.resources.requests.cpu: \"lots\" is no quantity",
            ),
            (
                json!({ "master": { "template": { "spec": { "containers": [{ "name": "master", "resources": { "limits": { "memory": "4GiB" } } }] } } } }),
                "spec.master.template.spec.containers[0].resources.limits.memory: ",
            ),
            (
                json!({ "pserver": { "template": { "spec": { "containers": [{ "name": "server" }] } } } }),
                "spec.pserver.template.spec.containers[0].image: name one, or call the container \"pserver\" if",
            ),
            (
                json!({ "trainer": { "template": { "spec": { "containers": [{ "name": "mine", "image": "i" }, { "name": "log" }] } } } }),
                "spec.trainer.template.spec.containers[1].image: name one, or call the container \"mine\" if",
            ),
            (json!({ "failurePolicy": { "memoryMax": "much" } }), "spec.failurePolicy.memoryMax"),
            (
                json!({ "tls": { "job": "j", "secrets": { "master": "a", "pserver": "b" } } }),
                "spec.tls.secrets.trainer",
            ),
        ];
        for (spec, place) in wrong {
            let said = faults(&job(spec.clone()), false);
            assert!(said.len() == 1 && said[0].starts_with(place), "{spec}: {said:?}");
        }
        assert!(faults(&job(json!({ "checkpoint": { "place": "s3://bucket/x" } })), true).is_empty());
        let mut long = job(json!({}));
        long.metadata.name = Some("x".repeat(46));
        assert!(faults(&long, false)[0].starts_with("metadata.name"));
    }

    #[test]
    fn what_is_pinned_may_not_change_and_all_else_may() {
        let began = pinned(&job(json!({ "epochs": 3 })).spec).to_string();
        assert_eq!(changed(&job(json!({ "epochs": 3, "suspend": true, "copies": 1 })).spec, &began), None);
        let said = changed(&job(json!({ "epochs": 4 })).spec, &began).unwrap();
        assert!(said.starts_with("spec.epochs: ") && said.contains("it was 3"), "{said}");
        let said =
            changed(&job(json!({ "epochs": 3, "checkpoint": { "place": "/other" } })).spec, &began).unwrap();
        assert!(said.starts_with("spec.checkpoint.place: "), "{said}");
    }
}
