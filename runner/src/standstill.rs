//! A standstill for people and for programs: the cause, its age and the way out. Pure.

use serde_json::{Value, json};
use shoal_runtime::wire::proto::{Standstill, StatusReply};

/// The lines of a status; none while steps follow one another.
pub fn lines(status: &StatusReply) -> Vec<String> {
    let Some(standstill) = &status.standstill else { return Vec::new() };
    let way_out = Some(&standstill.way_out).filter(|way_out| !way_out.is_empty());
    let head = format!("{}: {}", since(standstill), standstill.cause);
    std::iter::once(head).chain(way_out.cloned()).collect()
}

/// The end of a line of progress: the cause, once nothing is computed either.
pub fn brief(status: &StatusReply) -> Option<String> {
    let standstill = status.standstill.as_ref().filter(|standstill| standstill.is_idle)?;
    Some(format!("{}: {}", since(standstill), standstill.cause))
}

/// The same for programs; null while steps follow one another.
pub fn json(status: &StatusReply) -> Value {
    let seconds = |millis: u64| millis as f64 / 1000.0;
    status.standstill.as_ref().map_or(Value::Null, |standstill| {
        json!({
            "reason": standstill.reason, "subject": standstill.subject, "cause": standstill.cause, "way_out": standstill.way_out,
            "front_seconds": seconds(standstill.front_millis), "cause_seconds": seconds(standstill.cause_millis),
            "idle": standstill.is_idle,
        })
    })
}

fn since(standstill: &Standstill) -> String {
    let seconds = standstill.front_millis / 1000;
    match standstill.is_idle {
        true => format!("stands still for {seconds} s"),
        false => format!("at the same step for {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(is_idle: bool) -> StatusReply {
        let standstill = Standstill {
            reason: "PserverSilent".to_owned(),
            cause: "pserver \"p\" is silent".to_owned(),
            way_out: "start another".to_owned(),
            front_millis: 12_400,
            cause_millis: 7000,
            is_idle,
            subject: "p".to_owned(),
        };
        StatusReply { standstill: Some(standstill), ..StatusReply::default() }
    }

    #[test]
    fn a_standstill_has_its_cause_and_its_way_out_and_long_steps_are_not_called_one() {
        assert_eq!(lines(&status(true)), ["stands still for 12 s: pserver \"p\" is silent", "start another"]);
        assert_eq!(lines(&status(false))[0], "at the same step for 12 s: pserver \"p\" is silent");
        assert_eq!(brief(&status(true)).as_deref(), Some("stands still for 12 s: pserver \"p\" is silent"));
        assert_eq!(brief(&status(false)), None);
        assert_eq!(json(&status(true))["front_seconds"], 12.4);
        assert_eq!((lines(&StatusReply::default()).len(), json(&StatusReply::default())), (0, Value::Null));
    }
}
