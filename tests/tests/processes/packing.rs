//! What `shoal recordio pack` makes of CSV, text and Parquet is what pandas and pyarrow read. Needs these packages: `SHOAL_PYTHON`
//! names the interpreter (default `python3`). Without them the test of that says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.

use shoal_tests::processes::programs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// As many files as are made, from the same seed every time. `SHOAL_PACKED_FILES` says otherwise.
const FILES: &str = "600";

#[test]
fn generated_files_are_packed_as_pandas_and_pyarrow_read_them_or_refused_by_a_rule() {
    let python = std::env::var("SHOAL_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&python).args(["-c", "import pandas, pyarrow.parquet"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        let missing =
            format!("{python} has no packages pandas and pyarrow (pip install numpy pandas pyarrow)");
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{missing}");
        eprintln!("NOT TESTED: {missing}");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/packing.py");
    let files = std::env::var("SHOAL_PACKED_FILES").unwrap_or_else(|_| FILES.to_owned());
    let held = Command::new(&python)
        .args(["-B", "-W", "ignore"])
        .arg(script)
        .arg("--shoal")
        .arg(&programs().unwrap().shoal)
        .args(["--files", &files])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&held.stdout);
    assert!(held.status.success(), "{said}{}", String::from_utf8_lossy(&held.stderr));
    eprintln!("{said}");
}

/// Packs what `stored` is, through a pipe, and says how that went.
fn pack(folder: &Path, source: &[&str], stored: &[u8]) -> (Option<i32>, String) {
    let mut packing = Command::new(programs().unwrap().shoal)
        .current_dir(folder)
        .args(["recordio", "pack"])
        .args(source)
        .args(["/dev/stdin", "--output", "out.recordio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // What is refused at its first bytes is not read to its end.
    let _ = packing.stdin.take().unwrap().write_all(stored);
    let Output { status, stderr, .. } = packing.wait_with_output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_pipe_is_packed_and_closing_words_say_what_was_converted() {
    let folder = tempfile::tempdir().unwrap();
    let utf_16: Vec<u8> = "\u{feff}x,y\r1,ä\r".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let (code, said) = pack(folder.path(), &["csv", "--skip-header"], &utf_16);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("1 record(s), 28 bytes, converted from UTF-16LE to UTF-8\n"), "{said}");
    let reader = shoal_recordio::Reader::open(folder.path().join("out.recordio")).unwrap();
    assert_eq!(reader.chunk(0).unwrap().record(0), "1,ä".as_bytes());
    let (code, said) = pack(folder.path(), &["lines"], b"plain\n");
    assert_eq!((code, said.contains("converted")), (Some(0), false), "{said}");
}

#[test]
fn what_cannot_be_packed_is_refused_by_name_and_leaves_the_former_output() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.recordio");
    std::fs::write(&out, "former").unwrap();
    for (source, stored, code, needle) in [
        (&["lines"][..], b"BZh91AY&SY".as_slice(), 1, "bzip2 -dc /dev/stdin | shoal recordio pack lines"),
        (&["csv"], b"caf\xe9\n", 1, "is not UTF-8 at byte 3: name its encoding, such as --encoding latin-1"),
        (&["csv"], b"a,b\n1,\"2\n", 1, "a quote in row 2 (line 2, byte 4) is not closed"),
        (&["lines", "--encoding", "klingon"], b"", 2, "\"klingon\" is not an encoding"),
        (
            &["tfrecord"],
            b"\x78\x9c\x4b\x04\x00",
            1,
            "is compressed with ZLIB, which is not supported: use GZIP",
        ),
        (&["parquet", "--columns", "\"a"], b"", 2, "a quote is not closed"),
    ] {
        let (exit, said) = pack(folder.path(), source, stored);
        assert!(exit == Some(code) && said.contains(needle), "{source:?}: {exit:?} {said}");
        assert_eq!(std::fs::read(&out).unwrap(), b"former");
    }
}
