//! Directed traces: orders of events that random seeds may miss, each built by hand out of real roles.

use shoal_runtime::cluster::Node;
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_tests::sim::evidence::{End, Evidence};
use shoal_tests::sim::hand::Hand;
use shoal_tests::sim::invariants;
use shoal_tests::sim::observer::Observer;
use shoal_tests::sim::program::Program;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::world::World;
use shoal_trainer_sdk::{Batch, Declaration, Ended, Gradient, Job, Model, Parameters};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const ROOT: Node = Node { level: 2, index: 0 };
const LEFT: Node = Node { level: 1, index: 0 };
const RIGHT: Node = Node { level: 1, index: 1 };

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Two pservers, four microbatches a step, five steps, nothing lost.
fn two_pservers() -> (World, Observer) {
    let world = World::start(Scenario { pservers: 2, ..Scenario::quiet(7) }, true);
    let observer = Observer::new(&world.network);
    (world, observer)
}

/// Waits for the end of the job; all invariants must hold.
async fn finished(world: World, observer: &Observer) -> Evidence {
    let evidence = Evidence::when_over(world, observer, Duration::from_secs(60)).await;
    let violations = invariants::check(&evidence);
    assert!(violations.is_empty(), "{violations:#?}\n{}", evidence.trace.lines().join("\n"));
    evidence
}

/// The simulation's program, telling how many microbatches it has computed.
struct Counting {
    program: Program,
    computed: Arc<AtomicU32>,
}

impl Model for Counting {
    fn declare(&mut self, job: &Job) -> anyhow::Result<Declaration> {
        self.program.declare(job)
    }
    fn step(
        &mut self,
        batch: &Batch<'_>,
        parameters: &Parameters,
        gradient: &mut Gradient,
    ) -> anyhow::Result<()> {
        self.computed.fetch_add(1, Relaxed);
        self.program.step(batch, parameters, gradient)
    }
}

/// A trainer with the simulation's program.
fn start(world: &mut World, name: &str, pace: Duration) -> usize {
    let program = world.scenario.program();
    world.start_trainer_with(name, pace, program)
}

/// Leases of what another had and did not get on with: given before its own expires.
fn helped(evidence: &Evidence) -> u64 {
    evidence.coverage.count_of("speculative leases")
}

#[test]
fn a_step_that_half_the_blocks_have_left_is_redone_at_its_version() {
    for step in [0, 2] {
        in_paused_time(async {
            let (mut world, observer) = two_pservers();
            let mut dead = Hand::join(&world, "dead", 1).await.unwrap();
            for done in 0..step {
                dead.do_step(&world, done).await.unwrap();
            }
            sleep(millis(200)).await;
            dead.lease(2).await.unwrap();
            assert_eq!(dead.push(&world, 0, step, ROOT).await, Ok(PushAnswer::Applied));
            // Its gradient for the other pserver dies with it. Whoever redoes it needs the version before.
            start(&mut world, "heir", Duration::ZERO);
            let evidence = finished(world, &observer).await;
            assert!(evidence.coverage.count_of("late pushes") >= 1);
        });
    }
}

#[test]
fn a_trainer_that_dies_between_its_pushes_to_two_pservers_leaves_no_trace() {
    in_paused_time(async {
        let (mut world, observer) = two_pservers();
        let victim = start(&mut world, "victim", millis(20));
        start(&mut world, "heir", millis(30));
        let host = Arc::clone(&world.trainers[victim].host);
        world.network.intercept(move |call, fate| {
            if call.is("victim", "pserver-2", "Push") && call.number == 2 {
                *fate = fate.clone().request_lost();
                host.crash();
            }
        });
        let evidence = finished(world, &observer).await;
        assert!(matches!(evidence.lives[victim].end, End::Crashed));
        assert!(helped(&evidence) >= 1);
    });
}

