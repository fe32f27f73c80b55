//! Names that exported models could not hold are refused before anything is trained, and whatever is accepted can be read again.

use shoal_tests::processes::{Programs, programs};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

struct World {
    programs: Programs,
    folder: TempDir,
}

fn world() -> World {
    let world = World { programs: programs().unwrap(), folder: tempfile::tempdir().unwrap() };
    let numbers: String = (1..=20).map(|number| format!("{number}\n")).collect();
    std::fs::write(world.folder.path().join("n.txt"), numbers).unwrap();
    world.shoal(&["recordio", "pack", "lines", "n.txt", "--output", "n.recordio"]);
    world
}

impl World {
    fn shoal(&self, words: &[&str]) -> Output {
        Command::new(&self.programs.shoal).current_dir(self.folder.path()).args(words).output().unwrap()
    }

    fn run(&self, folder: &str, more: &[&str], declared: &[&str]) -> Output {
        let odd = self.programs.shoal.with_file_name("odd");
        let program = ["--", odd.to_str().unwrap()];
        self.shoal(&[&["run", "--folder", folder, "--data", "n.recordio"], more, &program, declared].concat())
    }
}

fn names(file: &Path) -> Vec<String> {
    let bytes = std::fs::read(file).unwrap();
    let mut names: Vec<String> = safetensors::SafeTensors::deserialize(&bytes)
        .unwrap()
        .names()
        .iter()
        .map(ToString::to_string)
        .collect();
    names.sort();
    names
}

#[test]
fn a_name_that_no_exported_model_can_hold_is_refused_before_training_with_the_way_out() {
    let world = world();
    let refused = [
        (&["parameter=__metadata__"][..], "\"__metadata__\": safetensors files keep this name"),
        (&["momentum=w", "parameter=w.velocity"], "\"w.velocity\": exports give this name to the velocity"),
        (&["metric=t.keys", "table=t"], "\"t.keys\": exports give this name to the keys of the table \"t\""),
    ];
    for (at, (declared, why)) in refused.into_iter().enumerate() {
        let folder = format!("run-{at}");
        let output = world.run(&folder, &[], declared);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.contains("take another"), "{said}");
        assert!(!world.folder.path().join(folder).join("model.safetensors").exists());
    }
}

#[test]
fn odd_names_are_exported_with_all_state_and_a_job_begins_again_under_each() {
    let world = world();
    let declared = [
        "momentum=W",
        "momentum=w",
        "momentum=../..",
        "parameter=.",
        "parameter=e\u{301}",
        "table=\u{e9}/\"",
    ];
    assert!(world.run("first", &[], &declared).status.success());
    let exported = world.shoal(&["checkpoint", "export", "--run", "first", "--file", "all", "--with-state"]);
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let mut expected = [
        "W",
        "W.velocity",
        "w",
        "w.velocity",
        "../..",
        "../...velocity",
        ".",
        "e\u{301}",
        "\u{e9}/\"",
        "\u{e9}/\".keys",
    ];
    expected.sort_unstable();
    assert_eq!(names(&world.folder.path().join("all")), expected);
    let again = world.run("again", &["--warm-start", "first/model.safetensors"], &declared);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let table = ["checkpoint", "export", "--run", "again", "--table", "\u{e9}/\"", "--file", "rows.parquet"];
    assert!(world.shoal(&table).status.success());
}
