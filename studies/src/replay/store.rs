//! What an API server keeps, in memory: objects by collection, and what became of them for those who watch. Knows no HTTP.

use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Namespace, empty for what has none, and name.
pub(super) type Key = (String, String);

/// Where an object or a collection is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResourcePath {
    /// Group, version and plural, as `apis/shoal.dev/v1alpha1/trainingjobs`.
    pub(super) collection: String,
    /// The namespace, of what has one.
    pub(super) namespace: Option<String>,
    /// The object; none for the collection.
    pub(super) name: Option<String>,
    /// Its part, as `status`.
    pub(super) part: Option<String>,
}

impl ResourcePath {
    /// That of an object.
    pub(super) fn of(collection: &str, namespace: Option<&str>, name: &str) -> ResourcePath {
        let owned = |text: &str| Some(text.to_owned());
        ResourcePath {
            collection: collection.to_owned(),
            namespace: namespace.and_then(owned),
            name: owned(name),
            part: None,
        }
    }

    /// That of a path; none for what is no resource.
    pub(super) fn parse(path: &str) -> Option<ResourcePath> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => format!("api/{}", parts.next()?),
            "apis" => format!("apis/{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut rest: Vec<&str> = parts.collect();
        let mut namespace = None;
        if rest.first() == Some(&"namespaces") && rest.len() > 2 {
            namespace = Some(rest[1].to_owned());
            rest.drain(..2);
        }
        let at = |index: usize| rest.get(index).map(|part| (*part).to_owned());
        Some(ResourcePath { collection: format!("{group}/{}", at(0)?), namespace, name: at(1), part: at(2) })
    }

    /// The object's name, empty for a collection.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn key(&self) -> Key {
        (self.namespace.clone().unwrap_or_default(), self.name().to_owned())
    }
}

/// Which objects of a collection are asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Which {
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    /// A label, and its value where that is asked for.
    pub(super) label: Option<(String, Option<String>)>,
}

impl Which {
    fn has(&self, key: &Key, text: &[u8]) -> bool {
        let is_labelled = |(label, value): &(String, Option<String>)| {
            let object: Value = serde_json::from_slice(text).unwrap_or_default();
            let has = object["metadata"]["labels"].get(label).and_then(Value::as_str);
            has.is_some_and(|has| value.as_ref().is_none_or(|value| value == has))
        };
        self.names(key) && self.label.as_ref().is_none_or(is_labelled)
    }

    fn names(&self, (namespace, name): &Key) -> bool {
        self.namespace.as_ref().is_none_or(|asked| asked == namespace)
            && self.name.as_ref().is_none_or(|asked| asked == name)
    }
}

/// A page of a list.
pub(super) struct Page {
    pub(super) items: Vec<Bytes>,
    /// After whom the next page begins, if there is one.
    pub(super) next: Option<Key>,
    pub(super) version: u64,
}

#[derive(Debug)]
struct Collection {
    objects: BTreeMap<Key, Bytes>,
    /// By version, lines of a watch.
    events: Vec<(u64, Key, Bytes)>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    all: BTreeMap<String, Collection>,
}

impl State {
    fn collection(&mut self, name: &str) -> &mut Collection {
        self.all.entry(name.to_owned()).or_insert_with(|| Collection {
            objects: BTreeMap::new(),
            events: Vec::new(),
            changed: watch::channel(0).0,
        })
    }
}

/// Objects as JSON, each at a version.
#[derive(Debug, Default)]
pub(super) struct Store(Mutex<State>);

impl Store {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an object where it belongs, at a version of its own. Returns it so.
    pub(super) fn put(&self, resource: &ResourcePath, mut object: Value) -> Value {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let text = Bytes::from(object.to_string());
        let collection = state.collection(&resource.collection);
        let before = collection.objects.insert(resource.key(), text.clone());
        let what = if before.is_some() { "MODIFIED" } else { "ADDED" };
        collection.tell(version, resource.key(), what, &text);
        object
    }

    /// Takes an object away.
    pub(super) fn remove(&self, resource: &ResourcePath) -> Option<Value> {
        let mut object = self.get(resource)?;
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let collection = state.collection(&resource.collection);
        collection.objects.remove(&resource.key())?;
        collection.tell(version, resource.key(), "DELETED", object.to_string().as_bytes());
        Some(object)
    }

    /// An object.
    pub(super) fn get(&self, resource: &ResourcePath) -> Option<Value> {
        let text = self.state().all.get(&resource.collection)?.objects.get(&resource.key())?.clone();
        serde_json::from_slice(&text).ok()
    }

