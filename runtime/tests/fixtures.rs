//! Recorded bytes of every message and of every stored format of this version: what they say is what today's code reads, and
//! today's code writes the same. See `docs/versions.md` for when it may not, and how a new version is recorded.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

#[path = "recorded/fill.rs"]
mod fill;
#[path = "recorded/messages.rs"]
mod messages;
#[path = "recorded/stored.rs"]
mod stored;
#[path = "recorded/values.rs"]
mod values;

use std::fmt::Write;
use std::path::PathBuf;

/// Where this version's recordings lie.
fn folder() -> PathBuf {
    let version = shoal_runtime::wire::WireVersion::PRESENT.0;
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v{version}"))
}

/// One recorded message.
struct Recorded {
    name: String,
    bytes: Vec<u8>,
    /// What was read in it when it was recorded.
    text: String,
}

/// `== name`, a line of bytes in hexadecimal, what they say.
fn parse(file: &str) -> Vec<Recorded> {
    let entry = |entry: &str| {
        let mut parts = entry.splitn(3, '\n').map(str::to_owned);
        let (name, hex, text) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        Recorded {
            name,
            bytes: (0..hex.len()).step_by(2).map(byte).collect(),
            text: text.trim_end().to_owned(),
        }
    };
    file.split("== ").skip(1).map(entry).collect()
}

fn written(recorded: &[Recorded]) -> String {
    let mut file = String::new();
    for Recorded { name, bytes, text } in recorded {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "== {name}\n{hex}\n{text}").unwrap();
    }
    file
}

/// The recordings in a file of this version.
fn recorded(file: &str) -> Vec<Recorded> {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path);
    parse(&text.unwrap_or_else(|error| panic!("{}: {error}: see docs/versions.md", path.display())))
}

/// The message that is meant, without the choice that was made in it.
fn of(name: &str) -> &str {
    name.split('.').next().unwrap()
}

/// Asserts that what was recorded is still read: every line of it, in its order. What was added since has other lines.
fn is_still_read(name: &str, recorded: &str, today: &str) {
    let mut lines = today.lines();
    for line in recorded.lines() {
        assert!(lines.any(|today| today == line), "{name}: {line:?} is not read any more, but\n{today}");
    }
}

#[test]
fn every_message_of_the_protocol_is_recorded() {
    let recorded = recorded("messages.txt");
    for message in fill::described() {
        let times = recorded.iter().filter(|recorded| of(&recorded.name) == message.name()).count();
        assert_eq!(times, fill::choices(&message), "{}", message.name());
        assert!(messages::read(message.name(), &[]).is_some(), "{} is not in messages.rs", message.name());
    }
}

#[test]
fn recorded_messages_say_what_they_said_and_are_written_with_the_same_bytes() {
    for Recorded { name, bytes, text } in recorded("messages.txt") {
        let read = messages::read(of(&name), &bytes).expect(&name).expect(&name);
        is_still_read(&name, &text, &read.text);
        assert_eq!(read.bytes, bytes, "{name}");
    }
}

#[test]
fn recorded_values_are_the_ones_that_are_meant_and_are_written_with_the_same_bytes() {
    let (recorded, values) = (recorded("values.txt"), values::all());
    assert_eq!(recorded.len(), values.len());
    for (Recorded { name, bytes, text }, value) in recorded.iter().zip(values) {
        assert_eq!((name.as_str(), text), (value.name, &value.text), "{name}");
        assert_eq!((value.read)(bytes).as_ref(), Ok(text), "{name}");
        assert_eq!(&value.bytes, bytes, "{name}");
    }
}

#[test]
fn recorded_files_are_read_as_what_is_meant_and_are_written_with_the_same_bytes() {
    for (name, bytes) in stored::all() {
        let path = folder().join(name);
        let recorded = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(recorded == bytes, "{name}: today's code writes other bytes");
        stored::check(name, &recorded, &values::declaration());
    }
}

#[test]
fn recorded_files_of_versions_2_and_3_are_those_of_today() {
    for name in stored::NAMES {
        let of = |version: &str| {
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version).join(name)
        };
        let [second, third, today] = ["v2", "v3", "v4"].map(|version| std::fs::read(of(version)).unwrap());
        assert!(second == today && third == today, "{name}: its format is the same, and so are its bytes");
    }
}

#[test]
fn recorded_files_of_version_1_are_read_as_what_is_meant() {
    // Tables came later.
    let mut declaration = values::declaration();
    declaration.parameters.retain(|parameter| parameter.table.is_none());
    for name in stored::NAMES {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1").join(name);
        stored::check(name, &std::fs::read(path).unwrap(), &declaration);
    }
}

/// Records this version, where nothing is recorded yet: see `docs/versions.md`.
#[test]
fn record() {
    if std::env::var_os("SHOAL_RECORD_FIXTURES").is_none() {
        return;
    }
    let filled = fill::described().into_iter().flat_map(|message| {
        (0..fill::choices(&message)).map(move |choice| {
            let (name, bytes) = (message.name().to_owned(), fill::filled(&message, choice));
            let text = messages::read(&name, &bytes).expect(&name).unwrap().text;
            let name = if fill::choices(&message) > 1 { format!("{name}.{choice}") } else { name };
            Recorded { name, bytes, text }
        })
    });
    let mut filled: Vec<Recorded> = filled.collect();
    filled.sort_by(|a, b| a.name.cmp(&b.name));
    let values = values::all().into_iter();
    let values =
        values.map(|value| Recorded { name: value.name.to_owned(), bytes: value.bytes, text: value.text });
    let texts = [("messages.txt", written(&filled)), ("values.txt", written(&values.collect::<Vec<_>>()))];
    let texts = texts.into_iter().map(|(name, text)| (name, text.into_bytes()));
    std::fs::create_dir_all(folder()).unwrap();
    for (name, bytes) in texts.chain(stored::all()) {
        // What is recorded stays: another meaning is another version.
        let file = std::fs::File::options().write(true).create_new(true).open(folder().join(name));
        match file {
            Ok(mut file) => std::io::Write::write_all(&mut file, &bytes).unwrap(),
            Err(error) => eprintln!("{name}: left as it is: {error}"),
        }
    }
}