#[test]
fn a_zombie_that_wakes_up_after_its_step_is_told_that_it_is_applied() {
    in_paused_time(async {
        let (mut world, observer) = two_pservers();
        let ttl = world.scenario.ttl;
        let computed = Arc::new(AtomicU32::new(0));
        let program = world.scenario.program();
        let model = Counting { program, computed: Arc::clone(&computed) };
        let zombie = world.start_trainer_with("zombie", millis(100), model);
        start(&mut world, "heir", millis(100));
        // Amid its first task: the version is pulled, one microbatch of two is computed, nothing is pushed.
        while computed.load(Relaxed) == 0 {
            sleep(millis(10)).await;
        }
        world.trainers[zombie].host.pause();
        sleep(ttl * 3).await;
        let step = observer.status().await.unwrap().step;
        assert!(step >= 1, "the heir has not gone on without the zombie");
        world.trainers[zombie].host.resume();
        let evidence = finished(world, &observer).await;
        assert!(matches!(evidence.lives[zombie].end, End::Well(Ended::JobDone)));
        assert!(helped(&evidence) >= 1);
        assert!(evidence.coverage.count_of("late pushes") >= 1);
    });
}

#[test]
fn an_ancestor_counts_the_same_after_its_descendants_and_alone() {
    in_paused_time(async {
        let (mut world, observer) = two_pservers();
        let hand = Hand::join(&world, "hand", 1).await.unwrap();
        for leaf in [1, 2] {
            assert_eq!(hand.push(&world, 0, 0, Node::leaf(leaf)).await, Ok(PushAnswer::Held));
        }
        for pserver in [0, 1] {
            assert_eq!(hand.push(&world, pserver, 0, LEFT).await, Ok(PushAnswer::Held));
        }
        // A descendant after its ancestor is dropped.
        assert_eq!(hand.push(&world, 0, 0, Node::leaf(0)).await, Ok(PushAnswer::Held));
        for pserver in [0, 1] {
            assert_eq!(hand.push(&world, pserver, 0, RIGHT).await, Ok(PushAnswer::Applied));
        }
        start(&mut world, "heir", Duration::ZERO);
        let evidence = finished(world, &observer).await;
        assert_eq!(evidence.coverage.count_of("ancestors that replaced descendants"), 2);
        assert!(evidence.coverage.count_of("duplicates refused") >= 1);
    });
}

#[test]
fn a_push_whose_acknowledgement_is_lost_is_recognised_when_it_comes_again() {
    in_paused_time(async {
        let (mut world, observer) = two_pservers();
        let hand = Hand::join(&world, "hand", 1).await.unwrap();
        assert_eq!(hand.push(&world, 0, 0, LEFT).await, Ok(PushAnswer::Held));
        assert_eq!(hand.push(&world, 0, 0, LEFT).await, Ok(PushAnswer::Held));
        start(&mut world, "trainer", Duration::ZERO);
        world.network.intercept(|call, fate| {
            if call.is("trainer", "pserver-1", "Push") && call.number == 1 {
                *fate = fate.clone().reply_lost();
            }
        });
        let evidence = finished(world, &observer).await;
        assert!(
            evidence.coverage.count_of("duplicates refused") + evidence.coverage.count_of("late pushes") >= 2
        );
    });
}

#[test]
fn a_trainer_whose_node_finds_no_room_does_the_lower_one_first() {
    in_paused_time(async {
        let scenario = Scenario { microbatches_per_step: 8, window: 1, ..Scenario::quiet(7) };
        let mut world = World::start(scenario, true);
        let observer = Observer::new(&world.network);
        let mut dead = Hand::join(&world, "dead", 1).await.unwrap();
        dead.lease(1).await.unwrap();
        // It takes up all the room beyond the lowest missing slot and is never heard of again. The heir is given the
        // larger right half of the step first, which finds no room until the left half is there.
        dead.push(&world, 0, 0, Node::leaf(3)).await.unwrap();
        start(&mut world, "heir", Duration::ZERO);
        let evidence = finished(world, &observer).await;
        assert!(evidence.coverage.count_of("busy answers") >= 1);
    });
}

