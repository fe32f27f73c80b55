//! Amounts of what nodes have and pods ask for, by Kubernetes' names. Pure.

use crate::api::quantity_value;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shoal_planner::{CPU, DEVICES, KINDS, MEMORY, PODS, Resources};
use std::collections::BTreeMap;

/// More than any machine has of anything (4 PiB of memory). Whoever asks for more is given as little, and sums of it stay numbers:
/// nobody's quantities may make the planner miscount, for then nobody is planned for.
const AMOUNT_MAX: i64 = 1 << 52;

/// Cpu, memory, the number of pods, and devices by their name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a processor.
    pub cpu_millis: i64,
    /// Bytes.
    pub memory: i64,
    /// Pods: a node's most, or 1 for a pod.
    pub pods: i64,
    /// Devices, such as `nvidia.com/gpu`, in the order of their names.
    pub devices: Vec<(String, i64)>,
}

impl Amounts {
    /// What a list of quantities says. What it does not name is none.
    pub fn of(list: &BTreeMap<String, Quantity>) -> Amounts {
        let value = |name: &str| list.get(name).and_then(|stated| quantity_value(&stated.0)).unwrap_or(0.0);
        let devices = list.keys().filter(|name| is_device(name));
        Amounts {
            cpu_millis: (value("cpu") * 1000.0).ceil() as i64,
            memory: value("memory").ceil() as i64,
            pods: value("pods") as i64,
            devices: devices.map(|name| (name.clone(), value(name) as i64)).collect(),
        }
    }

    /// What a pod asks a node for, as the scheduler counts it: its containers together, or one of those that run before them
    /// if that asks for more; those that start before and stay count throughout.
    pub fn of_pod(spec: &PodSpec) -> Amounts {
        let mut all = Amounts::default();
        spec.containers.iter().for_each(|one| all.add(&requested(one)));
        let (mut staying, mut first) = (Amounts::default(), Amounts::default());
        for one in spec.init_containers.iter().flatten() {
            let mut then = requested(one);
            then.add(&staying);
            first.raise_to(&then);
            if one.restart_policy.as_deref() == Some("Always") {
                staying = then;
            }
        }
        all.add(&staying);
        all.raise_to(&first);
        if let Some(overhead) = &spec.overhead {
            all.add(&Amounts::of(overhead));
        }
        all.pods = 1;
        all
    }

    /// More by so much.
    pub fn add(&mut self, other: &Amounts) {
        self.merge(other, |mine, theirs| mine.saturating_add(theirs));
    }

    fn raise_to(&mut self, other: &Amounts) {
        self.merge(other, i64::max);
    }

    fn merge(&mut self, other: &Amounts, both: impl Fn(i64, i64) -> i64) {
        self.cpu_millis = both(self.cpu_millis, other.cpu_millis);
        self.memory = both(self.memory, other.memory);
        self.pods = both(self.pods, other.pods);
        for (name, theirs) in &other.devices {
            match self.devices.binary_search_by(|(mine, _)| mine.cmp(name)) {
                Ok(at) => self.devices[at].1 = both(self.devices[at].1, *theirs),
                Err(at) => self.devices.insert(at, (name.clone(), *theirs)),
            }
        }
    }

    /// As the planner counts, with these devices; others are left out. Nothing is more than `AMOUNT_MAX`.
    pub fn planned(&self, devices: &[String]) -> Resources {
        let mut all = [0; KINDS];
        (all[CPU], all[MEMORY], all[PODS]) = (self.cpu_millis, self.memory, self.pods);
        for (name, amount) in &self.devices {
            if let Some(slot) =
                devices.iter().position(|one| one == name).and_then(|at| all.get_mut(DEVICES + at))
            {
                *slot = *amount;
            }
        }
        Resources(all.map(|amount| amount.min(AMOUNT_MAX)))
    }
}

/// Whether a resource is a device: those of vendors have a domain of their own. Huge pages, volumes and the like are not planned.
fn is_device(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

fn requested(container: &Container) -> Amounts {
    let none = ResourceRequirements::default();
    let stated = container.resources.as_ref().unwrap_or(&none);
    // A limit alone is a request, too.
    let mut list = stated.limits.clone().unwrap_or_default();
    list.extend(stated.requests.clone().unwrap_or_default());
    Amounts::of(&list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(spec: Value) -> Amounts {
        Amounts::of_pod(&serde_json::from_value(spec).unwrap())
    }

    fn container(requests: Value) -> Value {
        json!({ "name": "c", "resources": { "requests": requests } })
    }

    #[test]
    fn containers_are_summed_and_those_before_them_count_if_they_ask_for_more() {
        let both = json!({ "containers": [container(json!({ "cpu": "500m", "memory": "1Gi" })),
            container(json!({ "cpu": 1, "nvidia.com/gpu": 2 }))] });
        let told = asked(both.clone());
        assert_eq!((told.cpu_millis, told.memory, told.pods), (1500, 1 << 30, 1));
        assert_eq!(told.devices, [("nvidia.com/gpu".to_owned(), 2)]);
        let mut before = both;
        before["initContainers"] = json!([container(json!({ "cpu": 4 }))]);
        assert_eq!(asked(before.clone()).cpu_millis, 4000);
        let mut staying = container(json!({ "cpu": 2 }));
        staying["restartPolicy"] = json!("Always");
        before["initContainers"] = json!([staying, container(json!({ "cpu": 1 }))]);
        assert_eq!(asked(before.clone()).cpu_millis, 3500);
        before["overhead"] = json!({ "cpu": "250m" });
        assert_eq!(asked(before).cpu_millis, 3750);
    }

    #[test]
    fn a_limit_alone_is_a_request() {
        let limits = json!({ "containers": [{ "name": "c", "resources": { "limits": { "cpu": 2, "memory": "1Gi" },
            "requests": { "cpu": 1 } } }] });
        assert_eq!((asked(limits.clone()).cpu_millis, asked(limits).memory), (1000, 1 << 30));
    }

    #[test]
    fn only_the_devices_of_vendors_are_planned() {
        let list = json!({ "cpu": 8, "memory": "1Ki", "pods": 110, "hugepages-2Mi": "1Gi", "ephemeral-storage": 5,
            "attachable-volumes-csi-x": 3, "scheduling.k8s.io/foo": 1, "amd.com/gpu": 4, "nvidia.com/gpu": 2 });
        let told = Amounts::of(&serde_json::from_value(list).unwrap());
        let devices: Vec<&str> = told.devices.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(devices, ["amd.com/gpu", "nvidia.com/gpu", "scheduling.k8s.io/foo"]);
        let planned = told.planned(&["nvidia.com/gpu".to_owned()]);
        assert_eq!(planned.0[..4], [8000, 1024, 110, 2]);
        let huge = Amounts::of(&serde_json::from_value(json!({ "memory": "8Ei" })).unwrap());
        assert_eq!(huge.planned(&[]).0[MEMORY], AMOUNT_MAX, "a thousand of them together are a number");
    }
}
