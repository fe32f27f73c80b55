//! Files of all kinds, written: what they are then, and what is left where that fails.

use super::*;
use std::os::unix::fs::symlink;
use tempfile::{TempDir, tempdir};

fn folder() -> (TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempdir().unwrap();
    let at = folder.path().to_owned();
    (folder, move |name: &str| at.join(name))
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_new_file_has_the_mode_that_the_system_gives_and_an_old_one_keeps_its_own() {
    let (_folder, at) = folder();
    File::create(at("usual")).unwrap();
    write(&at("deep/new"), b"x").unwrap();
    assert_eq!(mode(&at("deep/new")), mode(&at("usual")));
    std::fs::set_permissions(at("usual"), Permissions::from_mode(0o640)).unwrap();
    write(&at("usual"), b"x").unwrap();
    assert_eq!((mode(&at("usual")), std::fs::read(at("usual")).unwrap()), (0o640, b"x".to_vec()));
}

#[test]
fn what_is_not_settled_leaves_what_was_there_and_nothing_else() {
    let (folder, at) = folder();
    write(&at("model"), b"before").unwrap();
    let mut file = NewFile::begin(&at("model")).unwrap();
    file.write_all(b"half").unwrap();
    drop(file);
    assert_eq!(
        (std::fs::read(at("model")).unwrap(), names(&folder)),
        (b"before".to_vec(), vec!["model".to_owned()])
    );
}

#[test]
fn a_link_stays_and_what_it_leads_to_is_written_though_it_was_not_there() {
    let (folder, at) = folder();
    std::fs::create_dir(at("deep")).unwrap();
    symlink("deep/second", at("first")).unwrap();
    symlink("../model", at("deep/second")).unwrap();
    for bytes in [b"one", b"two"] {
        write(&at("first"), bytes).unwrap();
        assert_eq!(std::fs::read(at("model")).unwrap(), bytes);
    }
    assert_eq!(names(&folder), ["deep", "first", "model"]);
    assert!(std::fs::symlink_metadata(at("first")).unwrap().is_symlink());
    symlink("round", at("round")).unwrap();
    assert!(write(&at("round"), b"x").unwrap_err().to_string().contains("cannot write"));
}

#[test]
fn what_is_no_file_is_written_into_and_stays_what_it_is() {
    let (_folder, at) = folder();
    let pipe = at("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    write(&pipe, b"through").unwrap();
    assert_eq!(reader.join().unwrap(), b"through");
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    symlink("/dev/null", at("null")).unwrap();
    write(&at("null"), b"gone").unwrap();
    let null = std::fs::metadata("/dev/null").unwrap();
    assert!(null.file_type().is_char_device());
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let error = write(Path::new("/dev/full"), b"x").unwrap_err().to_string();
    assert!(error.starts_with("cannot write /dev/full: ") && error.contains("No space"), "{error}");
}

#[test]
fn a_folder_and_what_lies_in_a_file_are_refused() {
    let (_folder, at) = folder();
    std::fs::create_dir(at("folder")).unwrap();
    write(&at("file"), b"x").unwrap();
    let refusal = |name: &str| write(&at(name), b"x").unwrap_err().to_string();
    assert!(refusal("folder").contains("name a file in it"), "{}", refusal("folder"));
    assert!(refusal("file/under").contains("cannot"), "{}", refusal("file/under"));
    assert!(write(Path::new("/"), b"x").is_err() && write(Path::new(""), b"x").is_err());
}

#[test]
fn what_is_read_is_not_written_whatever_it_is_called() {
    let (_folder, at) = folder();
    write(&at("data"), b"precious").unwrap();
    symlink("data", at("link")).unwrap();
    std::fs::hard_link(at("data"), at("hard")).unwrap();
    for name in ["data", "link", "hard", "./data"] {
        let refusal = NewFile::begin_from(&at(name), [at("other").as_path(), &at("data")]).unwrap_err();
        assert!(refusal.to_string().contains("it is what is read here"), "{refusal}");
    }
    assert_eq!(std::fs::read(at("data")).unwrap(), b"precious");
    NewFile::begin_from(&at("another"), [at("data").as_path()]).unwrap().settle().unwrap();
}

#[test]
fn a_pipe_is_written_into_by_the_name_that_the_system_has_for_it_when_it_is_open() {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    let (mut reader, writer) = io::pipe().unwrap();
    write(Path::new(&format!("/proc/self/fd/{}", writer.as_raw_fd())), b"whole").unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "whole");
}
