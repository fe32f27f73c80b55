//! Values of the cluster's types with a message each, filled by hand within their rules: what a field *means* is recorded with
//! them, where `messages.txt` records only where it stands.

use prost::Message;
use prost::bytes::Bytes;
use shoal_runtime::cluster::block_copy::{Segment, WHOLE};
use shoal_runtime::cluster::checkpoint::{FileRecord, WrittenFile};
use shoal_runtime::cluster::decisions::{LossScale, NonFinite};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::routing::{BlockRoute, PserverAddress};
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{
    Better, BlockCopy, BlockId, CheckpointId, DamagedCheckpoint, Decisions, Declaration, Evaluated,
    Exclusion, Exclusions, Group, Incarnation, JobId, JobSettings, LeaseId, Ledger, ManifestRecord, Metric,
    Microbatch, Mode, Node, Parameter, Period, PieceRef, Plateau, Precision, Refusal, Rewind, Routing, Rule,
    Slice, StateName, Step, Table, Target, Task, Term, Version, WarmStart, Work,
};
use shoal_runtime::wire::proto;
use std::fmt::Debug;
use std::ops::Range;

/// A value as it travels.
pub(crate) struct Value {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    /// The value, in words.
    pub(crate) text: String,
    /// What today's code makes of such bytes, in the same words.
    pub(crate) read: fn(&[u8]) -> Result<String, Refusal>,
}

