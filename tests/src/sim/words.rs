//! Messages in a few words, for the trace that a failing seed prints.

use super::call::Call;
use super::network::Said;
use prost::Message;
use shoal_runtime::cluster::Incarnation;
use shoal_runtime::wire::proto;
use std::fmt::Write;

const ENVELOPE_BYTES: usize = 5;

pub(super) fn request(call: &Call) -> String {
    match call.method.as_str() {
        "Lease" => {
            let lease: proto::LeaseRequest = call.message();
            let told = lease.progress.iter().map(|word| {
                format!("{}:{}{}", word.lease, word.microbatches, if word.pushed { "!" } else { "" })
            });
            let told: Vec<String> = told.collect();
            let troubles: Vec<String> =
                lease.complaints.iter().map(|c| format!(" trouble {}", c.lease)).collect();
            format!("call {} want {} [{}]{}", lease.call, lease.want, told.join(" "), troubles.concat())
        }
        "Push" => {
            let push: proto::PushRequest = call.message();
            let node = push.node.unwrap_or_default();
            format!(
                "step {} node ({}, {}) {}",
                push.step,
                node.level,
                node.index,
                blocks(push.blocks.iter().map(|b| b.block))
            )
        }
        "Pull" => {
            let pull: proto::PullRequest = call.message();
            let all = pull.blocks.iter().chain(&pull.without_data).copied();
            format!("step {} {}", pull.step, blocks(all))
        }
        "Report" => {
            let report: proto::ReportRequest = call.message();
            report.progress.iter().fold(String::new(), |mut words, group| {
                let nodes =
                    group.held.iter().flat_map(|held| held.nodes.iter().map(|node| (held.step, node)));
                let held: Vec<String> =
                    nodes.map(|(step, node)| format!("{step}:({}, {})", node.level, node.index)).collect();
                let _ = write!(
                    words,
                    "v{} {} {}; ",
                    group.version,
                    blocks(group.blocks.iter().copied()),
                    held.join(" ")
                );
                words
            })
        }
        "Join" => format!("{:?}", call.message::<proto::JoinRequest>().name),
        _ => String::new(),
    }
}

pub(super) fn reply(call: &Call, answer: Said<'_>) -> String {
    let response = match answer {
        Err(status) => return format!("{:?} {}", status.code(), status.message()),
        Ok(response) if response.code() != 0 => {
            return format!("code {} {}", response.code(), response.words());
        }
        Ok(response) => response.body.get(ENVELOPE_BYTES..).unwrap_or_default(),
    };
    match call.method.as_str() {
        "Lease" => {
            proto::LeaseReply::decode(response).map_or_else(|fault| fault.to_string(), |lease| leased(&lease))
        }
        "Push" => {
            let answers = proto::PushReply::decode(response).map(|reply| reply.answers).unwrap_or_default();
            answers
                .iter()
                .map(|answer| ["?", "H", "A", "B"].get(*answer as usize).copied().unwrap_or("?"))
                .collect()
        }
        "Pull" => {
            let reply = proto::PullReply::decode(response).unwrap_or_default();
            blocks(reply.blocks.iter().map(|block| block.block))
        }
        "Join" => {
            let reply = proto::JoinReply::decode(response).unwrap_or_default();
            format!(
                "is {}, routing {}",
                Incarnation(reply.incarnation),
                reply.routing.map_or(0, |r| r.version)
            )
        }
        _ => String::new(),
    }
}

fn leased(lease: &proto::LeaseReply) -> String {
    if lease.done || !lease.failed.is_empty() {
        return format!("done {} failed {:?}", lease.done, lease.failed);
    }
    let task = |task: &proto::Task| {
        let node = task.node.unwrap_or_default();
        format!("{}=({}, {})@{}", task.lease, node.level, node.index, task.step)
    };
    lease.tasks.iter().map(task).collect::<Vec<_>>().join(" ")
}

fn blocks(blocks: impl Iterator<Item = u32>) -> String {
    let blocks: Vec<u32> = blocks.collect();
    match (blocks.first(), blocks.last()) {
        (Some(first), Some(last)) => format!("blocks {first}..={last} ({})", blocks.len()),
        _ => String::from("no block"),
    }
}
