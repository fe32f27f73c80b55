//! Gradients and parameters on a device, exchanged with pservers in areas: which are asked for, used again and given up.

use super::fake::{Fake, Slope, routing, settings};
use super::{is_told_pushed, node};
use crate::TrainError;
use crate::device::tests::fake::Fake as Driver;
use shoal_runtime::cluster::{Mode, Node};
use shoal_runtime::host::cuda::{AREAS_MAX, Context, MapWatch, Memory, SHARED_BYTES};
use shoal_runtime::wire::proto::{self, PushAnswer};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::sleep;

/// The memory of a pserver with a device: its areas, numbered from 1. It frees those that are mapped no more whenever it is asked for
/// one, and the driver ends the process where that is not so.
struct Beside {
    driver: Driver,
    _folder: TempDir,
    context: Arc<Context>,
    areas: Arc<Mutex<Vec<SharedMemory>>>,
}

/// One area, until it is freed.
type SharedMemory = Option<(Memory, MapWatch)>;

/// Frees memory that is not mapped any more.
fn free_unmapped(areas: &mut [SharedMemory]) {
    for area in areas.iter_mut().filter(|area| area.as_ref().is_some_and(|(_, lock)| !lock.is_held())) {
        *area = None;
    }
}

impl Beside {
    /// A trainer's pserver, on its machine. All blocks are there.
    fn start() -> (Beside, Fake, Slope) {
        let (driver, folder) = (Driver::driver(), tempfile::tempdir().unwrap());
        driver.set("SHARED", folder.path().to_str().unwrap());
        let context = Context::open(0).unwrap();
        let areas = Arc::default();
        let fake = Fake::new(Mode::SYNC);
        fake.state().routing = routing(1, [(0, 1, 1); 3]);
        let beside = Beside { driver, _folder: folder, context, areas };
        let (of, into) = (Arc::clone(&beside.context), Arc::clone(&beside.areas));
        fake.state().give = Some(Box::new(move |area, at, bytes| {
            let areas = into.lock().unwrap();
            let (memory, _) = areas[area as usize - 1].as_ref().unwrap();
            of.write(memory, at as usize, bytes).unwrap();
            true
        }));
        let (context, areas) = (beside.context.clone(), beside.areas.clone());
        fake.state().share = Box::new(move |request| {
            if request.keeps.len() >= AREAS_MAX {
                return proto::ShareReply::default();
            }
            let memory = context.allocate("an area", SHARED_BYTES).unwrap();
            let handle = memory.export().unwrap().to_vec().into();
            let mut areas = areas.lock().unwrap();
            free_unmapped(&mut areas);
            areas.push(Some((memory, MapWatch::open(&request.lock).unwrap())));
            proto::ShareReply { area: areas.len() as u64, bytes: SHARED_BYTES as u64, handle }
        });
        (beside, fake, Slope { is_on_device: true, ..Slope::default() })
    }

    /// The values of both blocks in an area.
    fn values(&self, area: usize) -> [f32; 2] {
        let areas = self.areas.lock().unwrap();
        [0, 16].map(|at| {
            let mut bytes = [0; 4];
            self.context.read(&areas[area - 1].as_ref().unwrap().0, at, &mut bytes).unwrap();
            f32::from_le_bytes(bytes)
        })
    }
}

/// By block: the area and where in it, and bytes in the message.
fn pushes(fake: &Fake) -> Vec<(u32, (u64, u64), usize)> {
    fake.state().pushes.iter().map(|(_, push)| (push.block, push.area, push.bytes)).collect()
}

fn in_area(area: u64) -> [(u32, (u64, u64), usize); 3] {
    [(0, (area, 0), 0), (1, (area, 16), 0), (2, (0, 0), 4)]
}

