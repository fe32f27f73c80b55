//! Plans as they are taken up, or not.

use super::*;
use kube::runtime::reflector;
use serde_json::json;

fn planner() -> Planner {
    let (jobs, mut writer) = reflector::store::<TrainingJob>();
    let template = json!({ "spec": { "containers": [{ "name": "trainer", "image": "i" }] } });
    let spec = json!({ "data": ["/d"], "checkpoint": { "place": "/c" }, "trainer": { "maxReplicas": 9, "template": template } });
    let mut job = TrainingJob::new("j", serde_json::from_value(spec).unwrap());
    (job.metadata.uid, job.metadata.namespace) = (Some("u".to_owned()), Some("n".to_owned()));
    writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(job));
    Planner::new(Settings::default(), Defaults::default(), jobs, Arc::new(Others::of("n")), Arc::default())
}

/// Takes up what was planned for the only job, whose trainers are `t0` and `t1` and of which `t9` goes already.
fn adopt(planner: &Planner, plans: Result<Vec<JobPlan>, Broken>) -> usize {
    let job = planner.jobs.state().remove(0);
    let facts = JobFacts { uid: "u".to_owned(), ..JobFacts::default() };
    let named = |names: &[&str]| vec![names.iter().map(|name| (*name).to_owned()).collect()];
    let inventory =
        Inventory { trainers: named(&["t0", "t1"]), going: named(&["t9"]), ..Inventory::default() };
    planner.adopt(vec![(ObjectRef::from_obj(&*job), &facts)], inventory, plans).len()
}

#[test]
fn a_plan_that_is_broken_is_not_used_and_the_last_one_stays() {
    let planner = planner();
    // What its pods ask for is read first.
    planner.plan_once();
    let first = JobPlan { is_admitted: true, trainers: 3, scaled_down: vec![1], ..JobPlan::default() };
    assert_eq!(adopt(&planner, Ok(vec![first.clone()])), 1);
    let goes = ["t9", "t1"].map(str::to_owned).to_vec();
    let is_first = || planner.of("u").as_deref() == Some(&(first.clone(), goes.clone()));
    assert!(is_first());
    assert_eq!(adopt(&planner, Err(Broken("on purpose".to_owned()))), 0, "nobody is looked at for it");
    assert!(is_first(), "{:?}", planner.of("u"));
    assert_eq!(planner.plans.broken.load(Ordering::Relaxed), 1);
    assert_eq!(adopt(&planner, Ok(vec![JobPlan { trainers: 4, ..first.clone() }])), 1, "the next one is");
    assert_eq!(planner.of("u").unwrap().0.trainers, 4);
}

#[test]
fn what_a_quota_refused_is_told_in_its_words_of_a_job_that_is_in() {
    let planner = planner();
    planner.plan_once();
    planner.refused("u", 2, "quota of pods");
    let blocker = |is_admitted: bool| {
        adopt(&planner, Ok(vec![JobPlan { is_admitted, ..JobPlan::default() }]));
        planner.of("u").unwrap().0.blocker.clone().map(|blocker| (blocker.word(), blocker.to_string()))
    };
    assert_eq!(blocker(true), Some((crate::decide::QUOTA, "quota of pods".to_owned())));
    assert_eq!(blocker(false), None);
}
