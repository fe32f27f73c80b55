//! Which nodes a pod may be on: node selector, required node affinity, taints. Pure.
//!
//! Nodes that no wish tells apart are one pool, so that a wish is held against a few pools and not against each node.

use super::Site;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};
use shoal_planner::Pools;
use std::collections::{BTreeMap, BTreeSet};

/// Where a pod wants to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    selector: BTreeMap<String, String>,
    /// One of these must hold; none for no affinity.
    terms: Option<Vec<NodeSelectorTerm>>,
    tolerations: Vec<Toleration>,
    /// Names of nodes that it is kept from.
    avoided: Vec<String>,
}

impl Wish {
    /// What a pod says.
    pub fn of(spec: &PodSpec) -> Wish {
        let affinity = spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref());
        let required =
            affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref());
        Wish {
            selector: spec.node_selector.clone().unwrap_or_default(),
            terms: required.map(|required| required.node_selector_terms.clone()),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            avoided: Vec::new(),
        }
    }

    /// The same wish, kept from these nodes as well.
    pub fn avoiding(&self, nodes: Vec<String>) -> Wish {
        Wish { avoided: nodes, ..self.clone() }
    }

    fn requirements(&self) -> impl Iterator<Item = &NodeSelectorRequirement> {
        self.terms.iter().flatten().flat_map(|term| term.match_expressions.iter().flatten())
    }

    /// Labels that it looks at.
    fn keys(&self) -> impl Iterator<Item = &str> {
        self.selector.keys().map(String::as_str).chain(self.requirements().map(|one| one.key.as_str()))
    }

    /// Names of nodes that it names: all others are alike to it.
    fn names(&self) -> impl Iterator<Item = &str> {
        let fields = self.terms.iter().flatten().flat_map(|term| term.match_fields.iter().flatten());
        let named = fields.flat_map(|field| field.values.iter().flatten());
        named.chain(&self.avoided).map(String::as_str)
    }

    /// Whether a pod with this wish may be put on such a node.
    pub fn suits(&self, site: &Site) -> bool {
        let is_selected = self.selector.iter().all(|(key, value)| site.labels.get(key) == Some(value));
        let is_near = self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| holds(term, site)));
        let is_avoided = self.avoided.contains(&site.name);
        is_selected && is_near && !is_avoided && site.taints.iter().all(|taint| self.tolerates(taint))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|one| {
            let is_effect =
                one.effect.as_ref().is_none_or(|effect| effect.is_empty() || *effect == taint.effect);
            let key = one.key.as_deref().unwrap_or_default();
            let exists = one.operator.as_deref() == Some("Exists");
            let is_value = exists
                || one.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
            is_effect && is_value && (key == taint.key || (key.is_empty() && exists))
        })
    }
}

/// Whether all of a term holds; an empty one never does.
fn holds(term: &NodeSelectorTerm, site: &Site) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let by_label = |one: &NodeSelectorRequirement| is_met(one, site.labels.get(&one.key).map(String::as_str));
    let by_name = |one: &NodeSelectorRequirement| one.key == "metadata.name" && is_met(one, Some(&site.name));
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(by_label)
        && fields.iter().all(by_name)
}

fn is_met(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let is_among = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(value?)?, number(values.first()?)?));
    match wanted.operator.as_str() {
        "In" => is_among,
        "NotIn" => !is_among,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(have, than)| have > than),
        "Lt" => compared().is_some_and(|(have, than)| have < than),
        _ => false,
    }
}

/// What tells nodes apart: values of the labels that wishes look at, taints, the name if wishes look at names.
type Kind<'a> = (Vec<Option<&'a str>>, Vec<(&'a str, &'a str, &'a str)>, &'a str);

/// Nodes that no wish tells apart are of one pool.
#[derive(Debug)]
pub(super) struct PoolMap<'a> {
    /// By pool, one of its nodes, which stands for all.
    of_pools: Vec<&'a Site>,
    /// By node, its pool.
    pub(super) pools: Vec<u32>,
}

