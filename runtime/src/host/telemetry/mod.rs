//! Logs on standard error: lines for people, or one JSON object a line for programs. It must never decide anything.

mod json;

use super::{output, panics};
use json::Json;
use std::io::Write;
use std::sync::{OnceLock, PoisonError, RwLock};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};

/// What filters logs, the first that is set: as `info` or `warn,shoal_pserver=debug`.
const FILTERS: [&str; 2] = ["SHOAL_LOG", "RUST_LOG"];
/// What the error that ends a process begins with, in text.
const ERROR: &str = "error: ";
/// Names the format.
const FORMAT: &str = "SHOAL_LOG_FORMAT";

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people, coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Who logs, as far as it is known.
#[derive(Clone, Debug, Default)]
struct Who {
    role: &'static str,
    job: String,
    name: String,
}

static WHO: RwLock<Who> = RwLock::new(Who { role: "", job: String::new(), name: String::new() });
static STARTED: OnceLock<LogFormat> = OnceLock::new();

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("{text:?} is no format of logs: give text or json")),
        }
    }
}

impl LogFormat {
    /// What `SHOAL_LOG_FORMAT` says; text where it says nothing.
    ///
    /// # Errors
    /// It says something else than `text` or `json`.
    pub fn from_env() -> Result<LogFormat, String> {
        let said = std::env::var(FORMAT).ok().filter(|said| !said.is_empty());
        said.map_or(Ok(LogFormat::Text), |said| said.parse().map_err(|why| format!("{FORMAT}: {why}")))
    }
}

/// Starts logging for one process. Calling it twice is harmless: the first call holds.
pub fn start(role: &'static str, format: LogFormat) {
    start_with(role, format, |logs| {
        let logs = logs.with_writer(|| output::Log);
        match format {
            LogFormat::Text => {
                let is_coloured =
                    std::env::var_os("NO_COLOR").is_none() && output::Stream::Notes.is_terminal();
                logs.with_ansi(is_coloured).try_init()
            }
            LogFormat::Json => {
                std::panic::set_hook(Box::new(|panic| panics::tell(|| tracing::error!("{panic}"))));
                logs.with_ansi(false).event_format(Json).try_init()
            }
        }
    });
}

/// Starts logging for a process whose log is its own: `take` is given each line for programs, on whatever thread says it.
pub fn start_to(role: &'static str, take: fn(&str)) {
    start_with(role, LogFormat::Json, |logs| {
        logs.with_writer(move || Taken(take)).with_ansi(false).event_format(Json).try_init()
    });
}

/// Starts logging as `begin` says, with the filter of the environment, unless it was started before.
fn start_with<E>(role: &'static str, format: LogFormat, begin: impl FnOnce(Logs) -> Result<(), E>) {
    if STARTED.set(format).is_err() {
        return;
    }
    WHO.write().unwrap_or_else(PoisonError::into_inner).role = role;
    let (filter, wrong) = filter();
    // Whoever embeds it may have a subscriber already.
    let _ = begin(tracing_subscriber::fmt().with_env_filter(filter));
    if let Some(wrong) = wrong {
        tracing::warn!("{wrong}: logging at info");
    }
}

type Logs = SubscriberBuilder<DefaultFields, Format, EnvFilter>;

/// Where lines go that somebody takes. A line comes in one piece.
struct Taken(fn(&str));

impl Write for Taken {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        (self.0)(String::from_utf8_lossy(line).trim_end());
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What the process has learnt of itself: its job, and its name there. Lines for programs carry both from now on.
pub fn identify(job: &str, name: &str) {
    let mut who = WHO.write().unwrap_or_else(PoisonError::into_inner);
    (who.job, who.name) = (job.to_owned(), name.to_owned());
}

/// The error that ends the process, where no other is to come.
pub fn last_words(error: &str) {
    match STARTED.get() {
        Some(LogFormat::Json) => tracing::error!("{error}"),
        _ => output::note(format_args!("{ERROR}{error}")),
    }
}

/// The whole error that a process ended with, by its log in either format; none where it said none.
pub fn last_error(log: &str) -> Option<String> {
    let last = log.lines().next_back()?;
    if let Ok(serde_json::Value::Object(line)) = serde_json::from_str(last) {
        let is_error = line.get("level").is_some_and(|level| level == "ERROR");
        return line.get("message")?.as_str().filter(|_| is_error).map(str::to_owned);
    }
    let begin = if log.starts_with(ERROR) { 0 } else { log.rfind(&format!("\n{ERROR}"))? + 1 };
    Some(log[begin + ERROR.len()..].trim_end().to_owned())
}

/// The lines of a log as a person reads them: `ERROR the disk is full path=/data` for a line that is for programs, any other as it is.
/// What is left of a line for programs whose beginning was cut off says nothing, and is left out.
pub fn readable(log: &str) -> String {
    let read = |line: &str| serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line).ok();
    let is_for_programs = log.lines().any(|line| read(line).is_some());
    let lines = log.lines().enumerate().filter_map(|(at, line)| match read(line) {
        Some(fields) => Some(said(&fields)),
        None if at == 0 && is_for_programs && line.ends_with('}') => None,
        None => Some(line.to_owned()),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// One line for programs, for people.
fn said(line: &serde_json::Map<String, serde_json::Value>) -> String {
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let main = ["level", "message"].into_iter().filter_map(|name| line.get(name)).map(text);
    let fields = line.get("fields").and_then(serde_json::Value::as_object);
    let fields = fields.into_iter().flatten().map(|(name, value)| format!("{name}={}", text(value)));
    main.chain(fields).collect::<Vec<_>>().join(" ")
}

/// The filter that the environment asks for, and what is wrong with it.
fn filter() -> (EnvFilter, Option<String>) {
    let said = FILTERS.iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
    match said.filter(|(_, said)| !said.is_empty()) {
        None => (EnvFilter::new("info"), None),
        Some((name, said)) => match EnvFilter::try_new(&said) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new("info"), Some(format!("{name}={said:?}: {error}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_that_ended_a_process_is_read_off_its_log_whole() {
        for (log, error) in [
            ("error: one\n", Some("one")),
            ("INFO begun\nerror: first\nINFO begun again\nerror: last:\n  a\n  b\n", Some("last:\n  a\n  b")),
            ("{\"level\":\"INFO\"}\n{\"level\":\"ERROR\",\"message\":\"two\\nlines\"}\n", Some("two\nlines")),
            ("{\"level\":\"INFO\",\"message\":\"fine\"}\n", None),
            ("INFO an error: of sorts\n", None),
            ("", None),
        ] {
            assert_eq!(last_error(log).as_deref(), error, "{log}");
        }
    }

    #[test]
    fn a_log_for_programs_is_read_by_people_as_well() {
        let line =
            r#"{"fields":{"incarnation":"1.2","tries":3},"job":"j","level":"WARN","message":"joined"}"#;
        for (log, said) in [
            (line.to_owned(), "WARN joined incarnation=1.2 tries=3"),
            (format!("\"level\":\"INFO\"}}\n{line}\nplain"), "WARN joined incarnation=1.2 tries=3\nplain"),
            ("Traceback: {}\n  line 3".to_owned(), "Traceback: {}\n  line 3"),
            (format!("panicked\n{line}"), "panicked\nWARN joined incarnation=1.2 tries=3"),
            (String::new(), ""),
        ] {
            assert_eq!(readable(&log), said, "{log}");
        }
    }
}
