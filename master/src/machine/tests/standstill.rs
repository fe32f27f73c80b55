//! Each reason of a standstill, by a job that is made to stand still for it.

use super::*;
use crate::reports::CopyProgress;
use crate::standstill::{Outside, Reason, RefusedJoin, Standstill};
use shoal_runtime::cluster::StateName;
use shoal_runtime::cluster::waits::{Wait, WaitKind};

/// The jobs' time to live, in milliseconds.
const TTL: u64 = TTL_MILLIS;

fn wait(kind: WaitKind, subject: &str, error: &str) -> Wait {
    Wait { kind, subject: subject.into(), age: Duration::from_secs(7), error: error.into() }
}

impl Job {
    fn stands(&self, millis: u64) -> Option<Standstill> {
        self.machine.standstill(&Outside::default(), at(millis))
    }
    fn reason(&self, millis: u64) -> Option<(Reason, String)> {
        self.stands(millis).map(|one| (one.cause.reason, one.cause.subject))
    }
    /// A healthy trainer reports its waits.
    fn trainer_waits(
        &mut self,
        trainer: Incarnation,
        call: u64,
        known: &[Progress],
        waits: Vec<Wait>,
        millis: u64,
    ) {
        self.call(trainer, call, known, millis);
        self.hear_waits(trainer, waits);
    }
    /// Every block holds the whole sum of a step, and has not published it.
    fn whole(&mut self, pservers: &[Incarnation], version: u64, waits: &[Wait], millis: u64) {
        for pserver in pservers {
            let standing = self.standing(*pserver, version).into_iter();
            let held = vec![(Step(version), vec![node(3, 0)])];
            let progress = standing.map(|word| BlockProgress { held: held.clone(), ..word }).collect();
            self.report(
                *pserver,
                PserverWord { progress, waits: waits.to_vec(), ..PserverWord::default() },
                millis,
            )
            .unwrap();
        }
    }
}

#[test]
fn a_front_that_moves_is_no_standstill_and_one_that_does_not_is_told_after_a_time_to_live() {
    let (mut job, _, a) = training();
    let task = only_task(job.call(a, 1, &[], 1));
    assert_eq!(job.stands(TTL - 1), None);
    assert!(job.stands(TTL).is_some());
    job.publish_everywhere(1, TTL);
    assert_eq!(job.stands(2 * TTL - 1), None);
    job.call(a, 2, &[Progress { microbatches: 1, ..knows(&task) }], 2 * TTL);
    let stands = job.stands(3 * TTL).unwrap();
    assert!(!stands.is_told(at(TTL)), "{stands:?}");
    let word = TrainerCounters { microbatches: 5, ..TrainerCounters::default() };
    job.hear_trainer(a, TrainerWord { call: 3, counters: word }, &[knows(&task)], &[], at(3 * TTL)).unwrap();
    assert!(!job.stands(5 * TTL - 1).unwrap().is_idle, "something was computed");
    let stands = job.stands(5 * TTL).unwrap();
    assert!(stands.is_idle && stands.is_told(at(TTL)), "{stands:?}");
}

#[test]
fn before_it_begins_a_job_waits_for_a_trainer_for_one_that_is_not_refused_and_for_pservers() {
    let mut job = waiting(2);
    assert_eq!(job.reason(TTL), Some((Reason::NoTrainer, String::new())));
    job.trainer("a", 1, 0).unwrap();
    let stands = job.stands(TTL).unwrap();
    assert_eq!(
        (stands.cause.reason, &*stands.cause.text),
        (Reason::TooFewPservers, "0 of 2 pservers have joined")
    );
}

#[test]
fn trainers_that_are_refused_are_told_while_no_other_has_joined() {
    let (mut job, _, a) = training();
    job.bye(a, "", 10).unwrap();
    assert_eq!(job.reason(TTL), Some((Reason::NoTrainer, "a".into())));
    let refused = Some(RefusedJoin { trainer: "b".into(), at: at(11), why: "it is another program".into() });
    let stands = job.machine.standstill(&Outside { refused, ..Outside::default() }, at(TTL)).unwrap();
    assert_eq!((stands.cause.reason, &*stands.cause.subject), (Reason::ProgramRefused, "b"));
    assert!(stands.cause.text.ends_with("it is another program"), "{stands:?}");
}