/// A value that has the wire's message `M`.
fn value<M, T>(name: &'static str, value: &T, message: &M) -> Value
where
    M: Message + Default,
    T: TryFrom<M, Error: Into<Refusal>> + Debug,
{
    let read = |bytes: &[u8]| {
        let message = M::decode(bytes).expect("a message");
        T::try_from(message).map(|value| format!("{value:#?}")).map_err(Into::into)
    };
    Value { name, bytes: message.encode_to_vec(), text: format!("{value:#?}"), read }
}

/// A conversion that cannot fail has no refusal.
macro_rules! sure {
    ($name:literal, $wire:ty, $type:ty, $value:expr) => {{
        let it: $type = $value;
        let read =
            |bytes: &[u8]| Ok(format!("{:#?}", <$type>::from(<$wire>::decode(bytes).expect("a message"))));
        Value {
            name: $name,
            bytes: <$wire>::from(it.clone()).encode_to_vec(),
            text: format!("{it:#?}"),
            read,
        }
    }};
}

/// All of them.
pub(crate) fn all() -> Vec<Value> {
    let [sync, async_] = [synchronous(), asynchronous()];
    let (declaration, routing, written) = (declaration(), routing(), written());
    let (damaged, exclusions, ledger) = (damaged(), exclusions(), ledger());
    let [node, run] = [task(true), task(false)];
    vec![
        value("JobSettings, synchronous", &sync, &proto::JobSettings::from(&sync)),
        value("JobSettings, asynchronous", &async_, &proto::JobSettings::from(&async_)),
        value("Declaration", &declaration, &proto::Declaration::from(&declaration)),
        value("Routing", &routing, &proto::Routing::from(&routing)),
        value("Task, a node", &node, &proto::Task::from(node.clone())),
        value("Task, a run", &run, &proto::Task::from(run.clone())),
        value("Exclusions", &exclusions, &proto::Exclusions::from(&exclusions)),
        value("Ledger", &ledger, &proto::Ledger::from(&ledger)),
        value("BlockCopy", &copy(7), &proto::BlockCopy::from(copy(7))),
        value("BlockCopy of a bucket", &segment(141..142), &proto::BlockCopy::from(segment(141..142))),
        value("BlockCopy of a bucket's changes", &delta(143..144), &proto::BlockCopy::from(delta(143..144))),
        value("WrittenFile", &written, &proto::WrittenFile::from(&written)),
        value("DamagedCheckpoint", &damaged, &proto::DamagedCheckpoint::from(&damaged)),
        sure!("ManifestRecord", proto::ManifestRecord, ManifestRecord, damaged.record),
        sure!("StateName", proto::StateName, StateName, name(5)),
        sure!("Decisions", proto::Decisions, Decisions, decisions()),
    ]
}

/// A synchronous job with all that it may have.
pub(crate) fn synchronous() -> JobSettings {
    JobSettings {
        job: JobId(String::from("digits-1")),
        seed: 11,
        epochs: 12,
        microbatch_records: 13,
        microbatches_per_step: 14,
        shuffle_run: 15,
        records: 1600,
        manifest_fingerprint: std::array::from_fn(|at| at as u8 + 17),
        lease_ttl_millis: 1800,
        mode: Mode::Sync { delay: 3 },
        gradients: Precision::Bf16,
        warm_start: Some(WarmStart {
            place: String::from("s3://bucket/models"),
            file: String::from("digits.safetensors"),
            bytes: 1900,
            header_sha256: std::array::from_fn(|at| at as u8 + 60),
        }),
        evaluated: Some(Evaluated {
            records: 300,
            every: Period::Steps(21),
            outputs: Some(String::from("/out")),
        }),
    }
}

fn asynchronous() -> JobSettings {
    let evaluated = Evaluated { records: 301, every: Period::Epochs(2), outputs: None };
    JobSettings {
        mode: Mode::Async { staleness_window: 22, scale_by_staleness: true },
        gradients: Precision::F32,
        warm_start: None,
        evaluated: Some(evaluated),
        ..synchronous()
    }
}

fn decisions() -> Decisions {
    Decisions {
        clip_norm: Some(1.5),
        non_finite: NonFinite::Skip { in_a_row_max: 23 },
        loss_scale: Some(LossScale { initial: 1024.0, growth_interval: 24 }),
    }
}

/// A parameter of every rule, schedule and initial value, with elements for a few blocks.
pub(crate) fn declaration() -> Declaration {
    let (beta1, beta2, epsilon) = (0.8, 0.95, 1e-7);
    let schedules = [
        Schedule::constant(0.125),
        Schedule::step(0.25, 0.5, 31),
        Schedule::exponential(0.375, 0.75, 32),
        Schedule::cosine(0.5, 0.0625, 33).after_warmup(34),
        Schedule::piecewise(0.625, [(35, 0.3), (36, 0.2)]).after_warmup(37),
    ];
    let initials = [
        Initial::Constant { value: -0.7 },
        Initial::Uniform { limit: 0.3 },
        Initial::Normal { deviation: 0.2 },
        Initial::TruncatedNormal { deviation: 0.4 },
        Initial::Zeros,
    ];
    let rules = [
        Rule::Sgd,
        Rule::Momentum { momentum: 0.9 },
        Rule::Nesterov { momentum: 0.85 },
        Rule::Adagrad { epsilon: 1e-9 },
        Rule::Adam { beta1, beta2, epsilon },
        Rule::AdamW { beta1: 0.81, beta2: 0.96, epsilon: 1e-6 },
        Rule::AmsGrad { beta1: 0.82, beta2: 0.97, epsilon: 1e-5 },
    ];
    let row_rules =
        [Rule::RowwiseAdagrad { epsilon: 1e-4 }, Rule::LazyAdam { beta1: 0.83, beta2: 0.98, epsilon: 1e-3 }];
    let every = schedules.iter().cycle().zip(initials.into_iter().cycle());
    let trained = rules.into_iter().zip(every).enumerate().map(|(at, (rule, (rate, initial)))| {
        Parameter::new(&format!("p{at}"), &[3 + at as u64, 2], rule, rate.clone(), initial)
    });
    let (ftrl, rate) = (Rule::Ftrl { l1: 0.1, l2: 0.2, beta: 1.25 }, Schedule::constant(0.1));
    let group = Group { rate_multiplier: 0.5, weight_decay: 0.25, is_frozen: false };
    let none = Schedule::constant(0.0);
    let plateau = Some(Plateau { after: 42, factor: 0.5 });
    let target = Target { least_change: 0.125, keep_best: true, stop_after: Some(41), plateau };
    let mut parameters: Vec<Parameter> = trained.collect();
    parameters[0] = parameters[0].clone().in_group(Group::FROZEN);
    parameters.push(Parameter::new("ema", &[], Rule::Ema { decay: 0.7 }, none, Initial::Zeros));
    let ceilings = [Full::Refuse, Full::Evict { half_life: 48 }].map(|full| Ceiling { rows: 47, full });
    let rows = row_rules.into_iter().zip(ceilings).zip(0u32..).map(|((rule, ceiling), at)| {
        let row = Parameter::new(&format!("t{at}"), &[2], rule, Schedule::constant(0.1), Initial::Zeros);
        let (ceiling, age_max) = (Some(ceiling), (at > 0).then_some(46));
        row.as_table(Table { buckets: 2 + at, admission: 45, age_max, ceiling })
    });
    parameters.extend(rows);
    parameters.push(Parameter::sum("loss", &[2]));
    parameters.push(Parameter::metric("right", Metric::Accuracy));
    parameters.push(Parameter::metric("log", Metric::LogLoss));
    parameters.push(Parameter::metric("mean", Metric::Mean { better: Better::Smaller }));
    parameters.push(Parameter::metric("auc", Metric::Auc { bins: 43 }));
    let declaration = Declaration { parameters, block_elements: 10 };
    let mut declaration = declaration.deciding(decisions());
    // FTRL and a plateau exclude each other: the target is of a job of its own below.
    declaration.parameters.push(Parameter::new("sparse", &[4], ftrl, rate, Initial::Zeros).in_group(group));
    let aiming = Target { plateau: None, ..target };
    let right = declaration.parameters.iter_mut().find(|parameter| parameter.name == "right").unwrap();
    right.rule = Rule::Metric { metric: Metric::Accuracy, target: Some(aiming) };
    declaration
}

fn routing() -> Routing {
    let pserver =
        |at: u64| PserverAddress { incarnation: Incarnation::new(2, at), address: format!("h{at}:74") };
    let route = |primary, term, rewind| BlockRoute { primary, term: Term(term), rewind: Rewind(rewind) };
    let blocks = vec![route(0, 51, 41), route(0, 51, 41), route(1, 52, 42), route(0, 51, 41)];
    Routing { version: 53, pservers: vec![pserver(1), pserver(2)], blocks }
}

fn slice(at: u32) -> Slice {
    Slice {
        chunk: 61 + at,
        file: format!("part-{at}.recordio"),
        chunk_offset: 62 + u64::from(at),
        chunk_bytes: 63,
        chunk_records: 64,
        chunk_checksum: 0xDEAD_BEEF,
        chunk_first_record: 65,
        first_position: 6 + at,
        records: 7,
    }
}

fn task(is_node: bool) -> Task {
    let node = Node { level: 1, index: 3 };
    let work = match is_node {
        true => Work::Node { step: Step(71), node, rewind: Rewind(72) },
        false => Work::Run { first: 73 },
    };
    let microbatch =
        |at: u32| Microbatch { index: 74 + u64::from(at), slices: vec![slice(at), slice(at + 5)] };
    Task { lease: LeaseId(75), work, microbatches: vec![microbatch(0), microbatch(1)] }
}

fn exclusions() -> Exclusions {
    let list = vec![
        Exclusion { records: 81..84, from: Step(85), why: String::from("damaged") },
        Exclusion { records: 90..91, from: Step(92), why: String::from("not-a-number") },
    ];
    Exclusions { number: 86, list }
}

fn ledger() -> Ledger {
    Ledger::from_parts(101, [103..105, 107..108]).unwrap()
}

pub(crate) fn name(version: u64) -> StateName {
    StateName { term: Term(111), version: Version(version) }
}

/// A copy of block 3, with everything that one may have.
pub(crate) fn copy(version: u64) -> BlockCopy {
    let values = |value: f32| value.to_le_bytes().repeat(2).into();
    BlockCopy {
        block: BlockId(3),
        rewind: Rewind(112),
        name: name(version),
        published: Version(version - 1),
        parameters: values(1.5),
        earlier: vec![values(2.5), values(3.5)],
        slots: vec![values(4.5), values(5.5)],
        ledger: ledger(),
        segment: None,
    }
}

/// The same of a bucket: a segment of it.
pub(crate) fn segment(slots: Range<u32>) -> BlockCopy {
    let candidates = Bytes::from_static(b"candidates");
    BlockCopy { slots: Vec::new(), segment: Some(Segment { slots, candidates, freed: None }), ..copy(7) }
}

/// What changed of it since a checkpoint before.
pub(crate) fn delta(slots: Range<u32>) -> BlockCopy {
    let whole = segment(slots.clone());
    let changed = |segment| Segment { freed: Some(vec![slots.start]), ..segment };
    BlockCopy { segment: whole.segment.map(changed), ..whole }
}

fn written() -> WrittenFile {
    let (checkpoint, name_of_it) = (CheckpointId(120), String::from("pserver-1.3-0.blocks"));
    let file = FileRecord { checkpoint, name: name_of_it, bytes: 121, crc32: 0xFEED_F00D };
    let piece = PieceRef {
        block: BlockId(3),
        rewind: Rewind(112),
        name: name(7),
        slots: WHOLE,
        is_delta: false,
        file: 2,
        offset: 122,
        bytes: 123,
        crc32: 0xBEEF_CAFE,
    };
    let part = PieceRef { slots: 124..125, is_delta: true, ..piece.clone() };
    WrittenFile { file, pieces: vec![piece, part] }
}

fn damaged() -> DamagedCheckpoint {
    DamagedCheckpoint {
        record: ManifestRecord { checkpoint: CheckpointId(131), bytes: 132, crc32: 133 },
        file: String::from("/checkpoints/checkpoint-00000131/manifest"),
        what: String::from("at offset 24: the payload's checksum does not match"),
    }
}
