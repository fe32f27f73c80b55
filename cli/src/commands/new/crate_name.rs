//! Which names a crate may have: those that cargo takes for a program, and rustc for its crate. Pure.

use std::path::Path;

const BYTES_MAX: usize = 64;
/// What a crate cannot be called: Rust's keywords, its own crates, what the program depends on, and the folders that
/// cargo makes beside a program.
const TAKEN: &str = "abstract alloc anyhow as async await become box break build clap const continue core crate deps do \
    dyn else enum examples extern false final fn for gen if impl in incremental let libm loop macro \
    match mod move mut override priv proc-macro pub ref return self shoal-trainer-sdk static std struct \
    super test trait true try type typeof unsafe unsized use virtual where while";

/// The name said, or the folder's.
///
/// # Errors
/// A name that no crate can have, with the way out.
pub(super) fn checked(folder: &Path, said: Option<&str>) -> Result<String, String> {
    let (name, way_out) = match said {
        Some(name) => (name.to_owned(), ""),
        None => match folder.file_name() {
            Some(name) => {
                (name.to_string_lossy().into_owned(), ", with --name where the folder shall keep its name")
            }
            None => {
                return Err(format!(
                    "{}: name the folder to make, or the crate with --name",
                    folder.display()
                ));
            }
        },
    };
    match fault(&name) {
        Some(fault) => Err(format!("no crate can be called {name:?}: {fault}{way_out}")),
        None => Ok(name),
    }
}

fn fault(name: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > BYTES_MAX {
        return Some("use 1 to 64 letters");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some("begin it with a letter");
    }
    if !name.chars().all(is_plain) {
        return Some("use letters and digits of ASCII, - and _");
    }
    // As `my-job`, so that `proc_macro` is found too.
    let name = name.replace('_', "-");
    TAKEN.split(' ').any(|taken| taken == name).then_some("it has a meaning already; take another")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_its_name_unless_another_is_said() {
        assert_eq!(checked(Path::new("jobs/my-job"), None).unwrap(), "my-job");
        assert_eq!(checked(Path::new("jobs/my-job/"), None).unwrap(), "my-job");
        assert_eq!(checked(Path::new("jobs/1st"), Some("first_2")).unwrap(), "first_2");
        assert_eq!(checked(Path::new("."), Some("here")).unwrap(), "here");
        assert!(checked(Path::new("."), None).unwrap_err().contains("--name"));
    }

    #[test]
    fn names_that_cargo_or_rustc_would_refuse_are_refused_with_the_reason() {
        let long = "a".repeat(65);
        for (name, why) in [
            ("", "1 to 64"),
            (long.as_str(), "1 to 64"),
            ("1st", "begin it with a letter"),
            ("-job", "begin it with a letter"),
            ("_job", "begin it with a letter"),
            ("my job", "ASCII"),
            ("my.job", "ASCII"),
            ("überjob", "begin it with a letter"),
            ("jüb", "ASCII"),
            ("match", "a meaning already"),
            ("test", "a meaning already"),
            ("proc_macro", "a meaning already"),
            ("shoal_trainer_sdk", "a meaning already"),
            ("deps", "a meaning already"),
        ] {
            let refused = checked(Path::new("job"), Some(name)).unwrap_err();
            assert!(refused.contains(why), "{name:?}: {refused}");
        }
    }
}
