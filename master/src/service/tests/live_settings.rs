//! Settings that may change while a job lives: told to the master by a document.

use super::*;
use crate::document::Checks;
use shoal_runtime::cluster::EnvironmentRule;

#[tokio::test(start_paused = true)]
async fn live_settings_are_changed_by_a_word_and_a_refused_one_changes_nothing() {
    let (office, ..) = training().await;
    let tell = async |spec: &str| {
        let request =
            proto::ScaleRequest { job: JOB.to_owned(), spec: Some(spec.to_owned()), ..Default::default() };
        let told = office.service.scale(Request::new(request)).await;
        office.settle();
        told.map(drop).map_err(|refused| refused.message().to_owned())
    };
    let document = || office.service.with(|machine, _| machine.document().clone()).unwrap();
    let said = || office.service.standing().unwrap().spec;
    let began = said();
    let copies = |document: &Document| document.blocks.iter().map(|block| block.copies.len()).max();
    assert_eq!(copies(&document()), Some(1));
    let edited = r#"{"checkpoint":{"everySteps":7,"keepLast":9},"copies":1,"environment":"warn","excludeMax":5,"verify":0.5}"#;
    tell(edited).await.unwrap();
    let now = document();
    assert_eq!((now.wanted.replicas, now.wanted.exclude_max, copies(&now)), (1, 5, Some(2)));
    assert_eq!(
        now.checks,
        Checks { environment: EnvironmentRule::Warn, verify_millionths: 500_000, record_hashes: 0 }
    );
    assert_eq!(said(), edited);
    for (spec, why) in [
        (r#"{"epochs":9}"#, "epochs: may not change"),
        (r#"{"copies":9}"#, "copies: 9 is above 8"),
        (r#"{"copy":1}"#, "copy: there is no such field"),
        (r#"{"verify":1.5}"#, "verify: 1.5 is above 1"),
        ("", "no JSON"),
    ] {
        let refused = tell(spec).await.unwrap_err();
        assert!(refused.contains(why), "{spec}: {refused}");
        assert_eq!((document(), said()), (now.clone(), edited.to_owned()));
    }
    // What is not stated any more is as it is by default; what is as it was may be stated.
    tell(r#"{"data":["records:64"]}"#).await.unwrap();
    assert_eq!((document().wanted.replicas, document().checks.verify_millionths), (0, 0));
    assert_eq!(copies(&document()), Some(1));
    tell(&began).await.unwrap();
    assert_eq!(said(), began);
}
