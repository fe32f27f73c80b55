//! The exported model opens in Python's `safetensors`. Needs that package: `SHOAL_PYTHON` names the interpreter
//! (default `python3`). Without it the test says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`.

use shoal_tests::processes::{Job, closing, pack_digits, programs};
use std::process::Command;

const READ: &str = r#"
import sys
from safetensors.numpy import load_file
model = load_file(sys.argv[1])
print(" ".join(f"{name}:{'x'.join(map(str, model[name].shape))}" for name in sorted(model)))
assert abs(model["hidden.weight"]).sum() > 0
"#;

#[test]
fn the_exported_model_opens_in_python() {
    let python = std::env::var("SHOAL_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&python).args(["-c", "import safetensors.numpy"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        let missing = format!("{python} has no package safetensors (pip install safetensors numpy)");
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{missing}");
        eprintln!("NOT TESTED: {missing}");
        return;
    }
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    let job = Job {
        programs: &programs,
        folder: folder.path(),
        program: &programs.digits,
        data: &data,
        trainers: "1",
        pservers: 2,
        more: vec!["--folder".into(), "runs/here".into()],
        hyper: Vec::new(),
    };
    job.run().unwrap();
    let export = Command::new(&programs.shoal)
        .current_dir(folder.path())
        .args(["export", "--run", "runs/here", "--file", "model.safetensors", "-o", "json"])
        .output()
        .unwrap();
    closing(&export).unwrap();
    let read = Command::new(&python)
        .args(["-c", READ])
        .arg(folder.path().join("model.safetensors"))
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let listed = String::from_utf8_lossy(&read.stdout);
    for expected in ["hidden.weight:64x67", "output.bias:10", "count.first:1498"] {
        assert!(listed.contains(expected), "{listed}");
    }
}
