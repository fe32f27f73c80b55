//! A server of custom resources with the definitions that are installed, and objects in namespaces that need not be there.

use serde_json::Value;
use shoal_test_cluster::{Answer, CustomResources};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Served {
    pub(crate) server: CustomResources,
    next: AtomicU32,
}

/// What deploy/crds.yaml has.
pub(crate) fn definitions() -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds.yaml");
    serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Where objects like that one are.
pub(crate) fn path(namespace: &str, object: &Value) -> String {
    let plural = object["kind"].as_str().unwrap().to_lowercase() + "s";
    format!("/apis/shoal.dev/v1alpha1/namespaces/{namespace}/{plural}")
}

/// The columns of a table, with the priority of those that only `-o wide` shows.
pub(crate) fn columns(table: &Value) -> Vec<String> {
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let named = columns.map(|column| {
        let name = column["name"].as_str().unwrap();
        if column["priority"] == 0 { name.to_owned() } else { format!("{name} {}", column["priority"]) }
    });
    named.collect()
}

impl Served {
    pub(crate) async fn start() -> Option<Served> {
        Some(Served::start_saying().await?.0)
    }

    /// The same with what the server said to each definition.
    pub(crate) async fn start_saying() -> Option<(Served, Vec<Answer>)> {
        if let Some(why) = CustomResources::missing() {
            assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{why}");
            eprintln!("NOTHING WAS TESTED: {why}");
            return None;
        }
        let mut server = CustomResources::start().await.unwrap();
        let mut answers = Vec::new();
        for definition in definitions() {
            answers.push(server.install(&definition).await.unwrap());
        }
        Some((Served { server, next: AtomicU32::new(0) }, answers))
    }

    /// Another number.
    pub(crate) fn next(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) async fn create(&self, namespace: &str, object: &Value) -> Answer {
        self.server.ask("POST", &path(namespace, object), Some(object)).await.unwrap()
    }

    /// Makes an object and writes its status; gives it as it is then.
    pub(crate) async fn there_is(&self, namespace: &str, object: &Value) -> Value {
        let made = self.create(namespace, object).await;
        assert_eq!(made.code, 201, "{object}: {made:?}");
        if object["status"].is_null() {
            return made.body;
        }
        let mut now = made.body;
        now["status"] = object["status"].clone();
        let status = format!("{}/status", self.place(namespace, object));
        let written = self.server.ask("PUT", &status, Some(&now)).await.unwrap();
        assert_eq!(written.code, 200, "{object}: {written:?}");
        written.body
    }

    /// What is said to the change of an object, which is made with its status before.
    pub(crate) async fn change(&self, namespace: &str, before: &Value, now: &Value) -> Answer {
        let there = self.there_is(namespace, before).await;
        let mut now = now.clone();
        now["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
        self.server.ask("PUT", &self.place(namespace, &now), Some(&now)).await.unwrap()
    }

    pub(crate) fn place(&self, namespace: &str, object: &Value) -> String {
        format!("{}/{}", path(namespace, object), object["metadata"]["name"].as_str().unwrap())
    }
}
