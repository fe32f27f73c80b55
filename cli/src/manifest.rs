//! Manifests of jobs as the command line takes them: read from a file, and for `shoal run` as what a run on this machine takes of one.

use k8s_openapi::api::core::v1::Container;
use shoal_job::spec::Spec;
use shoal_operator::api::{
    TRAINER_CONTAINER, TrainingJob, WrittenJob, container, typed_template, written_jobs,
};
use shoal_pserver::device::DeviceChoice;
use shoal_runner::exit::Exit;
use shoal_runner::plan::Bounds;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

/// The largest file: etcd takes 1.5 MiB for an object.
const BYTES_MAX: u64 = 4 << 20;

/// The jobs of a file, or of standard input where it is called `-`.
///
/// # Errors
/// A file that cannot be read, or all that is wrong in it.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<WrittenJob>> {
    let mut text = String::new();
    let opened: std::io::Result<Box<dyn Read>> = match file.to_str() {
        Some("-") => Ok(Box::new(std::io::stdin())),
        _ => std::fs::File::open(file).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let read = opened.and_then(|from| from.take(BYTES_MAX + 1).read_to_string(&mut text));
    let name = file.display();
    read.map_err(|error| Exit::Usage(format!("{name}: {error}")))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Exit::Usage(format!("{name}: more than {BYTES_MAX} bytes: that is no job")).into());
    }
    written_jobs(&text).map_err(|wrong| {
        let lines: Vec<String> = wrong.iter().map(|fault| format!("{name}: {fault}")).collect();
        Exit::Usage(lines.join("\n       ")).into()
    })
}

/// What a run on this machine takes of a manifest. What is said on the command line or in the environment goes before it.
#[derive(Debug, PartialEq)]
pub(crate) struct RunManifest {
    pub(crate) name: Option<String>,
    pub(crate) trainers: Bounds,
    pub(crate) pservers: Bounds,
    pub(crate) devices: Vec<DeviceChoice>,
    pub(crate) spec: Spec,
    pub(crate) pace_millis: Option<u64>,
    /// Variables of trainers.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) program: Vec<OsString>,
    /// What is said of it: what is left to clusters.
    pub(crate) notes: Vec<String>,
}

/// What a run takes of the manifest in a file; `has_program` says that the command line names a program.
///
/// # Errors
/// A file that cannot be read or is wrong, or that a run on this machine lacks something of.
pub(crate) fn of_run(file: &Path, has_program: bool) -> anyhow::Result<RunManifest> {
    let (jobs, name) = (read(file)?, file.display());
    let [WrittenJob { job, .. }] = &jobs[..] else {
        let why = format!("{name}: {} jobs: a run is of one; `shoal submit` takes several", jobs.len());
        return Err(Exit::Usage(why).into());
    };
    let mut taken = taken(job, has_program).map_err(|why| Exit::Usage(format!("{name}: {why}")))?;
    taken.notes = taken.notes.into_iter().map(|note| format!("{name}: {note}")).collect();
    Ok(taken)
}

fn taken(job: &TrainingJob, has_program: bool) -> Result<RunManifest, String> {
    let spec = &job.spec;
    let bounds = |min: u32, max: Option<u32>, replicas: Option<u32>| {
        let max = max.unwrap_or(min);
        Bounds { min: replicas.unwrap_or(min).clamp(1, max), max }
    };
    let (trainer, pserver) = (&spec.trainer, &spec.pserver);
    let devices = pserver
        .device
        .iter()
        .map(|device| device.parse().map_err(|why| format!("spec.pserver.device: {device:?}: {why}")));
    let template = typed_template(&trainer.template, "spec.trainer.template")?;
    let program = container(&template, TRAINER_CONTAINER).cloned().unwrap_or_default();
    let mut notes = notes(&program);
    let mut variables: Vec<(String, String)> = Vec::new();
    for variable in program.env.into_iter().flatten() {
        if variable.value_from.is_some() {
            let name = &variable.name;
            notes.push(format!(
                "{name} is the cluster's to give: say --env {name}=VALUE if it is needed here"
            ));
            continue;
        }
        let value = substituted(&variable.value.unwrap_or_default(), &variables);
        variables.push((variable.name, value));
    }
    let (command, arguments) = (program.command.unwrap_or_default(), program.args.unwrap_or_default());
    // What the image would execute is not known here; its arguments alone are no program.
    if !has_program && command.is_empty() {
        return Err("spec.trainer.template: its container has no command, and the image's own is the cluster's: give the program \
                    and its arguments after --"
            .to_owned());
    }
    let words = command.into_iter().chain(arguments).map(|word| substituted(&word, &variables).into());
    let words = if has_program { Vec::new() } else { words.collect() };
    // The pace is set by the run itself, for each trainer.
    let pace =
        variables.iter().position(|(name, _)| name == "SHOAL_PACE_MILLIS").map(|at| variables.remove(at).1);
    let pace = pace.map(|pace| pace.parse().map_err(|_| format!("SHOAL_PACE_MILLIS: {pace:?} is no number")));
    // Places of a cluster are not of this machine.
    let mut own = spec.training.clone();
    own.checkpoint.place.clear();
    Ok(RunManifest {
        name: job.metadata.name.clone(),
        trainers: bounds(trainer.min_replicas, trainer.max_replicas, job.asked_trainers()),
        pservers: bounds(pserver.min_replicas, pserver.max_replicas, pserver.replicas),
        devices: devices.collect::<Result<_, _>>()?,
        spec: own,
        pace_millis: pace.transpose()?,
        environment: variables,
        program: words,
        notes,
    })
}

/// What of a program's container is left to clusters.
fn notes(program: &Container) -> Vec<String> {
    let always =
        "left to clusters: where checkpoints and states are kept, images, resources, volumes, priorities";
    let sets = |said: bool, what: &str, way_out: &str| {
        said.then(|| format!("the container's {what} is left to clusters: {way_out}"))
    };
    let has_sources = program.env_from.as_ref().is_some_and(|sources| !sources.is_empty());
    let has_mounts = program.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty());
    let own = [
        sets(has_sources, "envFrom", "say --env NAME=VALUE for what of it is needed here"),
        sets(program.working_dir.is_some(), "workingDir", "the program starts where this command does"),
        sets(has_mounts, "volumeMounts", "its paths have to be there on this machine"),
    ];
    std::iter::once(always.to_owned()).chain(own.into_iter().flatten()).collect()
}

/// A text with `$(NAME)` replaced by what the container's environment says before it, and `$$` by `$`, as Kubernetes does.
fn substituted(text: &str, variables: &[(String, String)]) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        done.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let named = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        let known = named.and_then(|(name, after)| {
            let variable = variables.iter().rev().find(|(known, _)| known == name)?;
            Some((variable.1.as_str(), after))
        });
        match (known, after.strip_prefix('$')) {
            (Some((value, after)), _) => {
                done.push_str(value);
                rest = after;
            }
            (None, Some(after)) => {
                done.push('$');
                rest = after;
            }
            (None, None) => {
                done.push('$');
                rest = after;
            }
        }
    }
    done + rest
}
