//! What a run on this machine takes of manifests.

use super::*;
use clap::Parser;
use shoal_job::spec::{CheckpointSpec, Mode, Spec};
use shoal_pserver::device::DeviceChoice;
use std::ffi::OsString;

#[derive(Parser)]
#[command(name = "shoal")]
enum Shoal {
    Run(RunArguments),
}

const JOB: &str = r#"
apiVersion: shoal.dev/v1alpha1
kind: TrainingJob
metadata: {name: digits}
spec:
  data: [a.recordio, "b,c.recordio"]
  epochs: 3
  seed: 9
  copies: 1
  mode: async
  scaleByStaleness: true
  checkpoint: {place: /shared/digits, everySteps: 7}
  pserver: {minReplicas: 2, maxReplicas: 3, device: auto}
  trainer:
    minReplicas: 1
    maxReplicas: 4
    replicas: 2
    template: {spec: {containers: [{name: t, image: i, command: [digits], args: ["--layers=$(LAYERS)", "$$(X) $(Y) 5$"],
      env: [{name: SHOAL_PACE_MILLIS, value: "5"}, {name: LAYERS, value: "3"}, {name: TWICE, value: "$(LAYERS)$(LAYERS)"},
        {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}
"#;

fn taken(text: &str, more: &[&str]) -> anyhow::Result<RunArguments> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("job.yaml");
    std::fs::write(&file, text)?;
    let words = ["shoal", "run", "-f", file.to_str().unwrap()];
    let Shoal::Run(arguments) = Shoal::try_parse_from(words.iter().chain(more))?;
    arguments.with_manifest()
}

fn bounds(text: &str) -> Option<shoal_runner::plan::Bounds> {
    Some(text.parse().unwrap())
}

fn pairs(said: &[(&str, &str)]) -> Vec<(String, String)> {
    said.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_manifest_says_what_flags_say() {
    let RunArguments { name, flags, .. } = taken(JOB, &[]).unwrap();
    assert_eq!(
        (name.as_deref(), flags.trainers, flags.pservers),
        (Some("digits"), bounds("2:4"), bounds("2:3"))
    );
    assert_eq!((flags.device, flags.pace_millis), (vec![DeviceChoice::Auto], Some(5)));
    let spec = Spec {
        data: vec!["a.recordio".to_owned(), "b,c.recordio".to_owned()],
        epochs: Some(3),
        seed: Some(9),
        copies: Some(1),
        mode: Some(Mode::Async),
        scale_by_staleness: true,
        // Where checkpoints are is the run's own here.
        checkpoint: CheckpointSpec { every_steps: Some(7), ..CheckpointSpec::default() },
        ..Spec::default()
    };
    assert_eq!(flags.spec, spec);
    assert_eq!(flags.program, ["digits", "--layers=3", "$(X) $(Y) 5$"]);
    assert_eq!(flags.env, pairs(&[("LAYERS", "3"), ("TWICE", "33")]));
}

#[test]
fn what_is_left_to_clusters_is_said() {
    let text = JOB.replace(
        "env: [",
        "workingDir: /app, volumeMounts: [{name: d, mountPath: /d}], envFrom: [{secretRef: {name: all}}], env: [",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.yaml");
    std::fs::write(&file, text).unwrap();
    let notes = crate::manifest::of_run(&file, false).unwrap().notes.join("\n");
    for wanted in ["workingDir", "volumeMounts", "envFrom", "--env SECRET=VALUE", "images, resources"] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
}

#[test]
fn what_is_said_on_the_command_line_goes_before_what_the_manifest_says() {
    let more =
        ["--epochs", "5", "--data=other", "--trainers", "3", "--env", "LAYERS=4", "--", "mine", "--deep"];
    let RunArguments { flags, .. } = taken(JOB, &more).unwrap();
    assert_eq!(
        (flags.spec.epochs(), flags.spec.data, flags.spec.seed),
        (5, vec!["other".to_owned()], Some(9))
    );
    assert_eq!((flags.trainers, flags.program), (bounds("3"), vec![OsString::from("mine"), "--deep".into()]));
    assert_eq!(flags.env.last().unwrap().1, "4", "the last of a name counts");
    assert_eq!(taken(JOB, &["--resume"]).unwrap().name, None);
    assert_eq!(taken(JOB, &["--name", "mine"]).unwrap().name.as_deref(), Some("mine"));
}

#[test]
fn what_cannot_be_run_is_said_with_its_file() {
    let said = |text: &str| taken(text, &[]).map(drop).unwrap_err().to_string();
    assert!(said(&JOB.replace("epochs", "epoch")).contains("job.yaml: spec.epoch: there is no such field"));
    // Arguments of an image's own command are no program: the first of them would be executed.
    assert!(
        said(&JOB.replace("command: [digits],", "")).contains("give the program and its arguments after --")
    );
    assert!(said(&JOB.replace("auto}", "gpu}")).contains("spec.pserver.device: \"gpu\": not auto"));
    assert!(said(&JOB.replace("\"5\"}", "\"soon\"}")).contains("SHOAL_PACE_MILLIS: \"soon\" is no number"));
    assert!(said(&format!("{JOB}---{JOB}")).contains("2 jobs: a run is of one"));
    let Shoal::Run(none) = Shoal::try_parse_from(["shoal", "run", "-f", "/nowhere/job.yaml"]).unwrap();
    assert!(
        none.with_manifest().map(drop).unwrap_err().to_string().contains("/nowhere/job.yaml: No such file")
    );
}

#[test]
fn a_program_may_be_missing_only_where_a_manifest_has_one() {
    assert!(Shoal::try_parse_from(["shoal", "run", "--data", "d"]).is_err());
    assert!(Shoal::try_parse_from(["shoal", "run", "--data", "d", "--", "p", "-f", "c"]).is_ok());
}

/// What people copy.
#[test]
fn every_job_that_a_page_shows_is_without_a_fault() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut found = 0;
    for page in std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()) {
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
        for job in blocks.filter(|block| block.contains("kind: TrainingJob") && block.contains("apiVersion"))
        {
            let read = shoal_operator::api::written_jobs(job);
            assert!(read.is_ok(), "{}: {:?}", page.display(), read.err());
            found += 1;
        }
    }
    assert!(found >= 2, "{found} jobs");
}
