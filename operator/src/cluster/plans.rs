//! The ScalePlans that are not over: what is over is not kept, and who asks for one namespace's passes over no other's.

use super::index::{Index, Key, named};
use crate::api::{ScalePlan, TrainingJob};
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use std::sync::Arc;

/// All plans that are not over, by namespace and name.
pub(super) type PlanIndex = Index<Arc<ScalePlan>>;

impl PlanIndex {
    /// Takes in what the watch says.
    pub(super) fn note_plan(&self, event: &Event<ScalePlan>) {
        self.note(event, named, |plan| is_due(plan).then(|| Arc::new(plan.clone())));
    }

    /// A job's, the oldest first.
    pub(super) fn of(&self, job: &TrainingJob) -> Vec<ScalePlan> {
        let namespace = job.namespace().unwrap_or_default();
        let seen = self.seen();
        let from: Key = (namespace.clone(), String::new());
        let ours = seen.all().range(from..).take_while(|((at, _), _)| *at == namespace);
        let ours = ours.filter(|(_, plan)| plan.spec.owner_job == job.name_any());
        let mut plans: Vec<ScalePlan> = ours.map(|(_, plan)| (**plan).clone()).collect();
        plans.sort_by_key(|plan| {
            (plan.metadata.creation_timestamp.clone().map(|time| time.0), plan.name_any())
        });
        plans
    }

    /// Those of all jobs.
    pub(super) fn due(&self) -> Vec<Arc<ScalePlan>> {
        self.seen().all().values().cloned().collect()
    }
}

fn is_due(plan: &ScalePlan) -> bool {
    plan.metadata.deletion_timestamp.is_none()
        && !plan.status.as_ref().is_some_and(|status| status.phase.is_over())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ScalePlanPhase;

    fn plan(namespace: &str, name: &str, job: &str) -> ScalePlan {
        let mut plan = ScalePlan::new(name, Default::default());
        plan.metadata.namespace = Some(namespace.to_owned());
        plan.spec.owner_job = job.to_owned();
        plan
    }

    #[test]
    fn a_job_has_the_plans_of_its_namespace_that_name_it_and_are_not_over() {
        let index = PlanIndex::new();
        let mut over = plan("n", "over", "j");
        over.status.get_or_insert_default().phase = ScalePlanPhase::Succeeded;
        let all = [plan("n", "b", "j"), plan("n", "a", "j"), plan("n", "c", "k"), plan("m", "d", "j"), over];
        all.into_iter().for_each(|plan| index.note_plan(&Event::Apply(plan)));
        let mut job = TrainingJob::new("j", Default::default());
        job.metadata.namespace = Some("n".to_owned());
        let names = |index: &PlanIndex| index.of(&job).iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        assert_eq!((names(&index), index.due().len()), (vec!["a".to_owned(), "b".to_owned()], 4));
        index.note_plan(&Event::Apply(plan("n", "a", "k")));
        assert_eq!(names(&index), ["b"], "a plan that names another job now is that one's");
        index.note_plan(&Event::Delete(plan("n", "b", "j")));
        assert_eq!(names(&index), Vec::<String>::new());
    }
}
