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
    assert!(!stored(&others_store).await.1.has_begun());

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
async fn of_two_jobs_of_one_name_in_one_empty_place_the_second_is_refused_before_it_names_anything() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let first = keeper(&store, &wire, "m1");
    beside(&[(&first, &service)], until(|| term(&service) == Some(1))).await;
    let (others_store, others_service) = (MemoryStore::new(), MasterService::new());
    let second = Keeper { storage: first.storage, ..keeper(&others_store, &wire, "m2") };
    let why = gives_up(&second, &others_service).await.to_string();
    let identity = stored(&store).await.1.identity.unwrap();
    let whose = format!("is the place of {} (identity {identity})", first.fresh.job.job.0);
    assert!(why.contains(&whose), "{why}");
    let refused = stored(&others_store).await.1;
    assert_eq!((refused.has_begun(), refused.checkpoints_named), (false, 0));
    // The first goes on, and the second in another place.
    service.step_down();
    beside(&[(&first, &service)], until(|| term(&service) == Some(2))).await;
    let elsewhere = Keeper { storage: keeper(&others_store, &wire, "m3").storage, ..second };
    beside(&[(&elsewhere, &others_service)], until(|| term(&others_service) == Some(1))).await;
    assert_eq!(stored(&others_store).await.1.identity, refused.identity, "an identity is drawn once");
}

/// Whatever a master dies between, the next one of this job has the same identity.
#[tokio::test(start_paused = true)]
async fn a_master_that_dies_between_store_and_place_leaves_a_job_that_begins() {
    for is_claimed in [false, true] {
        let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
        let mut keeper = keeper(&store, &wire, "m1");
        let identity = Some(String::from("1f"));
        put(&store, None, &Document { identity: identity.clone(), ..fresh(3, 2) }).await;
        let job = &keeper.fresh.job.job.0;
        if is_claimed {
            checkpoints::claim(keeper.storage, job, identity.as_deref()).await.unwrap();
        }
        keeper.fresh.wanted.trainers = 7;
        beside(&[(&keeper, &service)], until(|| term(&service) == Some(1))).await;
        let began = stored(&store).await.1;
        assert_eq!(began, Document { identity, ..keeper.fresh.clone() }.elected("m1"), "as it begins now");
        assert!(checkpoints::claimant(keeper.storage).await.contains("(identity 1f)"));
    }
}

/// A build that knew names alone wrote its document without an identity, and its claim.
#[tokio::test(start_paused = true)]
async fn a_job_that_began_by_its_name_alone_goes_on_by_it_and_nobody_else_does() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let first = keeper(&store, &wire, "m1");
    let name = &first.fresh.job.job.0;
    put(&store, None, &fresh(1, 0).elected("m0")).await;
    first.storage.put("job", format!("{name}\n").into()).await.unwrap();
    beside(&[(&first, &service)], until(|| term(&service) == Some(2))).await;
    assert_eq!(stored(&store).await.1.identity, None);
    let (others_store, others_service) = (MemoryStore::new(), MasterService::new());
    let second = Keeper { storage: first.storage, ..keeper(&others_store, &wire, "m2") };
    let why = gives_up(&second, &others_service).await.to_string();
    assert!(why.contains(&format!("is the place of {name}, as")), "{why}");
}

/// The job is resumed from its store: only an untrained job, or one that is over, gives its place back.
#[tokio::test(start_paused = true)]
async fn a_job_that_has_trained_keeps_its_place_although_it_has_saved_nothing_yet() {
    for is_over in [false, true] {
        let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
        let first = keeper(&store, &wire, "m1");
        let trained = async {
            until(|| term(&service) == Some(1)).await;
            join(&service);
            register(&service, "p0", 1);
            until(|| is_placed(&service)).await;
            if is_over {
                service.with(|machine, _| machine.fail("it could not go on".to_owned()));
                service.changed().notify_waiters();
                until(|| told(&service).unwrap().end.is_some()).await;
            }
        };
        kept_until(&first, &service, trained).await;
        let (others_store, others_service) = (MemoryStore::new(), MasterService::new());
        let second = Keeper { storage: first.storage, ..keeper(&others_store, &wire, "m2") };
        if is_over {
            beside(&[(&second, &others_service)], until(|| term(&others_service) == Some(1))).await;
        } else {
            gives_up(&second, &others_service).await;
            service.step_down();
            beside(&[(&first, &service)], until(|| term(&service) == Some(2))).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_in_which_nothing_is_trained_may_name_another_place() {
    let (store, wire, service) = (MemoryStore::new(), Wire::default(), MasterService::new());
    let mut keeper = keeper(&store, &wire, "m1");
    keeper.fresh.checkpoint_place = Some("/a".to_owned());
    beside(&[(&keeper, &service)], until(|| term(&service) == Some(1))).await;
    service.step_down();
    keeper.fresh.checkpoint_place = Some("/b".to_owned());
    beside(&[(&keeper, &service)], until(|| term(&service) == Some(2))).await;
    assert_eq!(stored(&store).await.1.checkpoint_place.as_deref(), Some("/b"));
    // Not one in which others have saved: theirs would be written over.
    service.step_down();
    keeper.storage.put("checkpoint-00000003/manifest", "another job's".into()).await.unwrap();
    keeper.fresh.checkpoint_place = Some("/c".to_owned());
    let why = gives_up(&keeper, &service).await.to_string();
    assert!(why.contains("holds checkpoints"), "{why}");
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
    assert!(!stored(&store).await.1.has_begun());

    checkpoints::remove(keeper.storage, CheckpointId(3)).await.unwrap();
    keeper.fresh.checkpoint_place = Some("/a".to_owned());
    beside(&[(&keeper, &service)], until(|| term(&service) == Some(1))).await;
    // Of this job's own: it goes on.
    keeper.storage.put("checkpoint-00000001/manifest", "its own".into()).await.unwrap();
    service.step_down();
    beside(&[(&keeper, &service)], until(|| term(&service) == Some(2))).await;

    let (revision, document) = stored(&store).await;
    put(&store, Some(revision), &Document { checkpoints_named: 1, ..document }).await;
    keeper.fresh.checkpoint_place = None;
    let why = gives_up(&keeper, &service).await.to_string();
    assert!(why.contains("/a") && why.contains("the store's folder"), "{why}");
    assert_eq!(stored(&store).await.1.master_term, 2);
}

/// Calls that were swallowed stay unanswered, also after the place has healed.
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
