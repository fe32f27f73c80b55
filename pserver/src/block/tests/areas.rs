//! Gradients that come to a block in an area of its device's memory, beside those that come in messages; and parameters that are
//! given there, beside those that are brought here.

use super::devices::{hear, land, twins};
use super::*;
use crate::block::primary::PlacedCopy;
use crate::device::tests::Fake;
use crate::device::{Area, Device, Given};
use shoal_runtime::cluster::Fill;
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::host::cuda::{Context, Mapped};

/// Bytes of the block's six values, and what is between two blocks of an area.
const PITCH: usize = 32;

/// A driver whose devices' memory can be shared.
fn sharing() -> (Fake, tempfile::TempDir) {
    let (fake, folder) = (Fake::driver(), tempfile::tempdir().unwrap());
    fake.set("SHARED", folder.path().to_str().unwrap());
    (fake, folder)
}

/// A trainer of this machine. It unmaps each area before the area is freed.
struct Trainer {
    context: Arc<Context>,
    mapped: Mapped,
    area: Arc<Area>,
}

impl Trainer {
    fn beside(device: &Device) -> Trainer {
        let area = Arc::new(device.area(PITCH * 64).unwrap());
        let context = Context::open(0).unwrap();
        let mapped = context.map(area.handle(), area.bytes()).unwrap();
        Trainer { context, mapped, area }
    }

    fn put(&self, place: usize, gradient: &[f32], precision: Precision) -> Gradient {
        let memory = self.context.allocate("a gradient", PITCH).unwrap();
        self.context.write(&memory, 0, &words(gradient)).unwrap();
        self.context.send(&memory, &self.mapped, [(0, PITCH * place, 24)]).unwrap();
        let words = self.area.words((PITCH * place) as u64, gradient.len()).unwrap();
        Gradient::OnDevice(words, precision)
    }
}

fn bring(block: &mut Block, step: u64, node: Node, weight: u64, came: Gradient) -> PushOutcome {
    let arriving = NodeGradient { step: Step(step), node, weight, gradient: came };
    block.push(block.placement.rewind, arriving).unwrap()
}

/// Numbers below a bound, the same in every run.
fn drawing() -> impl FnMut(u64) -> u64 {
    let mut draws = 0;
    move |below| {
        draws += 1;
        mix(draws) % below
    }
}

/// Some cover of `node` by its descendants.
fn cover(node: Node, draw: &mut impl FnMut(u64) -> u64, to: &mut Vec<Node>) {
    match node.children() {
        Some((left, right)) if draw(3) > 0 => {
            cover(left, draw, to);
            cover(right, draw, to);
        }
        _ => to.push(node),
    }
}

#[test]
fn whatever_of_a_step_comes_in_areas_its_state_has_the_bits_that_messages_give() {
    let _fake = sharing();
    for gradients in Precision::ALL {
        let job = JobSettings { gradients, ..job(64, 16) };
        let (device, mut there, mut here) = twins(&job);
        let trainer = Trainer::beside(&device);
        let mut draw = drawing();
        for step in 0..12 {
            let mut nodes = Vec::new();
            cover(job.shape().training().tree(Step(step)).root(), &mut draw, &mut nodes);
            for at in (1..nodes.len()).rev() {
                nodes.swap(at, draw(at as u64 + 1) as usize);
            }
            for (place, node) in nodes.into_iter().enumerate() {
                let Some((weight, gradient)) = node_gradient(&job, step, node) else { continue };
                push(&mut here, step, node, weight, &gradient).unwrap();
                // Steps that come in areas alone, by messages alone, and mixed.
                if step % 3 == 0 || step % 3 == 1 && draw(2) == 0 {
                    let came = trainer.put(place, &gradient, gradients);
                    bring(&mut there, step, node, weight, came);
                } else {
                    push(&mut there, step, node, weight, &gradient).unwrap();
                }
            }
            land(&device, &mut there, step + 1);
            assert_eq!(there.version(), Some(Version(step + 1)));
            assert_eq!(state(&there), state(&here), "after step {step}, {gradients:?}");
        }
    }
}

