//! Hashes that pservers tell of: the end waits for them as long as they may come, and copies that differ end the job.

use super::fixture::*;
use super::*;
use crate::fixture::at;
use shoal_runtime::cluster::recording::hashes_of;
use shoal_runtime::cluster::{BlockHashes, Layout, Term, Version};

/// What is told of all blocks of a version.
fn hashes(job: &Job, version: u64, of: impl Fn(BlockId) -> u64) -> Vec<BlockHashes> {
    let layout = Layout::new(job.document().declaration.as_ref().unwrap());
    let (version, rewind) = (Version(version), job.document().rewind());
    let each = layout.iter().map(|(block, shape)| {
        let hashes = vec![of(block); hashes_of(shape)];
        BlockHashes { block, version, rewind, term: Term(1), hashes }
    });
    each.collect()
}

fn tell(job: &mut Job, pserver: Incarnation, recorded: Vec<BlockHashes>, millis: u64) {
    job.report(pserver, PserverWord { recorded, ..PserverWord::default() }, millis).unwrap();
}

#[test]
fn two_copies_that_differ_end_the_job_by_version_parameter_and_name() {
    let (mut job, hosts, _) = copied(2);
    let told = hashes(&job, 3, |block| u64::from(block.0));
    tell(&mut job, hosts[0], told.clone(), 1);
    tell(&mut job, hosts[1], told, 2);
    assert_eq!(job.phase(), Phase::Training);
    let told = hashes(&job, 3, |block| u64::from(block.0.max(1)));
    tell(&mut job, hosts[1], told, 3);
    let Phase::Failed(why) = job.phase() else { panic!("{:?}", job.phase()) };
    let first = &job.document().declaration.as_ref().unwrap().parameters[0].name;
    for words in ["block 0", "version 3", &format!("parameter {first:?}"), "\"p0\" and \"p1\""] {
        assert!(why.contains(words), "{words}: {why}");
    }
}

/// Sixteen such versions would give up all true ones.
#[test]
fn hashes_of_a_version_that_the_job_does_not_have_are_refused_and_change_nothing() {
    let (mut job, hosts, _) = copied(1);
    let told = hashes(&job, 1, |_| 7);
    tell(&mut job, hosts[0], told[1..].to_vec(), 1);
    for version in (1 << 60)..(1 << 60) + 20 {
        let recorded = hashes(&job, version, |_| 7);
        let word = PserverWord { recorded, ..PserverWord::default() };
        assert_eq!(job.report(hosts[0], word, 2).unwrap_err().kind, RefusalKind::OutOfRange);
    }
    tell(&mut job, hosts[0], told[..1].to_vec(), 3);
    assert_eq!(job.machine.hashes_to_write(at(3)).unwrap()[0].version, Version(1));
    assert_eq!(job.machine.recording_counters().given_up, 0);
}

#[test]
fn hashes_that_are_not_of_the_layout_are_no_hashes() {
    let (mut job, hosts, _) = copied(1);
    let mut told = hashes(&job, 1, |_| 7);
    told.iter_mut().for_each(|of| of.hashes.push(7));
    told.push(BlockHashes { block: BlockId(1 << 19), ..told[0].clone() });
    tell(&mut job, hosts[0], told, 1);
    assert!(job.machine.hashes_to_write(at(1)).is_none());
    let told = hashes(&job, 1, |_| 7);
    tell(&mut job, hosts[0], told, 2);
    let steps = job.machine.hashes_to_write(at(2)).unwrap();
    assert_eq!((steps.len(), steps[0].version, steps[0].step), (1, Version(1), 1));
}

#[test]
fn the_end_waits_until_what_was_told_is_durable_and_for_what_is_lost_one_lease() {
    for is_lost in [false, true] {
        let (mut job, hosts, _) = copied(1);
        let steps = job.settings().steps();
        let mut told = hashes(&job, steps, |_| 7);
        if is_lost {
            told.pop();
        }
        tell(&mut job, hosts[0], told, 1);
        job.publish_everywhere(steps, 1);
        assert_eq!(job.document().newest().unwrap().version, Version(steps));
        assert_eq!(job.phase(), Phase::Training, "hashes are waited for");
        if is_lost {
            job.pass(job.settings().lease_ttl_millis);
            assert_eq!(job.phase(), Phase::Training);
            job.report(hosts[0], PserverWord::default(), job.settings().lease_ttl_millis).unwrap();
            job.pass(1 + job.settings().lease_ttl_millis);
        } else {
            let given = job.machine.hashes_to_write(at(1)).unwrap();
            assert_eq!(given.len(), 1);
            job.machine.hashes_written(true, at(2));
            job.settle(2);
        }
        assert_eq!(job.phase(), Phase::Done, "lost: {is_lost}");
        let counters = job.machine.recording_counters();
        assert_eq!((counters.recorded, counters.given_up), (u64::from(!is_lost), u64::from(is_lost)));
    }
}
