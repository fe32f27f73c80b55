//! Every message of the wire by its name, as today's generated code reads and writes it. A message that is missing here is
//! found by a test.

use prost::Message;
use shoal_runtime::wire::proto;

/// What today's code reads in bytes, and the bytes that it makes of that.
#[derive(Debug)]
#[allow(dead_code, reason = "not all who share this file look at both")]
pub(crate) struct Read {
    pub(crate) text: String,
    pub(crate) bytes: Vec<u8>,
}

fn read_as<M: Message + Default + std::fmt::Debug>(bytes: &[u8]) -> Result<Read, prost::DecodeError> {
    let message = M::decode(bytes)?;
    Ok(Read { text: format!("{message:#?}"), bytes: message.encode_to_vec() })
}

macro_rules! messages {
    ($($name:ident),* $(,)?) => {
        /// Their names, in order.
        #[allow(dead_code, reason = "not all who share this file ask for them")]
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// Reads a message of this name; none where there is none.
        pub(crate) fn read(name: &str, bytes: &[u8]) -> Option<Result<Read, prost::DecodeError>> {
            match name {
                $(stringify!($name) => Some(read_as::<proto::$name>(bytes)),)*
                _ => None,
            }
        }
    };
}

messages! {
    Admission, AssignedBlocks, AssignedCopy, Assignment, BlockCopy, BlockGradient, BlockHashes, BlockProgress,
    CheckpointManifest, CheckpointReply, CheckpointRequest, Complaint, CopyProgress, Cut,
    DamagedCheckpoint, DecideReply, DecideRequest, Decisions, Declaration, Delta, DescribeRequest, DrainReply,
    DrainRequest, EnvironmentEntry, Evaluated, EvaluatedBlock, EvaluationStatus, Exclusion, Exclusions, FileRecord,
    FollowReply, FollowRequest, FollowedBlock, FollowedBlocks, Group, HeldStep, Initial, JobDescription,
    JobSettings, JoinReply, JoinRequest, LeaseCounters, LeaseReply, LeaseRequest, LeaveReply, LeaveRequest,
    Ledger, LedgerRange, LogEntry, ManifestRecord, Metric, MetricValue, Microbatch, NamedCheckpoint, Node,
    Parameter, Partial, PieceRef, Progress, PserverAddress, PserverCounters, PserverStatus, PullReply,
    PullRequest, PulledBlock, PushReply, PushRequest, RateChange, ReadStateReply, ReadStateRequest,
    RecordRange, Refusal, RegisterReply, RegisterRequest, ReportReply, ReportRequest, RouteReply,
    RouteRequest, Routing, RoutingRange, Rule, ScaleReply, ScaleRequest, Schedule, ShareReply, ShareRequest, Slice, Stage, Staleness,
    Segment, StateName, StatusReply, StatusRequest, Table, Target, Task, TrainerCounters, TrainerStatus, TroubleStatus,
    Verified, WantedRows, WarmStart, WatchReply, WatchRequest, WrittenFile, DataSize, Standstill, Wait,
}
