//! A time as Kubernetes writes it, to the second. Arithmetic only; it asks no clock.

use k8s_openapi::jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::borrow::Cow;

/// Seconds since 1970, written as `2026-11-24T12:00:00Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl Moment {
    /// How long after `earlier` this is, in seconds; 0 if it is before.
    pub fn since(self, earlier: Moment) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// So many seconds later.
    pub fn plus(self, seconds: u64) -> Moment {
        Moment(self.0.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX)))
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let time = Timestamp::from_second(self.0).map_err(|_| std::fmt::Error)?;
        write!(f, "{}", time.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl From<Timestamp> for Moment {
    fn from(time: Timestamp) -> Moment {
        Moment(time.as_second())
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        let text = String::deserialize(from)?;
        text.parse::<Timestamp>()
            .map(Moment::from)
            .map_err(|why| D::Error::custom(format!("{text:?}: {why}")))
    }
}

impl JsonSchema for Moment {
    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_kubernetes_does_and_read_again() {
        let moment = Moment(1_795_521_600);
        let text = serde_json::to_string(&moment).unwrap();
        assert_eq!(text, "\"2026-11-24T12:00:00Z\"");
        assert_eq!(serde_json::from_str::<Moment>(&text).unwrap(), moment);
        assert_eq!(serde_json::from_str::<Moment>("\"2026-11-24T12:00:00.75+00:00\"").unwrap(), moment);
        assert!(serde_json::from_str::<Moment>("\"yesterday\"").is_err());
        assert_eq!((moment.plus(3).since(moment), moment.since(moment.plus(3))), (3, 0));
    }
}