#[test]
fn versions_that_stay_on_the_device_are_given_and_brought_with_the_bits_of_the_processor() {
    let (job, _fake) = (job(64, 1), sharing());
    let (device, mut there, mut here) = twins(&job);
    let trainer = Trainer::beside(&device);
    let mut draw = drawing();
    let (mut brought, mut given_there) = (0, 0);
    for step in 0..48 {
        let (weight, gradient) = node_gradient(&job, step, Node::leaf(0)).unwrap();
        push(&mut here, step, Node::leaf(0), weight, &gradient).unwrap();
        // Mostly in areas: those stay there.
        if draw(4) > 0 {
            let came = trainer.put(1, &gradient, Precision::F32);
            bring(&mut there, step, Node::leaf(0), weight, came);
        } else {
            push(&mut there, step, Node::leaf(0), weight, &gradient).unwrap();
        }
        land(&device, &mut there, step + 1);
        // The newest, and the one before it, which some trainer may still read.
        for reads in [step + 1, step] {
            let expected = parameters(&here, reads);
            match draw(3) {
                0 => {
                    while read(&there, reads) == Reading::NotYet {
                        hear(&device, &mut there);
                        brought += 1;
                    }
                    assert_eq!(parameters(&there, reads), expected, "step {reads}");
                }
                1 => {
                    let mut given = Given::default();
                    let to = (PITCH * 3) as u64;
                    let version = there.give(Rewind(1), Step(reads), &trainer.area, to, &mut given);
                    assert_eq!(version, Some(Version(reads)), "also what was placed");
                    while !given.is_done() {
                        assert_eq!(device.failure(), None);
                        std::thread::yield_now();
                    }
                    let mut came = [0; 24];
                    trainer.context.read_mapped(&trainer.mapped, PITCH * 3, &mut came).unwrap();
                    assert_eq!(came[..], expected[..], "step {reads}");
                    given_there += 1;
                }
                _ => {}
            }
        }
        assert!(there.give(Rewind(1), Step(step + 2), &trainer.area, 0, &mut Given::default()).is_none());
        if step % 12 == 0 {
            assert_eq!(state(&there), state(&here), "after step {step}");
        }
    }
    assert!(brought > 3 && given_there > 9, "{brought} {given_there}");
}

#[test]
fn parameters_are_given_only_where_they_lie_within_an_area_and_to_whom_they_belong() {
    let (job, fake) = (job(64, 1), sharing());
    let (device, mut there, _) = twins(&job);
    let trainer = Trainer::beside(&device);
    let (weight, gradient) = node_gradient(&job, 0, Node::leaf(0)).unwrap();
    let came = trainer.put(1, &gradient, Precision::F32);
    fake.0.set("STALL_AFTER", "0");
    bring(&mut there, 0, Node::leaf(0), weight, came);
    let mut given = Given::default();
    let mut give = |rewind, step, to| there.give(Rewind(rewind), Step(step), &trainer.area, to, &mut given);
    assert_eq!(give(1, 1, 0), None, "it is not published");
    fake.0.set("STALL_AFTER", "");
    land(&device, &mut there, 1);
    let mut give = |rewind, step, to| there.give(Rewind(rewind), Step(step), &trainer.area, to, &mut given);
    let end = trainer.area.bytes() as u64;
    for to in [8, end, end - 16, u64::MAX - 15] {
        assert_eq!(give(1, 1, to), None, "{to}");
    }
    assert_eq!((give(2, 1, 0), give(1, 2, 0)), (None, None), "another history, and what is to come");
    assert_eq!(device.usage().parameter_bytes, 0);
    let mut give = |rewind, step, to| there.give(Rewind(rewind), Step(step), &trainer.area, to, &mut given);
    assert_eq!(give(1, 1, end - 32), Some(Version(1)));
    assert_eq!(device.usage().parameter_bytes, 24);
}

#[test]
fn what_differs_from_an_area_is_nondeterministic_wherever_it_comes() {
    let (job, _fake) = (job(64, 4), sharing());
    let (device, mut there, _) = twins(&job);
    let trainer = Trainer::beside(&device);
    let leaf = Node::leaf(0);
    let (weight, gradient) = node_gradient(&job, 0, leaf).unwrap();
    let came = trainer.put(0, &gradient, Precision::F32);
    assert_eq!(bring(&mut there, 0, leaf, weight, came.clone()), PushOutcome::Held { replaced: 0 });
    let before = digest(&there);
    assert_eq!(bring(&mut there, 0, leaf, weight, came), PushOutcome::Covered);
    assert_eq!(push(&mut there, 0, leaf, weight, &gradient), Ok(PushOutcome::Covered));
    let mut other = gradient.clone();
    other[4] = -other[4];
    let arriving = |gradient| NodeGradient { step: Step(0), node: leaf, weight, gradient };
    for came in [trainer.put(1, &other, Precision::F32), Gradient::Words(words(&other), Precision::F32)] {
        let refused = there.push(there.placement.rewind, arriving(came)).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Nondeterministic);
        assert!(refused.detail.contains("element 0 is"), "{refused}");
    }
    assert_eq!(digest(&there), before);
}

