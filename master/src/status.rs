//! What a master tells people and supervisors: one message, read off the machine. Decides nothing.

use crate::document::{Document, Evaluation, Value};
use crate::machine::{Machine, Phase};
use crate::members::{Member, State};
use shoal_job::spec;
use shoal_runtime::cluster::{Incarnation, rewind_cause};
use shoal_runtime::wire::proto;
use std::ops::Range;
use std::time::Duration;

/// Builds the reply, with or without declaration and routing, which grow with the model. The service adds the standstill: it knows the
/// waits of its process.
pub(crate) fn reply(machine: &Machine, now: Duration, with_model: bool) -> proto::StatusReply {
    let settings = machine.settings();
    let (phase, failure) = match machine.phase() {
        Phase::Waiting => ("waiting", String::new()),
        Phase::Training => ("training", String::new()),
        Phase::Done => ("done", String::new()),
        Phase::Failed(why) => ("failed", why),
    };
    let advance = machine.advance();
    let predicts = settings.evaluated.as_ref().is_some_and(|evaluated| evaluated.outputs.is_some());
    let leases = machine.job.as_ref().map(|job| job.dispatch.counters()).unwrap_or_default();
    let verification = machine.job.as_ref().and_then(|job| job.verification.as_ref());
    let verified = verification.map(|verification| verification.counters()).unwrap_or_default();
    let recorded = machine.recording_counters();
    proto::StatusReply {
        settings: Some(settings.into()),
        phase: phase.to_owned(),
        failure,
        step: advance.step,
        steps: advance.steps,
        epoch: advance.epoch,
        trainers: machine.trainers.iter().map(|(id, member)| trainer(machine, id, member)).collect(),
        pservers: machine.pservers.iter().filter_map(|(id, member)| pserver(machine, id, member)).collect(),
        leases: Some(leases.into()),
        trainers_wanted: machine.wanted().trainers,
        pservers_wanted: machine.pservers_to_run(),
        replicas_wanted: machine.wanted().replicas,
        copies_in_sync: machine.loads.in_sync,
        copies_filling: machine.loads.filling,
        rewind: machine.document().rewinds,
        rewinds_by_cause: rewind_cause::to_counts(&machine.document().rewind_causes),
        master_term: machine.document().master_term,
        checkpoint: machine.document().newest().map_or(0, |kept| kept.record.checkpoint.0),
        checkpoint_version: machine.document().newest().map_or(0, |kept| kept.version.0),
        records_applied: machine.work.applied(advance.records),
        records_lost: machine.work.lost(),
        is_progress_known: machine.job.as_ref().is_none_or(|job| job.is_heard),
        trainer_totals: Some(machine.tally.total().into()),
        checkpoint_age_millis: machine.checkpoint_age(now).as_millis() as u64,
        checkpoint_under_way: machine.document().named.map_or(0, |named| named.checkpoint.0),
        checkpoints: machine.place.clone(),
        checkpoint_record: machine.document().newest().map(|kept| kept.record.into()),
        troubles: troubles(machine),
        records_excluded: machine.document().exclusions.count(),
        exclude_max: machine.wanted().exclude_max,
        damaged: machine.document().damaged.iter().map(Into::into).collect(),
        declaration: machine.declaration().filter(|_| with_model).map(Into::into),
        routing: machine.job.as_ref().filter(|_| with_model).map(|job| job.routing.as_ref().into()),
        data_bytes: machine.plan.manifest().data_bytes(),
        trained_on: data_size(machine, 0..settings.records),
        evaluated: data_size(machine, settings.records..machine.plan.manifest().record_count()),
        records_trained: advance.records,
        records_planned: advance.records_planned,
        version: version(machine),
        front: machine.job.as_ref().map_or(0, |job| job.dispatch.front()),
        evaluations: evaluations(machine.document()),
        evaluations_planned: if predicts { 0 } else { settings.course().evaluations() },
        verify_millionths: machine.document().checks.verify_millionths,
        microbatches_verified: verified.verified,
        microbatches_unverified: verified.given_up,
        record_hashes: machine.document().checks.record_hashes,
        steps_recorded: recorded.recorded,
        steps_unrecorded: recorded.given_up,
        spec: spec::Document(machine.spec().live()).to_string(),
        is_stopped_early: machine.document().judged().last.is_some(),
        standstill: None,
    }
}