#[test]
fn a_trainer_that_is_silent_computes_reads_or_waits_for_a_pserver_is_named_with_what_it_waits_for() {
    let (mut job, _, a) = training();
    let task = only_task(job.call(a, 1, &[], 1));
    let known = [knows(&task)];
    assert_eq!(job.reason(TTL), Some((Reason::TrainerSilent, "a".into())));
    let look = |job: &mut Job, call, waits: Vec<Wait>| {
        job.trainer_waits(a, call, &known, waits, TTL - 1);
        job.publish_everywhere(0, TTL - 1);
        job.reason(TTL).unwrap()
    };
    assert_eq!(look(&mut job, 2, vec![]), (Reason::TrainerStuck, "a".into()));
    assert_eq!(look(&mut job, 3, vec![wait(WaitKind::Program, "step", "")]), (Reason::Computing, "a".into()));
    let data = wait(WaitKind::Data, "x.recordio", "");
    assert_eq!(look(&mut job, 4, vec![data]), (Reason::Data, "x.recordio".into()));
    let part = wait(WaitKind::Storage, "write out/part-1", "no space left");
    assert_eq!(look(&mut job, 5, vec![part]), (Reason::Storage, "write out/part-1".into()));
    let unanswered = wait(WaitKind::Pserver, "p1:7000", "no answer in time");
    assert_eq!(look(&mut job, 6, vec![unanswered.clone()]), (Reason::PserverUnreachable, "p1".into()));
    let stranger = wait(WaitKind::Pserver, "elsewhere:1", "refused");
    assert_eq!(look(&mut job, 7, vec![stranger]), (Reason::PserverUnreachable, "elsewhere:1".into()));
    let waits = [Progress { waits: true, microbatches: 4, ..known[0] }];
    job.trainer_waits(a, 8, &waits, vec![], TTL);
    assert_eq!(job.reason(TTL + 1), Some((Reason::NoRoom, "a".into())));
    // Of the two that do not speak with one another, the pserver is silent for the master as well.
    job.trainer_waits(a, 9, &known, vec![unanswered], TTL + 900);
    assert_eq!(job.reason(TTL + 900), Some((Reason::PserverSilent, "p1".into())));
}

#[test]
fn a_task_that_nobody_asks_for_is_told_with_what_trainers_are_at() {
    let (mut job, _, a) = training();
    job.publish_everywhere(0, TTL - 1);
    let word = TrainerWord { call: 1, ..TrainerWord::default() };
    job.hear_trainer(a, word, &[], &[], at(TTL - 1)).unwrap();
    assert_eq!(job.reason(TTL), Some((Reason::NobodyAsks, "a".into())));
    job.hear_waits(a, vec![wait(WaitKind::Decision, "x", "")]);
    let text = job.stands(TTL).unwrap().cause.text;
    assert!(text.contains("\"a\" waits for x"), "{text}");
    job.hear_waits(a, vec![wait(WaitKind::Data, "x.recordio", "")]);
    assert_eq!(job.reason(TTL), Some((Reason::Data, "x.recordio".into())));
}

#[test]
fn a_primary_that_is_silent_or_gone_is_named_and_so_is_one_that_has_yet_to_begin() {
    let (mut job, [p0, _], _) = training();
    job.publish(p0, 0, TTL);
    job.settle(TTL);
    // Its lease is over.
    job.pass(TTL + 1);
    assert_eq!(job.reason(TTL + 1), Some((Reason::NoCopyLeft, "p1".into())));
    let again = job.pserver("p2", 2, TTL + 2).unwrap();
    job.publish(p0, 0, TTL + 2);
    job.report(again, PserverWord::default(), 2 * TTL + 400).unwrap();
    job.publish(p0, 0, 2 * TTL + 400);
    assert_eq!(job.reason(2 * TTL + 500), Some((Reason::Restoring, "p2".into())));
    let hangs = wait(WaitKind::Storage, "read checkpoint-1", "");
    job.report(again, PserverWord { waits: vec![hangs], ..PserverWord::default() }, 2 * TTL + 400).unwrap();
    assert_eq!(job.reason(2 * TTL + 500), Some((Reason::Storage, "read checkpoint-1".into())));
    assert_eq!(job.reason(2 * TTL + 1300), Some((Reason::PserverSilent, "p2".into())));
}

