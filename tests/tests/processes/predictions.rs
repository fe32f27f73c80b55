//! What a job is about that trains nothing, and where its predictions go: a model that is named, or none by name; a place that is
//! one job's alone.

use shoal_tests::processes::{Programs, Running, programs};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    programs: Programs,
    folder: TempDir,
}

fn world() -> World {
    let world = World { programs: programs().unwrap(), folder: tempfile::tempdir().unwrap() };
    for (name, count) in [("many", 40), ("few", 20)] {
        let numbers: String = (1..=count).map(|number| format!("{number}\n")).collect();
        std::fs::write(world.path(name), numbers).unwrap();
        let file = format!("{name}.recordio");
        let pack = ["recordio", "pack", "lines", name, "--output", &file];
        let packed = Command::new(&world.programs.shoal).current_dir(world.folder.path()).args(pack).output();
        assert!(packed.unwrap().status.success());
    }
    world
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, folder: &str, more: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.shoal);
        command.current_dir(self.folder.path()).args(["run", "--folder", folder]).args(more);
        command.arg("--").arg(self.programs.shoal.with_file_name("odd")).args(["parameter=w", "metric=m"]);
        command
    }

    fn run(&self, folder: &str, more: &[&str]) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = self.command(folder, more).output().unwrap();
        (status.code(), String::from_utf8_lossy(&stderr).into_owned())
    }

    /// The names of what is in a place.
    fn parts(&self, place: &str) -> BTreeSet<String> {
        let Ok(files) = std::fs::read_dir(self.path(place)) else { return BTreeSet::new() };
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".recordio")).collect()
    }
}

#[test]
fn an_untrained_model_predicts_or_is_evaluated_only_where_that_is_asked_for() {
    let world = world();
    let predict = &["--data", "few.recordio", "--predict", "told"][..];
    let evaluate = &["--epochs", "0", "--eval-data", "few.recordio"][..];
    for (folder, of) in [("predict", predict), ("evaluate", evaluate)] {
        let (code, said) = world.run(folder, of);
        assert!(code == Some(2) && said.contains("--warm-start") && said.contains("--untrained"), "{said}");
        assert!(!world.path(folder).exists(), "nothing is made");
        let (code, said) = world.run(folder, &[of, &["--untrained"]].concat());
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(world.parts("told").len(), 3);
}

#[test]
fn a_model_of_which_the_file_lacks_a_part_tells_nothing() {
    let world = world();
    assert_eq!(world.run("trained", &["--data", "few.recordio"]).0, Some(0));
    let predict =
        ["--data", "few.recordio", "--predict", "told", "--warm-start", "trained/model.safetensors"];
    let mut more = world.command("more", &predict);
    let output = more.arg("parameter=v").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("\"v\" is not in it"), "{said}");
    assert_eq!(world.parts("told").len(), 0);
    assert_eq!(world.run("whole", &predict).0, Some(0));
}

#[test]
fn parts_of_two_predictions_are_never_in_one_place() {
    let world = world();
    let predict =
        |folder: &str, data: &str| world.run(folder, &["--data", data, "--predict", "told", "--untrained"]);
    assert_eq!(predict("first", "many.recordio").0, Some(0));
    let before = world.parts("told");
    let (code, said) = predict("second", "few.recordio");
    assert!(
        code == Some(1) && said.contains("prediction of the job") && said.contains("empty place"),
        "{said}"
    );
    std::fs::remove_file(world.path("told/.prediction")).unwrap();
    let (code, said) = predict("third", "few.recordio");
    assert!(code == Some(1) && said.contains("part-0000000000.recordio of an earlier prediction"), "{said}");
    assert_eq!(world.parts("told"), before);
}

#[test]
fn what_is_told_is_not_written_among_the_data_that_it_is_told_of() {
    let world = world();
    std::fs::create_dir(world.path("data")).unwrap();
    std::fs::rename(world.path("few.recordio"), world.path("data/few.recordio")).unwrap();
    let data = ["--data", "data/*.recordio", "--untrained", "--predict"];
    let (code, said) = world.run("among", &[&data[..], &["data"]].concat());
    assert!(code == Some(2) && said.contains("beside the data"), "{said}");
    assert_eq!(world.run("below", &[&data[..], &["data/told"]].concat()).0, Some(0));
    assert_eq!((world.parts("data").len(), world.parts("data/told").len()), (1, 3));
}

#[test]
fn a_prediction_that_was_interrupted_goes_on_in_its_place() {
    let world = world();
    let predict =
        ["--data", "many.recordio", "--predict", "told", "--untrained", "--microbatch-records", "2"];
    let slowly = [&predict[..], &["--pace-millis", "200"]].concat();
    let mut run = Running::start(world.command("run", &slowly), &world.path("log")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let until = Instant::now() + PATIENCE;
        while world.parts("told").len() < 2 {
            assert!(Instant::now() < until && run.is_running(), "it tells nothing");
            sleep(Duration::from_millis(20)).await;
        }
    });
    run.kill().unwrap();
    assert!(world.parts("told").len() < 20, "it is not done");
    let (code, said) = world.run("run", &[&predict[..], &["--resume"]].concat());
    assert_eq!((code, world.parts("told").len()), (Some(0), 20), "{said}");
}
