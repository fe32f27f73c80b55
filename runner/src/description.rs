//! Asks a program, before its job begins, what it says of it (`SHOAL_DESCRIBE`): the program is started once, writes what it has to say
//! into a folder of the run, and ends. A run that goes on is not asked again: what was written then counts.

use super::exit::Exit;
use super::folder::RunFolder;
use super::plan::unsaid;
use super::process::Process;
use super::start::unstarted;
use anyhow::{Context, anyhow, bail};
use shoal_job::Role;
use shoal_job::ends::{self, End, Life, Part};
use shoal_job::numbered;
use shoal_job::spec::{Spec, is_flag};
use shoal_runtime::wire::description::{BYTES_MAX, FILE, INITIAL, ProgramDescription, VARIABLE};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// What its log is called. What it prints is not a trainer's.
const NAME: &str = "describe";
/// A program that takes longer is told of: a person wonders what is waited for.
const SLOW: Duration = Duration::from_secs(3);

/// A program that is to be asked.
pub(crate) struct Asked<'a> {
    /// The program and its arguments.
    pub(crate) program: &'a [OsString],
    /// What it has in its environment beside this one's.
    pub(crate) environment: &'a [(String, String)],
    /// How long it may take.
    pub(crate) patience: Duration,
}

/// How a program has answered.
enum Answer {
    Ended(End),
    /// It has turned to the master: it does not know the variable, and has nothing to say.
    Trains,
}

impl Asked<'_> {
    /// Asks it, and adds what it says to `job` where nobody has said otherwise.
    ///
    /// # Errors
    /// It failed, did not end in time, or has written what is no description.
    pub(crate) async fn complete(&self, job: &mut Spec, folder: &RunFolder) -> anyhow::Result<()> {
        let place = folder.described();
        if place.exists() {
            std::fs::remove_dir_all(&place).with_context(|| format!("cannot empty {}", place.display()))?;
        }
        std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        // From the root: a program may go elsewhere before it looks.
        let place = std::path::absolute(&place)?;
        self.ask(job.seed, &place, &folder.logs()).await?;
        complete(job, &place)
    }

    async fn ask(&self, seed: Option<u64>, place: &Path, logs: &Path) -> anyhow::Result<()> {
        // Nobody answers there; who calls wants to train.
        let master = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
        let always =
            [(VARIABLE, place.display().to_string()), ("SHOAL_MASTER", master.local_addr()?.to_string())];
        // A seed that nobody has stated is the program's own to state.
        let seed = seed.map(|seed| ("SHOAL_SEED", seed.to_string()));
        let own = self.environment.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let environment: Vec<(&str, String)> = unsaid().chain(own).chain(always).chain(seed).collect();
        let process = Process::start(Role::Trainer, NAME, self.program, &environment, logs);
        let mut process = process.map_err(unstarted)?;
        let answer = tokio::select! {
            biased;
            ended = ended(&mut process, self.patience) => Answer::Ended(ended?),
            _ = master.accept() => Answer::Trains,
        };
        let is_log_kept = match answer {
            Answer::Ended(End::Exited(0)) => !process.words().is_empty(),
            Answer::Ended(end) => return Err(failed(&process, end)),
            Answer::Trains => {
                process.kill().await;
                false
            }
        };
        if !is_log_kept {
            let _ = std::fs::remove_file(&process.log);
        }
        Ok(())
    }
}

