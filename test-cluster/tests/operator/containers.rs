//! The images that are shipped, in containers: what a pod's spec gives them and no more. It takes a control plane, root, `runc`, and
//! images (`SHOAL_TEST_IMAGES`); without them the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::World;
use serde_json::{Value, json};
use shoal_test_cluster::Run;
use shoal_tests::processes::pack_digits;
use std::os::unix::fs::PermissionsExt;

/// The image that digits are trained with.
const DIGITS: &str = concat!("digits:", env!("CARGO_PKG_VERSION"));

/// A job over the digits, all of whose containers have the same folder of this machine and can write nowhere else.
fn digits(world: &World, name: &str, more: Value) -> Value {
    let data = pack_digits(&world.programs, &world.path("data")).unwrap();
    let shared = world.folder.path();
    let checkpoints = world.path(&format!("checkpoints-{name}"));
    std::fs::create_dir(&checkpoints).unwrap();
    // As a volume is that is open to whoever mounts it.
    std::fs::set_permissions(&checkpoints, std::fs::Permissions::from_mode(0o777)).unwrap();
    let template = |container: Value| {
        let mut container = container;
        container["volumeMounts"] = json!([{ "name": "shared", "mountPath": shared }]);
        container["securityContext"] = json!({ "readOnlyRootFilesystem": true });
        json!({ "spec": {
            "volumes": [{ "name": "shared", "hostPath": { "path": shared } }],
            "containers": [container],
        } })
    };
    let trainer = json!({
        "name": "trainer", "image": DIGITS, "command": ["digits"],
        "env": [{ "name": "SHOAL_PACE_MILLIS", "value": "60" }],
    });
    let mut spec = json!({
        "data": [data],
        "epochs": 4,
        "seed": 7,
        "checkpoint": { "place": checkpoints },
        "master": { "template": template(json!({ "name": "master" })) },
        "pserver": { "minReplicas": 1, "maxReplicas": 2, "template": template(json!({ "name": "pserver" })) },
        "trainer": { "minReplicas": 2, "maxReplicas": 2, "template": template(trainer) },
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
    json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": name }, "spec": spec })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_trains_in_containers_of_its_images_to_the_model_that_shoal_run_gives() {
    let Some(world) = World::start(2, Run::Containers).await else { return };
    let job = digits(&world, "boxed", json!({}));
    world.apply(&job);
    world.wait_for_condition("boxed", "Running").await;
    let is_under_way =
        async |world: &World| world.job("boxed")["status"]["progress"]["step"].as_u64() > Some(0);
    world.wait_for("it has made steps", is_under_way).await;
    world.kubectl(&["delete", "pod", "boxed-pserver-0", "--wait=false"]);
    world.wait_for_condition("boxed", "Succeeded").await;
    assert_eq!(world.job("boxed")["status"]["ends"], json!({ "evicted": 1 }));
    assert_eq!(world.trained("checkpoints-boxed"), world.undisturbed(&job));
}