impl<'a> PoolMap<'a> {
    pub(super) fn new<'w>(sites: &'a [Site], wishes: impl Iterator<Item = &'w Wish> + Clone) -> PoolMap<'a> {
        let keys: BTreeSet<&str> = wishes.clone().flat_map(Wish::keys).collect();
        let names: BTreeSet<&str> = wishes.flat_map(Wish::names).collect();
        let mut known: BTreeMap<Kind<'_>, u32> = BTreeMap::new();
        let mut map = PoolMap { of_pools: Vec::new(), pools: Vec::with_capacity(sites.len()) };
        for site in sites {
            let labels = keys.iter().map(|key| site.labels.get(*key).map(String::as_str)).collect();
            let taint = |taint: &'a Taint| {
                (taint.key.as_str(), taint.value.as_deref().unwrap_or_default(), taint.effect.as_str())
            };
            let taints = site.taints.iter().map(taint).collect();
            let name = names.get(site.name.as_str()).copied().unwrap_or_default();
            let next = map.of_pools.len() as u32;
            let pool = *known.entry((labels, taints, name)).or_insert(next);
            if pool == next {
                map.of_pools.push(site);
            }
            map.pools.push(pool);
        }
        map
    }

    /// The pools that a wish is content with.
    pub(super) fn suiting(&self, wish: &Wish) -> Pools {
        let numbered = self.of_pools.iter().zip(0u32..);
        let some: Vec<u32> = numbered.filter(|(site, _)| wish.suits(site)).map(|(_, pool)| pool).collect();
        if some.len() == self.of_pools.len() { Pools::Any } else { Pools::Of(some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn site(name: &str, labels: Value, taints: Value) -> Site {
        Site {
            name: name.to_owned(),
            labels: serde_json::from_value(labels).unwrap(),
            taints: serde_json::from_value(taints).unwrap(),
            ..Site::default()
        }
    }

    fn wish(mut spec: Value) -> Wish {
        spec["containers"] = json!([]);
        Wish::of(&serde_json::from_value(spec).unwrap())
    }

    fn terms(terms: Value) -> Wish {
        wish(json!({ "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } }))
    }

    #[test]
    fn selectors_affinity_and_taints_are_read_as_the_scheduler_reads_them() {
        let gpu = site(
            "a",
            json!({ "zone": "x", "gpus": "4" }),
            json!([{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }]),
        );
        let plain = site("b", json!({ "zone": "y" }), json!([]));
        let tolerates = |toleration: Value| wish(json!({ "tolerations": [toleration] })).suits(&gpu);
        assert!(wish(json!({})).suits(&plain) && !wish(json!({})).suits(&gpu));
        assert!(tolerates(json!({ "operator": "Exists" })));
        assert!(tolerates(json!({ "key": "gpu", "operator": "Exists" })));
        assert!(tolerates(json!({ "key": "gpu", "value": "yes", "effect": "NoSchedule" })));
        assert!(!tolerates(json!({ "key": "gpu", "value": "no" })));
        assert!(!tolerates(json!({ "key": "gpu", "operator": "Exists", "effect": "NoExecute" })));
        assert!(wish(json!({ "nodeSelector": { "zone": "y" } })).suits(&plain));
        assert!(!wish(json!({ "nodeSelector": { "zone": "x" } })).suits(&plain));
        let one = |key: &str, operator: &str, values: Value| {
            terms(json!([{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }]))
        };
        let bare = Site { taints: Vec::new(), ..gpu };
        assert!(
            one("zone", "In", json!(["x", "z"])).suits(&bare)
                && !one("zone", "In", json!(["z"])).suits(&bare)
        );
        assert!(
            one("zone", "NotIn", json!(["z"])).suits(&bare)
                && one("none", "NotIn", json!(["z"])).suits(&bare)
        );
        assert!(
            one("zone", "Exists", json!([])).suits(&bare)
                && one("none", "DoesNotExist", json!([])).suits(&bare)
        );
        assert!(
            one("gpus", "Gt", json!(["3"])).suits(&bare) && !one("gpus", "Lt", json!(["4"])).suits(&bare)
        );
        let named = |name: &str| {
            terms(
                json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] }]),
            )
        };
        assert!(named("a").suits(&bare) && !named("c").suits(&bare));
        assert!(!terms(json!([{}])).suits(&bare), "an empty term suits nobody");
    }

    #[test]
    fn a_node_that_is_named_is_a_pool_of_its_own_and_all_others_are_alike() {
        let sites = ["a", "b", "c"].map(|name| site(name, json!({}), json!([])));
        let any = wish(json!({}));
        let kept = any.avoiding(vec!["b".to_owned(), "gone".to_owned()]);
        let map = PoolMap::new(&sites, [&any, &kept].into_iter());
        assert_eq!((map.pools.as_slice(), map.suiting(&kept)), ([0, 1, 0].as_slice(), Pools::Of(vec![0])));
        assert_eq!(map.suiting(&any), Pools::Any);
    }

    #[test]
    fn nodes_that_no_wish_tells_apart_are_one_pool() {
        let sites = [
            site("a", json!({ "zone": "x" }), json!([])),
            site("b", json!({ "zone": "y" }), json!([])),
            site("c", json!({ "zone": "x", "more": "1" }), json!([])),
        ];
        let any = wish(json!({}));
        let map = PoolMap::new(&sites, [&any].into_iter());
        assert_eq!((map.pools.as_slice(), map.suiting(&any)), ([0, 0, 0].as_slice(), Pools::Any));
        let picky = wish(json!({ "nodeSelector": { "zone": "x" } }));
        let map = PoolMap::new(&sites, [&any, &picky].into_iter());
        assert_eq!((map.pools.as_slice(), map.suiting(&picky)), ([0, 1, 0].as_slice(), Pools::Of(vec![0])));
        assert_eq!(map.suiting(&any), Pools::Any);
    }
}
