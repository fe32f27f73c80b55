//! Waits on the wire. Kinds that this build does not know are left out, and so are waits beyond the limit of a report.

use super::proto;
use crate::cluster::waits::{Wait, WaitKind};
use crate::host::waits::{REPORTED_MAX, bounded};
use std::time::Duration;

impl From<&Wait> for proto::Wait {
    fn from(wait: &Wait) -> proto::Wait {
        proto::Wait {
            kind: wait.kind as u32,
            subject: wait.subject.clone(),
            millis: wait.age.as_millis() as u64,
            error: wait.error.clone(),
        }
    }
}

/// Reads the waits of a report.
pub fn from_wire(waits: Vec<proto::Wait>) -> Vec<Wait> {
    let known = |wait: proto::Wait| {
        Some(Wait {
            kind: *WaitKind::ALL.get(wait.kind as usize)?,
            subject: bounded(&wait.subject),
            age: Duration::from_millis(wait.millis),
            error: bounded(&wait.error),
        })
    };
    waits.into_iter().take(REPORTED_MAX).filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_comes_over_the_wire_as_it_was_and_one_of_an_unknown_kind_is_left_out() {
        let wait = |kind| Wait {
            kind,
            subject: "checkpoint-1".to_owned(),
            age: Duration::from_millis(1500),
            error: "no answer".to_owned(),
        };
        let all = WaitKind::ALL.map(wait);
        for wait in &all {
            let unknown = proto::Wait { kind: 1000, ..wait.into() };
            assert_eq!(from_wire(vec![unknown, wait.into()]), std::slice::from_ref(wait));
        }
        let many = vec![proto::Wait { subject: "x".repeat(5000), ..(&all[0]).into() }; 50];
        let read = from_wire(many);
        assert_eq!(read.len(), REPORTED_MAX);
        assert!(read[0].subject.len() < 1000);
    }
}