#[test]
fn a_trainers_word_completes_no_step() {
    in_paused_time(async {
        let (mut world, observer) = two_pservers();
        let mut liar = Hand::join(&world, "liar", 1).await.unwrap();
        let tasks = liar.lease(1).await.unwrap();
        assert_eq!(tasks[0].node, Some(ROOT.into()));
        let done = proto::Progress { lease: tasks[0].lease, microbatches: 4, pushed: true, waits: false };
        liar.say(1, vec![done]).await.unwrap();
        sleep(millis(200)).await;
        let status = observer.status().await.unwrap();
        assert_eq!((status.step, status.phase.as_str()), (0, "training"));
        // Nor does it keep the step from whoever does it.
        start(&mut world, "heir", Duration::ZERO);
        let evidence = finished(world, &observer).await;
        assert!(evidence.coverage.count_of("leases given again") >= 1);
    });
}

#[test]
fn a_trainer_that_speaks_but_makes_no_progress_is_helped() {
    in_paused_time(async {
        let (mut world, observer) = two_pservers();
        let stuck = start(&mut world, "stuck", Duration::from_secs(1_000_000));
        start(&mut world, "other", millis(10));
        let evidence = finished(world, &observer).await;
        assert!(matches!(evidence.lives[stuck].end, End::Well(Ended::JobDone)));
        assert!(helped(&evidence) >= 1);
    });
}

#[test]
fn a_trainer_that_leaves_hands_back_at_once() {
    in_paused_time(async {
        // No lease expires in the time of this test, and no speculation begins.
        let ttl = Duration::from_secs(600);
        let mut world = World::start(Scenario { ttl, ..Scenario::quiet(7) }, true);
        let observer = Observer::new(&world.network);
        let leaver = start(&mut world, "leaver", Duration::from_secs(100));
        start(&mut world, "stayer", millis(10));
        sleep(Duration::from_secs(1)).await;
        let before = observer.status().await.unwrap();
        assert_eq!((before.step, before.phase.as_str()), (0, "training"));
        world.trainers[leaver].ask_to_leave();
        let left = Instant::now();
        while observer.status().await.unwrap().phase != "done" {
            assert!(
                left.elapsed() < Duration::from_secs(5),
                "what was handed back is not leased again at once"
            );
            sleep(millis(50)).await;
        }
        let evidence = finished(world, &observer).await;
        assert!(matches!(evidence.lives[leaver].end, End::Well(Ended::Left)));
        assert!(evidence.coverage.count_of("leases handed back") >= 1);
        assert_eq!(evidence.coverage.count_of("leases expired"), 0);
    });
}

#[test]
fn a_new_life_under_a_name_takes_over_and_the_older_one_is_refused() {
    in_paused_time(async {
        let (mut world, observer) = two_pservers();
        let old = start(&mut world, "twin", millis(100));
        sleep(millis(250)).await;
        let new = start(&mut world, "twin", millis(10));
        let evidence = finished(world, &observer).await;
        assert!(matches!(evidence.lives[old].end, End::Superseded), "{:?}", evidence.lives[old].end);
        assert!(matches!(evidence.lives[new].end, End::Well(Ended::JobDone)));
        assert_eq!(evidence.coverage.count_of("members superseded"), 1);
    });
}

#[test]
fn a_trainer_that_missed_the_end_is_told_of_it() {
    in_paused_time(async {
        let (mut world, observer) = two_pservers();
        let sleeper = start(&mut world, "sleeper", millis(10));
        start(&mut world, "other", millis(10));
        sleep(millis(50)).await;
        world.trainers[sleeper].host.pause();
        while observer.status().await.unwrap().phase != "done" {
            sleep(millis(50)).await;
        }
        sleep(Duration::from_secs(60)).await;
        world.trainers[sleeper].host.resume();
        let late = start(&mut world, "late", millis(10));
        let evidence = finished(world, &observer).await;
        for life in [sleeper, late] {
            assert!(matches!(evidence.lives[life].end, End::Well(Ended::JobDone)));
        }
    });
}