/// Waits for the end of a process that has been asked.
async fn ended(process: &mut Process, patience: Duration) -> anyhow::Result<End> {
    let (begun, mut is_told) = (Instant::now(), false);
    loop {
        if let Some(end) = process.ended()? {
            return Ok(end);
        }
        let waited = begun.elapsed();
        if waited >= SLOW && !std::mem::replace(&mut is_told, true) {
            note!(
                "waiting for the program to say how many records it has and what its model begins as ({VARIABLE}); its log is {}",
                process.log.display()
            );
        }
        if waited >= patience {
            bail!(
                "the program has not ended {} s after it was asked what its job begins with ({VARIABLE}): give it more time by \
                 --describe-seconds, or with 0 do not ask it; see {}",
                patience.as_secs(),
                process.log.display()
            );
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn failed(process: &Process, end: End) -> anyhow::Error {
    let life = Life {
        role: Role::Trainer,
        part: Part::NeverJoined,
        is_first: true,
        is_alone: true,
        was_told: false,
        was_killed: process.was_killed(),
        has_left: false,
    };
    let words = process.last_words();
    let what = ends::sentence("the program", end, life, &words);
    let what = format!("{what}, when it was asked what its job begins with ({VARIABLE})");
    match words.trim() {
        "" => anyhow!("{what}; it has said nothing"),
        words => anyhow!("{what}; its last words (all of them in {}):\n{words}", process.log.display()),
    }
}

/// Adds what a program has written in `place` to `job`, where nobody has said otherwise.
///
/// # Errors
/// It is no description.
pub(crate) fn complete(job: &mut Spec, place: &Path) -> anyhow::Result<()> {
    let file = place.join(FILE);
    let initial = place.join(INITIAL);
    let Some(bytes) = read(&file)? else {
        if initial.exists() {
            bail!("{} is there and {FILE} is not: a program writes both", initial.display());
        }
        return Ok(());
    };
    let said = ProgramDescription::parse(&bytes).map_err(|why| anyhow!("{}: {why}", file.display()))?;
    *job = job.over(&asked(&said.asks).map_err(|why| anyhow!("{}: \"asks\": {why}", file.display()))?);
    let trains = job.epochs() > 0 || job.predict.is_some();
    check_number("--data", &job.data, said.records)?;
    check_number("--eval-data", &job.eval_data, said.eval_records)?;
    if let Some(records) = said.records.filter(|_| trains && job.data.is_empty()) {
        job.data = vec![format!("records:{records}")];
    }
    if let Some(records) = said.eval_records.filter(|_| job.predict.is_none() && job.eval_data.is_empty()) {
        job.eval_data = vec![format!("records:{records}")];
    }
    if job.warm_start.is_none() && initial.exists() {
        let path = initial.to_str().with_context(|| format!("{} is not UTF-8", initial.display()))?;
        job.warm_start = Some(path.to_owned());
        // That is what it begins as.
        job.untrained = false;
    }
    Ok(())
}

/// Holds the number of records that somebody has stated against what the program has: fewer may be meant, more are not there.
fn check_number(flag: &str, stated: &[String], has: Option<u64>) -> anyhow::Result<()> {
    let ([only], Some(has)) = (stated, has) else { return Ok(()) };
    // What is no number is refused where it is read.
    let Some(number) = numbered::is_numbered(only).then(|| numbered::records(only).ok()).flatten() else {
        return Ok(());
    };
    if number > has {
        let why = format!(
            "{flag} {only}: the program has {has} records: name at most so many, or leave {flag} out"
        );
        return Err(Exit::Usage(why).into());
    }
    if number < has {
        note!("warning: {flag} {only}, and the program has {has} records: the others are not read");
    }
    Ok(())
}

/// The settings that a program asks for where it is started alone; what else it says there (numbers of trainers, folders) is of that start.
fn asked(asks: &BTreeMap<String, Vec<String>>) -> Result<Spec, String> {
    let settings = asks.iter().filter(|(flag, _)| is_flag(flag));
    Spec::from_words(settings.flat_map(|(flag, values)| match &values[..] {
        [] => vec![format!("--{flag}")],
        values => values.iter().map(|value| format!("--{flag}={value}")).collect(),
    }))
}

/// None if it is not there.
fn read(file: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let opened = match std::fs::File::open(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| file.display().to_string())?,
    };
    let mut bytes = Vec::new();
    opened.take(BYTES_MAX + 1).read_to_end(&mut bytes).with_context(|| file.display().to_string())?;
    if bytes.len() as u64 > BYTES_MAX {
        bail!("{}: it has more than {BYTES_MAX} bytes", file.display());
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_records_that_somebody_states_is_held_against_what_the_program_has() {
        let check = |stated: &[&str], has| {
            let stated: Vec<String> = stated.iter().map(|one| (*one).to_owned()).collect();
            check_number("--data", &stated, has).map_err(|why| why.to_string())
        };
        let more = check(&["records:1438"], Some(1437)).unwrap_err();
        assert_eq!(
            more,
            "--data records:1438: the program has 1437 records: name at most so many, or leave --data out"
        );
        // Fewer are warned of; files and what the program does not say are nobody's to compare.
        for (stated, has) in [
            (&["records:1000"][..], Some(1437)),
            (&["records:1437"], Some(1437)),
            (&["records:9"], None),
            (&["a.recordio"], Some(3)),
            (&["records:9", "records:1"], Some(3)),
            (&[], Some(3)),
        ] {
            assert_eq!(check(stated, has), Ok(()), "{stated:?} {has:?}");
        }
    }
}
