//! Which files and objects names and patterns mean: the same in folders and in buckets.

use super::{bucket_of, file, relative, scan, scan_one};

const NAMES: [&str; 20] = [
    "top",
    "a/1",
    "a/2",
    "a/10",
    "a-b/1",
    "a/x/1",
    "a/x/y/1",
    "b/[1]",
    "b/1 2",
    "b/A",
    "b/B",
    "b/a",
    "b/é",
    "b/,",
    "b/*",
    "b/%20",
    "b/\\",
    ".h/1",
    "a/.hidden",
    "a/.h/1",
];

/// A pattern and the names that it means, in their order; with what is said where it is refused.
const MEANINGS: [(&str, Result<&[&str], &str>); 41] = [
    ("*", Ok(&["top"])),
    ("a/*", Ok(&["a/1", "a/10", "a/2"])),
    ("*/1", Ok(&["a/1", "a-b/1"])),
    ("a*/1", Ok(&["a/1", "a-b/1"])),
    ("a/1", Ok(&["a/1"])),
    ("a/[0-9]", Ok(&["a/1", "a/2"])),
    ("a/1?", Ok(&["a/10"])),
    ("b/1 2", Ok(&["b/1 2"])),
    ("a/*/1", Ok(&["a/x/1"])),
    ("a/*/*/1", Ok(&["a/x/y/1"])),
    ("**/1", Ok(&["a/1", "a/x/1", "a/x/y/1", "a-b/1"])),
    ("a/**/1", Ok(&["a/1", "a/x/1", "a/x/y/1"])),
    ("**/**/1", Ok(&["a/1", "a/x/1", "a/x/y/1", "a-b/1"])),
    ("**/x/*", Ok(&["a/x/1"])),
    ("**/x/**", Ok(&["a/x/1", "a/x/y/1"])),
    ("a/**", Ok(&["a/1", "a/10", "a/2", "a/x/1", "a/x/y/1"])),
    ("a/**/*", Ok(&["a/1", "a/10", "a/2", "a/x/1", "a/x/y/1"])),
    ("[ab]/1*", Ok(&["a/1", "a/10", "b/1 2"])),
    // What stands in brackets stands for itself.
    ("b/[[]1]", Ok(&["b/[1]"])),
    ("b/[,]", Ok(&["b/,"])),
    ("b/[*]", Ok(&["b/*"])),
    ("b/%20", Ok(&["b/%20"])),
    ("b/[\\]", Ok(&["b/\\"])),
    // Bytes are compared, and are the order.
    ("b/[A-Z]", Ok(&["b/A", "b/B"])),
    ("b/[!A-Z]", Ok(&["b/*", "b/,", "b/\\", "b/a", "b/é"])),
    ("b/?", Ok(&["b/*", "b/,", "b/A", "b/B", "b/\\", "b/a", "b/é"])),
    ("b/[a-z]", Ok(&["b/a"])),
    ("b/é", Ok(&["b/é"])),
    ("B/*", Err("matches no")),
    // A dot that begins a name is met by a dot alone.
    ("a/.*", Err("a/.h: a folder")),
    ("a/.hid*", Ok(&["a/.hidden"])),
    ("a/?hidden", Err("matches no")),
    ("a/[!x]hidden", Err("matches no")),
    (".h/*", Ok(&[".h/1"])),
    ("**/.h/1", Ok(&[".h/1", "a/.h/1"])),
    // A folder is no file, and is left out only where any name will do.
    ("a/?", Err("a/x: a folder")),
    ("**/x", Err("a/x: a folder")),
    ("*/", Err("names a folder")),
    ("a/*/../1", Err("after a wildcard")),
    ("a/[", Err("is no pattern")),
    ("a/[]", Err("is no pattern")),
];

#[tokio::test]
async fn a_pattern_means_in_a_bucket_what_it_means_on_a_disk() {
    let root = tempfile::tempdir().unwrap();
    let objects: Vec<(&str, Vec<u8>)> =
        NAMES.iter().enumerate().map(|(seed, name)| (*name, file(seed as u8, 2, 9))).collect();
    for (name, content) in &objects {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let (_, buckets) = bucket_of(&objects).await;
    let root = format!("{}/", root.path().display());
    for (pattern, meaning) in MEANINGS {
        let places = [root.clone(), format!("file://{root}"), "s3://b/".to_owned()];
        for place in places {
            let found = scan_one(&buckets, &format!("{place}{pattern}")).await;
            let opened_as = place.trim_start_matches("file://");
            match meaning {
                Ok(names) => {
                    assert_eq!(relative(&found.unwrap(), opened_as), names, "{place}{pattern}");
                }
                Err(needle) => {
                    let text = found.unwrap_err().to_string();
                    assert!(text.contains(needle), "{place}{pattern}: {text}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_folder_that_is_marked_by_an_object_is_no_file() {
    // As a store's own pages make one: an object of no bytes, which is listed under the folder's name.
    let marker = Vec::new;
    let objects = [("a", marker()), ("a/1", file(0, 1, 1)), ("a/x", marker()), ("a/x/1", file(1, 1, 1))];
    let (_, buckets) = bucket_of(&objects).await;
    for (pattern, names) in
        [("a/[0-9]", &["a/1"][..]), ("a/**", &["a/1", "a/x/1"]), ("**/1", &["a/1", "a/x/1"])]
    {
        let manifest = scan_one(&buckets, &format!("s3://b/{pattern}")).await.unwrap();
        assert_eq!(relative(&manifest, "s3://b/"), names, "{pattern}");
    }
}

#[tokio::test]
async fn a_file_that_is_called_so_is_taken_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    for (seed, name) in ["a[1]", "a1", "a,b", "a", "b", "*", "a%20b"].into_iter().enumerate() {
        std::fs::write(folder.path().join(name), file(seed as u8, 1, 1)).unwrap();
    }
    for (given, names) in [
        ("a[1]", &["a[1]"][..]),
        ("a[[]1]", &["a[1]"]),
        ("a[0-1]", &["a1"]),
        ("a,b", &["a,b"]),
        ("a[,]b", &["a,b"]),
        ("*", &["*"]),
        ("[*]", &["*"]),
        ("a%20b", &["a%20b"]),
    ] {
        for given in [format!("{root}/{given}"), format!("file://{root}/{given}")] {
            let manifest = scan(std::slice::from_ref(&given), &[]).await.unwrap().0;
            assert_eq!(relative(&manifest, &format!("{root}/")), names, "{given}");
        }
    }
    let list = format!("{root}/a1,{root}/b,{root}/a[,]b,file://{root}/a[1]");
    let manifest = scan(&[list], &[]).await.unwrap().0;
    assert_eq!(relative(&manifest, &format!("{root}/")), ["a1", "b", "a,b", "a[1]"]);
    // As a shell hands over all that is there.
    let all = ["*", "a", "a%20b", "a,b", "a1", "a[1]", "b"].map(|name| format!("{root}/{name}"));
    assert_eq!(scan(&all, &[]).await.unwrap().0.files().len(), 7);
}
