//! Hashes that trainers tell with their words, the last one included.

use super::*;
use crate::machine::Phase;
use shoal_runtime::cluster::verification::hashes_bytes;

/// A trainer's computation of the first microbatch.
fn verified(office: &Office, lease: u64, hash: u8) -> proto::Verified {
    let rewind = office.service.with(|machine, _| machine.document().rewind().0).unwrap();
    let hashes = vec![hash; hashes_bytes(declaration().parameters.len())].into();
    proto::Verified { lease, step: 0, slot: 0, rewind, exclusions: 0, hashes }
}

#[tokio::test(start_paused = true)]
async fn hashes_of_a_trainer_that_cannot_go_on_are_compared_as_all_others_are() {
    for (hash, fails) in [(7, false), (8, true)] {
        let (office, _, a) = training().await;
        office.service.with(|machine, _| {
            let spec = words::spec(r#"{"verify":1}"#, machine.spec()).unwrap();
            machine.go_by(spec);
        });
        office.settle();
        let b = office.join("b").await;
        let job = || JOB.to_owned();
        let lease = proto::LeaseRequest {
            job: job(),
            incarnation: a.0,
            call: 1,
            verified: vec![verified(&office, 1, 7)],
            ..Default::default()
        };
        office.service.lease(Request::new(lease)).await.unwrap();
        let leave = proto::LeaveRequest {
            job: job(),
            incarnation: b.0,
            ended: "its device has failed".to_owned(),
            verified: vec![verified(&office, 2, hash)],
            ..Default::default()
        };
        office.service.leave(Request::new(leave)).await.unwrap();
        office.settle();
        let phase = office.service.with(|machine, _| machine.phase()).unwrap();
        assert_eq!(matches!(phase, Phase::Failed(_)), fails, "{phase:?}");
    }
}
