//! Manifests of jobs as the command line takes them: read from a file, and for `shoal run` as flags of its own. What is said
//! on the command line or in the environment goes before what the file says.

use crate::exit::Exit;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use shoal_operator::api::{
    TRAINER_CONTAINER, TrainingJob, WrittenJob, container, master_flags, typed_template, written_jobs,
};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

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

/// A command line of `shoal run -f FILE` with what the file says in flags; any other as it is. Returns it with what is to be
/// said of it.
///
/// # Errors
/// A file that cannot be read or is wrong, or that a run on this machine lacks something of.
pub(crate) fn expanded(
    shoal: &Command,
    words: Vec<OsString>,
) -> anyhow::Result<(Vec<OsString>, Vec<String>)> {
    // Without its file the command line may lack what the file says, which is no fault yet.
    let Ok(given) = shoal.clone().ignore_errors(true).try_get_matches_from(&words) else {
        return Ok((words, Vec::new()));
    };
    let Some(("run", given)) = given.subcommand() else { return Ok((words, Vec::new())) };
    let Some(file) = given.get_one::<PathBuf>("file") else { return Ok((words, Vec::new())) };
    let jobs = read(file)?;
    let name = file.display();
    let [WrittenJob { job, .. }] = &jobs[..] else {
        let why = format!("{name}: {} jobs: a run is of one; `shoal submit` takes several", jobs.len());
        return Err(Exit::Usage(why).into());
    };
    let run = shoal.find_subcommand("run").ok_or_else(|| anyhow::anyhow!("no such command"))?;
    let flags = flags(job, given.value_source("program").is_some());
    let flags = flags.map_err(|why| Exit::Usage(format!("{name}: {why}")))?;
    let own = flags.stated.into_iter().filter(|(flag, _)| !is_given(run, given, flag));
    let own = own.flat_map(|(flag, value)| std::iter::once(flag.to_owned()).chain(value)).map(OsString::from);
    let mut words = words.into_iter();
    let mut all: Vec<OsString> = words.by_ref().take(2).collect();
    all.extend(own);
    all.extend(words);
    if !flags.program.is_empty() {
        all.push("--".into());
        all.extend(flags.program.into_iter().map(OsString::from));
    }
    Ok((all, flags.notes.into_iter().map(|note| format!("{name}: {note}")).collect()))
}

/// Whether a flag is on the command line or in the environment. Variables of trainers add up.
fn is_given(run: &Command, given: &ArgMatches, flag: &str) -> bool {
    if flag == "--env" {
        return false;
    }
    // One job has one way to say when it is evaluated, and one name.
    let others: &[&str] = match flag {
        "--eval-steps" => &["--eval-epochs"],
        "--eval-epochs" => &["--eval-steps"],
        "--name" => &["--resume"],
        _ => &[],
    };
    std::iter::once(&flag).chain(others).any(|flag| {
        let argument = run.get_arguments().find(|one| one.get_long() == flag.strip_prefix("--"));
        let source = argument.and_then(|one| given.value_source(one.get_id().as_str()));
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    })
}

/// A job as flags of `shoal run`, and the program with its arguments.
#[derive(Debug, Default, PartialEq)]
struct Flags {
    stated: Vec<(&'static str, Option<String>)>,
    program: Vec<String>,
    notes: Vec<String>,
}

fn flags(job: &TrainingJob, has_program: bool) -> Result<Flags, String> {
    let spec = &job.spec;
    let bounds = |min: u32, max: Option<u32>, replicas: Option<u32>| {
        let max = max.unwrap_or(min);
        Some(format!("{}:{max}", replicas.unwrap_or(min).clamp(1, max)))
    };
    let (trainer, pserver) = (&spec.trainer, &spec.pserver);
    let mut stated = vec![
        ("--name", job.metadata.name.clone()),
        ("--trainers", bounds(trainer.min_replicas, trainer.max_replicas, trainer.replicas)),
        ("--pservers", bounds(pserver.min_replicas, pserver.max_replicas, pserver.replicas)),
    ];
    stated.extend(pserver.device.clone().map(|device| ("--device", Some(device))));
    stated.extend(master_flags(spec));
    let template = typed_template(&trainer.template, "spec.trainer.template")?;
    let program = container(&template, TRAINER_CONTAINER).cloned().unwrap_or_default();
    let mut variables: Vec<(String, String)> = Vec::new();
    let left_out =
        "left to clusters: where checkpoints and states are kept, images, resources, volumes, priorities";
    let mut notes = vec![left_out.to_owned()];
    for variable in program.env.unwrap_or_default() {
        match (variable.value, variable.value_from) {
            (_, Some(_)) => {
                let name = &variable.name;
                notes.push(format!(
                    "{name} is the cluster's to give: say --env {name}=VALUE if it is needed here"
                ));
            }
            (value, None) => {
                let value = substituted(&value.unwrap_or_default(), &variables);
                variables.push((variable.name, value));
            }
        }
    }
    let words = program.command.unwrap_or_default().into_iter().chain(program.args.unwrap_or_default());
    let words: Vec<String> = words.map(|word| substituted(&word, &variables)).collect();
    // The run itself sets this one, for each trainer.
    let pace = variables.iter().position(|(name, _)| name == "SHOAL_PACE_MILLIS");
    stated.extend(pace.map(|at| ("--pace-millis", Some(variables.remove(at).1))));
    stated.extend(variables.iter().map(|(name, value)| ("--env", Some(format!("{name}={value}")))));
    if !has_program && words.is_empty() {
        return Err(
            "spec.trainer.template: its container has no command, only an image: give the program after --"
                .to_owned(),
        );
    }
    Ok(Flags { stated, program: if has_program { Vec::new() } else { words }, notes })
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

#[cfg(test)]
mod tests;
