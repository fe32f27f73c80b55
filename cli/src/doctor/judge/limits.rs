//! Whether the system lets a job of so many members run: open files, processes, memory, processors, shared memory.

use crate::doctor::outcome::{Outcome, bytes};
use serde_json::json;

/// Connections that a process has for each member of the job, at most: one that it made and one that was made to it. Of 12 trainers and
/// 4 pservers `shoal run` had 42 files open, the master 35, a pserver 29, a trainer 19.
const FILES_EACH: u64 = 2;
/// Files that a process has whatever the job: its log, its state, its listener, its event queues.
const FILES_BASE: u64 = 64;
/// A trainer in Rust or a pserver with nearly nothing to do had 34 to 37 MiB resident. What a model, or Python, takes comes on top.
const MEMORY_EACH: u64 = 32 << 20;
/// What containers are given for shared memory unless somebody asks for more.
const SHARED_WARN: u64 = 64 << 20;

/// Limits of this process; none where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
    pub(crate) members: u64,
}

fn limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

/// Judges how many files may be open. Roles raise their own limit as far as it goes.
pub(crate) fn judge_files(found: Files) -> Outcome {
    let Files { soft, hard, members } = found;
    let need = FILES_EACH * members + FILES_BASE;
    let said = format!(
        "{} open files, {} at most; a job of {members} members needs {need} in each process",
        limit(soft),
        limit(hard)
    );
    let outcome = if hard.is_some_and(|hard| hard < need) {
        let advice = format!(
            "raise the hard limit: sudo prlimit --pid $$ --nofile={0}:{0}, or LimitNOFILE={0} of the service, or docker run --ulimit nofile={0}",
            need.next_power_of_two().max(4096)
        );
        Outcome::failed(said, advice)
    } else if soft.is_some_and(|soft| soft < need) {
        Outcome::warning(said, format!("trainers are programs that keep the lower limit: ulimit -n {need}"))
    } else {
        Outcome::ok(said)
    };
    outcome.with(json!({ "soft": soft, "hard": hard, "members": members, "needed": need }))
}

/// How many processes and threads there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    /// Of this user; it counts threads. None for root.
    pub(crate) user: Option<u64>,
    /// Of the control group, beside those that are there.
    pub(crate) group_left: Option<u64>,
    pub(crate) members: u64,
    pub(crate) processors: u64,
}

/// Judges how many processes and threads there may be.
pub(crate) fn judge_processes(found: Processes) -> Outcome {
    let Processes { user, group_left, members, processors } = found;
    // A thread for each processor, for the disk one or two, and the process itself: 3 to 6 were seen on two processors.
    let need = members * (processors + 3);
    let said = format!(
        "{} threads of this user, {} more in the control group; a job of {members} members has about {need}",
        limit(user),
        limit(group_left)
    );
    let least = user.into_iter().chain(group_left).min();
    let advice = format!("ulimit -u {}, TasksMax= of the service, or docker run --pids-limit", 2 * need);
    let outcome = match least {
        Some(least) if least < members => Outcome::failed(said, advice),
        Some(least) if least < need => Outcome::warning(said, advice),
        _ => Outcome::ok(said),
    };
    outcome.with(json!({ "user": user, "group_left": group_left, "members": members, "needed": need }))
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// What the system could give, without swapping.
    pub(crate) available: Option<u64>,
    /// What the control group may yet take.
    pub(crate) group_left: Option<u64>,
    pub(crate) members: u64,
}

/// Judges memory.
pub(crate) fn judge_memory(found: Memory) -> Outcome {
    let Memory { available, group_left, members } = found;
    let Some(least) = available.into_iter().chain(group_left).min() else {
        return Outcome::not_applicable("the system does not say how much memory is free");
    };
    let need = MEMORY_EACH * members;
    let group =
        group_left.map_or_else(String::new, |left| format!(", {} of them in the control group", bytes(left)));
    let available_said = available.map_or_else(|| "unknown".to_owned(), bytes);
    let said = format!(
        "{available_said} available{group}; {members} members take {} before they have a model",
        bytes(need)
    );
    let advice =
        "end what takes it (ps --sort=-rss -eo rss,args | head), raise memory.max, or run fewer trainers";
    let outcome = if least < need / 4 {
        Outcome::failed(said, advice)
    } else if least < need {
        Outcome::warning(said, advice)
    } else {
        Outcome::ok(said)
    };
    outcome
        .with(json!({ "available_bytes": available, "group_left_bytes": group_left, "needed_bytes": need }))
}

/// Processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Processors {
    /// That this process may use.
    pub(crate) count: u64,
    /// How many of them the control group is given time of.
    pub(crate) quota: Option<f64>,
}

/// Judges processors.
pub(crate) fn judge_processors(found: Processors) -> Outcome {
    let quota = found.quota.map_or_else(String::new, |quota| format!(", time of {quota:.2} of them"));
    let said = format!("{}{quota}", found.count);
    let outcome = match found.quota {
        Some(quota) if quota < 1.0 => Outcome::warning(
            said,
            "processes that wait for their turn miss leases: give one processor at least (cpu.max, docker run --cpus)",
        ),
        _ => Outcome::ok(said),
    };
    outcome.with(json!({ "count": found.count, "quota": found.quota }))
}

/// Judges `/dev/shm`, by its size in bytes if it is there. Shoal does not use it; data loaders of PyTorch with workers do.
pub(crate) fn judge_shared_memory(size: Option<u64>) -> Outcome {
    let advice = "PyTorch's DataLoader with workers needs more: docker run --shm-size=1g; in a pod an emptyDir with medium: Memory at /dev/shm";
    let outcome = match size {
        None => Outcome::warning("there is no /dev/shm", advice),
        Some(size) if size <= SHARED_WARN => {
            Outcome::warning(format!("/dev/shm has {}", bytes(size)), advice)
        }
        Some(size) => Outcome::ok(format!("/dev/shm has {}", bytes(size))),
    };
    outcome.with(json!({ "bytes": size }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::outcome::Level;

    #[test]
    fn open_files_are_judged_by_the_hard_limit_and_then_by_the_soft_one() {
        let judge = |soft, hard, members| judge_files(Files { soft, hard, members });
        assert_eq!(judge(Some(1024), Some(4096), 16).level, Level::Ok);
        assert_eq!(judge(None, None, 10_000).level, Level::Ok);
        let few = judge(Some(64), Some(64), 16);
        assert!(few.level == Level::Failed && few.found.contains("needs 96"), "{few:?}");
        assert!(few.advice.is_some_and(|advice| advice.contains("nofile=4096:4096")));
        assert_eq!(judge(Some(95), Some(4096), 16).level, Level::Warning);
        assert_eq!(judge(Some(96), Some(96), 16).level, Level::Ok);
    }

    #[test]
    fn processes_are_judged_by_the_nearest_limit() {
        let judge = |user, group_left| {
            judge_processes(Processes { user, group_left, members: 10, processors: 7 }).level
        };
        assert_eq!(judge(None, None), Level::Ok);
        assert_eq!((judge(Some(100), None), judge(Some(99), None)), (Level::Ok, Level::Warning));
        assert_eq!((judge(Some(4096), Some(10)), judge(None, Some(9))), (Level::Warning, Level::Failed));
    }

    #[test]
    fn memory_is_judged_by_what_is_left_of_either() {
        let judge = |available, group_left| judge_memory(Memory { available, group_left, members: 4 }).level;
        assert_eq!(judge(Some(128 << 20), None), Level::Ok);
        assert_eq!(judge(Some(1 << 40), Some(127 << 20)), Level::Warning);
        assert_eq!(judge(Some(31 << 20), None), Level::Failed);
        assert_eq!(judge(None, None), Level::NotApplicable);
    }

    #[test]
    fn less_than_a_processor_and_little_shared_memory_are_warned_of() {
        let judge = |quota| judge_processors(Processors { count: 8, quota }).level;
        assert_eq!((judge(None), judge(Some(1.0)), judge(Some(0.5))), (Level::Ok, Level::Ok, Level::Warning));
        let shared = |size| judge_shared_memory(size).level;
        assert_eq!(
            (shared(None), shared(Some(64 << 20)), shared(Some(1 << 30))),
            (Level::Warning, Level::Warning, Level::Ok)
        );
    }
}
