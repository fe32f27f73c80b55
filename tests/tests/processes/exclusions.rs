//! With real processes: what becomes of a record or a chunk that some trainers cannot use, while others can. The simulation
//! has more such stories (`directed/exclusions.rs`); here trainers, pservers, signals and files are real.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shoal_master::document::Document;
use shoal_runtime::cluster::{BlockId, Layout};
use shoal_tests::ledgers::document;
use shoal_tests::processes::{Job, Programs, Running, closing, programs};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

pub(crate) const RECORDS: usize = 400;
/// Each process reads the data of the folder that it was started in: so one machine's copy may be damaged.
const DATA: &str = "/proc/self/cwd/data/part.recordio";
pub(crate) const MODES: [&str; 2] = ["sync", "async"];
/// What is luck (who gets which task, how fast a signal is) is tried so often.
const ATTEMPTS: usize = 6;
/// The pause of the first trainer in the last story, in which a pserver is stopped.
const FIRST_PACE: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(60);

/// One job's folder, and the script that its trainers run.
pub(crate) struct World {
    programs: Programs,
    folder: TempDir,
    script: PathBuf,
}

impl World {
    /// `trainer_0` is what the first trainer does in place of becoming `$COUNT`, `others` what the others do.
    pub(crate) fn new(trainer_0: &str, others: &str) -> World {
        let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let lines: String = (0..RECORDS).map(|line| format!("line {line}\n")).collect();
        std::fs::write(data.join("lines"), lines).unwrap();
        let pack =
            ["recordio", "pack", "lines", "lines", "--output", "part.recordio", "--chunk-bytes", "1000"];
        let packed = Command::new(&programs.shoal).current_dir(&data).args(pack).output().unwrap();
        assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        let script = folder.path().join("program");
        let text = format!(
            "#!/bin/sh\ntest -z \"$SHOAL_DESCRIBE\" || exit 0\ncase $SHOAL_TRAINER_NAME in\ntrainer-0) {trainer_0} ;;\n*) {others} ;;\nesac\nexec \"$COUNT\"\n"
        );
        std::fs::write(&script, text).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(&script).status().unwrap().success());
        World { programs, folder, script }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, trainers: &str, pservers: u32, more: &[&str]) -> Command {
        let more = more.iter().chain(&["--folder", "run"]).map(|word| (*word).to_owned()).collect();
        let (programs, folder, program) = (&self.programs, self.folder.path(), self.script.as_path());
        let job = Job { programs, folder, program, data: DATA, trainers, pservers, more, hyper: Vec::new() };
        let mut command = job.command();
        command.env("COUNT", &self.programs.count).env("HERE", folder);
        command.env("PICKY", self.programs.shoal.with_file_name("picky"));
        command
    }

    pub(crate) async fn document(&self) -> Option<Document> {
        let state = self.path("run/state");
        if state.is_dir() { document(&state).await.unwrap() } else { None }
    }

    fn status(&self) -> Value {
        let mut command = Command::new(&self.programs.shoal);
        command.current_dir(self.folder.path()).args(["status", "--run", "run", "-o", "json"]);
        closing(&command.output().unwrap()).unwrap()
    }

    /// What is counted of each record, for each of the oracle's parameters.
    fn counts(&self) -> Vec<Vec<f32>> {
        let bytes = std::fs::read(self.path("run/model.safetensors")).unwrap();
        let model = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let of = |name| {
            let tensor = model.tensor(name).unwrap();
            tensor.data().as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
        };
        ["count.first", "count.second", "count.third"].map(of).into()
    }
}

/// Runs jobs of two trainers, of which the first has some trouble and is the faster one, until it met it.
fn with_one_in_trouble(mode: &str, world: impl Fn() -> World) -> (Document, Value) {
    for _ in 0..ATTEMPTS {
        let world = world();
        let more =
            ["--mode", mode, "--epochs", "3", "--microbatch-records", "10", "--microbatches-per-step", "8"];
        let ended = closing(&world.command("2", 2, &more).output().unwrap()).unwrap();
        let document = in_real_time(world.document()).unwrap();
        if !document.troubles.is_empty() {
            return (document, ended);
        }
        eprintln!("the first trainer had none of it: once more");
    }
    panic!("in {ATTEMPTS} jobs the first trainer had no trouble")
}

/// All is counted, nothing is left out, nothing went back, and it is known who could not do what.
fn assert_all_counted(document: &Document, ended: &Value, what: &str) {
    assert_eq!(
        (&ended["records_counted"], &ended["records_wrong"]),
        (&Value::from(3 * RECORDS), &Value::from(0))
    );
    assert_eq!(
        (&ended["records_excluded"], &ended["rewinds"]),
        (&Value::from(0), &Value::from(0)),
        "{ended}"
    );
    for trouble in &document.troubles {
        assert_eq!(trouble.trainers.iter().collect::<Vec<_>>(), ["trainer-0"], "{trouble:?}");
        assert!(trouble.what.contains(what), "{trouble:?}");
    }
    assert!(document.exclusions.list.is_empty(), "{:?}", document.exclusions);
}

