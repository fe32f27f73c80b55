//! A block on a device, beside the same on the processor.

use super::*;
use crate::device::tests::Fake;
use crate::device::{Device, DeviceChoice};

/// The block of three rules, on a device and on the processor.
pub(super) fn twins(job: &JobSettings) -> (Device, Block, Block) {
    let device = Device::open(DeviceChoice::Cuda(0)).unwrap().unwrap();
    let declaration = declaration();
    let terms = Arc::new(BlockSettings::new(job, 16).with_device(device.clone()));
    let mut there = Block::new(shape_in(&declaration, BlockId(0), job.gradients), terms, alone(1), ME);
    there.restore_initial(Term(1));
    assert_eq!(device.usage().blocks, 1);
    (device, there, block_of(job, &declaration, BlockId(0)))
}

fn push_root(block: &mut Block, job: &JobSettings, step: u64) -> PushOutcome {
    let root = job.shape().training().tree(Step(step)).root();
    let (weight, gradient) = node_gradient(job, step, root).unwrap();
    push(block, step, root, weight, &gradient).unwrap()
}

/// Waits until `version` is published. The device may have told before of something that an earlier step left to do.
pub(super) fn land(device: &Device, block: &mut Block, version: u64) {
    while block.published() < Version(version) {
        hear(device, block);
    }
}

/// Waits until the device has done something, as the shard does.
pub(super) fn hear(device: &Device, block: &mut Block) {
    let is_done = |_| {
        std::thread::park_timeout(std::time::Duration::from_millis(1));
        !device.take_finished().is_empty()
    };
    assert!((0..5000).any(is_done), "{:?}", device.failure());
    block.note_done();
}

#[test]
fn a_version_is_published_once_its_parameters_are_back() {
    let (job, fake) = (job(64, 4), Fake::driver());
    let (device, mut there, mut here) = twins(&job);
    fake.set("STALL_AFTER", "0");
    let outcome = push_root(&mut there, &job, 0);
    assert_eq!(outcome, PushOutcome::Applied { replaced: 0, is_short: false, is_published: false });
    assert_eq!((there.version(), there.published()), (Some(Version(1)), Version(0)));
    assert_eq!(read(&there, 1), Reading::NotYet);
    assert_eq!(there.copy_at(Version(1), 0).unwrap_err().kind, RefusalKind::NotReady);
    assert_eq!(push_root(&mut there, &job, 1), PushOutcome::Busy, "its step comes after");
    there.note_done();
    assert_eq!(there.published(), Version(0), "that changes nothing");
    fake.set("STALL_AFTER", "");
    land(&device, &mut there, 1);
    assert_eq!(there.published(), Version(1));
    push_root(&mut here, &job, 0);
    assert_eq!(parameters(&there, 1), parameters(&here, 1));
}

#[test]
fn its_copies_have_the_bits_of_the_processors_and_either_side_goes_on_from_the_others() {
    for gradients in Precision::ALL {
        let job = JobSettings { gradients, ..job(64, 4) };
        let _fake = Fake::driver();
        let (device, mut there, mut here) = twins(&job);
        for step in 0..12 {
            assert!(matches!(
                push_root(&mut here, &job, step),
                PushOutcome::Applied { is_published: true, .. }
            ));
            push_root(&mut there, &job, step);
            land(&device, &mut there, step + 1);
            assert_eq!(state(&there), state(&here), "after step {step}, {gradients:?}");
            if step % 3 == 2 {
                let of = |block: &Block| State::from_copy(&block.shape, &state(block)).unwrap();
                let (theirs, ours) = (of(&there), of(&here));
                there.state = Some(there.place_on_device(ours));
                here.state = Some(theirs);
                assert_eq!(device.usage().blocks, 1, "the one before is gone");
            }
        }
    }
}

#[test]
fn what_a_device_makes_is_recorded_once_it_is_here_with_the_hashes_of_the_processors() {
    let (job, fake) = (job(64, 4), Fake::driver());
    let (device, mut there, mut here) = twins(&job);
    let recorded = |block: &Block| block.job.recorder.after(0, usize::MAX).0;
    [&there, &here].iter().for_each(|block| block.job.recorder.go_by(1));
    push_root(&mut here, &job, 0);
    fake.set("STALL_AFTER", "0");
    push_root(&mut there, &job, 0);
    assert_eq!(recorded(&there), []);
    fake.set("STALL_AFTER", "");
    while there.state.as_ref().unwrap().ready() < Version(1) {
        std::thread::yield_now();
    }
    // Something else publishes it, before what the device has told is heard.
    there.place(there.placement.clone(), ME);
    assert_eq!((there.published(), recorded(&there)), (Version(1), recorded(&here)));
    for step in 1..6 {
        push_root(&mut here, &job, step);
        push_root(&mut there, &job, step);
        land(&device, &mut there, step + 1);
    }
    assert_eq!((recorded(&there).len(), recorded(&there)), (6, recorded(&here)));
}