    /// How many bytes the objects of a collection take.
    pub(super) fn bytes(&self, collection: &str) -> usize {
        let state = self.state();
        state.all.get(collection).map_or(0, |all| all.objects.values().map(Bytes::len).sum())
    }

    pub(super) fn page(&self, collection: &str, which: &Which, after: Option<Key>, limit: usize) -> Page {
        let mut state = self.state();
        let version = state.version;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = state.collection(collection).objects.range((from, Bound::Unbounded));
        let mut chosen = rest.filter(|(key, text)| which.has(key, text));
        let (mut items, mut last) = (Vec::new(), None);
        for (key, text) in chosen.by_ref().take(limit) {
            items.push(text.clone());
            last = Some(key.clone());
        }
        let next = chosen.next().and(last);
        Page { items, next, version }
    }

    /// Lines of a watch after a version, and up to which they go.
    pub(super) fn after(&self, collection: &str, which: &Which, version: u64) -> (Vec<Bytes>, u64) {
        let mut state = self.state();
        let now = state.version;
        let events = &state.collection(collection).events;
        let from = events.partition_point(|(at, ..)| *at <= version);
        // Nobody watches by labels here: what is deleted or has lost one would have to be told apart.
        let chosen = events[from..].iter().filter(|(_, key, _)| which.names(key));
        (chosen.map(|(.., line)| line.clone()).collect(), now)
    }

    /// Tells of changes of a collection.
    pub(super) fn changes(&self, collection: &str) -> watch::Receiver<u64> {
        self.state().collection(collection).changed.subscribe()
    }
}

impl Collection {
    fn tell(&mut self, version: u64, key: Key, what: &str, object: &[u8]) {
        // Whoever lists first has no use for what was before.
        if self.changed.receiver_count() == 0 {
            return;
        }
        let mut line = format!("{{\"type\":\"{what}\",\"object\":").into_bytes();
        line.extend_from_slice(object);
        line.extend_from_slice(b"}\n");
        self.events.push((version, key, line.into()));
        self.changed.send_replace(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "n", "labels": { "a": "b" } } })
    }

    #[test]
    fn a_path_is_a_collection_an_object_or_a_part_of_one() {
        let told = |path| {
            ResourcePath::parse(path)
                .map(|resource| (resource.collection, resource.namespace, resource.name, resource.part))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(told("/api/v1/pods"), Some(("api/v1/pods".to_owned(), None, None, None)));
        let part = told("/apis/shoal.dev/v1alpha1/namespaces/n/trainingjobs/j/status");
        let expected = "apis/shoal.dev/v1alpha1/trainingjobs".to_owned();
        assert_eq!(part, Some((expected, some("n"), some("j"), some("status"))));
        assert_eq!(told("/apis"), None);
        assert_eq!(told("/version"), None);
    }

    #[test]
    fn lists_come_in_pages_and_watches_go_on_from_there() {
        let (store, all) = (Store::default(), Which::default());
        let resource = |name: &str| ResourcePath::of(PODS, Some("n"), name);
        for name in ["a", "b", "c"] {
            store.put(&resource(name), object(name));
        }
        let _watches = store.changes(PODS);
        let first = store.page(PODS, &all, None, 2);
        assert_eq!((first.items.len(), first.version), (2, 3));
        let second = store.page(PODS, &all, first.next, 2);
        assert_eq!((second.items.len(), second.next), (1, None));
        store.put(&resource("c"), object("c"));
        store.remove(&resource("a")).unwrap();
        let (lines, version) = store.after(PODS, &all, first.version);
        let kinds: Vec<Value> = lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(
            (kinds[0]["type"].as_str(), kinds[1]["type"].as_str()),
            (Some("MODIFIED"), Some("DELETED"))
        );
        assert_eq!(kinds[1]["object"]["metadata"]["resourceVersion"], "5");
        assert_eq!(store.after(PODS, &all, version), (Vec::new(), 5));
    }

    #[test]
    fn what_is_not_asked_for_is_not_in_a_list() {
        let store = Store::default();
        store.put(&ResourcePath::of(PODS, Some("n"), "a"), object("a"));
        let count = |which: Which| store.page(PODS, &which, None, 9).items.len();
        let label = |value: Option<&str>| Which {
            label: Some(("a".to_owned(), value.map(str::to_owned))),
            ..Which::default()
        };
        assert_eq!([count(label(None)), count(label(Some("b"))), count(label(Some("c")))], [1, 1, 0]);
        assert_eq!(count(Which { name: Some("x".to_owned()), ..Which::default() }), 0);
        assert_eq!(count(Which { namespace: Some("n".to_owned()), ..Which::default() }), 1);
    }

    const PODS: &str = "api/v1/pods";
}
