//! Live settings that were told while a job lives, over changes of masters.

use super::*;
use shoal_job::spec::{CheckpointSpec, Spec};

/// A start by settings with so many copies.
fn started(keeper: &mut Keeper<'_>, copies: u32) {
    keeper.spec.copies = Some(copies);
    keeper.fresh.wanted.replicas = copies;
}

#[tokio::test(start_paused = true)]
async fn settings_that_were_told_outlive_the_office_and_the_master_but_not_a_start_with_others() {
    let (first, wire) = (MemoryStore::new(), Wire::default());
    let (second, third) = (first.another(), first.another());
    let services = [(); 3].map(|()| MasterService::new());
    let mut keepers =
        [keeper(&first, &wire, "m1"), keeper(&second, &wire, "m2"), keeper(&third, &wire, "m3")];
    started(&mut keepers[2], 3);
    let checkpoint = CheckpointSpec { keep_last: Some(9), ..keepers[0].spec.checkpoint.clone() };
    let edited = Spec { copies: Some(1), exclude_max: Some(4), checkpoint, ..keepers[0].spec.clone() };
    let spec = |service: &MasterService| service.with(|machine, _| machine.spec().clone());
    let counts = |document: &Document| (document.wanted.replicas, document.wanted.exclude_max);
    // One alone at first, which loses its office to nobody.
    beside(&[(&keepers[0], &services[0])], async {
        until(|| term(&services[0]) == Some(1)).await;
        services[0].with(|machine, _| machine.go_by(edited.clone()));
        services[0].changed().notify_waiters();
        until(|| told(&services[0]).is_some_and(|document| counts(&document) == (1, 4))).await;
        first.depose();
        until(|| term(&services[0]) == Some(2)).await;
        assert_eq!((spec(&services[0]), counts(&stored(&first).await.1)), (Some(edited.clone()), (1, 4)));
    })
    .await;
    // Another that was started as the first was.
    first.depose();
    beside(&[(&keepers[1], &services[1])], async {
        until(|| term(&services[1]).is_some()).await;
        assert_eq!((spec(&services[1]), counts(&stored(&first).await.1)), (Some(edited.clone()), (1, 4)));
    })
    .await;
    // One that was started with other settings, by somebody who has changed them.
    second.depose();
    beside(&[(&keepers[2], &services[2])], async {
        until(|| term(&services[2]).is_some()).await;
        let (_, document) = stored(&first).await;
        assert_eq!((spec(&services[2]), counts(&document)), (Some(keepers[2].spec.clone()), (3, 0)));
        assert_eq!(document.told, None);
    })
    .await;
}