pub(crate) const SLOW: &str = "export SHOAL_PACE_MILLIS=60";

#[test]
fn a_record_that_one_trainer_cannot_use_is_used_by_another() {
    for mode in MODES {
        let (document, ended) = with_one_in_trouble(mode, || World::new("exec \"$PICKY\" 123", SLOW));
        assert_all_counted(&document, &ended, "part.recordio, chunk");
        assert!(
            document.troubles[0].why.contains("record 123 cannot be used here"),
            "{:?}",
            document.troubles
        );
    }
}

#[test]
fn a_chunk_that_is_damaged_on_one_machine_is_read_on_another() {
    let world = || {
        let world = World::new("cd \"$HERE/sick\"", SLOW);
        let mut bytes = std::fs::read(world.path("data/part.recordio")).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::create_dir_all(world.path("sick/data")).unwrap();
        std::fs::write(world.path("sick/data/part.recordio"), bytes).unwrap();
        world
    };
    for mode in MODES {
        let (document, ended) = with_one_in_trouble(mode, world);
        assert_all_counted(&document, &ended, "/data/part.recordio, chunk");
        assert!(document.troubles[0].why.contains("checksum"), "{:?}", document.troubles);
    }
}

/// The first trainer can use all records and has given an update to some blocks; while it still tries to give it to the
/// others it dies, and so does the pserver that did not take it. Nobody after it can use one record of the update.
#[test]
fn a_record_that_has_landed_on_some_blocks_is_left_out_on_every_one_or_where_it_is_lacking() {
    for mode in MODES {
        let told = (0..ATTEMPTS).find_map(|_| in_real_time(landed_and_left_out(mode)));
        let (counts, record, landed) =
            told.unwrap_or_else(|| panic!("no push landed on some blocks only, in all attempts"));
        for (which, counts) in counts.iter().enumerate() {
            for (index, count) in counts.iter().enumerate().filter(|(index, _)| *index as u64 != record) {
                assert_eq!(
                    *count, 5.0,
                    "{mode}: record {index} once in each of two epochs, parameter {which}"
                );
            }
        }
        let of_it: Vec<f32> = counts.iter().map(|counts| counts[record as usize]).collect();
        if mode == "sync" {
            assert_eq!(of_it, [0.0; 3], "on every block, {landed:?} too");
        } else {
            assert!(
                of_it.iter().all(|count| *count == 0.0 || *count == 1.0),
                "in the first epoch at most: {of_it:?}"
            );
            assert!(of_it.contains(&0.0), "some block lacked it: {of_it:?}");
            for which in landed {
                assert_eq!(of_it[which], 1.0, "what was answered is kept: {of_it:?}");
            }
        }
    }
}

/// The counts in the end, the record that was left out, and in which of the oracle's parameters it had landed; nothing
/// where the signals came too late.
async fn landed_and_left_out(mode: &str) -> Option<(Vec<Vec<f32>>, u64, Vec<usize>)> {
    let first = format!("export SHOAL_PACE_MILLIS={}; echo $$ > \"$HERE/pid\"", FIRST_PACE.as_millis());
    let world = World::new(&first, "exec \"$PICKY\" \"$(cat \"$HERE/record\")\"");
    let records = RECORDS.to_string();
    // One microbatch a step, one step an epoch: whatever lands first has the record in it.
    let more =
        ["--mode", mode, "--epochs", "2", "--microbatch-records", &records, "--microbatches-per-step", "1"];
    let more = [&more[..], &["--replicas", "1", "--exclude-max", "1", "--lease-ttl-millis", "4000"]].concat();
    let mut job = Running::start(world.command("1", 3, &more), &world.path("log")).unwrap();

    let level = until("copies", || async {
        let document = world.document().await.filter(|document| !document.blocks.is_empty())?;
        document.blocks.iter().all(|block| block.in_sync().count() == 2).then_some(document)
    });
    let level = level.await;
    let deaf = level.blocks[0].primary;
    let process = pid_of(&world.status(), &level.pservers[&deaf].name);
    signal(process, Signal::STOP);
    if std::fs::metadata(world.path("pid")).unwrap().modified().unwrap().elapsed().unwrap() > FIRST_PACE {
        return None;
    }
    let hears = |block: &&BlockId| level.blocks[block.0 as usize].copy_on(deaf).is_none();
    let lacks = |block: &&BlockId| level.blocks[block.0 as usize].primary == deaf;
    let all: Vec<BlockId> = (0..level.blocks.len() as u32).map(BlockId).collect();
    let (landed, lacking) = (all.iter().filter(hears), all.iter().filter(lacks));
    let (landed, lacking): (Vec<&BlockId>, Vec<&BlockId>) = (landed.collect(), lacking.collect());
    let layout = Layout::new(level.declaration.as_ref().unwrap());
    let (record, which) = record_between(&layout, &landed, &lacking).unwrap();
    std::fs::write(world.path("record"), record.to_string()).unwrap();
    // Their followers have it, so that they have it themselves.
    until("an update", || async {
        (world.status()["entries"].as_u64()? >= landed.len() as u64).then_some(())
    })
    .await;
    let present = world.document().await.unwrap();
    if present.blocks.iter().zip(&level.blocks).any(|(now, then)| now.primary != then.primary) {
        return None;
    }
    signal(std::fs::read_to_string(world.path("pid")).unwrap().trim().parse().unwrap(), Signal::KILL);
    // Not woken: what lies unread in its sockets would land yet.
    signal(process, Signal::KILL);

    let code = job.end_within(PATIENCE).await.unwrap();
    assert_eq!(code, Some(0), "{mode}: {}", std::fs::read_to_string(world.path("log")).unwrap());
    let document = world.document().await.unwrap();
    let [excluded] = &document.exclusions.list[..] else { panic!("{:?}", document.exclusions) };
    assert_eq!((excluded.records.clone(), excluded.from.0), (record..record + 1, 0));
    assert!(
        excluded.why.contains("cannot be used here") && excluded.why.contains("by trainer-1"),
        "{excluded:?}"
    );
    assert!(document.troubles.is_empty(), "{:?}", document.troubles);
    assert_eq!(document.rewinds > 0, mode == "sync", "an asynchronous job does not go back");
    Some((world.counts(), record, which))
}

