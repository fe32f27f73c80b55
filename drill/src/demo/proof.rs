//! What the demo proves: the two runs held against each other, in words, as JSON, and as a picture.

use super::{DemoArguments, EPOCHS};
use crate::programs::digits;
use anyhow::Context;
use serde_json::{Value, json};
use shoal_runner::Supervisor;
use shoal_runner::breakdown::Breakdown;
use shoal_runner::losses::{self, Losses};
use shoal_runner::outcome::Outcome;
use shoal_runner::report::{self, Run, Time, Verdict};
use shoal_runner::shell;
use shoal_runtime::cluster::JobSettings;
use shoal_runtime::host::files;
use shoal_ui::{Conclusion, Hash};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const ACCURACY_MIN: f64 = 0.95;
const FAULTS_MIN: usize = 5;
const FAULT_KINDS_MIN: usize = 4;

/// What the demo shows in the end.
pub(super) struct Proof {
    verdicts: Vec<Verdict>,
    pub(super) closing: Value,
    losses: Option<Losses>,
    facts: Vec<(String, String)>,
    time: Option<Time>,
    /// The command that plays the same once more.
    again: String,
}

impl Proof {
    pub(super) fn new(
        arguments: &DemoArguments,
        job: &Supervisor,
        undisturbed: &Outcome,
        outcome: &Outcome,
    ) -> anyhow::Result<Proof> {
        let tally = outcome.tally().context("the model has no counts")?;
        let accuracy = digits::held_out_accuracy(|name| outcome.model.values(name))?;
        let undisturbed_model = arguments.folder.join("undisturbed").join("model.safetensors");
        let mut closing = outcome.json(job);
        let kinds: BTreeSet<&str> = job.record.faults.iter().map(|fault| fault.kind.as_str()).collect();
        let number = |name: &str| closing[name].as_u64().unwrap_or(0);
        let (again, refused, late) =
            (number("tasks_leased_again"), number("duplicates_refused"), number("late_pushes"));
        let (ours, theirs) = (&outcome.parameters_sha256, &undisturbed.parameters_sha256);
        let per_epoch = tally.expected / EPOCHS;
        let verdict = |holds, text| Verdict { holds, text };
        let verdicts = vec![
            verdict(
                tally.wrong == 0 && tally.counted == tally.expected,
                format!(
                    "{per_epoch} records counted exactly once in each of {EPOCHS} epochs: {}/{}",
                    tally.counted, tally.expected
                ),
            ),
            verdict(
                ours == theirs,
                format!("parameters sha256 {}… = undisturbed {}…", &ours[..12], &theirs[..12]),
            ),
            verdict(
                accuracy >= ACCURACY_MIN,
                format!("{:.1} % of 299 held-out digits told right", 100.0 * accuracy),
            ),
            verdict(
                job.record.faults.len() >= FAULTS_MIN && kinds.len() >= FAULT_KINDS_MIN,
                format!("{} faults of {} kinds really hit", job.record.faults.len(), kinds.len()),
            ),
            verdict(
                again >= 1 && refused + late >= 1,
                format!(
                    "{again} tasks lost or handed back and done again; {refused} pushes refused as duplicates, {late} came too late"
                ),
            ),
        ];
        let records_refused = number("records_refused");
        let facts = vec![
            (
                "without exactly-once".to_owned(),
                format!("{records_refused} records would have counted twice"),
            ),
            ("seed".to_owned(), arguments.seed.to_string()),
            ("elastic run".to_owned(), format!("{:.1} s, paced", outcome.seconds)),
            ("undisturbed run".to_owned(), format!("{:.1} s", undisturbed.seconds)),
        ];
        closing["undisturbed_sha256"] = json!(theirs);
        closing["accuracy"] = json!(accuracy);
        closing["undisturbed_model"] = json!(undisturbed_model);
        closing["report"] = json!(arguments.folder.join("report.html"));
        closing["ok"] = json!(verdicts.iter().all(|verdict| verdict.holds));
        let settings = JobSettings::try_from(outcome.status.settings.clone().unwrap_or_default())?;
        let sums = outcome.model.values(losses::NAME)?.to_vec();
        let losses = Losses::new(sums, settings.shape().training(), EPOCHS);
        let time = Breakdown::of(&outcome.status.trainer_totals.unwrap_or_default()).parts();
        let time = time.map(|shares| Time { shares, advice: None });
        Ok(Proof { verdicts, closing, losses, facts, time, again: played_again(arguments) })
    }

    pub(super) fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds)
    }

    /// The same for the live page.
    pub(super) fn conclusion(&self, job: &Supervisor) -> Conclusion {
        let hash = |of: &str, key: &str| Hash {
            of: of.to_owned(),
            sha256: self.closing[key].as_str().unwrap_or_default().to_owned(),
        };
        Conclusion {
            hashes: vec![
                hash("this run, under faults", "parameters_sha256"),
                hash("the undisturbed run", "undisturbed_sha256"),
            ],
            verdicts: self.verdicts.iter().map(|verdict| (verdict.holds, verdict.text.clone())).collect(),
            again: Some(job.plan.folder.command("ui")),
        }
    }

    pub(super) fn text(&self, report: &Path) -> String {
        let mark = |verdict: &Verdict| format!("{} {}", if verdict.holds { '✔' } else { '✘' }, verdict.text);
        let mut lines: Vec<String> = self.verdicts.iter().map(mark).collect();
        lines.extend(self.facts.iter().take(1).map(|(name, value)| format!("  {name}: {value}")));
        lines.push(format!("Picture: {}   Again: {}", report.display(), self.again));
        lines.join("\n")
    }
}

fn played_again(arguments: &DemoArguments) -> String {
    let DemoArguments { seed, folder, .. } = arguments;
    let place = if folder == Path::new(super::FOLDER) {
        String::new()
    } else {
        format!(" --folder {}", shell::path(folder))
    };
    format!("{} demo --seed {seed}{place}", shell::shoal())
}

pub(super) fn write_report(
    arguments: &DemoArguments,
    job: &Supervisor,
    proof: &Proof,
) -> anyhow::Result<PathBuf> {
    let mut samples = job.record.samples.clone();
    for sample in &mut samples {
        sample.loss = proof.losses.as_ref().and_then(|losses| losses.before(sample.step));
    }
    let run = Run {
        excluded: Vec::new(),
        metrics: Vec::new(),
        title: "Shoal demo: digits, trained under faults".to_owned(),
        job: job.plan.name.clone(),
        seconds: job.record.seconds(),
        steps: job.status.steps,
        epochs: EPOCHS,
        samples,
        members: job.record.members.clone(),
        faults: job.record.faults.clone(),
        verdicts: proof.verdicts.clone(),
        facts: proof.facts.clone(),
        time: proof.time.clone(),
    };
    let page = arguments.folder.join("report.html");
    files::write(&page, report::html(&run).as_bytes())?;
    files::write(&arguments.folder.join("report.svg"), report::svg(&run).as_bytes())?;
    Ok(page)
}
