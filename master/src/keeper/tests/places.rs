//! Whose place it is where a job begins.

use super::*;
use shoal_runtime::cluster::JobId;

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
    beside(&[(&first, &service)], until(|| term(&service) == Some(2))).await;
    first.release(&service).await;
    beside(&[(&second, &others_service)], until(|| term(&others_service) == Some(1))).await;
    let why = gives_up(&first, &service).await.to_string();
    assert!(why.contains("is the place of another"), "{why}");
    // Who does not lead gives nothing back.
    first.release(&service).await;
    others_service.step_down();
    beside(&[(&second, &others_service)], until(|| term(&others_service) == Some(2))).await;
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
