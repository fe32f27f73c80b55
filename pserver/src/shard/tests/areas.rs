//! Areas of a shard: who is given one, for how long, and what a push that names one is told.

use super::*;
use crate::device::tests::Fake;
use crate::device::{Device, DeviceChoice};
use shoal_runtime::host::cuda::SHARED_BYTES;
use std::time::Duration;

const TRAINER: Incarnation = Incarnation(9);

/// Of six values of f32 and a metric.
const GRADIENT_BYTES: u64 = 32 + 16;

fn with_device() -> (Fake, tempfile::TempDir, Shard) {
    let (fake, folder) = (Fake::driver(), tempfile::tempdir().unwrap());
    fake.set("SHARED", folder.path().to_str().unwrap());
    let device = Device::open(DeviceChoice::Cuda(0)).unwrap();
    let shard = Shard::new(job(5, 2), 16, ME).with_device(device);
    host(&shard, assignment(3, &[0, 1]));
    (fake, folder, shard)
}

fn number(shard: &Shard, trainer: Incarnation, keeps: &[u64]) -> Option<u64> {
    shard.share(trainer, GRADIENT_BYTES, keeps).unwrap().map(|(number, _)| number)
}

fn push_from(shard: &Shard, area: (u64, u64)) -> Result<Vec<PushOutcome>, Refusal> {
    let gradients = vec![Gradient { area: Some(area), ..gradient(0, &[]) }, gradient(1, &bytes(&[1.0]))];
    shard.push(&Push { what: Pushed::Node(Step(0), ROOT), exclusions: 0, weight: 2, gradients })
}

#[tokio::test(start_paused = true)]
async fn a_trainer_has_few_areas_until_it_names_them_no_more_or_uses_none_for_long() {
    let (_fake, _folder, shard) = with_device();
    let usage = || shard.device().unwrap().usage().area_bytes / SHARED_BYTES as u64;
    let mut keeps = Vec::new();
    while let Some(number) = number(&shard, TRAINER, &keeps) {
        keeps.push(number);
    }
    assert_eq!((keeps.len(), usage()), (3, 3));
    let other = number(&shard, Incarnation(10), &[]).unwrap();
    assert!(!keeps.contains(&other));
    let again = number(&shard, TRAINER, &keeps[..1]).unwrap();
    assert_eq!(usage(), 3, "one that is kept, a new one, another trainer's");
    assert!(shard.area(keeps[1]).is_none() && shard.area(keeps[0]).is_some() && !keeps.contains(&again));
    tokio::time::advance(Duration::from_secs(599)).await;
    assert!(shard.area(other).is_some(), "it is used");
    tokio::time::advance(Duration::from_secs(599)).await;
    number(&shard, Incarnation(11), &[]).unwrap();
    assert_eq!(usage(), 2);
    assert!(shard.area(keeps[0]).is_none() && shard.area(other).is_some());
}

#[test]
fn without_a_device_or_its_memory_there_is_no_area_and_for_more_than_a_gradient_never() {
    let alone = shard();
    assert_eq!(number(&alone, TRAINER, &[]), None);
    let (fake, _folder, shard) = with_device();
    let refused = shard.share(TRAINER, GRADIENT_BYTES + 1, &[]).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Malformed);
    fake.set("MEMORY", "0");
    assert_eq!(number(&shard, TRAINER, &[]), None);
    fake.set("MEMORY", "1073741824");
    fake.set("SHARED", "");
    assert_eq!(number(&shard, TRAINER, &[]), None, "the driver shares nothing");
    assert!(shard.device().unwrap().failure().is_none());
}

#[test]
fn a_push_from_an_area_that_is_not_here_is_told_so_and_one_beyond_its_end_is_refused() {
    let (_fake, _folder, shard) = with_device();
    let area = number(&shard, TRAINER, &[]).unwrap();
    let standing = || format!("{:?} {:?}", shard.standing().unwrap(), shard.counters());
    let before = standing();
    for (at, wrong) in [(SHARED_BYTES as u64 - 16, "beyond"), (8, "unaligned"), (u64::MAX - 7, "far")] {
        let refused = push_from(&shard, (area, at)).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Malformed, "{wrong}");
    }
    let metric = vec![Gradient { area: Some((area, 0)), ..gradient(0, &[]) }];
    let what = Pushed::Node(Step(0), Node { level: 9, index: 0 });
    assert!(shard.push(&Push { what, exclusions: 0, weight: 2, gradients: metric }).is_err());
    assert_eq!(standing(), before);
    let told = push_from(&shard, (area + 1, 0)).unwrap();
    assert_eq!(told[0], PushOutcome::NoArea);
    assert!(matches!(told[1], PushOutcome::Applied { .. }), "the other block is given what it lacks");
    let told = push_from(&shard, (area, 0)).unwrap();
    assert!(matches!(told[0], PushOutcome::Applied { .. }), "{told:?}");
}
