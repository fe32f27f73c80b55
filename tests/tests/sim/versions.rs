//! Builds of different wire versions, every role and both orders: who does not fit ends with an error that says whom to
//! upgrade, and the job that it met goes on to the same bits.

use shoal_runtime::wire::WireVersion;
use shoal_tests::sim::evidence::Evidence;
use shoal_tests::sim::host::HostState;
use shoal_tests::sim::invariants;
use shoal_tests::sim::observer::Observer;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::world::{MASTER, World};
use shoal_trainer_sdk::TrainError;
use std::time::Duration;
use tokio::time::sleep;

/// What this build speaks.
const OURS: u32 = WireVersion::PRESENT.0;
/// Older than the check, older, newer.
const OTHERS: [Option<WireVersion>; 3] = [None, Some(WireVersion(OURS - 1)), Some(WireVersion(OURS + 1))];
/// Long before any patience is over.
const SOON: Duration = Duration::from_secs(5);

/// A trainer's end, which must come soon, be an error of this role and name versions and document.
async fn is_refused(world: &mut World, trainer: usize, role: &str, other: Option<WireVersion>) {
    let ended = tokio::time::timeout(SOON, world.trainers[trainer].ended()).await;
    let error = ended.unwrap().unwrap().unwrap().unwrap_err();
    let theirs =
        other.map_or(String::from("no wire version"), |version| format!("wire version {}", version.0));
    let ours = format!("wire version {OURS}");
    let words = [role, "another version", &ours, &theirs, "upgrade", "docs/versions.md"];
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    assert!(matches!(error, TrainError::Refused { .. }) && error.exit_code() != 0);
}

async fn ends_well(world: World, observer: &Observer) {
    let evidence = Evidence::when_over(world, observer, Duration::from_secs(60)).await;
    assert_eq!(invariants::check(&evidence), [] as [String; 0]);
}

#[test]
fn who_speaks_another_version_is_refused_by_the_master_and_changes_nothing() {
    for other in OTHERS {
        in_paused_time(async move {
            let mut world = World::start(Scenario { pservers: 2, ..Scenario::quiet(5) }, true);
            let observer = Observer::new(&world.network);
            world.network.speak("stranger", other);
            world.network.speak("pserver-9", other);
            let stranger = world.start_trainer("stranger");
            world.start_pserver("pserver-9");
            is_refused(&mut world, stranger, "master", other).await;
            sleep(SOON).await;
            assert_eq!(world.pservers[2].state(), HostState::Crashed, "it has given up");
            let status = observer.status().await.unwrap();
            assert!(status.trainers.is_empty() && status.pservers.len() == 2, "{status:?}");
            world.start_trainer("t");
            world.trainers.remove(stranger);
            ends_well(world, &observer).await;
        });
    }
}

#[test]
fn a_master_of_another_version_is_refused_by_trainers_and_pservers_whoever_comes_first() {
    for other in OTHERS {
        for is_master_first in [true, false] {
            in_paused_time(async move {
                let mut world = World::start(Scenario::quiet(5), true);
                if is_master_first {
                    world.network.speak(MASTER, other);
                } else {
                    world.masters[0].crash();
                }
                let trainer = world.start_trainer("t");
                if !is_master_first {
                    sleep(Duration::from_secs(1)).await;
                    assert!(
                        world.trainers[trainer].is_alive() && world.pservers[0].state() == HostState::Running
                    );
                    world.network.speak("master#2", other);
                    world.start_master();
                }
                is_refused(&mut world, trainer, "master", other).await;
                sleep(SOON).await;
                assert_eq!(world.pservers[0].state(), HostState::Crashed, "it has given up");
                world
                    .network
                    .speak(if is_master_first { MASTER } else { "master#2" }, Some(WireVersion::PRESENT));
                let status = Observer::new(&world.network).status().await.unwrap();
                assert!(status.trainers.is_empty() && status.pservers.is_empty(), "{status:?}");
            });
        }
    }
}

/// In mid-job, as if it alone had been started from another build: whoever meets it first.
#[test]
fn a_member_that_comes_back_with_another_version_leaves_the_job_to_the_others() {
    for other in OTHERS {
        in_paused_time(async move {
            let mut world = World::start(Scenario { pservers: 2, replicas: 1, ..Scenario::quiet(5) }, true);
            let observer = Observer::new(&world.network);
            world.start_trainer_with("t", Duration::from_millis(50), world.scenario.program());
            sleep(Duration::from_millis(300)).await;
            world.pservers[1].crash();
            world.network.speak("pserver-2#2", other);
            world.start_pserver("pserver-2");
            sleep(SOON).await;
            assert_eq!(world.pservers[2].state(), HostState::Crashed, "it has given up");
            ends_well(world, &observer).await;
        });
    }
}
