//! Messages of the protocol as the machine's words. A message that cannot be understood is refused by name.

use crate::decide::Admission;
use crate::dispatch;
use crate::lease::Progress;
use crate::machine::{PserverWord, Refused};
use crate::members::LIVE_MAX;
use crate::reports::{BlockProgress, BlockSums, CopyProgress};
use shoal_job::spec::{self, Naming, Spec};
use shoal_runtime::cluster::checkpoint::WrittenFile;
use shoal_runtime::cluster::{
    BlockId, DamagedCheckpoint, Fill, Incarnation, LeaseId, Node, Refusal, RefusalKind, Rewind, Step, Term,
    Verified, Version,
};
use shoal_runtime::wire::{malformed, proto, status_of, waits};
use tonic::Status;

/// Complaints that one call may carry, records that one may name, and bytes of its reason.
const COMPLAINTS_MAX: usize = 64;
const COMPLAINT_RECORDS_MAX: usize = 64;
const WHY_MAX: usize = 4000;
/// Hashes that one call may carry: trainers tell fewer at a time.
const VERIFIED_MAX: usize = 256;

/// Bytes of an address: the longest name of a host, and a port.
const ADDRESS_BYTES_MAX: usize = 260;
/// Bytes of the name of a checkpoint's file, as file systems have it.
const FILE_NAME_BYTES_MAX: usize = 255;

/// Where somebody says to listen: it comes to stand in the document, and everybody is told of it.
pub(crate) fn address(text: String) -> Result<String, Status> {
    if text.is_empty()
        || text.len() > ADDRESS_BYTES_MAX
        || text.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        let detail = format!(
            "an address has 1 to {ADDRESS_BYTES_MAX} bytes, no blanks and no control characters: give host:port"
        );
        return Err(status_of(&malformed("address", detail)));
    }
    Ok(text)
}

/// How many members somebody asks for, no more than there may be; `before` where it is not said.
pub(crate) fn wanted(members: &str, asked: Option<u32>, before: u32) -> Result<u32, Status> {
    match asked {
        Some(count) if count as usize > LIVE_MAX => {
            let detail = format!("a job has {LIVE_MAX} of them at most: ask for fewer");
            let refusal = Refusal::new(RefusalKind::OutOfRange, format!("{count} {members}"), detail);
            Err(status_of(&refusal))
        }
        asked => Ok(asked.unwrap_or(before)),
    }
}

/// The settings that somebody asks for, by a document with live ones alone, or with all: those of `before`, but for the live ones.
pub(crate) fn spec(text: &str, before: &Spec) -> Result<Spec, Status> {
    let asked =
        spec::Document::parse(text).and_then(|asked| before.with_live(&asked.0)).and_then(|spec| match spec
            .faults(Naming::Fields)
            .into_iter()
            .next()
        {
            Some(fault) => Err(fault),
            None => Ok(spec),
        });
    asked.map_err(|why| status_of(&malformed("spec", why)))
}

fn written(wire: proto::WrittenFile) -> Result<WrittenFile, Refusal> {
    let written = WrittenFile::try_from(wire)?;
    match written.file.name.len() {
        1..=FILE_NAME_BYTES_MAX => Ok(written),
        _ => {
            Err(malformed("written.file", format!("the name of a file has 1 to {FILE_NAME_BYTES_MAX} bytes")))
        }
    }
}

/// A text that may come to stand in the document, no longer than such may be.
pub(crate) fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(WHY_MAX));
    text
}

/// What a pserver says in one report.
pub(crate) fn report(request: proto::ReportRequest) -> Result<PserverWord, Refusal> {
    let primary = Incarnation(request.incarnation);
    let copies = request.copies.into_iter().map(|group| CopyProgress {
        blocks: group.blocks.into_iter().map(BlockId).collect(),
        fill: Fill(group.fill),
        name: group.name.map(Into::into),
        is_broken: group.is_broken,
    });
    let admissions = request.admissions.into_iter().map(|asked| Admission {
        block: BlockId(asked.block),
        pserver: Incarnation(asked.pserver),
        fill: Fill(asked.fill),
        term: Term(asked.term),
        primary,
        is_heir: asked.is_heir,
    });
    Ok(PserverWord {
        call: request.call,
        progress: block_progress(request.progress)?,
        copies: copies.collect(),
        sums: request.evaluated.into_iter().map(sums).collect(),
        admissions: admissions.collect(),
        counters: request.counters.unwrap_or_default().into(),
        staleness: request.staleness.as_ref().map(Into::into).unwrap_or_default(),
        failure: bounded(request.failure),
        is_leaving: request.is_leaving,
        checkpoint: request.checkpoint,
        written: request.written.into_iter().map(written).collect::<Result<_, _>>()?,
        passed: request.passed.into_iter().map(BlockId).collect(),
        has_passed: request.has_passed,
        damaged: request.damaged.into_iter().map(damage).collect::<Result<_, _>>()?,
        recorded: request.recorded.into_iter().map(Into::into).collect(),
        waits: waits::from_wire(request.waits),
        settled: (request.recorded_below > 0)
            .then_some((Rewind(request.recorded_rewind), Version(request.recorded_below))),
    })
}