/// A record that is counted in one of the blocks where it has landed and in one that lacks it; and in which parameters
/// it has landed.
fn record_between(layout: &Layout, landed: &[&BlockId], lacking: &[&BlockId]) -> Option<(u64, Vec<usize>)> {
    let holds = |block: BlockId, parameter: usize, element: u64| {
        let mut pieces = layout.block(block).unwrap().pieces.iter();
        pieces.any(|piece| {
            let elements = piece.first..piece.first + piece.range.len() as u64;
            piece.parameter == parameter && elements.contains(&element)
        })
    };
    (0..RECORDS as u64).find_map(|record| {
        let in_some =
            |which: usize, blocks: &[&BlockId]| blocks.iter().any(|block| holds(**block, which, record));
        let has: Vec<usize> = (0..3).filter(|which| in_some(*which, landed)).collect();
        let is_between = !has.is_empty() && (0..3).any(|which| in_some(which, lacking));
        is_between.then_some((record, has))
    })
}

fn pid_of(status: &Value, pserver: &str) -> i32 {
    let mut pservers = status["pservers"].as_array().unwrap().iter();
    pservers.find(|one| one["name"] == pserver).unwrap()["pid"].as_i64().unwrap() as i32
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn in_real_time<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// What a job of four records tells of, one of which nobody can use.
#[test]
fn who_was_left_out_is_named_wherever_a_run_is_told_of_and_nobody_else_is_blamed() {
    for mode in MODES {
        let (programs, folder) = (programs().unwrap(), tempfile::tempdir().unwrap());
        let shoal = |words: &[&str]| {
            let output =
                Command::new(&programs.shoal).current_dir(folder.path()).args(words).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            said
        };
        std::fs::write(folder.path().join("four"), "1\n2\n3\nfour\n").unwrap();
        shoal(&["recordio", "pack", "lines", "four", "--output", "four.recordio"]);
        let picky = programs.shoal.with_file_name("picky");
        let run = ["run", "--folder", "run", "--data", "four.recordio", "--epochs", "2", "--mode", mode];
        let closing =
            shoal(&[&run[..], &["--exclude-max", "1", "--", picky.to_str().unwrap(), "3"]].concat());
        assert!(closing.contains("6 records") && closing.contains("6/6 records counted"), "{closing}");
        assert!(closing.contains("0 of them wrongly, 1 excluded"), "{closing}");
        assert!(
            closing.contains("four.recordio, chunk 0 at offset 0, record 3 of 4: the step function failed"),
            "{closing}"
        );
        let went_back = "went back once: records were left out";
        assert!(closing.contains(went_back) == (mode == "sync") && !closing.contains("pserver"), "{closing}");
        let result = std::fs::read(folder.path().join("run/result.json")).unwrap();
        let result: Value = serde_json::from_slice(&result).unwrap();
        assert_eq!(
            (&result["records_excluded"], &result["excluded"][0]["records"]),
            (&1.into(), &serde_json::json!([3, 4]))
        );
        assert_eq!(result["rewind_causes"]["records-excluded"].as_u64(), (mode == "sync").then_some(1));
        shoal(&["report", "run"]);
        let page = std::fs::read_to_string(folder.path().join("run/report.html")).unwrap();
        assert!(
            page.contains("Records left out")
                && page.contains("four.recordio, chunk 0 at offset 0, record 3 of 4")
        );
        assert!(
            page.contains("1 excluded") && page.contains("once: records were left out") == (mode == "sync"),
            "{mode}"
        );
    }
}

#[test]
fn a_program_that_can_use_no_record_of_its_data_is_not_told_that_none_fails_alone() {
    let job = shoal_tests::small::SmallJob::of(40).unwrap();
    let housing = job.programs.housing.to_str().unwrap();
    let ended = job.run("run", &["--exclude-max", "40"], &[housing]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.code() == Some(1) && said.contains("each alone, so it is not the records"),
        "{said}"
    );
}
