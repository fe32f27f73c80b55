//! What is refused, under which name and with which reason.

use super::super::Refused;
use super::super::headers::{Stat, of_file, of_opened};
use super::{bucket_of, file, scan, scan_all, scan_one};

/// The lines of a refusal, each about one name; with `root` cut out.
async fn faults(given: &[String], root: &str) -> Vec<String> {
    let error = scan(given, &[]).await.unwrap_err();
    assert!(error.downcast_ref::<Refused>().is_some(), "{error:#}");
    let text = error.to_string().replace(root, "");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    text.lines().skip(1).map(|line| line.trim_start().to_owned()).collect()
}

#[tokio::test]
async fn what_names_nothing_is_refused_with_the_way_out() {
    let (_, buckets) = bucket_of(&[("a/empty", Vec::new()), ("a/b", file(0, 1, 1))]).await;
    for (pattern, needle) in [
        ("s3://b/a/none-*", "'**' does"),
        ("s3://b/none", "'**' does"),
        ("s3://b/none/*", "'**' does"),
        ("s3://b/*/x/*", "'**' does"),
        ("nowhere/*", "quote the pattern"),
        ("nowhere", "no such file"),
        ("", "no such file"),
        ("x,nowhere", "'[,]'"),
        ("nowhere/{x,y}*", "braces are the shell's"),
        ("nowhere\\*", "and not after '\\'"),
        ("s3://b/[x", "s3://b/[x"),
        ("file://host/x", "file:///absolute"),
        ("file:///a%20b", "every character as it is"),
        ("ftp://b/x", "s3://bucket/name"),
        ("s3://b", "names no object"),
        ("s3://b/", "names no object"),
        ("s3://b//a/b", "is empty"),
        ("s3://b/a//b", "is empty"),
        ("s3://b/a/b/", "is empty"),
        ("s3://b/./a/b", "is empty"),
        ("s3://b/a/empty", "s3://b/a/empty: empty, 0 bytes"),
    ] {
        let text = format!("{:#}", scan_one(&buckets, pattern).await.unwrap_err());
        assert!(text.contains(needle), "{pattern}: {text}");
    }
}

#[tokio::test]
async fn a_file_counts_once_however_its_name_was_come_by() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    std::fs::create_dir(folder.path().join("in")).unwrap();
    std::fs::write(folder.path().join("n"), file(0, 3, 1)).unwrap();
    std::fs::write(folder.path().join("copy"), file(0, 3, 1)).unwrap();
    std::fs::hard_link(folder.path().join("n"), folder.path().join("hard")).unwrap();
    std::os::unix::fs::symlink("n", folder.path().join("soft")).unwrap();
    std::os::unix::fs::symlink(".", folder.path().join("here")).unwrap();
    let first = format!("{root}/n");
    for other in ["n", "./n", "in/../n", "hard", "soft", "here/n", "[n]"] {
        let said = faults(&[first.clone(), format!("{root}/{other}")], &root).await;
        assert!(said.len() == 1 && said[0].contains("a file counts once"), "{other}: {said:?}");
        let by_url = faults(&[first.clone(), format!("file://{root}/{other}")], &root).await;
        assert!(by_url.len() == 1 && by_url[0].contains("a file counts once"), "{other}: {by_url:?}");
    }
    assert_eq!(
        faults(&[format!("{first},{root}/hard")], &root).await,
        ["/hard: the same file as /n: a file counts once"]
    );
    // Another file of the same content is another file; and what is trained on may be evaluated.
    let two = scan(&[first.clone(), format!("{root}/copy")], &[]).await.unwrap().0;
    assert_eq!(two.record_count(), 6);
    let (both, trained) = scan(std::slice::from_ref(&first), std::slice::from_ref(&first)).await.unwrap();
    assert_eq!((both.record_count(), trained), (6, 3));
    let twice = [first.clone(), first.clone()];
    assert!(
        scan(std::slice::from_ref(&first), &twice)
            .await
            .unwrap_err()
            .to_string()
            .contains("named more than once")
    );

    let (_, buckets) = bucket_of(&[("a/1", file(0, 1, 1))]).await;
    for patterns in
        [["s3://b/a/1", "s3://b/a/1"], ["s3://b/a/1", "s3://b/*/1"], ["s3://b/a/*", "s3://b/**/1"]]
    {
        let error = scan_all(&buckets, &patterns.map(str::to_owned)).await.unwrap_err().to_string();
        assert!(error.contains("s3://b/a/1: named more than once"), "{error}");
    }
}

