//! Pservers with devices, as real processes under a driver of ours: blocks go to a device and back under training, a device is
//! lost under way, and the job has the bits that it has without any.

#[path = "../../../runtime/src/host/cuda/fake/compiled.rs"]
mod compiled;

use serde_json::Value;
use shoal_tests::processes::{Job, Programs, closing, pack_digits, programs};
use std::path::PathBuf;
use std::process::{Child, Command};
use tempfile::TempDir;

struct World {
    programs: Programs,
    folder: TempDir,
    data: String,
    driver: PathBuf,
}

fn world() -> World {
    let programs = programs().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = pack_digits(&programs, &folder.path().join("data")).unwrap();
    let driver = compiled::library("libcuda.so", &["runtime/src/host/cuda/fake/driver.c"]);
    World { programs, folder, data, driver }
}

impl World {
    fn run(&self, more: &[&str]) -> Command {
        let more = ["--epochs", "2", "--seed", "7"]
            .iter()
            .chain(more)
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>();
        let (programs, data, folder) = (&self.programs, self.data.as_str(), self.folder.path());
        let (program, trainers) = (programs.digits.as_path(), "2");
        let pservers = if more.contains(&"--replicas".to_owned()) { 2 } else { 1 };
        let job = Job { programs, folder, program, data, trainers, pservers, more, hyper: Vec::new() };
        job.command()
    }

    /// The same with the weights and their gradients on the trainers' device.
    fn program_on_device(&self, more: &[&str]) -> Command {
        let mut command = self.run(more);
        command.args(["--device", "0"]);
        self.with_driver(&mut command);
        command
    }

    fn with_driver(&self, command: &mut Command) {
        let settings = self.folder.path().join("driver");
        command.env("LD_LIBRARY_PATH", &self.driver).env("SHOAL_FAKE_CUDA", settings);
    }

    /// What the driver says from now on to processes that begin.
    fn devices(&self, settings: &str) {
        std::fs::write(self.folder.path().join("driver"), settings).unwrap();
    }

    /// A job under way, each of whose pservers takes the device that there is as it begins.
    fn job_under_way(&self, more: &[&str]) -> Child {
        let auto = ["--device", "auto", "--pace-millis", "150", "--folder", "runs/here"];
        let mut command = self.run(&[&auto[..], more].concat());
        self.with_driver(&mut command);
        let child = command.spawn().unwrap();
        self.wait_for("a step", |status| status["step"].as_u64() > Some(0));
        child
    }

    /// Lets a new pserver take the place of another; its name.
    fn replace(&self, pserver: &str) -> String {
        let before = live(&self.shoal(&["status"]).unwrap());
        assert_eq!(self.shoal(&["migrate", "--pserver", pserver, "--wait"]).unwrap()["gone"], true);
        let is_new = |name: &String| !before.contains(name);
        self.wait_for("another pserver's blocks", |status| live(status).iter().any(is_new));
        live(&self.shoal(&["status"]).unwrap()).into_iter().find(is_new).unwrap()
    }

