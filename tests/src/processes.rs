//! Real processes for end-to-end tests: the `shoal` binary and the examples, built on demand, run in folders of
//! their own. Knows nothing of the roles' insides: what it learns, it reads from closing lines.

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// The programs under test.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The `shoal` command.
    pub shoal: PathBuf,
    /// The digits example.
    pub digits: PathBuf,
    /// The count example.
    pub count: PathBuf,
    /// Its sparse twin.
    pub count_rows: PathBuf,
    /// The MNIST example.
    pub mnist: PathBuf,
    /// The residual network of the same data.
    pub resnet: PathBuf,
    /// The housing example.
    pub housing: PathBuf,
    /// The text example.
    pub text: PathBuf,
    /// The click-through example.
    pub clicks: PathBuf,
}

/// Builds the programs in this build's own profile (a matter of a second when they are there) and names them.
pub fn programs() -> anyhow::Result<Programs> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    let folder = folder.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
    let example = |name: &str| folder.join("examples").join(name);
    let [digits, count, count_rows] = ["digits", "count", "count_rows"].map(example);
    let [mnist, resnet, housing, text, clicks] =
        ["mnist", "resnet", "housing", "text", "clicks"].map(example);
    let shoal = folder.join("shoal");
    Ok(Programs { shoal, digits, count, count_rows, mnist, resnet, housing, text, clicks })
}

/// Cargo, as a person would call it: without what it tells a test of the test's own package. The build script of `ring`
/// looks at that: with it, all that rests on ring would be built again, and once more by whoever builds next.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
            command.env_remove(name);
        }
    }
    command
}

/// Whose programs and examples are tested, and run by pods.
const PACKAGES: [&str; 6] =
    ["shoal-cli", "shoal-master", "shoal-operator", "shoal-pserver", "shoal-tests", "shoal-trainer-sdk"];

fn build() -> anyhow::Result<PathBuf> {
    // These packages have the features of the whole workspace (tidy holds them to it), so that nothing is built twice.
    // target/PROFILE/deps/this-test or target/PROFILE/this-binary
    let here = std::env::current_exe()?;
    let folder =
        here.ancestors().skip(1).find(|folder| !folder.ends_with("deps")).context("no target folder")?;
    let mut command = cargo();
    command
        .args(["build", "--quiet", "--bins", "--examples"])
        .args(PACKAGES.map(|name| format!("-p={name}")));
    if folder.ends_with("release") {
        command.arg("--release");
    }
    let target = folder.parent().context("no target folder")?;
    let built = command
        .env("CARGO_TARGET_DIR", target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "the programs under test do not build");
    Ok(folder.to_owned())
}

/// Writes the digits data set into `folder` and returns the pattern of its training files.
pub fn pack_digits(programs: &Programs, folder: &Path) -> anyhow::Result<String> {
    let packed = Command::new(&programs.digits).arg("--pack").arg(folder).output()?;
    ensure!(packed.status.success(), "digits --pack: {}", String::from_utf8_lossy(&packed.stderr));
    Ok(folder.join("train-*.recordio").to_string_lossy().into_owned())
}

/// One `shoal run`.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The programs under test.
    pub programs: &'a Programs,
    /// Where its files go.
    pub folder: &'a Path,
    /// The training program.
    pub program: &'a Path,
    /// The pattern of its data.
    pub data: &'a str,
    /// `--trainers`.
    pub trainers: &'a str,
    /// `--pservers`.
    pub pservers: u32,
    /// Everything else.
    pub more: Vec<String>,
    /// What the training program is given.
    pub hyper: Vec<String>,
}

impl Job<'_> {
    /// The command line, not started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.programs.shoal);
        // Whoever runs the tests may have settings.
        command.env("SHOAL_CONFIG", "/dev/null");
        command.current_dir(self.folder).args(["run", "--trainers", self.trainers]);
        command.args(["--pservers", &self.pservers.to_string(), "--data", self.data, "-o", "json"]);
        command.args(&self.more).arg("--").arg(self.program).args(&self.hyper);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end and returns the closing object.
    ///
    /// # Errors
    /// An exit code other than 0, with what the command said.
    pub fn run(&self) -> anyhow::Result<Value> {
        closing(&self.command().output()?)
    }
}

/// The closing object of a command that succeeded.
pub fn closing(output: &Output) -> anyhow::Result<Value> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("exit {:?}:\n{err}\n{out}", output.status.code());
    }
    let last = out.lines().last().with_context(|| format!("no closing line; it said:\n{err}"))?;
    serde_json::from_str(last).with_context(|| format!("the closing line is no JSON: {last}"))
}

/// A process of a test's own, killed when it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts it; what it says goes to the end of a file.
    ///
    /// # Errors
    /// A program that cannot be started, a file that cannot be written.
    pub fn start(mut command: Command, log: &Path) -> anyhow::Result<Running> {
        command.stdin(Stdio::null());
        Running::start_piped(command, log)
    }

    /// The same with whatever input the command has.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_piped(mut command: Command, log: &Path) -> anyhow::Result<Running> {
        let log = File::options().append(true).create(true).open(log)?;
        command.stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Running { child })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
    /// `kill -9`.
    ///
    /// # Errors
    /// A process that is gone already.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        ensure!(self.is_running(), "it has ended by itself");
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
    /// `kill -STOP`.
    ///
    /// # Errors
    /// A process that is gone already.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        ensure!(self.is_running(), "it has ended by itself");
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).context("no process")?;
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::STOP)?)
    }
    /// Its input, where that is a pipe.
    ///
    /// # Errors
    /// It is not, or was taken before.
    pub fn stdin(&mut self) -> anyhow::Result<ChildStdin> {
        self.child.stdin.take().context("its input is no pipe")
    }
    /// Waits for its end. Returns its exit code, none for a signal.
    ///
    /// # Errors
    /// It has not ended in time.
    pub async fn end_within(&mut self, patience: Duration) -> anyhow::Result<Option<i32>> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            ensure!(tokio::time::Instant::now() < until, "process {} does not end", self.pid());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Starts a master of a job on the digits data set in `folder`, with these flags. Returns its address as well.
///
/// # Errors
/// Programs that do not build, no free port, a process that cannot be started.
pub fn start_master(folder: &Path, flags: &[&str]) -> anyhow::Result<(Running, String)> {
    let programs = programs()?;
    let data = pack_digits(&programs, &folder.join("data"))?;
    let free = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = free.local_addr()?.to_string();
    drop(free);
    let mut command = Command::new(&programs.shoal);
    command.args(["master", "--listen", &address, "--data", &data]).args(flags);
    command.arg("--store").arg(folder.join("state"));
    Ok((Running::start(command, &folder.join("master.log"))?, address))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
