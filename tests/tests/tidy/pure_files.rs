//! The table of pure files: which words of the world they may not say, and why.

use super::purity::Pure;

/// What no pure file says: the doors to the world, and what differs from run to run.
pub(crate) const WORLD: &[&str] = &[
    "tokio",
    "tonic",
    "prost",
    "kube",
    "rand",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
];
/// What the file format does not say, so that it can be used without the rest of Shoal.
pub(crate) const FRAMEWORK: &[&str] = &["tokio", "tonic", "prost", "shoal_"];

/// Files of state machines by path prefix: each is one story, and may be longer.
pub(crate) const STATE_MACHINES: &[&str] = &["pserver/src/block/"];

/// Pure files by path prefix. A prefix that no file has is a finding too: a rename moves its row.
pub(crate) const PURE: &[Pure] = &[
    Pure {
        prefix: "runtime/src/cluster/",
        forbidden: WORLD,
        reason: "every role must compute the same from it",
    },
    Pure {
        prefix: "runtime/src/wire/tensors",
        forbidden: WORLD,
        reason: "what a stranger's file says is judged without opening another",
    },
    Pure {
        prefix: "master/src/members",
        forbidden: WORLD,
        reason: "a state machine: time comes as an argument",
    },
    Pure {
        prefix: "master/src/placement",
        forbidden: WORLD,
        reason: "placement is a function of its arguments",
    },
    Pure {
        prefix: "master/src/rebalance/",
        forbidden: WORLD,
        reason: "whichever master leads decides the same",
    },
    Pure {
        prefix: "master/src/lease",
        forbidden: WORLD,
        reason: "a state machine: time comes as an argument",
    },
    Pure {
        prefix: "master/src/runs",
        forbidden: WORLD,
        reason: "a state machine: time comes as an argument",
    },
    Pure { prefix: "master/src/lanes", forbidden: WORLD, reason: "part of the lease machine of runs" },
    Pure { prefix: "master/src/paces", forbidden: WORLD, reason: "part of the lease machine of runs" },
    Pure {
        prefix: "master/src/free_nodes",
        forbidden: WORLD,
        reason: "an allocator that a simulation replays",
    },
    Pure {
        prefix: "master/src/reports",
        forbidden: WORLD,
        reason: "the truth about progress, replayed by seed",
    },
    Pure {
        prefix: "master/src/machine",
        forbidden: WORLD,
        reason: "a state machine: time comes as an argument",
    },
    Pure {
        prefix: "operator/src/decide/",
        forbidden: WORLD,
        reason: "a model of a cluster replays it, and the next operator decides the same",
    },
    Pure {
        prefix: "operator/src/inventory/",
        forbidden: WORLD,
        reason: "what is planned for follows from what the API server has, and from nothing else",
    },
    Pure {
        prefix: "job/src/",
        forbidden: WORLD,
        reason: "what a job is, and what an end means, is the same on a laptop and in a cluster",
    },
    Pure {
        prefix: "experiments/src/",
        forbidden: WORLD,
        reason: "a scenario, or what was seen of a cluster, has one series",
    },
    Pure { prefix: "figures/src/", forbidden: WORLD, reason: "the same values are the same picture" },
    Pure {
        prefix: "planner/src/",
        forbidden: WORLD,
        reason: "the same plan in a cluster and in a simulation",
    },
    Pure {
        prefix: "pserver/src/block/",
        forbidden: WORLD,
        reason: "a block's state follows from its log alone",
    },
    Pure {
        prefix: "pserver/src/bucket/",
        forbidden: WORLD,
        reason: "copies of a bucket have the same rows and bits",
    },
    Pure {
        prefix: "pserver/src/kernel/",
        forbidden: WORLD,
        reason: "arithmetic has the same bits everywhere",
    },
    Pure { prefix: "trainer-sdk/src/reduce", forbidden: WORLD, reason: "its bits must be the pserver's" },
    Pure {
        prefix: "trainer-sdk/src/place",
        forbidden: WORLD,
        reason: "whoever holds a task computes it with the same seeds",
    },
    Pure {
        prefix: "trainer-sdk/src/chunks/depth",
        forbidden: WORLD,
        reason: "a state machine: time comes as an argument",
    },
    Pure {
        prefix: "trainer-sdk/src/chunks/cache",
        forbidden: WORLD,
        reason: "what is kept follows from what was used",
    },
    Pure {
        prefix: "trainer-sdk/src/pending",
        forbidden: WORLD,
        reason: "what a change of routing does is a function of it",
    },
    Pure {
        prefix: "trainer-sdk/src/acks",
        forbidden: WORLD,
        reason: "who has a gradient follows from answers alone",
    },
    Pure {
        prefix: "trainer-sdk/src/kept",
        forbidden: WORLD,
        reason: "what is kept follows from words alone",
    },
    Pure {
        prefix: "trainer-sdk/src/desk",
        forbidden: WORLD,
        reason: "what is done next follows from words alone",
    },
    Pure {
        prefix: "runtime/src/host/rpc/tls/permissions",
        forbidden: WORLD,
        reason: "who may call what is a table",
    },
    Pure {
        prefix: "runtime/src/host/rpc/tls/identity",
        forbidden: WORLD,
        reason: "whom a certificate is for follows from its bytes alone",
    },
    Pure {
        prefix: "drill/src/chaos/schedule",
        forbidden: WORLD,
        reason: "a seed plays the same faults again: time and the job come as arguments",
    },
    Pure { prefix: "drill/src/chaos/timed_fault", forbidden: WORLD, reason: "part of the schedule" },
    Pure {
        prefix: "drill/src/trials/verdict",
        forbidden: WORLD,
        reason: "a verdict follows from how a job ended alone",
    },
    Pure {
        prefix: "ui/src/view",
        forbidden: WORLD,
        reason: "what the page shows follows from what was told",
    },
    Pure {
        prefix: "ui/src/events",
        forbidden: WORLD,
        reason: "what happened is told by a journal and a master",
    },
    Pure {
        prefix: "ui/src/members",
        forbidden: WORLD,
        reason: "what is drawn of members is tested without any",
    },
    Pure {
        prefix: "ui/src/curves",
        forbidden: WORLD,
        reason: "curves of long jobs are tested without waiting",
    },
    Pure {
        prefix: "ui/src/watcher",
        forbidden: WORLD,
        reason: "what a master says becomes a journal without one",
    },
    Pure {
        prefix: "runner/src/upkeep",
        forbidden: WORLD,
        reason: "what a supervisor does next follows from what it was told: time comes as an argument",
    },
    Pure {
        prefix: "runner/src/counts",
        forbidden: WORLD,
        reason: "what counted in a run follows from what its masters have said",
    },
    Pure {
        prefix: "runner/src/tensorboard/series",
        forbidden: WORLD,
        reason: "what is told of a run follows from how it was seen: time comes as an argument",
    },
    Pure {
        prefix: "runner/src/tensorboard/settings",
        forbidden: WORLD,
        reason: "no variable of the environment is told",
    },
    Pure {
        prefix: "runner/src/told",
        forbidden: WORLD,
        reason: "what is new in a look follows from the looks before it",
    },
    Pure {
        prefix: "runner/src/reading",
        forbidden: WORLD,
        reason: "what a status says is said alike wherever it is shown",
    },
    Pure {
        prefix: "benches/src/curves/figure/",
        forbidden: WORLD,
        reason: "the same curves are the same figure",
    },
    Pure {
        prefix: "benches/src/curves/judge",
        forbidden: WORLD,
        reason: "a verdict follows from the curves alone",
    },
    Pure {
        prefix: "cli/src/config/text",
        forbidden: WORLD,
        reason: "what a file says is the same whoever reads it",
    },
    Pure {
        prefix: "cli/src/config/flags",
        forbidden: WORLD,
        reason: "what a key means is clap's word alone",
    },
    Pure {
        prefix: "cli/src/config/order",
        forbidden: WORLD,
        reason: "which value counts follows from what was found",
    },
    Pure { prefix: "cli/src/config/shown", forbidden: WORLD, reason: "what is shown is what counts" },
    Pure {
        prefix: "cli/src/doctor/judge/",
        forbidden: WORLD,
        reason: "a verdict follows from what was found: a sick machine is not needed to test it",
    },
    Pure {
        prefix: "cli/src/doctor/outcome",
        forbidden: WORLD,
        reason: "what is told follows from the verdicts",
    },
    Pure { prefix: "recordio/src/", forbidden: FRAMEWORK, reason: "a file format that stands by itself" },
];
