//! Jobs that begin at a file, with real processes: what one job exported, the next begins at, bit for bit.

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use shoal_tests::processes::{Job, Programs, Running, closing, pack_digits, programs};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LEARNT: [&str; 4] = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"];

fn job<'a>(programs: &'a Programs, folder: &'a Path, data: &'a str, pservers: u32, more: &[&str]) -> Job<'a> {
    let more = more.iter().map(|word| (*word).to_owned()).collect();
    Job {
        programs,
        folder,
        program: &programs.digits,
        data,
        trainers: "1",
        pservers,
        more,
        hyper: Vec::new(),
    }
}

/// The learnt parameters in a file, by name, as they lie there.
fn learnt(file: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let bytes = std::fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    LEARNT.map(|name| (name, tensors.tensor(name).unwrap().data().to_vec())).into()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real processes take real time")]
fn what_one_job_exported_the_next_begins_at_with_one_and_with_three_pservers() {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    job(&programs, folder.path(), &data, 2, &["--folder", "runs/first"]).run().unwrap();
    let first = learnt(&folder.path().join("runs/first/model.safetensors"));
    for pservers in [1, 3] {
        let run = format!("runs/warm-{pservers}");
        // Another seed, and a pace at which no step is made while the model is read.
        let begun = ["--seed", "9", "--pace-millis", "600000", "--epochs", "3", "--folder", &run];
        let begun = [&begun[..], &["--warm-start", "runs/first/model.safetensors"]].concat();
        let command = job(&programs, folder.path(), &data, pservers, &begun).command();
        let log = folder.path().join(format!("log-{pservers}"));
        let running = Running::start(command, &log).unwrap();
        let file = folder.path().join(format!("at-{pservers}.safetensors"));
        let deadline = Instant::now() + Duration::from_secs(60);
        let exported = loop {
            let export = Command::new(&programs.shoal)
                .current_dir(folder.path())
                .args(["export", "--run", &run, "-o", "json", "--file"])
                .arg(&file)
                .output()
                .unwrap();
            // Until the master listens and a trainer has joined there is nothing to read.
            if export.status.success() || Instant::now() > deadline {
                break export;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        closing(&exported).unwrap();
        drop(running);
        assert_eq!(learnt(&file), first, "{pservers} pservers");
        let bytes = std::fs::read(&file).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(metadata.metadata().as_ref().unwrap()["version"], "0");
        let counted = SafeTensors::deserialize(&bytes).unwrap();
        assert!(
            counted.tensor("count.first").unwrap().data().iter().all(|byte| *byte == 0),
            "metrics begin anew"
        );
    }
    // And it trains on from there: every record of its own epochs counts once.
    let more = ["--folder", "runs/second", "--warm-start", "runs/first/model.safetensors"];
    let closed = job(&programs, folder.path(), &data, 3, &more).run().unwrap();
    assert_eq!(closed["records_wrong"], 0, "{closed}");
}

#[test]
fn a_file_that_does_not_fit_ends_the_run_with_parameter_file_and_way_out() {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    let narrow = TensorView::new(Dtype::F32, vec![2, 2], &[0; 16]).unwrap();
    let file = serialize([("hidden.weight", narrow)], None).unwrap();
    std::fs::write(folder.path().join("narrow.safetensors"), file).unwrap();
    for (file, said) in [
        ("narrow.safetensors", ["\"hidden.weight\" has the shape [2, 2]", "declared shape"]),
        ("nowhere.safetensors", ["nowhere.safetensors", "nothing is there"]),
    ] {
        let run = format!("runs/{file}");
        let more = ["--folder", &run, "--warm-start", file];
        let ended = job(&programs, folder.path(), &data, 2, &more).command().output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{errors}");
        assert!(said.iter().all(|words| errors.contains(words)), "{errors}");
        assert!(!folder.path().join(&run).join("model.safetensors").exists());
    }
}
