//! What a watch says, by namespace and name or another key, cut down to what is needed of it. Decides nothing.

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Namespace, empty for what has none, and name.
pub(super) type Key = (String, String);

/// All objects of a watch.
#[derive(Debug)]
pub(super) struct Index<V, K = Key> {
    all: Mutex<State<V, K>>,
    is_ready: watch::Sender<bool>,
}

#[derive(Debug)]
struct State<V, K> {
    now: BTreeMap<K, V>,
    /// What a list that is under way has brought so far: what it does not bring is no more.
    listed: Option<BTreeMap<K, V>>,
}

/// A look at all of them, during which nothing is taken in.
pub(super) struct Seen<'a, V, K = Key>(MutexGuard<'a, State<V, K>>);

impl<V, K> Seen<'_, V, K> {
    pub(super) fn all(&self) -> &BTreeMap<K, V> {
        &self.0.now
    }
}

/// The key of what no other has the name of.
pub(super) fn named<O: Resource>(object: &O) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

impl<V, K: Ord> Index<V, K> {
    pub(super) fn new() -> Index<V, K> {
        Index {
            all: Mutex::new(State { now: BTreeMap::new(), listed: None }),
            is_ready: watch::channel(false).0,
        }
    }

    /// Takes in what the watch says; `cut` gives none for what does not count.
    pub(super) fn note<O>(&self, event: &Event<O>, key: impl Fn(&O) -> K, cut: impl Fn(&O) -> Option<V>) {
        let put = |all: &mut BTreeMap<K, V>, object: &O| {
            match cut(object) {
                Some(value) => all.insert(key(object), value),
                None => all.remove(&key(object)),
            };
        };
        let mut state = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => state.listed = Some(BTreeMap::new()),
            Event::InitApply(object) => put(state.listed.get_or_insert_default(), object),
            Event::InitDone => {
                state.now = state.listed.take().unwrap_or_default();
                self.is_ready.send_replace(true);
            }
            Event::Apply(object) => put(&mut state.now, object),
            Event::Delete(object) => {
                state.now.remove(&key(object));
            }
        }
    }

    /// Whether all have been listed once.
    pub(super) fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    /// Waits until all have been listed once.
    pub(super) async fn wait_until_ready(&self) {
        // Its sender is this index's own.
        let _ = self.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
    }

    pub(super) fn seen(&self) -> Seen<'_, V, K> {
        Seen(self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    fn node(name: &str) -> Node {
        serde_json::from_value(serde_json::json!({ "metadata": { "name": name } })).unwrap()
    }

    #[test]
    fn what_a_new_list_does_not_bring_is_no_more() {
        let index = Index::new();
        let note = |event: Event<Node>| index.note(&event, named, |node| Some(node.name_any().len()));
        let names = || index.seen().all().keys().map(|(_, name)| name.clone()).collect::<Vec<_>>();
        [Event::Init, Event::InitApply(node("a")), Event::InitApply(node("b"))].into_iter().for_each(note);
        assert!(names().is_empty(), "half a list is none");
        note(Event::InitDone);
        note(Event::Apply(node("c")));
        note(Event::Delete(node("a")));
        assert_eq!(names(), ["b", "c"]);
        [Event::Init, Event::InitApply(node("d")), Event::InitDone].into_iter().for_each(note);
        assert_eq!(names(), ["d"]);
        index.note(&Event::Apply(node("d")), named, |_| None);
        assert!(names().is_empty(), "what does not count any more is not kept");
    }
}
