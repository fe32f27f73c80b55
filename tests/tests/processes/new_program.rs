//! What `shoal new` makes builds without a network, passes its own test, packs its records and trains as it is.

use shoal_tests::processes::{Job, cargo, closing, programs};
use std::path::Path;
use std::process::{Command, Output};

/// Runs cargo on a crate as its author would, with what this build has already got.
fn call(folder: &Path, target: &Path, words: &[&str]) -> Output {
    let mut command = cargo();
    command.args(words).current_dir(folder).env("CARGO_TARGET_DIR", target).env("CARGO_NET_OFFLINE", "true");
    let output = command.output().unwrap();
    assert!(output.status.success(), "cargo {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn a_new_program_builds_passes_its_test_and_learns() {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut new = Command::new(&programs.shoal);
    new.current_dir(folder.path()).args(["new", "my-job", "-o", "json"]);
    let made = closing(&new.output().unwrap()).unwrap();
    assert_eq!((&made["name"], &made["folder"]), (&"my-job".into(), &"my-job".into()));
    let files: Vec<&str> =
        made["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    let job = folder.path().join("my-job");
    assert!(files.contains(&"Cargo.lock") && files.iter().all(|file| job.join(file).is_file()), "{files:?}");

    let profile = programs.shoal.parent().unwrap();
    let target = profile.parent().unwrap();
    let tested = call(&job, target, &["test", "--quiet"]);
    let said = String::from_utf8_lossy(&tested.stdout);
    assert!(said.contains("test result: ok. 3 passed"), "{said}");
    call(&job, target, &["build", "--quiet"]);
    let program = target.join("debug/my-job");
    let packed = Command::new(&program).current_dir(&job).args(["--pack", "data"]).output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));

    let more = ["--epochs", "4", "--folder", "run", "--eval-data", "data/test-*.recordio"]
        .map(str::to_owned)
        .to_vec();
    let hyper = ["--learning-rate", "0.1"].map(str::to_owned).to_vec();
    let data = "data/train-*.recordio";
    let job_run = Job {
        programs: &programs,
        folder: &job,
        program: &program,
        data,
        trainers: "2",
        pservers: 2,
        more,
        hyper,
    };
    let ended = job_run.run().unwrap();
    let evaluated = ended["evaluations"].as_array().unwrap();
    let accuracy = evaluated.last().unwrap()["metrics"]["accuracy"].as_f64().unwrap();
    assert!(evaluated.len() == 4 && accuracy > 0.85, "{evaluated:?}");
    let losses = losses(&job.join("run/model.safetensors"));
    let epochs: Vec<f32> = losses.chunks(losses.len() / 4).map(|steps| steps.iter().sum()).collect();
    assert!(epochs.len() == 4 && epochs[3] < epochs[0] / 2.0, "losses of the epochs: {epochs:?}");
}

/// The sums of the steps' losses.
fn losses(model: &Path) -> Vec<f32> {
    let bytes = std::fs::read(model).unwrap();
    let model = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let losses = model.tensor("loss").unwrap();
    losses.data().as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
