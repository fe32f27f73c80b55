//! Commands as a person can type them: words as a shell reads them, and this program as it was called.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A word as a shell reads it. What is no text is written in the way of `$'...'`, which most shells know.
pub fn quoted(word: &OsStr) -> String {
    match word.to_str().filter(|text| !text.contains(|c: char| c.is_control())) {
        Some(text) if is_plain(text) => text.to_owned(),
        Some(text) => format!("'{}'", text.replace('\'', r"'\''")),
        None => format!("$'{}'", word.as_bytes().iter().copied().map(escaped).collect::<String>()),
    }
}

fn is_plain(text: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:,=+@%".contains(c);
    !text.is_empty() && text.chars().all(is_plain)
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\'' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        other => format!("\\{other:03o}"),
    }
}

/// A path as a shell reads it, and no flag.
pub fn path(path: &Path) -> String {
    match path.as_os_str().as_bytes().first() {
        Some(b'-') => quoted(Path::new(".").join(path).as_os_str()),
        _ => quoted(path.as_os_str()),
    }
}

/// This program, as whoever called it can call it again from where they stand.
pub fn shoal() -> String {
    called(std::env::args_os().next(), std::env::current_dir().ok().as_deref())
}

fn called(name: Option<OsString>, here: Option<&Path>) -> String {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return "shoal".to_owned() };
    // A name alone was found in PATH, and will be.
    if !name.as_bytes().contains(&b'/') {
        return quoted(&name);
    }
    let within = here.and_then(|here| Path::new(&name).strip_prefix(here).ok());
    match within {
        Some(within) if within.components().count() > 1 => quoted(within.as_os_str()),
        Some(within) => quoted(Path::new(".").join(within).as_os_str()),
        None => quoted(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_reads_what_was_meant() {
        let words: [&[u8]; 9] = [
            b"runs/digits-7",
            b"with space",
            b"it's",
            b"$(touch pwned)",
            b"a\nb",
            b"caf\xe9",
            b"\\'\x01",
            "ümläut".as_bytes(),
            b"",
        ];
        for word in words.map(OsStr::from_bytes) {
            let command = format!("printf %s {}", quoted(word));
            let said = Command::new("bash").args(["-c", &command]).output().unwrap();
            assert_eq!(OsStr::from_bytes(&said.stdout), word, "{command}");
        }
        assert_eq!(quoted(OsStr::new("runs/a-1.2")), "runs/a-1.2");
        assert_eq!(path(Path::new("-x")), "./-x");
    }

    #[test]
    fn this_program_is_named_as_it_was_called() {
        let here = Path::new("/home/me/clone");
        let called = |name: &str| called(Some(name.into()), Some(here));
        assert_eq!(called("shoal"), "shoal");
        assert_eq!(called("./shoal"), "./shoal");
        assert_eq!(called("/home/me/clone/target/release/shoal"), "target/release/shoal");
        assert_eq!(called("/home/me/clone/shoal"), "./shoal");
        assert_eq!(called("/opt/my tools/shoal"), "'/opt/my tools/shoal'");
    }
}
