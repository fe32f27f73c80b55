//! What an operator's page of metrics says of a cluster, as Prometheus reads it.

use crate::world::World;
use serde_json::json;
use shoal_test_cluster::Run;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The page, or nothing while nobody listens.
fn page(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}

/// The sample of that name and those labels.
fn sample(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_tells_of_jobs_by_phase_of_the_queue_and_of_results() {
    let Some(mut world) = World::start(1, Run::Pretended).await else { return };
    world.kill_operator();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let kubeconfig = world.faults.kubeconfig();
    world.start_operator_with(&kubeconfig, &["--identity", "first", "--http", &address.to_string()]);
    for name in ["a", "b"] {
        world.apply(&world.pretended(name, json!({})));
        world.wait_for_condition(name, "Ready").await;
    }
    world.apply(&world.pretended("s", json!({ "suspend": true })));
    let is_told = async |_: &World| {
        let Some(page) = page(address) else { return false };
        let of = |name: &str| sample(&page, name);
        let phase = |phase: &str| of(&format!("shoal_operator_jobs{{phase=\"{phase}\"}}"));
        let at_least_three = |value: Option<f64>| value.is_some_and(|value| value >= 3.0);
        (phase("Running"), phase("Suspended"), phase("Failed")) == (Some(2.0), Some(1.0), Some(0.0))
            && of("shoal_operator_leads") == Some(1.0)
            // Nothing happens any more.
            && of("shoal_operator_queue_depth") == Some(0.0)
            && of("shoal_operator_queue_longest_wait_seconds") == Some(0.0)
            && at_least_three(of("shoal_operator_queue_wait_seconds_count"))
            && at_least_three(of("shoal_operator_reconciles_total{result=\"success\"}"))
    };
    world.wait_for("the page tells it", is_told).await;
    // What is not there any more does not wait for ever.
    world.kubectl(&["delete", "trainingjobs", "--all", "--wait"]);
    let is_empty = async |_: &World| {
        let page = page(address).unwrap_or_default();
        let all = page.lines().filter(|line| line.starts_with("shoal_operator_jobs{"));
        all.clone().count() == 7
            && all.filter(|line| line.ends_with(" 0")).count() == 7
            && sample(&page, "shoal_operator_queue_depth") == Some(0.0)
    };
    world.wait_for("the page tells of no job", is_empty).await;
}
