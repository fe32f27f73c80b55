//! Whose place it is where a job begins.

use super::*;
use shoal_runtime::cluster::JobId;

/// Has a keeper end once the scenario is over, as a master that is told to stop does.
async fn kept_until<T>(keeper: &Keeper<'_>, service: &MasterService, scenario: impl Future<Output = T>) -> T {
    let mut random = Random::seeded(7);
    let kept = keeper.keep_until(service, &mut random, scenario);
    timeout(Duration::from_secs(300), kept).await.expect("it never came to be").unwrap()
}

#[tokio::test(start_paused = true)]
async fn of_two_jobs_that_begin_in_one_empty_place_the_second_is_refused_until_the_first_has_given_it_back() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let first = keeper(&store, &wire, "m1");
    beside(&[(&first, &service)], until(|| term(&service) == Some(1))).await;

    let (others_store, others_service) = (MemoryStore::new(), MasterService::new());
    let mut second = Keeper { storage: first.storage, ..keeper(&others_store, &wire, "m2") };
    second.fresh.job.job = JobId("another".to_owned());
    let why = gives_up(&second, &others_service).await.to_string();
    assert!(why.contains(&format!("is the place of {}", first.fresh.job.job.0)), "{why}");
    assert!(others_store.load().await.unwrap().is_none(), "nothing has begun");

    // The first goes on in it, and ends before it has saved anything.
    service.step_down();
    kept_until(&first, &service, until(|| term(&service) == Some(2))).await;
    beside(&[(&second, &others_service)], until(|| term(&others_service) == Some(1))).await;
    let why = gives_up(&first, &service).await.to_string();
    assert!(why.contains("is the place of another"), "{why}");
    // Who does not lead gives nothing back.
    service.step_down();
    kept_until(&first, &service, async {}).await;
    others_service.step_down();
    beside(&[(&second, &others_service)], until(|| term(&others_service) == Some(2))).await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_does_not_lose_its_place_to_the_master_before_it() {
    let (store, wire) = (MemoryStore::new(), Wire::default());
    let [service, next_service] = [(); 2].map(|()| MasterService::new());
    let frail = storage::Frail::with_slow_deletions(Duration::from_secs(1));
    let first = Keeper { storage: &Storage::over(Arc::new(frail), "frail"), ..keeper(&store, &wire, "m1") };
    let next = Keeper { storage: first.storage, ..keeper(&store, &wire, "m2") };
    let stopped = async {
        kept_until(&first, &service, until(|| term(&service) == Some(1))).await;
        until(|| term(&next_service) == Some(2)).await;
    };
    beside(&[(&next, &next_service)], stopped).await;
    let whose = checkpoints::claimant(first.storage).await;
    assert!(whose.starts_with(&first.fresh.job.job.0), "{whose}");
}

#[tokio::test(start_paused = true)]
async fn a_job_begins_in_a_place_without_checkpoints_and_stays_there() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let mut keeper = keeper(&store, &wire, "m1");
    keeper.storage.put("checkpoint-00000003/manifest", "another job's".into()).await.unwrap();
    let why = gives_up(&keeper, &service).await.to_string();
    assert!(why.contains("holds checkpoints") && why.contains("--checkpoints"), "{why}");
    assert_eq!(store.load().await.unwrap(), None);

    checkpoints::remove(keeper.storage, CheckpointId(3)).await.unwrap();
    keeper.fresh.checkpoint_place = Some("/a".to_owned());
    beside(&[(&keeper, &service)], until(|| term(&service) == Some(1))).await;
    // Of this job's own: it goes on.
    keeper.storage.put("checkpoint-00000001/manifest", "its own".into()).await.unwrap();
    service.step_down();
    beside(&[(&keeper, &service)], until(|| term(&service) == Some(2))).await;

    keeper.fresh.checkpoint_place = None;
    let why = gives_up(&keeper, &service).await.to_string();
    assert!(why.contains("/a") && why.contains("the store's folder"), "{why}");
    assert_eq!(stored(&store).await.1.master_term, 2);
}

/// What is asked while it swallows calls is never answered, healed or not.
#[tokio::test(start_paused = true)]
async fn a_place_that_swallows_calls_is_asked_again_and_the_job_begins() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let frail = Arc::new(storage::Frail::default());
    let keeper = Keeper { storage: &Storage::over(frail.clone(), "frail"), ..keeper(&store, &wire, "m1") };
    frail.swallow(true);
    beside(&[(&keeper, &service)], async {
        sleep(BEGIN_PATIENCE / 2).await;
        frail.swallow(false);
        let millis = until(|| term(&service) == Some(1)).await;
        assert!(millis <= BEGIN_PATIENCE.as_millis() as u64, "{millis}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_place_that_does_not_answer_holds_up_no_masters_end() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let frail = storage::Frail::with_slow_deletions(Duration::from_secs(3600));
    let keeper = Keeper { storage: &Storage::over(Arc::new(frail), "frail"), ..keeper(&store, &wire, "m1") };
    kept_until(&keeper, &service, until(|| term(&service) == Some(1))).await;
}