fn damage(wire: proto::DamagedCheckpoint) -> Result<DamagedCheckpoint, Refusal> {
    let damaged = DamagedCheckpoint::try_from(wire)?;
    Ok(DamagedCheckpoint { file: bounded(damaged.file), what: bounded(damaged.what), ..damaged })
}

fn sums(wire: proto::EvaluatedBlock) -> BlockSums {
    let (words, _) = wire.sums.as_chunks();
    let sums = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    BlockSums { block: BlockId(wire.block), term: Term(wire.term), number: wire.number, sums }
}

/// What a trainer cannot do, as far as it can be understood.
pub(crate) fn refusals(words: Vec<proto::Complaint>) -> Result<Vec<Refused>, Refusal> {
    let refused = |word: proto::Complaint| {
        let records = word.records.into_iter().take(COMPLAINT_RECORDS_MAX).map(TryInto::try_into);
        let why = bounded(word.why);
        Ok(Refused {
            lease: LeaseId(word.lease),
            place: dispatch::Refused { step: Step(word.step), slot: word.slot, position: word.position },
            records: records.collect::<Result<_, Refusal>>()?,
            why,
        })
    };
    words.into_iter().take(COMPLAINTS_MAX).map(refused).collect()
}

/// What a trainer tells of microbatches that are computed twice.
pub(crate) fn verified(words: Vec<proto::Verified>) -> Result<Vec<Verified>, Refusal> {
    words.into_iter().take(VERIFIED_MAX).map(TryInto::try_into).collect()
}

pub(crate) fn progress(words: &[proto::Progress]) -> Vec<Progress> {
    let word = |word: &proto::Progress| Progress {
        lease: LeaseId(word.lease),
        microbatches: word.microbatches,
        pushed: word.pushed,
        waits: word.waits,
    };
    words.iter().map(word).collect()
}

fn block_progress(groups: Vec<proto::BlockProgress>) -> Result<Vec<BlockProgress>, Refusal> {
    let group = |group: proto::BlockProgress| {
        let held = group.held.into_iter().map(held_step).collect::<Result<_, _>>()?;
        let blocks = group.blocks.into_iter().map(BlockId).collect();
        let ledger = group.ledger.unwrap_or_default().try_into()?;
        Ok(BlockProgress { blocks, term: Term(group.term), version: Version(group.version), held, ledger })
    };
    groups.into_iter().map(group).collect()
}

fn held_step(wire: proto::HeldStep) -> Result<(Step, Vec<Node>), Refusal> {
    let mut held = wire.nodes.into_iter().map(Node::try_from).collect::<Result<Vec<_>, _>>()?;
    held.sort_by_key(|node| node.first());
    if held.windows(2).any(|pair| pair[0].end() > pair[1].first()) {
        return Err(malformed("report.held", "held nodes cover one another"));
    }
    Ok((Step(wire.step), held))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::cluster::RefusalKind;

    fn held(nodes: &[(u32, u32)]) -> proto::ReportRequest {
        let nodes = nodes.iter().map(|(level, index)| proto::Node { level: *level, index: *index }).collect();
        let held = vec![proto::HeldStep { step: 2, nodes }];
        let progress =
            vec![proto::BlockProgress { blocks: vec![3], version: 2, term: 5, held, ..Default::default() }];
        proto::ReportRequest { incarnation: 7, call: 4, progress, ..Default::default() }
    }

    #[test]
    fn held_nodes_come_in_any_order_and_may_not_cover_one_another() {
        let word = report(held(&[(1, 3), (2, 0)])).unwrap();
        assert_eq!(
            word.progress[0].held,
            [(Step(2), vec![Node { level: 2, index: 0 }, Node { level: 1, index: 3 }])]
        );
        for nodes in [[(2, 0), (0, 3)], [(0, 1), (0, 1)]] {
            assert_eq!(report(held(&nodes)).unwrap_err().kind, RefusalKind::Malformed, "{nodes:?}");
        }
        assert_eq!(report(held(&[(25, 0)])).unwrap_err().kind, RefusalKind::Malformed, "above any root");
    }

    #[test]
    fn a_ledger_that_is_none_is_refused() {
        let mut request = held(&[]);
        let ranges = vec![proto::LedgerRange { first: 5, end: 4 }];
        request.progress[0].ledger = Some(proto::Ledger { low: 2, ranges });
        assert_eq!(report(request).unwrap_err().kind, RefusalKind::Malformed);
    }

    #[test]
    fn who_reports_is_who_asks_for_admissions() {
        let asked = proto::Admission { block: 1, pserver: 2, fill: 3, term: 4, is_heir: true };
        let word =
            report(proto::ReportRequest { admissions: vec![asked], is_leaving: true, ..held(&[]) }).unwrap();
        assert_eq!((word.call, word.is_leaving), (4, true));
        let admission = Admission {
            block: BlockId(1),
            pserver: Incarnation(2),
            fill: Fill(3),
            term: Term(4),
            primary: Incarnation(7),
            is_heir: true,
        };
        assert_eq!(word.admissions, [admission]);
    }
}
