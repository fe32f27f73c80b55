//! An event as one JSON object on one line: time, level, role, job, name, message, fields. The names are a promise to
//! whoever reads logs by program; a value never breaks the line.

use super::WHO;
use serde_json::{Map, Number, Value};
use std::fmt::{Debug, Write};
use std::sync::PoisonError;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes events for programs.
pub(super) struct Json;

/// What an event carries.
#[derive(Default)]
struct Carried {
    message: String,
    fields: Map<String, Value>,
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut carried = Carried::default();
        event.record(&mut carried);
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let who = WHO.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut line = Map::new();
        let mut say = |key: &str, value: String| line.insert(key.to_owned(), Value::String(value));
        say("time", time);
        say("level", event.metadata().level().to_string());
        say("role", who.role.to_owned());
        for (key, value) in [("job", who.job), ("name", who.name)] {
            if !value.is_empty() {
                say(key, value);
            }
        }
        say("message", carried.message);
        line.insert("fields".to_owned(), Value::Object(carried.fields));
        writeln!(writer, "{}", Value::Object(line))
    }
}

impl Carried {
    fn say(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("message", value) => self.message = value.to_string(),
            (name, value) => {
                self.fields.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Carried {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a string fails only where the value itself does.
        let _ = write!(text, "{value:?}");
        self.say(field, Value::String(text));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.say(field, Value::String(value.to_owned()));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.say(field, Value::Bool(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.say(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.say(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no word for what is no number.
        let number = Number::from_f64(value).map(Value::Number);
        self.say(field, number.unwrap_or_else(|| Value::String(value.to_string())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(log: impl FnOnce()) -> Vec<Value> {
        let kept = Kept::default();
        let writer = kept.clone();
        let logs =
            tracing_subscriber::fmt().with_ansi(false).event_format(Json).with_writer(move || writer.clone());
        tracing::subscriber::with_default(logs.finish(), log);
        let bytes = kept.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_event_is_one_line_whatever_its_values_hold() {
        let odd = "a \"quote\"\nand \u{7} bell";
        let lines = logged(|| {
            tracing::info!(
                steps = 7u64,
                by = -2i64,
                ratio = 0.5,
                none = f64::NAN,
                is_so = true,
                odd,
                "said {odd}"
            );
            tracing::warn!(error = ?Some(1), what = %"shown", "again");
        });
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0]["level"].as_str(), lines[1]["level"].as_str()), (Some("INFO"), Some("WARN")));
        assert_eq!(lines[0]["message"], format!("said {odd}"));
        let fields = serde_json::json!({
            "steps": 7, "by": -2, "ratio": 0.5, "none": "NaN", "is_so": true, "odd": odd,
        });
        assert_eq!(lines[0]["fields"], fields);
        assert_eq!(lines[1]["fields"], serde_json::json!({ "error": "Some(1)", "what": "shown" }));
        let time = lines[0]["time"].as_str().unwrap();
        assert!(time.len() >= 20 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    }

    #[test]
    fn who_logs_is_named_once_it_is_known() {
        super::super::identify("digits", "pserver-3");
        let lines = logged(|| tracing::info!("here"));
        assert_eq!((&lines[0]["job"], &lines[0]["name"]), (&"digits".into(), &"pserver-3".into()));
    }
}
