//! `shoal new`: a training program to begin with. It writes into a new or empty folder only, and never overwrites.

mod crate_name;
mod sdk;

use anyhow::Context;
use sdk::Sdk;
use serde_json::json;
use shoal_runner::exit::Exit;
use shoal_runner::output::{Output, print_outcome};
use shoal_runner::shell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Files, and what is in them but for [`filled`].
type Files = &'static [(&'static str, &'static str)];

/// A crate's.
const CRATE: Files = &[
    ("Cargo.toml", include_str!("template/Cargo.toml.template")),
    ("README.md", include_str!("template/README.md.template")),
    (".gitignore", include_str!("template/gitignore.template")),
    ("src/main.rs", include_str!("template/src/main.rs")),
    ("src/model.rs", include_str!("template/src/model.rs")),
    ("src/samples.rs", include_str!("template/src/samples.rs")),
    ("src/step.rs", include_str!("template/src/step.rs")),
];

/// Those of a program in Python.
const PYTHON: Files = &[
    ("README.md", include_str!("template/python/README.md.template")),
    (".gitignore", include_str!("template/python/gitignore.template")),
    ("train.py", include_str!("template/python/train.py")),
    ("test_train.py", include_str!("template/python/test_train.py")),
];

/// Make a training program to begin with, a crate or a script of Python: a model, a test, and records to train on at once
#[derive(clap::Args)]
#[command(after_help = "Example: shoal new my-job && cd my-job && cargo test\n\
Example: shoal new --python my-job && cd my-job && python train.py\n\
Its README.md says what comes then.")]
pub(crate) struct NewArguments {
    /// The folder to make, or an empty one
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// A script for PyTorch and the package shoal (docs/python.md), in place of a crate
    #[arg(long, conflicts_with = "sdk")]
    python: bool,
    /// The crate's name, and the program's; by default the folder's
    #[arg(long)]
    name: Option<String>,
    /// The SDK that it depends on: a folder (a checkout of Shoal, or trainer-sdk in one), a git URL, or a version of the
    /// crate shoal-trainer-sdk. By default the checkout that this command was built from. With a folder, the checkout's
    /// Cargo.lock is copied too, so that the program is built with the same versions of everything
    #[arg(long, value_name = "FOLDER|URL|VERSION")]
    sdk: Option<String>,
    /// How to print the answer
    #[arg(short, long, default_value = "text")]
    output: Output,
}