#[test]
fn a_follower_is_given_what_came_in_areas() {
    let (job, _fake) = (job(64, 2), sharing());
    let (device, mut there, mut here) = twins(&job);
    let trainer = Trainer::beside(&device);
    let copy = PlacedCopy { pserver: Incarnation(2), fill: Fill(2), is_in_sync: false };
    let mut entries = Vec::new();
    for block in [&mut there, &mut here] {
        block.place(Placement { copies: vec![copy], ..alone(1) }, ME);
        let News::Copy(copy) = block.follow(Incarnation(2), Fill(2), Term(1), None, usize::MAX) else {
            panic!("it is new")
        };
        let held = Some(Cursor { name: copy.name, filled: None });
        for slot in 0..2 {
            let (weight, gradient) = node_gradient(&job, 0, Node::leaf(slot)).unwrap();
            if entries.is_empty() {
                let came = trainer.put(slot as usize, &gradient, Precision::F32);
                bring(block, 0, Node::leaf(slot), weight, came);
            } else {
                push(block, 0, Node::leaf(slot), weight, &gradient).unwrap();
            }
        }
        // Gradients in areas are copied to the host first.
        while block.version() != Some(Version(1)) {
            hear(&device, block);
        }
        let News::Entry(entry) = block.follow(Incarnation(2), Fill(2), Term(1), held, usize::MAX) else {
            panic!("there is a step")
        };
        entries.push(entry);
    }
    assert_eq!(entries[0], entries[1]);
    while there.state.as_ref().unwrap().ready() < Version(1) {
        hear(&device, &mut there);
    }
    let of = |block: &Block| (state(block).parameters, state(block).slots);
    assert_eq!(of(&there), of(&here));
}

#[test]
fn a_device_that_is_lost_leaves_what_came_where_it_was() {
    let (job, fake) = (job(64, 2), sharing());
    let (device, mut there, _) = twins(&job);
    let trainer = Trainer::beside(&device);
    let gradient = |slot| node_gradient(&job, 0, Node::leaf(slot)).unwrap();
    let (weight, first) = gradient(0);
    let came = trainer.put(0, &first, Precision::F32);
    assert_eq!(bring(&mut there, 0, Node::leaf(0), weight, came), PushOutcome::Held { replaced: 0 });
    fake.0.set("STALL_AFTER", "0");
    device.give_up_after(std::time::Duration::from_millis(200));
    // It comes in a message: the other would have to be brought here.
    let (weight, second) = gradient(1);
    assert_eq!(push(&mut there, 0, Node::leaf(1), weight, &second), Ok(PushOutcome::Busy));
    assert_eq!((there.version(), there.published()), (Some(Version(0)), Version(0)));
}

#[test]
fn a_job_that_keeps_more_versions_than_a_device_has_them_here_once_they_are_made() {
    let (job, _fake) = (JobSettings { mode: Mode::Sync { delay: 1 }, ..job(64, 1) }, sharing());
    let (device, mut there, mut here) = twins(&job);
    let trainer = Trainer::beside(&device);
    for step in 0..5 {
        let (weight, gradient) = node_gradient(&job, step, Node::leaf(0)).unwrap();
        push(&mut here, step, Node::leaf(0), weight, &gradient).unwrap();
        let came = trainer.put(1, &gradient, Precision::F32);
        bring(&mut there, step, Node::leaf(0), weight, came);
        land(&device, &mut there, step + 1);
    }
    let of = |block: &Block| (3..=6).map(|step| read(block, step)).collect::<Vec<_>>();
    assert!(of(&here).iter().all(|reading| matches!(reading, Reading::Parameters(..))));
    assert_eq!(of(&there), of(&here));
}

#[test]
fn an_asynchronous_job_gives_out_what_came_in_areas_as_soon_as_it_is_published() {
    let (job, _fake) = (async_job(64, 1, false), sharing());
    let (device, mut there, mut here) = twins(&job);
    let trainer = Trainer::beside(&device);
    for position in 0..4 {
        let gradient = [position as f32 + 0.5; 6];
        let arriving =
            |gradient| PositionGradient { position, version: Version(position), weight: 1, gradient };
        here.push_position(Rewind(1), arriving(Gradient::Words(words(&gradient), Precision::F32)));
        there.push_position(Rewind(1), arriving(trainer.put(1, &gradient, Precision::F32)));
        land(&device, &mut there, position + 1);
        assert_eq!(there.published(), Version(position + 1));
        assert_eq!(there.read_newest(&[]), here.read_newest(&[]));
    }
}
