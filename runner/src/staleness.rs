//! How stale the updates of an asynchronous job were, over all its pservers. Pure: read off the status.

use serde_json::{Value, json};
use shoal_runtime::cluster::Staleness;
use shoal_runtime::wire::proto::StatusReply;

/// Updates of all pservers by staleness; none in a synchronous job.
pub fn of(status: &StatusReply) -> Option<Staleness> {
    let counted = status.pservers.iter().filter_map(|pserver| pserver.staleness.as_ref());
    counted.map(Staleness::from).reduce(|all, one| all.plus(&one))
}

/// Shares of updates by staleness in one line; none before the first.
pub fn line(staleness: &Staleness) -> Option<String> {
    let all = staleness.count();
    let share = |(first, last, updates): (u64, u64, u64)| {
        let bounds = match last {
            u64::MAX => format!("{first}+"),
            _ if first == last => first.to_string(),
            _ => format!("{first}-{last}"),
        };
        (updates > 0).then(|| format!("{bounds}: {:.0} %", 100.0 * updates as f64 / all as f64))
    };
    let shares: Vec<String> = staleness.buckets().into_iter().filter_map(share).collect();
    let mean = staleness.sum() as f64 / all.max(1) as f64;
    (all > 0).then(|| format!("{}; mean {mean:.1} updates", shares.join(", ")))
}

/// The same for programs.
pub fn json(staleness: &Staleness) -> Value {
    let bucket = |(first, _, updates): (u64, u64, u64)| json!({ "from": first, "updates": updates });
    json!({
        "buckets": staleness.buckets().map(bucket), "updates": staleness.count(), "sum": staleness.sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_runtime::wire::proto::PserverStatus;

    fn pserver(updates: &[u64], sum: u64) -> PserverStatus {
        let staleness = Some((&Staleness::from_counts(updates, sum)).into());
        PserverStatus { staleness, ..Default::default() }
    }

    #[test]
    fn the_shares_are_of_all_pservers_together() {
        let pservers = vec![pserver(&[6, 0, 1], 3), PserverStatus::default(), pserver(&[2, 0, 1], 2)];
        let staleness = of(&StatusReply { pservers, ..Default::default() }).unwrap();
        assert_eq!(line(&staleness).unwrap(), "0: 80 %, 2-3: 20 %; mean 0.5 updates");
        assert_eq!(json(&staleness)["buckets"][2], json!({ "from": 2, "updates": 2 }));
    }

    #[test]
    fn a_job_without_any_says_nothing() {
        assert_eq!(of(&StatusReply::default()), None);
        assert_eq!(line(&Staleness::default()), None);
        let mut late = Staleness::default();
        late.note(u64::MAX);
        assert_eq!(line(&late).unwrap().split(';').next(), Some("16384+: 100 %"));
    }
}