pub(crate) fn run(arguments: &NewArguments) -> anyhow::Result<ExitCode> {
    let folder = &arguments.folder;
    let (name, sdk) = name_and_sdk(arguments).map_err(Exit::Usage)?;
    check_new(folder)?;
    let files = write(folder, &name, sdk.as_ref())?;
    let (kind, next) = match sdk {
        Some(_) => ("crate", "cargo test"),
        None => ("program", "python train.py"),
    };
    match arguments.output {
        Output::Json => print_outcome(json!({
            "folder": folder.display().to_string(), "name": name, "sdk": sdk.map(|sdk| sdk.dependency()), "files": files,
        }))?,
        Output::Text => print_outcome(format_args!(
            "made {}: the {kind} {name} with {} files\nnext: cd {} && {next}   (README.md says what comes then)",
            folder.display(),
            files.len(),
            shell::path(folder),
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What the program is called, and what it depends on; a script in Python may be called anything, and needs no SDK.
fn name_and_sdk(arguments: &NewArguments) -> Result<(String, Option<Sdk>), String> {
    let (folder, said) = (&arguments.folder, arguments.name.as_deref());
    if arguments.python {
        let own = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = said.map(str::to_owned).or(own);
        return Ok((name.ok_or_else(|| format!("{}: name the folder to make", folder.display()))?, None));
    }
    let name = crate_name::checked(folder, said)?;
    let sdk = match &arguments.sdk {
        Some(said) => Sdk::said(said),
        None => Sdk::built_from(),
    };
    Ok((name, Some(sdk?)))
}

/// A folder that does not exist, or in which nothing is.
fn check_new(folder: &Path) -> Result<(), Exit> {
    let shown = folder.display();
    match std::fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Exit::Usage(format!("{shown} is not empty: name a folder that is not there yet"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Exit::Usage(format!("{shown} cannot be that folder ({error}): name another"))),
    }
}

/// Writes all files, of a crate where there is an SDK to depend on, and returns their names.
fn write(folder: &Path, name: &str, sdk: Option<&Sdk>) -> anyhow::Result<Vec<&'static str>> {
    let mut files = Vec::new();
    let dependency = sdk.map(Sdk::dependency).unwrap_or_default();
    for (file, template) in if sdk.is_some() { CRATE } else { PYTHON } {
        write_file(&folder.join(file), &filled(template, name, &dependency))?;
        files.push(*file);
    }
    if let Some(lock) = sdk.and_then(Sdk::lock) {
        let text =
            std::fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        write_file(&folder.join("Cargo.lock"), &text)?;
        files.push("Cargo.lock");
    }
    Ok(files)
}

/// The template with what differs between programs.
fn filled(template: &str, name: &str, dependency: &str) -> String {
    template.replace("{name}", name).replace("{sdk}", dependency)
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(cannot)?;
    }
    let mut file = std::fs::File::create_new(path).with_context(cannot)?;
    file.write_all(text.as_bytes()).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(folder: &Path) -> NewArguments {
        let sdk = Some("0.1".to_owned());
        NewArguments { folder: folder.to_owned(), python: false, name: None, sdk, output: Output::Json }
    }

    fn refusal(arguments: &NewArguments) -> String {
        let error = run(arguments).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Exit::Usage(_))), "{error:#}");
        error.to_string()
    }

    #[test]
    fn a_crate_has_all_its_files_and_nothing_is_left_to_fill_in() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("deep/my-job");
        run(&arguments(&folder)).unwrap();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(
            manifest.contains("name = \"my-job\"\n") && manifest.contains("shoal-trainer-sdk = \"0.1\"\n")
        );
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.contains("-- target/debug/my-job "), "{readme}");
        for (file, _) in CRATE.iter().filter(|(file, _)| !file.ends_with(".rs")) {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            assert!(!text.contains("{name}") && !text.contains("{sdk}"), "{file}: {text}");
        }
        assert!(!folder.join("Cargo.lock").exists(), "there is no checkout to take one from");
    }

    #[test]
    fn a_program_in_python_is_a_script_with_a_test_and_needs_no_sdk() {
        let place = tempfile::tempdir().unwrap();
        // No crate could be called so.
        let folder = place.path().join("2nd job");
        run(&NewArguments { python: true, sdk: None, ..arguments(&folder) }).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".gitignore", "README.md", "test_train.py", "train.py"]);
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.starts_with("# 2nd job\n") && !readme.contains("{name}"), "{readme}");
        assert!(std::fs::read_to_string(folder.join("train.py")).unwrap().contains("shoal.main("));
    }

    #[test]
    fn a_folder_whose_name_is_no_text_is_one_all_the_same() {
        use std::os::unix::ffi::OsStrExt;
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")).join("job");
        run(&arguments(&folder)).unwrap();
        assert!(folder.join("Cargo.toml").exists());
    }

    #[test]
    fn an_empty_folder_is_taken_and_any_other_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("job");
        std::fs::create_dir(&folder).unwrap();
        run(&arguments(&folder)).unwrap();
        let before = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let mut again = arguments(&folder);
        again.name = Some("other".to_owned());
        assert!(refusal(&again).contains("is not empty"));
        assert_eq!(std::fs::read_to_string(folder.join("Cargo.toml")).unwrap(), before);
        let file = place.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        assert!(refusal(&arguments(&file)).contains("cannot be that folder"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn what_is_refused_makes_no_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("1st");
        assert!(refusal(&arguments(&folder)).contains("begin it with a letter"));
        let folder = place.path().join("job");
        let unknown = NewArguments { sdk: Some("nowhere".to_owned()), ..arguments(&folder) };
        assert!(refusal(&unknown).contains("nowhere"));
        assert!(!folder.exists());
    }
}