fn keeps(fake: &Fake) -> Vec<Vec<u64>> {
    fake.state().shares.iter().map(|request| request.keeps.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_area_is_used_again_once_its_gradient_is_published_and_not_before() {
    let (beside, fake, model) = Beside::start();
    let leaf = |index| Node { level: 0, index };
    fake.state().tasks.push_back(node(1, 5, leaf(0), 1));
    let script = async |fake: &Fake, _| {
        fake.until("the first is pushed", |state| is_told_pushed(state, 1)).await;
        assert_eq!((pushes(fake), beside.values(1)), (in_area(1).to_vec(), [5.5; 2]));
        fake.state().tasks.push_back(node(2, 5, leaf(1), 1));
        fake.until("another of its step is pushed", |state| is_told_pushed(state, 2)).await;
        assert_eq!(pushes(fake)[3..], in_area(2));
        assert_eq!(keeps(fake), [vec![], vec![1]], "the first may be read yet");
        fake.state().tasks.push_back(node(3, 6, leaf(0), 1));
        fake.until("one of the next is pushed", |state| is_told_pushed(state, 3)).await;
        let third = pushes(fake)[6].1.0;
        assert_eq!(pushes(fake)[6..], in_area(third));
        assert_eq!(
            (beside.values(third as usize), keeps(fake).len()),
            ([6.5; 2], 3),
            "one for what it reads, which is published: then all are free"
        );
    };
    assert!(fake.train(settings(), model, script).await.is_none());
    let first = &fake.state().shares[0];
    assert_eq!((first.bytes, first.machine.is_empty()), (32, false));
}

#[tokio::test(start_paused = true)]
async fn what_went_with_an_area_that_is_not_there_any_more_goes_with_another() {
    let (_beside, fake, model) = Beside::start();
    fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
    fake.state().answer = Box::new(|push| match push.area.0 {
        1 => PushAnswer::NoArea,
        _ => PushAnswer::Held,
    });
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        assert_eq!(keeps(fake), [[0; 0]; 2], "the first is given up");
        assert!(pushes(fake).ends_with(&in_area(2)), "{:?}", pushes(fake));
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1);
}

#[tokio::test(start_paused = true)]
async fn parameters_that_are_not_put_into_an_area_come_in_the_answer() {
    let (_beside, fake, model) = Beside::start();
    // Of two blocks the second.
    let mut give = fake.state().give.take().unwrap();
    fake.state().give = Some(Box::new(move |area, at, bytes| at == 16 && give(area, at, bytes)));
    fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let state = fake.state();
        let (_, _, pull) = &state.pulls[0];
        assert_eq!((&pull.blocks, pull.area, &pull.places), (&vec![0, 1], 1, &vec![0, 16]));
        assert!(state.pushes.iter().filter(|(_, push)| push.block < 2).all(|(_, push)| push.area.0 > 0));
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(_beside.values(1), [5.5; 2], "the gradient is what was read");
}

#[tokio::test(start_paused = true)]
async fn what_was_read_from_an_area_whose_process_ended_is_pulled_again() {
    let (_beside, fake, model) = Beside::start();
    fake.state().gone_areas = vec![1];
    fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let of = |(_, _, pull): &(_, _, proto::PullRequest)| (pull.area, pull.places.len());
        let pulls: Vec<(u64, usize)> = fake.state().pulls.iter().map(of).collect();
        assert_eq!(pulls, [(1, 2), (1, 0), (2, 2), (2, 0)], "each is asked whether it is still there");
        assert_eq!(pushes(fake), in_area(2), "the first is given up, the second free again");
    };
    assert!(fake.train(settings(), model.clone(), script).await.is_none());
    assert_eq!(model.computed(), 1, "nothing was computed from what the first had");
}

