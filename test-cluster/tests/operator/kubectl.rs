//! kubectl's own commands over a job, as people and pipelines use them. On a real control plane; without one the test says so and
//! passes, or fails when `SHOAL_REQUIRE_ALL=1`.

use crate::world::{World, whole};
use serde_json::{Value, json};
use shoal_test_cluster::Run;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_applied_is_waited_for_compared_applied_by_the_server_scaled_and_autoscaled() {
    let Some(world) = World::start(4, Run::Pretended).await else { return };
    let mut job = world.pretended("j", json!({}));
    let trainer = job["spec"]["trainer"].as_object_mut().unwrap();
    trainer.remove("replicas");
    trainer.insert("maxReplicas".to_owned(), json!(4));
    let file = world.path("j.json").to_string_lossy().into_owned();
    std::fs::write(&file, job.to_string()).unwrap();
    let apply = ["apply", "-f", &file];
    world.kubectl(&apply);
    world.kubectl(&["wait", "trainingjob/j", "--for=condition=Ready", "--timeout=100s"]);
    let number = |world: &World| world.job("j")["spec"]["trainer"]["replicas"].clone();
    world.wait_for("the number that was planned is in the spec", async |world| number(world) == 4).await;

    // What the operator has written in is no difference to what was applied, and stays, whoever applies.
    assert_eq!(world.kubectl(&["diff", "-f", &file]), "");
    assert!(world.kubectl(&apply).contains("unchanged"));
    world.kubectl(&["apply", "--server-side", "-f", &file]);
    assert_eq!(world.kubectl(&["diff", "--server-side", "-f", &file]), "");
    assert_eq!(number(&world), 4);

    world.kubectl(&["scale", "trainingjob", "j", "--replicas=3"]);
    world.wait_for_pods(whole("j", 0..1, 3)).await;
    world.kubectl(&apply);
    world.kubectl(&["apply", "--server-side", "-f", &file]);
    assert_eq!(number(&world), 3, "a person's number stays as well");

    world.kubectl(&["autoscale", "trainingjob", "j", "--min=2", "--max=4", "--cpu-percent=50"]);
    let is_able = async |world: &World| {
        let seen = world.kubectl(&["get", "horizontalpodautoscalers.v2beta2.autoscaling", "j", "-o", "json"]);
        let seen: Value = serde_json::from_str(&seen).unwrap();
        let conditions = seen["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "AbleToScale" && one["status"] == "True")
            && seen["status"]["currentReplicas"] == 3
    };
    world.wait_for("an autoscaler finds the scale", is_able).await;

    world.kubectl(&["delete", "-f", &file, "--timeout=60s"]);
    world.nothing_is_left("j").await;
}