/// How much these records are; nothing where there are none.
fn data_size(machine: &Machine, records: Range<u64>) -> Option<proto::DataSize> {
    let (files, bytes) = machine.plan.manifest().files_of(&records);
    let records = records.end - records.start;
    (records > 0).then_some(proto::DataSize { files, records, bytes })
}

/// The version at which the model can be read.
fn version(machine: &Machine) -> u64 {
    match &machine.job {
        Some(job) if machine.settings().is_sync() => job.dispatch.front(),
        _ => machine.document().last_version().0,
    }
}

/// Evaluations that are judged, oldest first.
fn evaluations(document: &Document) -> Vec<proto::EvaluationStatus> {
    let (judged, course) = (document.judged(), document.job.course());
    let names: Vec<&str> = document
        .declaration
        .iter()
        .flat_map(|declared| declared.metrics())
        .map(|metric| metric.name)
        .collect();
    let per_step = if document.job.is_sync() { 1 } else { u64::from(document.job.microbatches_per_step) };
    let evaluation = |(number, evaluation): (u64, &Evaluation)| {
        let value =
            |(name, value): (&&str, &Value)| proto::MetricValue { name: (*name).to_owned(), value: value.0 };
        let version = document.version_after(number);
        let kept = document.checkpoints.iter().find(|kept| kept.version == version);
        let rate =
            judged.rates.iter().rev().find(|(since, _)| *since <= number).map_or(1.0, |(_, rate)| *rate);
        proto::EvaluationStatus {
            step: course.trained(version.0) / per_step,
            values: names.iter().zip(&evaluation.values).map(value).collect(),
            is_best: judged.best == Some(number),
            rate,
            checkpoint: kept.map_or(0, |kept| kept.record.checkpoint.0),
        }
    };
    (0..).zip(&document.evaluations).map(evaluation).collect()
}

/// Records that trainers complained of, those that are left out first; then what trainers are lost with.
fn troubles(machine: &Machine) -> Vec<proto::TroubleStatus> {
    let document = machine.document();
    let what = |records: &Range<u64>| machine.plan.manifest().describe(records);
    let excluded = document.exclusions.list.iter().map(|exclusion| proto::TroubleStatus {
        records: Some((&exclusion.records).into()),
        what: what(&exclusion.records),
        why: exclusion.why.clone(),
        excluded_from: Some(exclusion.from.0),
        ..Default::default()
    });
    let open = document.troubles.iter().map(|trouble| proto::TroubleStatus {
        records: trouble.records.as_ref().map(Into::into),
        what: trouble.what.clone(),
        why: trouble.why.clone(),
        excluded_from: None,
        attempts: trouble.attempts,
        trainers: trouble.trainers.iter().cloned().collect(),
    });
    excluded.chain(open).chain(machine.suspicions()).collect()
}

fn trainer(machine: &Machine, id: Incarnation, member: &Member) -> proto::TrainerStatus {
    let state = match member.state {
        State::Live => "live",
        State::Lost => "lost",
        State::Left => "left",
        State::Superseded => "superseded",
    };
    let word = machine.heard_trainers.get(&id).map(|heard| heard.word).unwrap_or_default();
    proto::TrainerStatus {
        name: member.name.clone(),
        incarnation: id.0,
        state: state.to_owned(),
        process: member.process,
        tasks_in_hand: machine.job.as_ref().map_or(0, |job| job.dispatch.in_hand(id)),
        counters: Some(word.counters.into()),
    }
}

