//! The job as chaos sees it: read off the master's status and the processes that run. Pure.

use super::schedule::TargetState;
use shoal_runtime::wire::proto::StatusReply;
use std::collections::BTreeSet;

/// In the last tenth of the steps, a pserver that is lost may be lost after the end.
const END_TENTH: u64 = 10;

/// What `status` and the running pservers show; `trainers` take part.
pub(crate) fn observe(
    status: &StatusReply,
    is_master_here: bool,
    trainers: Vec<String>,
    running: &BTreeSet<&str>,
) -> TargetState {
    let live = status.pservers.iter().filter(|pserver| !pserver.lost && !pserver.is_leaving);
    let pservers =
        live.map(|pserver| &pserver.name).filter(|name| running.contains(name.as_str())).cloned().collect();
    TargetState {
        trainers,
        pservers,
        is_whole: is_whole(status, running),
        is_master_here,
        is_ending: status.step * END_TENTH >= status.steps * (END_TENTH - 1),
    }
}

/// Whether the pservers that run are those that are wanted, all of them live, and every block has all its copies.
fn is_whole(status: &StatusReply, running: &BTreeSet<&str>) -> bool {
    let live = status.pservers.iter().filter(|pserver| !pserver.lost);
    let names: BTreeSet<&str> = live.clone().map(|pserver| pserver.name.as_str()).collect();
    let is_settled = names == *running
        && names.len() == status.pservers_wanted as usize
        && !live.clone().any(|pserver| pserver.is_leaving);
    let ranges = status.routing.iter().flat_map(|routing| &routing.ranges);
    let blocks: u64 = ranges.map(|range| u64::from(range.blocks)).sum();
    let copies = u64::from(status.replicas_wanted).min(names.len().saturating_sub(1) as u64);
    is_settled && blocks > 0 && status.copies_filling == 0 && status.copies_in_sync >= blocks * copies
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::{PserverStatus, Routing, RoutingRange};

    fn status() -> StatusReply {
        let pserver = |name: &str| PserverStatus { name: name.to_owned(), ..Default::default() };
        let ranges = vec![RoutingRange { blocks: 5, ..Default::default() }; 2];
        StatusReply {
            pservers: vec![pserver("pserver-0"), pserver("pserver-1"), pserver("pserver-2")],
            pservers_wanted: 3,
            replicas_wanted: 1,
            copies_in_sync: 10,
            routing: Some(Routing { ranges, ..Default::default() }),
            step: 80,
            steps: 100,
            ..Default::default()
        }
    }
    fn is_whole(change: impl FnOnce(&mut StatusReply), running: &[&str]) -> bool {
        let mut status = status();
        change(&mut status);
        super::is_whole(&status, &running.iter().copied().collect())
    }
    const ALL: [&str; 3] = ["pserver-0", "pserver-1", "pserver-2"];

    #[test]
    fn whole_is_a_job_with_all_pservers_and_all_copies() {
        assert!(is_whole(|_| {}, &ALL));
        assert!(!is_whole(|_| {}, &ALL[..2]), "one has died, and the master has yet to notice");
        assert!(!is_whole(|_| {}, &["pserver-0", "pserver-1", "pserver-2", "pserver-3"]));
        assert!(!is_whole(|status| status.pservers[1].lost = true, &ALL));
        assert!(!is_whole(|status| status.pservers[1].is_leaving = true, &ALL));
        assert!(!is_whole(|status| status.pservers_wanted = 4, &ALL));
        assert!(!is_whole(|status| status.copies_filling = 1, &ALL));
        assert!(!is_whole(|status| status.copies_in_sync = 9, &ALL));
        assert!(!is_whole(|status| status.routing = None, &ALL));
    }

    #[test]
    fn more_copies_than_pservers_are_not_expected() {
        let set = |copies_in_sync| {
            move |status: &mut StatusReply| {
                (status.replicas_wanted, status.copies_in_sync) = (5, copies_in_sync);
            }
        };
        assert!(is_whole(set(20), &ALL) && !is_whole(set(19), &ALL));
    }

    #[test]
    fn who_may_be_hit_is_live_runs_and_stays() {
        let mut status = status();
        status.pservers[0].lost = true;
        status.pservers[1].is_leaving = true;
        let sees = |running: &[&str], status: &StatusReply| {
            observe(status, true, vec![], &running.iter().copied().collect())
        };
        assert_eq!(sees(&ALL, &status).pservers, ["pserver-2"]);
        assert!(sees(&ALL[..2], &status).pservers.is_empty());
        assert!(!sees(&ALL, &status).is_ending);
        status.step = 90;
        assert!(sees(&ALL, &status).is_ending);
    }
}
