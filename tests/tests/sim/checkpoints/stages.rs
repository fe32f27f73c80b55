//! Everybody is killed at every change that a job makes to its place, before it and after it.

use super::*;
use shoal_tests::sim::place::Moment;
use shoal_tests::sim::run::in_paused_time;

/// What a stage of writing is, as far as the object that is changed tells.
fn changes_of_a_calm_run() -> Vec<String> {
    in_paused_time(async {
        let place = Place::new();
        let (world, observer) = begin(scenario(), MemoryStore::new(), &place);
        let status = finished(world, &observer, "calm").await;
        assert!(status.checkpoint >= 4, "{status:?}");
        place.changes()
    })
}

/// Killed at a change, then finished by other numbers of pservers and trainers.
fn killed_at(number: usize, moment: Moment, pservers: u32, trainers: u32) {
    let story = format!("killed {moment:?} change {number}, resumed by {pservers} pservers");
    in_paused_time(async {
        let place = Place::new();
        let (mut world, observer) = begin(scenario(), MemoryStore::new(), &place);
        place.stop_at(number, moment);
        let stopped = tokio::time::timeout(PATIENCE, place.stopped()).await;
        assert!(stopped.is_ok(), "{story}: there are fewer changes");
        world.crash_all();
        place.go_on();
        // What was on its way arrives nowhere.
        tokio::time::sleep(Duration::from_millis(500)).await;
        resume(&mut world, &observer, pservers, trainers).await;
        let status = finished(world, &observer, &story).await;
        assert_eq!(status.damaged, [], "{story}: what was never committed was never gone back to");
        left_behind(&place, &status, &story).await;
    });
}

/// Nothing is left but the checkpoints that are kept, each with its manifest.
async fn left_behind(place: &Place, status: &proto::StatusReply, story: &str) {
    let objects = place.objects().await;
    let newest = format!("checkpoint-{:08}/manifest", status.checkpoint);
    assert!(objects.contains_key(&newest), "{story}: {:?}", objects.keys());
}

#[test]
fn a_job_that_is_killed_at_any_stage_of_writing_ends_in_the_same_bits_at_one_pserver_and_at_five() {
    let changes = changes_of_a_calm_run();
    let manifests = changes.iter().filter(|name| name.ends_with("manifest")).count();
    assert!(manifests >= 5 && changes.len() > 40, "{changes:?}");
    for number in 0..changes.len() {
        // Who was faster decides which object the number falls on: all of them come up.
        killed_at(number, Moment::Before, 1, 2);
        killed_at(number, Moment::After, 5, 6);
    }
}
