//! Jobs that are real: what they train, and how long a microbatch takes.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use shoal_experiments::simulator::scenario::{JobGroup, Scenario};
use shoal_recordio::{Writer, WriterOptions};
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// So many microbatches in a step are shared evenly by 1, 2, 3, 4, 6 and 12 trainers, as the model of speed has it.
const MICROBATCHES: u32 = 12;
/// The training program: it counts how often each record took effect.
const PROGRAM: &str = "count";

/// What real jobs need.
pub(crate) struct Real {
    folder: TempDir,
    /// Where the programs lie.
    pub(crate) path: Vec<PathBuf>,
}

impl Real {
    /// Writes a data set for each job: one record for each microbatch of its steps.
    pub(crate) fn prepared(scenario: &Scenario) -> anyhow::Result<Real> {
        ensure!(scenario.serving.is_empty(), "services are not run as processes");
        let programs =
            std::env::current_exe()?.parent().context("this program lies in no folder")?.to_owned();
        let path = vec![programs.clone(), programs.join("examples")];
        for program in [programs.join("shoal"), path[1].join(PROGRAM)] {
            let shown = program.display();
            ensure!(program.is_file(), "{shown} is missing: cargo build --workspace --bins --examples");
        }
        let real = Real { folder: tempfile::tempdir()?, path };
        for job in &scenario.jobs {
            let mut writer = Writer::new(File::create(real.data(job))?, WriterOptions::default());
            for record in 0..job.steps.round() as u64 * u64::from(MICROBATCHES) {
                writer.write(&record.to_le_bytes())?;
            }
            writer.finish()?;
        }
        Ok(real)
    }

    /// The hash of the parameters that a job has come to: jobs of as many steps come to the same, whatever became of their
    /// trainers meanwhile.
    pub(crate) fn model(&self, job: &JobGroup) -> anyhow::Result<String> {
        let exported = Command::new(self.path[0].join("shoal"))
            .args(["checkpoint", "export", "-o", "json", "--file"])
            .arg(self.folder.path().join(format!("{}.safetensors", job.name)))
            .arg("--place")
            .arg(self.folder.path().join(&job.name))
            .output()?;
        let said: Value = serde_json::from_slice(&exported.stdout)
            .with_context(|| String::from_utf8_lossy(&exported.stderr).into_owned())?;
        Ok(said["parameters_sha256"].as_str().context("no hash")?.to_owned())
    }

    fn data(&self, job: &JobGroup) -> PathBuf {
        self.folder.path().join(format!("{}.recordio", job.name))
    }

    /// Has a job train for its steps.
    pub(crate) fn fill_in(&self, job: &JobGroup, spec: &mut Value) {
        spec["data"] = json!([self.data(job)]);
        spec["checkpoint"]["place"] = json!(self.folder.path().join(&job.name));
        spec["microbatchRecords"] = json!(1);
        spec["microbatchesPerStep"] = json!(MICROBATCHES);
        let pace = (1e3 * job.speed.compute_seconds / f64::from(MICROBATCHES)).round();
        let container = &mut spec["trainer"]["template"]["spec"]["containers"][0];
        container["command"] = json!([PROGRAM]);
        container["env"] = json!([{ "name": "SHOAL_PACE_MILLIS", "value": pace.to_string() }]);
    }
}
