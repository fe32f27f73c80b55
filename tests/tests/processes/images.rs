//! Images of the roles and of trainers, without a builder of images: the files that go into each, run by a user who is not
//! root, with nothing else there. Needs root; without it the test says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.

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
        // Whoever it runs as must be able to read it.
        let root = folder.path().join("root");
        let made = Command::new("bash").arg(deploy("image-root")).arg(&program).arg(&root).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let ran = run_within(&root, image, asked);
        assert!(ran.status.success() && !ran.stdout.is_empty(), "{image}: {ran:?}");
        let files = files_of(&root);
        assert!(files.iter().all(|file| !file.ends_with("sh") && !file.ends_with("bash")), "{files:?}");
        let size = |file: &PathBuf| std::fs::metadata(file).unwrap().len();
        let added = files.iter().map(size).sum::<u64>() - size(&program);
        assert!(added <= ADDED_MIB_MAX << 20, "{image}: {added} bytes beside the program: {files:?}");
    }
}

/// What is installed by name is what there are images of, and none is root's.
#[test]
fn there_is_an_image_of_whatever_is_deployed_and_none_runs_as_root() {
    let dockerfile = std::fs::read_to_string(deploy("Dockerfile")).unwrap();
    let targets: Vec<&str> = dockerfile.split("\nFROM scratch AS ").skip(1).collect();
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
    for file in ["operator.yaml", "namespaced/operator.yaml"] {
        let deployed = std::fs::read_to_string(deploy(file)).unwrap();
        for image in ["shoal-master", "shoal-pserver"] {
            assert!(deployed.contains(&format!("value: {image}:{version}\n")), "{file}: {image}:{version}");
        }
        assert!(deployed.contains("image: shoal-operator\n"), "{file}");
    }
    for file in ["kustomization.yaml", "namespaced/kustomization.yaml"] {
        let named = std::fs::read_to_string(deploy(file)).unwrap();
        assert!(
            named.contains(&format!("  - name: shoal-operator\n    newTag: {version}\n")),
            "{file}: {version}"
        );
    }
}