#[tokio::test(start_paused = true)]
async fn an_area_that_an_unanswered_call_named_is_not_used_again() {
    let (_beside, fake, model) = Beside::start();
    fake.state().no_pulls[0] = true;
    fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
    let script = async |fake: &Fake, _| {
        fake.until("it is pulled", |state| state.pulls.iter().any(|(_, _, pull)| pull.area == 1)).await;
        fake.state().no_pulls[0] = false;
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        assert!(fake.state().pulls.len() > 1 && fake.state().pulls.iter().all(|(_, _, pull)| pull.area == 1));
        assert_eq!(keeps(fake), [[0; 0]; 2], "the first may be written to yet");
        assert_eq!(pushes(fake), in_area(2));
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn who_is_given_no_more_areas_does_without_until_it_may_ask_again() {
    let (beside, fake, model) = Beside::start();
    let mut share = std::mem::replace(&mut fake.state().share, Box::new(|_| proto::ShareReply::default()));
    fake.state().share = Box::new(move |request| match request.keeps.len() {
        0..3 => share(request),
        _ => proto::ShareReply::default(),
    });
    let nodes = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)].map(|(level, index)| Node { level, index });
    fake.state().tasks.extend((1..).zip(nodes).map(|(lease, of)| node(lease, 5, of, 1)));
    let script = async |fake: &Fake, _| {
        fake.until("all are pushed", |state| (1..=5).all(|lease| is_told_pushed(state, lease))).await;
        assert_eq!(keeps(fake), [vec![], vec![1], vec![1, 2], vec![1, 2, 3]]);
        let areas: Vec<u64> = pushes(fake).iter().filter(|push| push.0 == 0).map(|push| push.1.0).collect();
        assert_eq!(areas, [1, 2, 3, 0, 0]);
        sleep(Duration::from_secs(31)).await;
        fake.state().tasks.push_back(node(6, 5, Node { level: 1, index: 1 }, 1));
        fake.until("one more is pushed", |state| is_told_pushed(state, 6)).await;
        assert!(keeps(fake).len() == 5 && pushes(fake).ends_with(&in_area(4)));
    };
    assert!(fake.train(settings(), model, script).await.is_none());
    drop(beside);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_shared_values_go_in_messages_and_nobody_asks_often() {
    let (beside, fake, model) = Beside::start();
    for refuses in [true, false] {
        let fake = Fake::new(Mode::SYNC);
        fake.state().routing = routing(1, [(0, 1, 1); 3]);
        match refuses {
            true => {}
            // A handle of nothing.
            false => {
                fake.state().share =
                    Box::new(|_| proto::ShareReply { area: 1, bytes: 32, handle: vec![7; 64].into() });
            }
        }
        fake.state().tasks.extend((0..3).map(|lease| node(lease + 1, lease, Node::leaf(0), 1)));
        let script = async |fake: &Fake, _| {
            fake.until("all are pushed", |state| (1..4).all(|lease| is_told_pushed(state, lease))).await;
            assert!(pushes(fake).iter().all(|(_, area, bytes)| (*area, *bytes) == ((0, 0), 4)));
            for (_, push) in fake.state().pushes.iter().filter(|(_, push)| push.block < 2) {
                assert_eq!(push.value, push.step as f32 + 0.5);
            }
            assert_eq!(fake.state().shares.len(), 1);
            sleep(Duration::from_secs(31)).await;
            fake.state().tasks.push_back(node(9, 3, Node::leaf(0), 1));
            fake.until("one more is pushed", |state| is_told_pushed(state, 9)).await;
            assert_eq!(fake.state().shares.len(), 2);
        };
        assert!(fake.train(settings(), model.clone(), script).await.is_none());
    }
    drop((beside, fake));
}

#[tokio::test(start_paused = true)]
async fn a_gradient_of_another_history_takes_its_area_with_it() {
    let (_beside, fake, model) = Beside::start();
    fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        fake.state().routing = routing(7, [(0, 7, 7); 3]);
        fake.state().latest = [(0, 7); 3];
        fake.state().tasks.push_back(node(2, 5, Node::leaf(0), 7));
        fake.until("it is computed anew", |state| is_told_pushed(state, 2)).await;
        assert_eq!(pushes(fake)[3..], in_area(2));
        assert_eq!(keeps(fake), [[0; 0]; 2], "somebody may read the first yet");
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_area_that_its_pserver_does_not_have_is_given_up_though_nothing_was_put_there() {
    let (_beside, fake, model) = Beside::start();
    fake.state().give = None;
    fake.state().gone_areas = vec![1];
    fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        assert_eq!((pushes(fake), keeps(fake)), (in_area(2).to_vec(), vec![vec![], vec![]]));
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

/// A peak needs more areas than a calm job, and the pserver gets the memory back meanwhile.
#[tokio::test(start_paused = true)]
async fn an_area_that_is_not_used_for_long_is_unmapped_and_no_gradient_goes_there_any_more() {
    let (beside, fake, model) = Beside::start();
    let leaf = |index| Node { level: 0, index };
    fake.state().tasks.extend([node(1, 5, leaf(0), 1), node(2, 5, leaf(1), 1), node(3, 5, leaf(2), 1)]);
    let there = || {
        let mut areas = beside.areas.lock().unwrap();
        free_unmapped(&mut areas);
        areas.iter().map(Option::is_some).collect::<Vec<bool>>()
    };
    let script = async |fake: &Fake, _| {
        fake.until("all are pushed", |state| (1..=3).all(|lease| is_told_pushed(state, lease))).await;
        let peak = there();
        assert!(peak.len() >= 3 && peak.iter().all(|is_there| *is_there), "{peak:?}");
        for step in 6..18 {
            fake.state().tasks.push_back(node(step, step, leaf(0), 1));
            fake.until("a step's is pushed", |state| is_told_pushed(state, step)).await;
            sleep(Duration::from_secs(60)).await;
        }
        let calm = there();
        let (before, kept) = (pushes(fake).len(), calm.iter().filter(|is_there| **is_there).count());
        assert!((1..3).contains(&kept), "{calm:?}");
        fake.state().tasks.extend((0..3).map(|index| node(20 + u64::from(index), 18, leaf(index), 1)));
        fake.until("all are pushed", |state| (20..23).all(|lease| is_told_pushed(state, lease))).await;
        let named = pushes(fake)[before..].iter().map(|push| push.1.0).collect::<Vec<_>>();
        let named = named.into_iter().filter(|area| *area > 0).collect::<Vec<_>>();
        assert!(named.len() == 6 && named.iter().all(|area| there()[*area as usize - 1]), "{named:?}");
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_lost_ends_the_trainer_and_blames_no_record() {
    let (beside, fake, model) = Beside::start();
    fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
    let script = async |fake: &Fake, _| {
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        beside.driver.set("LOSE_AFTER", "1");
        fake.state().tasks.push_back(node(2, 6, Node::leaf(0), 1));
        std::future::pending::<()>().await;
    };
    let ended = fake.train(settings(), model, script).await;
    assert!(matches!(ended, Some(Err(TrainError::Device(_)))), "{ended:?}");
    let leave = fake.state().leaves[0].clone();
    assert!(leave.ended.contains("the device is lost") && leave.complaints.is_empty(), "{leave:?}");
}

#[tokio::test(start_paused = true)]
async fn an_area_that_is_on_its_way_is_named_by_who_asks_for_another() {
    let (_beside, fake, model) = Beside::start();
    fake.state().share_takes = Duration::from_millis(5);
    let tasks = (5..9).flat_map(|step| [0, 1].map(|index| (step, Node::leaf(index))));
    fake.state().tasks.extend((1..).zip(tasks).map(|(lease, (step, of))| node(lease, step, of, 1)));
    let script = async |fake: &Fake, _| {
        fake.until("all are pushed", |state| (1..=8).all(|lease| is_told_pushed(state, lease))).await;
        let given: Vec<Vec<u64>> =
            (0..keeps(fake).len() as u64).map(|before| (1..=before).collect()).collect();
        assert_eq!(keeps(fake), given, "a pserver forgets what is not named");
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_block_that_comes_to_a_pserver_whose_area_has_no_place_for_it_comes_in_the_answer() {
    let (beside, fake, model) = Beside::start();
    fake.state().routing = routing(1, [(1, 1, 1), (0, 1, 1), (0, 1, 1)]);
    fake.state().no_pulls = [true; 2];
    fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
    let script = async |fake: &Fake, _| {
        fake.until("both are asked", |state| state.pulls.len() == 2).await;
        fake.state().no_pulls[0] = false;
        fake.state().routing = routing(2, [(0, 2, 1), (0, 2, 1), (0, 2, 1)]);
        fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
        let reads = |pull: &&(_, _, proto::PullRequest)| !pull.2.blocks.is_empty();
        let (_, _, pull) = fake.state().pulls.iter().rfind(reads).unwrap().clone();
        assert_eq!((pull.blocks, pull.area, pull.places), (vec![1, 0], 1, vec![0]));
        assert_eq!(beside.values(3), [5.5; 2], "neither area is used again");
    };
    assert!(fake.train(settings(), model, script).await.is_none());
}

/// What is shared is smaller than its pserver says, or nobody knows how large it is: a copy could go beyond its end.
#[tokio::test(start_paused = true)]
async fn memory_that_is_not_known_to_be_as_large_as_is_said_is_not_used() {
    for (said, refused) in [(2 * SHARED_BYTES, ""), (usize::MAX, ""), (SHARED_BYTES, "1")] {
        let (beside, fake, model) = Beside::start();
        beside.driver.set("REFUSE_RANGES", refused);
        let mut share =
            std::mem::replace(&mut fake.state().share, Box::new(|_| proto::ShareReply::default()));
        fake.state().share =
            Box::new(move |request| proto::ShareReply { bytes: said as u64, ..share(request) });
        fake.state().tasks.push_back(node(1, 5, Node::leaf(0), 1));
        let script = async |fake: &Fake, _| {
            fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
            let by_message = [(0, (0, 0), 4), (1, (0, 0), 4), (2, (0, 0), 4)];
            assert_eq!(pushes(fake), by_message, "{said} bytes, {refused:?}");
        };
        assert!(fake.train(settings(), model, script).await.is_none());
    }
}
