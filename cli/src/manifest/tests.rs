//! What becomes of manifests on the command line.

use super::*;
use clap::{CommandFactory, Parser};
use shoal_master::settings::JobArguments;
use std::fmt::Write;

/// As `shoal run` has them, without what it runs with.
#[derive(Parser)]
#[command(name = "shoal")]
enum Shoal {
    Run {
        #[arg(short, long)]
        file: Option<PathBuf>,
        #[arg(long, default_value = "none")]
        name: String,
        #[arg(long)]
        resume: bool,
        #[arg(long)]
        trainers: Option<String>,
        #[arg(long)]
        pservers: Option<String>,
        #[arg(long)]
        device: Option<String>,
        #[arg(long)]
        pace_millis: Option<u64>,
        #[arg(long)]
        env: Vec<String>,
        #[command(flatten)]
        job: Box<JobArguments>,
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
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

fn words(text: &str, more: &[&str]) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("job.yaml");
    std::fs::write(&file, text)?;
    let words = ["shoal", "run", "-f", file.to_str().unwrap()];
    let words: Vec<OsString> = words.iter().chain(more).map(OsString::from).collect();
    let (words, notes) = expanded(&Shoal::command(), words)?;
    Ok((words.into_iter().map(|word| word.into_string().unwrap()).collect(), notes))
}

#[test]
fn a_manifest_says_what_flags_say() {
    let (all, notes) = words(JOB, &[]).unwrap();
    let Shoal::Run { name, trainers, pservers, device, pace_millis, env, job, program, .. } =
        Shoal::try_parse_from(&all).unwrap();
    assert_eq!(
        (name.as_str(), trainers.as_deref(), pservers.as_deref()),
        ("digits", Some("2:4"), Some("2:3"))
    );
    assert_eq!((device.as_deref(), pace_millis), (Some("auto"), Some(5)));
    assert_eq!(job.data, ["a.recordio", "b,c.recordio"]);
    assert_eq!((job.epochs, job.seed, job.replicas, job.checkpoint_steps), (3, 9, 1, 7));
    assert!(job.scale_by_staleness && job.checkpoints.is_none(), "checkpoints are the run's own here");
    assert_eq!(program, ["digits", "--layers=3", "$(X) $(Y) 5$"]);
    assert_eq!(env, ["LAYERS=3", "TWICE=33"]);
    assert!(notes.len() == 2 && notes[1].contains("--env SECRET=VALUE"), "{notes:?}");
}

#[test]
fn what_is_said_on_the_command_line_goes_before_what_the_manifest_says() {
    let more =
        ["--epochs", "5", "--data=other", "--trainers", "3", "--env", "LAYERS=4", "--", "mine", "--deep"];
    let (all, _) = words(JOB, &more).unwrap();
    let Shoal::Run { trainers, env, job, program, .. } = Shoal::try_parse_from(&all).unwrap();
    assert_eq!((job.epochs, job.data, job.seed), (5, vec!["other".to_owned()], 9));
    assert_eq!((trainers.as_deref(), program), (Some("3"), vec!["mine".to_owned(), "--deep".to_owned()]));
    assert_eq!(env.last().unwrap(), "LAYERS=4", "the last of a name counts");
    let (all, _) = words(JOB, &["--resume"]).unwrap();
    assert!(!all.contains(&"--name".to_owned()));
}

#[test]
fn what_cannot_be_run_is_said_with_its_file() {
    let said = |text: &str| words(text, &[]).unwrap_err().to_string();
    assert!(said(&JOB.replace("epochs", "epoch")).contains("job.yaml: spec.epoch: there is no such field"));
    assert!(
        said(&JOB.replace("command: [digits], args: [\"--layers=$(LAYERS)\", \"$$(X) $(Y) 5$\"],", ""))
            .contains("give the program after --")
    );
    assert!(said(&format!("{JOB}---{JOB}")).contains("2 jobs: a run is of one"));
    let none = ["shoal", "run", "-f", "/nowhere/job.yaml"].map(OsString::from).to_vec();
    assert!(
        expanded(&Shoal::command(), none)
            .unwrap_err()
            .to_string()
            .contains("/nowhere/job.yaml: No such file")
    );
}

#[test]
fn other_command_lines_stay_as_they_are() {
    for line in
        [&["shoal"][..], &["shoal", "run", "--data", "a", "--", "b", "-f", "c"], &["shoal", "no", "-f", "x"]]
    {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        assert_eq!(expanded(&Shoal::command(), line.clone()).unwrap(), (line, Vec::new()));
    }
}

/// A flag of the master that no manifest can say is one that a job has here and not in a cluster.
#[test]
fn every_setting_of_a_job_can_be_said_in_a_manifest() {
    let mut spec = String::new();
    for (field, value) in [
        ("evalData", "[e]"),
        ("evalSteps", "2"),
        ("evalEpochs", "2"),
        ("predict", "p"),
        ("epochs", "2"),
        ("seed", "1"),
        ("mode", "sync"),
        ("microbatchRecords", "2"),
        ("microbatchesPerStep", "2"),
        ("shuffleRun", "2"),
        ("leaseTtlMillis", "100"),
        ("stalenessWindow", "2"),
        ("scaleByStaleness", "true"),
        ("delay", "1"),
        ("gradients", "bf16"),
        ("copies", "1"),
        ("excludeMax", "1"),
        ("environment", "warn"),
        ("verify", "0.5"),
        ("warmStart", "w"),
        ("untrained", "true"),
    ] {
        writeln!(spec, "  {field}: {value}").unwrap();
    }
    let checkpoint = "{place: /p, everySteps: 1, everySeconds: 1, keepLast: 1, fullEvery: 1}";
    let text = format!("spec:\n  data: [d]\n{spec}  checkpoint: {checkpoint}\n");
    let job: shoal_operator::api::TrainingJobSpec =
        serde_json::from_value(serde_saphyr::from_str::<serde_json::Value>(&text).unwrap()["spec"].clone())
            .unwrap();
    let said: Vec<&str> = master_flags(&job).into_iter().map(|(flag, _)| flag).collect();
    let lacks = |flag: &String| !said.contains(&flag.as_str());
    let flags = <JobArguments as clap::Args>::augment_args(Command::new("job"));
    let flags = flags.get_arguments().filter_map(|one| Some(format!("--{}", one.get_long()?)));
    // Where checkpoints are is what is left to clusters.
    assert_eq!(flags.filter(lacks).collect::<Vec<_>>(), ["--checkpoints"]);
}
