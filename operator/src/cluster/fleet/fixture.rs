//! An operator of one namespace, for tests of whatever reconciles. It tests nothing.

use super::super::creations::CREATED_BY_ALL;
use super::super::master::masters;
use super::*;
use kube::runtime::events::Reporter;

/// One that asks the server of its certificates, and sees these pods and no plans.
pub(in super::super) fn fleet(certificates: Certificates, leader: Leader, pods: PodIndex) -> Fleet {
    let (client, plans) = (certificates.client.clone(), PlanIndex::new());
    plans.note_plan(&kube::runtime::watcher::Event::InitDone);
    let reporter = Reporter { controller: "o".to_owned(), instance: None };
    Fleet {
        recorder: Recorder::new(client.clone(), reporter),
        defaults: Defaults::default(),
        budgets: BudgetApi { version: "v1", has_eviction_policy: true },
        masters: masters(Arc::default()).0,
        certificates,
        leader: Arc::new(leader),
        pods: Arc::new(pods),
        plans: Arc::new(plans),
        planner: None,
        others: None,
        reconciles: Arc::default(),
        surrounded: Mutex::default(),
        jobs: Mutex::default(),
        pauses: Mutex::default(),
        random: Mutex::new(Random::seeded(5)),
        creations: Semaphore::new(CREATED_BY_ALL),
        client,
    }
}