#[tokio::test]
async fn all_that_cannot_be_used_is_named_at_once_each_with_its_reason() {
    use std::os::unix::ffi::OsStringExt;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let at = |name: &str| folder.path().join(name);
    let whole = file(0, 3, 100);
    std::fs::write(at("a"), &whole).unwrap();
    std::fs::hard_link(at("a"), at("b-again")).unwrap();
    std::fs::write(at("c-cut"), &whole[..200]).unwrap();
    std::os::unix::fs::symlink("/nowhere/x", at("d-dangling")).unwrap();
    std::fs::write(at("e-empty"), "").unwrap();
    std::fs::create_dir(at("f-folder")).unwrap();
    std::os::unix::fs::symlink("h-loop", at("g-loop")).unwrap();
    std::os::unix::fs::symlink("g-loop", at("h-loop")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(at("i-pipe")).status().unwrap().success());
    let socket = std::os::unix::net::UnixListener::bind(at("j-socket")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("k-device")).unwrap();
    std::fs::write(at("l-text"), "no RecordIO, but some text of some length").unwrap();
    std::fs::write(at("m\n\x1b[31mred"), file(1, 1, 1)).unwrap();
    std::fs::write(at("n-good"), file(2, 1, 1)).unwrap();
    let latin1 = std::ffi::OsString::from_vec(b"o-caf\xe9".to_vec());
    std::fs::write(folder.path().join(latin1), file(3, 1, 1)).unwrap();
    let said = faults(&[format!("{root}/?*"), format!("{root}/none")], &root).await;
    let expected = [
        "/b-again: the same file as /a",
        "/c-cut: chunk 1 at offset 124: ",
        "/d-dangling: a link that leads nowhere, to /nowhere/x",
        "/e-empty: empty, 0 bytes",
        "/f-folder: a folder: name the files in it, as in '/f-folder/*'",
        "/g-loop: cannot be read: ",
        "/h-loop: cannot be read: ",
        "/i-pipe: a named pipe",
        "/j-socket: a socket",
        "/k-device: a device",
        "/l-text: chunk 0 at offset 0: ",
        "\"/m\\n\\u{1b}[31mred\": its name holds a control character",
        "\"/o-caf\\xE9\": its name is not UTF-8",
        "\"/none\": there is no such file",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.starts_with(expected), "{said} is not {expected}");
    }
    drop(socket);
}

#[tokio::test]
async fn a_refusal_names_some_and_counts_all() {
    let folder = tempfile::tempdir().unwrap();
    (0..50).for_each(|n| std::fs::write(folder.path().join(format!("{n:02}")), "").unwrap());
    let said = faults(&[format!("{}/*", folder.path().display())], "").await;
    assert_eq!(said.len(), 21);
    assert!(said[19].contains("/19: empty") && said[20] == "… and 30 more", "{said:?}");
}

#[tokio::test]
async fn a_folder_on_the_way_that_cannot_be_walked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    std::fs::write(folder.path().join("a/b/1"), file(0, 1, 1)).unwrap();
    std::os::unix::fs::symlink("..", folder.path().join("a/up")).unwrap();
    std::os::unix::fs::symlink("/nowhere", folder.path().join("a/gone")).unwrap();
    let said = faults(&[format!("{root}/**/1")], &root).await;
    let expected = [
        "/a/gone: a link that leads nowhere, to /nowhere",
        "/a/up: a link to a folder around it, which never ends",
    ];
    assert_eq!(said, expected);
    assert_eq!(faults(&[format!("{root}/a/*/1")], &root).await.len(), 1, "a folder that may have held one");
    // A link beside it is another way to the same files, which count once.
    std::fs::remove_file(folder.path().join("a/up")).unwrap();
    std::fs::remove_file(folder.path().join("a/gone")).unwrap();
    std::os::unix::fs::symlink("b", folder.path().join("a/also")).unwrap();
    let said = faults(&[format!("{root}/**/1")], &root).await;
    assert_eq!(said, ["/a/b/1: the same file as /a/also/1: a file counts once"]);
    let deep = "d/".repeat(200);
    std::fs::create_dir_all(folder.path().join(format!("deep/{deep}"))).unwrap();
    let said = faults(&[format!("{root}/deep/**/1")], &root).await;
    assert!(said[0].ends_with("more than 128 folders in one another"), "{said:?}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let seen = |content: Vec<u8>| {
        std::fs::write(&path, content).unwrap();
        Stat::of(&path.metadata().unwrap())
    };
    let stat = seen(file(0, 3, 100));
    assert_eq!(of_file(&path, "x", stat).unwrap().records(), 3);
    let longer = Stat { bytes: stat.bytes + 1, ..stat };
    let other = Stat { inode: stat.inode + 1, ..stat };
    for changed in [longer, other] {
        let text = of_file(&path, "x", changed).unwrap_err().to_string();
        assert!(text.starts_with("x: it was written to while it was read"), "{text}");
    }
    // Another is put in its place; the place is empty; it is cut short.
    let opened = std::fs::File::open(&path).unwrap();
    let read = || of_opened(&opened, &path, "x", stat).map_err(|error| error.to_string());
    std::fs::write(folder.path().join("other"), file(0, 3, 100)).unwrap();
    std::fs::rename(folder.path().join("other"), &path).unwrap();
    assert!(read().unwrap_err().starts_with("x: it was written to while it was read"));
    std::fs::remove_file(&path).unwrap();
    assert!(read().unwrap_err().starts_with("x: cannot be read"));
    assert!(of_file(&path, "x", stat).unwrap_err().to_string().starts_with("x: cannot be read"));
    std::fs::write(&path, "").unwrap();
    let cut = std::fs::File::open(&path).unwrap();
    let short = of_opened(&cut, &path, "x", stat).unwrap_err().to_string();
    assert!(short.starts_with("x: it was written to while it was read"), "{short}");
}