    fn log(&self, pserver: &str) -> String {
        let file = self.folder.path().join(format!("runs/here/logs/{pserver}.log"));
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    fn shoal(&self, words: &[&str]) -> anyhow::Result<Value> {
        let all = [words, &["--run", "runs/here", "-o", "json"]].concat();
        closing(&Command::new(&self.programs.shoal).current_dir(self.folder.path()).args(all).output()?)
    }

    fn wait_for(&self, what: &str, is_there: impl Fn(&Value) -> bool) {
        let mut last = Value::Null;
        for _ in 0..1000 {
            if let Ok(status) = self.shoal(&["status"]) {
                if is_there(&status) {
                    return;
                }
                last = status;
            }
            let _ = Command::new("sleep").arg("0.05").status();
        }
        panic!("{what} did not come: {last}");
    }

    fn hash_without_device(&self) -> Value {
        ended(closing(&self.run(&[]).output().unwrap()).unwrap())
    }
}

/// Pservers that have blocks.
fn live(status: &Value) -> Vec<String> {
    let pservers = status["pservers"].as_array().into_iter().flatten();
    let live = pservers.filter(|one| one["lost"] == false && one["blocks"].as_u64() > Some(0));
    live.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

fn ended(closing: Value) -> Value {
    assert_eq!((&closing["records_wrong"], &closing["rewinds"]), (&0.into(), &0.into()), "{closing}");
    closing["parameters_sha256"].clone()
}

#[test]
fn a_job_whose_pservers_have_devices_has_the_same_bits() {
    let world = world();
    for more in [&[][..], &["--gradients", "bf16"]] {
        let without = ended(closing(&world.run(more).output().unwrap()).unwrap());
        let folder = format!("runs/{}", more.len());
        let mut command = world.run(&[more, &["--device", "cuda:0", "--folder", &folder]].concat());
        let closed = closing(&command.env("LD_LIBRARY_PATH", &world.driver).output().unwrap()).unwrap();
        assert_eq!(ended(closed), without);
        let log =
            std::fs::read_to_string(world.folder.path().join(folder).join("logs/pserver-0.log")).unwrap();
        assert!(log.contains("updates run on a device") && log.contains("fake device 0"), "{log}");
    }
}

#[test]
fn blocks_go_to_a_device_and_back_while_a_job_trains_and_it_has_the_same_bits() {
    let world = world();
    let without = world.hash_without_device();
    world.devices("DEVICES=0\n");
    let child = world.job_under_way(&[]);
    world.devices("DEVICES=1\n");
    let second = world.replace("pserver-0");
    world.devices("DEVICES=0\n");
    let third = world.replace(&second);
    assert_eq!(ended(closing(&child.wait_with_output().unwrap()).unwrap()), without);
    let is_on_device = |name: &str| world.log(name).contains("updates run on a device");
    assert_eq!(["pserver-0", &second, &third].map(is_on_device), [false, true, false]);
    assert!(world.log(&third).contains("CUDA_ERROR_NO_DEVICE"), "why not is said");
}

#[test]
fn a_device_that_is_lost_ends_its_pserver_and_the_processor_goes_on_with_the_same_bits() {
    let world = world();
    let without = world.hash_without_device();
    world.devices("DEVICES=0\n");
    let child = world.job_under_way(&["--replicas", "1"]);
    world.devices("DEVICES=1\nLOSE_AFTER=12\n");
    let second = world.replace("pserver-0");
    world.devices("DEVICES=0\n");
    assert_eq!(ended(closing(&child.wait_with_output().unwrap()).unwrap()), without);
    let log = world.log(&second);
    assert!(log.contains("the device is lost") && log.contains("CUDA_ERROR_ECC_UNCORRECTABLE"), "{log}");
}

/// What became of a job whose trainers have their gradients on the device, over a driver that shares memory or does not.
fn beside(world: &World, more: &[&str], shares: bool) -> (Value, String) {
    let folder = format!("runs/beside{}-{shares}", more.concat());
    let shared = world.folder.path().join("shared");
    std::fs::create_dir_all(&shared).unwrap();
    world.devices(&if shares { format!("SHARED={}\n", shared.display()) } else { String::new() });
    let mut command = world.program_on_device(&[more, &["--device", "cuda:0", "--folder", &folder]].concat());
    let closed = closing(&command.output().unwrap()).unwrap();
    // Of all: whoever is struck at once has nothing to say.
    let logs = std::fs::read_dir(world.folder.path().join(folder).join("logs")).unwrap();
    let log = logs.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    (closed, log)
}

#[test]
fn gradients_on_the_device_of_a_pserver_are_taken_from_there_and_give_the_same_bits() {
    let world = world();
    for more in [&[][..], &["--gradients", "bf16"], &["--replicas", "1"]] {
        let without = ended(closing(&world.run(more).output().unwrap()).unwrap());
        for shares in [true, false] {
            let (closed, log) = beside(&world, more, shares);
            assert_eq!(ended(closed.clone()), without, "{more:?}, {shares}");
            let said = log.contains("gradients and parameters go to and from the pserver in device memory");
            assert_eq!(said, shares, "{log}");
            // With a follower they are brought here, to be sent to it.
            let found = closed["device_gradient_bytes"].as_u64() > Some(0);
            assert_eq!(found, shares && !more.contains(&"--replicas"), "{closed}");
            // The newest two versions are there, followed or not.
            assert_eq!(closed["device_parameter_bytes"].as_u64() > Some(0), shares, "{closed}");
            assert!(closed["device_blocks"].as_u64() > Some(0), "{closed}");
        }
    }
}

#[test]
fn gradients_in_device_memory_survive_whatever_happens_to_whoever_has_them() {
    let world = world();
    let without = world.hash_without_device();
    for more in [&["--chaos", "5"][..], &["--chaos", "6", "--replicas", "1"]] {
        let (closed, log) = beside(&world, more, true);
        assert_eq!(
            (&closed["records_wrong"], &closed["parameters_sha256"]),
            (&0.into(), &without),
            "{closed}"
        );
        assert!(!closed["faults"].as_array().unwrap().is_empty(), "{closed}");
        assert!(
            log.contains("gradients and parameters go to and from the pserver in device memory"),
            "{log}"
        );
    }
    let (closed, _) = beside(&world, &["--chaos", "7", "--mode", "async", "--replicas", "1"], true);
    let wrong = ["records_wrong", "records_lost"].map(|count| closed[count].as_u64());
    assert_eq!(wrong, [Some(0), Some(0)], "{closed}");
}

#[test]
fn of_several_devices_each_pserver_takes_the_next_and_blocks_go_through_all_of_them() {
    let world = world();
    let without = world.hash_without_device();
    world.devices("DEVICES=2\n");
    let mut command = world.run(&["--device", "cpu,cuda:1", "--pace-millis", "150", "--folder", "runs/here"]);
    world.with_driver(&mut command);
    let child = command.spawn().unwrap();
    world.wait_for("a step", |status| status["step"].as_u64() > Some(0));
    let second = world.replace("pserver-0");
    let third = world.replace(&second);
    assert_eq!(ended(closing(&child.wait_with_output().unwrap()).unwrap()), without);
    let device = |name: &str| {
        let log = world.log(name);
        (0..2).find(|device| log.contains(&format!("updates run on a device device={device}")))
    };
    assert_eq!(["pserver-0", &second, &third].map(device), [None, Some(1), None]);
}

#[test]
fn a_device_that_was_named_and_is_not_there_is_a_clear_error() {
    let world = world();
    let mut command = Command::new(&world.programs.shoal);
    command.args(["pserver", "--device", "cuda:1"]).env("LD_LIBRARY_PATH", &world.driver);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no CUDA device 1: this machine has 1") && !said.contains("panicked"), "{said}");
}
