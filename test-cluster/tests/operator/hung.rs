//! An API server that takes calls and does not answer them. On a real control plane with pods that are pretended; without one
//! the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use crate::world::{World, whole};
use serde_json::json;
use shoal_test_cluster::{Refusal, Run};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn jobs_whose_calls_hang_hold_up_no_other_and_go_on_once_they_are_answered() {
    let Some(mut world) = World::start(3, Run::Pretended).await else { return };
    // More than are looked at side by side.
    let hung: Vec<String> = (0..80).map(|number| format!("hung-{number}")).collect();
    for name in &hung {
        world.faults.refuse(Refusal::silence().only("PATCH", "trainingjobs").named(name));
    }
    let small = json!({ "suspend": true });
    let manifests: Vec<_> = hung.iter().map(|name| world.pretended(name, small.clone())).collect();
    world.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": manifests }));
    // By now whoever waits for an answer waits.
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.apply(&world.pretended("j", json!({})));
    world.patience = Duration::from_secs(45);
    world.wait_for_pods(whole("j", 0..1, 2)).await;
    world.wait_for_condition("j", "Ready").await;
    world.faults.pass();
    world.patience = Duration::from_secs(120);
    for name in &hung {
        world.wait_for_condition(name, "Suspended").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_stands_by_takes_over_although_a_call_for_the_lease_was_never_answered() {
    let Some(mut world) = World::start(1, Run::Pretended).await else { return };
    world.apply(&world.pretended("j", json!({ "suspend": true })));
    world.wait_for_condition("j", "Suspended").await;
    world.kill_operator();
    world.faults.refuse(Refusal::silence().only("GET", "leases"));
    world.start_operator("second");
    tokio::time::sleep(Duration::from_secs(5)).await;
    // The connection that the first call went by stays silent: only a call of its own kind brings it on.
    world.faults.pass();
    world.patience = Duration::from_secs(45);
    world.kubectl(&["patch", "trainingjob", "j", "--type=merge", "-p", r#"{"spec":{"suspend":false}}"#]);
    world.wait_for_condition("j", "Ready").await;
}