#[test]
fn an_update_that_is_not_published_waits_for_a_copy_for_memory_a_device_or_a_decision() {
    let (mut job, pservers, _) = copied(2);
    let primary = pservers[0];
    let mine = job.blocks_of(primary);
    let copy = |job: &Job, id: BlockId, version: u64| CopyProgress {
        blocks: vec![id],
        fill: job.document().blocks[id.0 as usize].copy_on(pservers[1]).unwrap().fill,
        name: Some(StateName { term: Term(1), version: Version(version) }),
        is_broken: false,
    };
    job.whole(&pservers, 0, &[], TTL - 1);
    let stands = job.stands(TTL).unwrap();
    assert_eq!((stands.cause.reason, &*stands.cause.subject), (Reason::CopyBehind, "p1"), "{stands:?}");
    let unanswered = wait(WaitKind::Primary, "p0:7000", "refused to connect");
    let copies: Vec<CopyProgress> = mine.iter().map(|id| copy(&job, *id, 0)).collect();
    let word = PserverWord { copies, waits: vec![unanswered], ..PserverWord::default() };
    job.report(pservers[1], word, TTL - 1).unwrap();
    let text = job.stands(TTL).unwrap().cause.text;
    assert!(text.contains("it gets no answer from p0:7000 for 7.0 s: refused to connect"), "{text}");
    // All copies have it.
    for (of, with) in [(0, 1), (1, 0)] {
        let fills = job.blocks_of(pservers[of]).into_iter().map(|id| CopyProgress {
            fill: job.document().blocks[id.0 as usize].copy_on(pservers[with]).unwrap().fill,
            ..copy_of(id, 1)
        });
        let word = PserverWord { copies: fills.collect(), ..PserverWord::default() };
        job.report(pservers[with], word, TTL - 1).unwrap();
    }
    let kinds = [
        (WaitKind::CheckpointMemory, Reason::CheckpointMemory),
        (WaitKind::Device, Reason::Device),
        (WaitKind::Decision, Reason::Undecided),
        (WaitKind::Storage, Reason::Storage),
    ];
    for (kind, reason) in kinds {
        job.whole(&pservers, 0, &[wait(kind, "of it", "")], TTL - 1);
        assert_eq!(job.reason(TTL).map(|reason| reason.0), Some(reason));
    }
    job.whole(&pservers, 0, &[], TTL - 1);
    assert_eq!(job.reason(TTL), Some((Reason::PserverStuck, "p0".into())));
}

fn copy_of(id: BlockId, version: u64) -> CopyProgress {
    let name = Some(StateName { term: Term(1), version: Version(version) });
    CopyProgress { blocks: vec![id], fill: Fill(0), name, is_broken: false }
}

#[test]
fn a_store_that_takes_nothing_is_named_first() {
    let (mut job, _, a) = training();
    only_task(job.call(a, 1, &[], 1));
    let own = [wait(WaitKind::Store, "http://etcd:2379", "deadline exceeded")];
    let outside = Outside { waits: own.to_vec(), refused: None };
    let stands = job.machine.standstill(&outside, at(TTL)).unwrap();
    assert_eq!((stands.cause.reason, &*stands.cause.subject), (Reason::Store, "http://etcd:2379"));
    assert!(stands.cause.text.ends_with("for 7.0 s: deadline exceeded"), "{stands:?}");
}

#[test]
fn the_last_checkpoint_is_waited_for_at_the_pserver_whose_pieces_are_missing_then_at_the_master() {
    let (mut job, [p0, p1], _) = training();
    let last = job.document().last_version().0;
    for pserver in [p0, p1] {
        job.hear(pserver, job.word(pserver, last), 1).unwrap();
    }
    let document = job.machine.decide(at(1)).unwrap();
    job.machine.adopt(document, at(1));
    assert!(job.document().named.is_some());
    for pserver in [p0, p1] {
        job.hear(pserver, job.word(pserver, last), TTL).unwrap();
    }
    assert_eq!(job.reason(TTL + 1), Some((Reason::Checkpoint, "p0".into())));
    let full = wait(WaitKind::Storage, "write checkpoint-1", "no space left on device");
    job.hear(p0, PserverWord { waits: vec![full], ..job.word(p0, last) }, TTL).unwrap();
    let stands = job.stands(TTL + 1).unwrap();
    assert_eq!((stands.cause.reason, &*stands.cause.subject), (Reason::Storage, "write checkpoint-1"));
    assert!(stands.cause.text.contains("no space left on device"), "{stands:?}");
    assert_eq!(job.reason(TTL + 900), Some((Reason::PserverSilent, "p0".into())));
    write_pieces(&mut job.machine);
    let own = [wait(WaitKind::Storage, "write checkpoint-1/manifest", "")];
    let outside = Outside { waits: own.to_vec(), refused: None };
    let stands = job.machine.standstill(&outside, at(TTL + 1)).unwrap();
    assert_eq!(
        (stands.cause.reason, &*stands.cause.subject),
        (Reason::Storage, "write checkpoint-1/manifest")
    );
}

#[test]
fn a_job_that_is_over_waits_for_nothing() {
    let (mut job, _, _) = training();
    let last = job.document().last_version().0;
    job.publish_everywhere(last, 1);
    assert_eq!(job.phase(), Phase::Done);
    assert_eq!(job.stands(100 * TTL), None);
}

#[test]
fn each_reason_has_a_word_of_its_own() {
    for (place, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, place);
        assert_eq!(Reason::ALL.iter().filter(|other| other.word() == reason.word()).count(), 1);
    }
}