fn pserver(machine: &Machine, id: Incarnation, member: &Member) -> Option<proto::PserverStatus> {
    let record = machine.pserver_records.get(&id)?;
    let load = machine.loads.of(id);
    Some(proto::PserverStatus {
        name: member.name.clone(),
        incarnation: id.0,
        address: record.address.clone(),
        process: member.process,
        blocks: load.led,
        bytes: load.bytes,
        counters: Some(record.counters.into()),
        staleness: Some((&record.staleness).into()).filter(|_| !machine.settings().is_sync()),
        lost: member.state != State::Live,
        is_leaving: machine.document().leaving.contains(&id),
        followers: load.held - load.led,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Mark, PlacedBlock, PlacedCopy, PserverAt, Wanted};
    use crate::fixture;
    use prost::Message;
    use shoal_runtime::cluster::initial::Initial;
    use shoal_runtime::cluster::schedule::Schedule;
    use shoal_runtime::cluster::{Declaration, Fill, Parameter, Rule};
    use tokio::time::Instant;

    /// A job of so many blocks on ten pservers, each with a copy, and so many trainers.
    fn machine(blocks: usize, trainers: u64) -> Machine {
        let elements = 25 * blocks as u64;
        let parameter = Parameter::new("w", &[elements], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
        let declaration = Declaration { parameters: vec![parameter], block_elements: 25 };
        let wanted = Wanted { pservers: 10, trainers: trainers as u32, replicas: 1, exclude_max: 0 };
        let mut document = Document::new(fixture::settings(64, 2, 8, 2), wanted).elected("m1");
        let pserver = |at: usize| Incarnation::new(1, at as u64 % 10 + 1);
        for at in 0..10 {
            let named = PserverAt { name: format!("p{at}"), address: format!("p{at}:7000") };
            document.pservers.insert(pserver(at), named);
        }
        let placed = |at: usize| {
            let mut block = PlacedBlock::restored(pserver(at), 1);
            block.copies.push(PlacedCopy { pserver: pserver(at + 1), fill: Fill(1), mark: Mark::InSync });
            block
        };
        document.blocks = (0..blocks).map(placed).collect();
        document.declaration = Some(declaration.clone());
        let mut machine = Machine::new(
            document,
            fixture::manifest(64),
            fixture::at_the_end(),
            String::from("here"),
            Duration::ZERO,
        );
        for trainer in 0..trainers {
            let name = format!("trainer-{trainer}");
            machine.join(&name, 1, 1, declaration.clone(), None, Duration::ZERO).unwrap();
        }
        machine
    }

    #[test]
    fn who_asks_without_the_model_is_told_all_else_and_what_lies_where_adds_up() {
        let machine = machine(25, 3);
        let [with, without] = [true, false].map(|with_model| reply(&machine, Duration::ZERO, with_model));
        assert!(with.declaration.is_some() && with.routing.is_some());
        assert_eq!(without, proto::StatusReply { declaration: None, routing: None, ..with.clone() });
        let loads: Vec<_> = with.pservers.iter().map(|one| (one.blocks, one.bytes, one.followers)).collect();
        let expected = |at: u64| match at {
            0 => (3, 300, 2),
            1..=4 => (3, 300, 3),
            5 => (2, 200, 3),
            _ => (2, 200, 2),
        };
        assert_eq!(loads, (0..10).map(expected).collect::<Vec<_>>());
    }

    /// Not a test: `cargo test -p shoal-master --release --lib measured_status -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn measured_status_of_a_thousand_trainers_and_a_hundred_thousand_blocks() {
        let machine = machine(100_000, 1000);
        for with_model in [true, false] {
            let mut took: Vec<Duration> = Vec::new();
            let mut bytes = 0;
            for _ in 0..50 {
                let since = Instant::now();
                let said = reply(&machine, Duration::ZERO, with_model);
                took.push(since.elapsed());
                bytes = said.encoded_len();
            }
            took.sort_unstable();
            println!("with model {with_model}: {bytes} bytes, p50 {:?}, p98 {:?}", took[25], took[48]);
        }
    }
}
