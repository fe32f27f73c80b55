//! Images of the roles and of trainers, without a builder of images: the files that go into each, run by a user who is not
//! root, with nothing else there, and what they are said to be made of. Needs root, and Debian for their bills of materials; without
//! them the tests say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.

use serde_json::Value;
use shoal_tests::processes::programs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What each image is, and how its program is asked whether it runs.
const IMAGES: [(&str, &str); 4] = [
    ("shoal-master", "--version"),
    ("shoal-pserver", "--version"),
    ("shoal-operator", "--version"),
    ("digits", "--help"),
];
/// The most that the program's own files may add to it, in MiB: libraries and certificates.
const ADDED_MIB_MAX: u64 = 8;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, mut files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| files_of(folder)));
    files
}

fn run_within(root: &Path, program: &str, argument: &str) -> Output {
    let mut chroot = Command::new("chroot");
    chroot.args(["--userspec=65532:65532"]).arg(root).args([program, argument]);
    chroot.env_clear().env("PATH", "/usr/sbin:/usr/bin").output().unwrap()
}

/// The files of an image, in a folder that whoever it runs as can read.
fn root_of(image: &str, program: &Path, folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let root = folder.join(image);
    let made = Command::new("bash").arg(deploy("image-root")).arg(program).arg(&root).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    root
}

#[test]
fn the_files_of_each_image_suffice_for_its_program_and_there_is_no_shell() {
    if !rustix::process::geteuid().is_root() {
        let why = "chroot needs root";
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{why}");
        return eprintln!("nothing was tested: {why}");
    }
    let programs = programs().unwrap();
    for (image, asked) in IMAGES {
        let program =
            if image == "digits" { programs.digits.clone() } else { programs.shoal.with_file_name(image) };
        let folder = tempfile::tempdir().unwrap();
        let root = root_of(image, &program, folder.path());
        let ran = run_within(&root, image, asked);
        assert!(ran.status.success() && !ran.stdout.is_empty(), "{image}: {ran:?}");
        let files = files_of(&root);
        assert!(files.iter().all(|file| !file.ends_with("sh") && !file.ends_with("bash")), "{files:?}");
        let size = |file: &PathBuf| std::fs::metadata(file).unwrap().len();
        let added = files.iter().map(size).sum::<u64>() - size(&program);
        assert!(added <= ADDED_MIB_MAX << 20, "{image}: {added} bytes beside the program: {files:?}");
    }
}

/// What a bill of materials names, with its version; of one name several.
fn components(bill: &[u8]) -> Vec<(String, String)> {
    let bill: Value = serde_json::from_slice(bill).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    bill["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (text(&one["name"]), text(&one["version"])))
        .collect()
}

#[test]
fn a_bill_of_materials_names_what_is_linked_with_its_versions_and_nothing_else() {
    if Command::new("dpkg").arg("--version").output().is_err() {
        let why = "dpkg is missing, which knows whose the libraries are";
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{why}");
        return eprintln!("nothing was tested: {why}");
    }
    let programs = programs().unwrap();
    let installed = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "libc6"]).output().unwrap();
    let libc = String::from_utf8(installed.stdout).unwrap();
    // By image: its package, and of two crates one that is linked and one that is not.
    let kinds = [
        ("shoal-pserver", "shoal-pserver", "cudarc", "kube"),
        ("shoal-operator", "shoal-operator", "kube", "smartcore"),
        ("digits", "shoal-digits", "smartcore", "parquet"),
    ];
    for (image, package, linked, absent) in kinds {
        let program =
            if image == "digits" { programs.digits.clone() } else { programs.shoal.with_file_name(image) };
        let folder = tempfile::tempdir().unwrap();
        let root = root_of(image, &program, folder.path());
        let mut sbom = Command::new("bash");
        sbom.arg(deploy("sbom")).arg(&root).args([image, package]);
        let bill = sbom.output().unwrap();
        assert!(bill.status.success(), "{}", String::from_utf8_lossy(&bill.stderr));
        let named = components(&bill.stdout);
        let has = |name: &str| named.iter().any(|(one, _)| one == name);
        assert!(has(linked) && !has(absent) && !has("syn"), "{image}: {named:?}");
        assert!(named.contains(&("libc6".to_owned(), libc.clone())), "{image}: {named:?}");
        // A program names the sources of what it is made of, where they may panic.
        let (_, tokio) = named.iter().find(|(name, _)| name == "tokio").unwrap();
        let place = format!("/tokio-{tokio}/src/");
        let program = std::fs::read(&program).unwrap();
        assert!(program.windows(place.len()).any(|bytes| bytes == place.as_bytes()), "{image}: {place}");
    }
}

/// What is installed by name is what there are images of, and none is root's.
#[test]
fn there_is_an_image_of_whatever_is_deployed_and_none_runs_as_root() {
    let dockerfile = std::fs::read_to_string(deploy("Dockerfile")).unwrap();
    let targets = dockerfile.split("\nFROM ").filter_map(|stage| stage.strip_prefix("scratch AS "));
    let targets: Vec<&str> = targets.filter(|target| !target.starts_with("sbom\n")).collect();
    let names: Vec<&str> = targets.iter().map(|target| target.lines().next().unwrap()).collect();
    assert_eq!(names, IMAGES.map(|(image, _)| image));
    for (target, name) in targets.iter().zip(&names) {
        for line in [
            format!("COPY --from=built /images/{name} /"),
            "USER 65532:65532".to_owned(),
            format!("ENTRYPOINT [\"{name}\"]"),
        ] {
            assert!(target.lines().any(|one| one == line), "{name} lacks {line:?}");
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let deployed = std::fs::read_to_string(deploy("base/operator.yaml")).unwrap();
    assert!(deployed.contains("image: shoal-operator\n"), "{deployed}");
    // The operator takes them from beside its own: where that is, and which version, is said once.
    assert!(!deployed.contains("shoal-master") && !deployed.contains("shoal-pserver"), "{deployed}");
    for file in ["kustomization.yaml", "namespaced/kustomization.yaml"] {
        let named = std::fs::read_to_string(deploy(file)).unwrap();
        assert!(
            named.contains(&format!(
                "  - name: shoal-operator\n    newName: shoal-operator\n    newTag: {version}\n"
            )),
            "{file}: {version}"
        );
    }
}
