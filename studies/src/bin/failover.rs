//! How long training stands still when a pserver that has a follower is lost: by `kill -9`, by SIGSTOP, by a cut cable.
//!
//! `cargo run --release -p shoal-studies --bin failover [-- [--times N] [--hangs PART]]` (root on Linux, with `ip` and `unshare`)
//!
//! With `--hangs` a checkpoint is due every two steps, and each call that opens or removes a file with this part in its path takes a
//! minute, in the master and in pservers: `checkpoint-0` for all of a checkpoint, `manifest` for what the master writes of it.
//!
//! Every pserver runs in a network namespace of its own, on a bridge in a namespace that this program makes for itself
//! first; nothing outside of them is touched. Three pservers, one copy beside each primary, a lease TTL of one second.
//! A standstill is the longest time between two steps from the fault on. Exits 0 only if the promised bounds hold.
#![allow(clippy::print_stdout)] // Its table is what it is for.

use anyhow::{Context, bail, ensure};
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::{Masters, Security, TcpDial};
use shoal_runtime::wire::proto::{StatusReply, StatusRequest, master_client::MasterClient};
use shoal_tests::processes::{Programs, Running, pack_digits, programs};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);
const BRIDGE: &str = "10.77.0.1";
const PSERVERS: usize = 3;
const TRAINERS: usize = 3;
/// Set in the namespace that this program has made for itself.
const INSIDE: &str = "SHOAL_FAILOVER_INSIDE";

#[derive(Clone, Copy, Debug)]
enum Loss {
    Killed,
    Stopped,
    Cut,
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut asked = Asked { times: 20, hangs: None };
    for pair in words.chunks(2) {
        match pair {
            [word, times] if word == "--times" => asked.times = times.parse()?,
            [word, part] if word == "--hangs" => asked.hangs = Some(Hangs::at(part)?),
            _ => bail!("failover [--times N] [--hangs PART]"),
        }
    }
    if std::env::var_os(INSIDE).is_none() {
        let here = std::env::current_exe()?;
        let mut command = Command::new("unshare");
        let failed = command.arg("--net").arg(here).args(&words).env(INSIDE, "1").exec();
        return Err(failed).context("unshare cannot be run: this needs root, util-linux and iproute2");
    }
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", "shoal0", "type", "bridge"])?;
    ip(&["addr", "add", &format!("{BRIDGE}/16"), "dev", "shoal0"])?;
    ip(&["link", "set", "shoal0", "up"])?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(&asked))
}

/// What is measured.
struct Asked {
    times: usize,
    hangs: Option<Hangs>,
}

/// Files whose calls hang.
struct Hangs {
    part: String,
    /// The library that makes them.
    library: PathBuf,
    _folder: tempfile::TempDir,
}

impl Hangs {
    fn at(part: &str) -> anyhow::Result<Hangs> {
        let folder = tempfile::tempdir()?;
        let library = folder.path().join("slow.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../master/tests/it/starting/slow.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        ensure!(compiler.status().context("cc cannot be run")?.success(), "the library does not compile");
        Ok(Hangs { part: part.to_owned(), library, _folder: folder })
    }

    fn befall(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("SLOW_CALLS", "open unlink");
        command.env("SLOW_PATH", &self.part).env("SLOW_MILLIS", "60000");
    }
}

fn ip(words: &[&str]) -> anyhow::Result<()> {
    let done = Command::new("ip").args(words).output().context("ip cannot be run: install iproute2")?;
    ensure!(done.status.success(), "ip {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr));
    Ok(())
}

async fn measure(asked: &Asked) -> anyhow::Result<()> {
    let programs = programs()?;
    let mut is_kept = true;
    for (loss, bound) in [(Loss::Killed, TTL), (Loss::Stopped, TTL * 2), (Loss::Cut, TTL * 2)] {
        let folder = tempfile::tempdir()?;
        let data = pack_digits(&programs, &folder.path().join("data"))?;
        let first = loss as usize * 1000;
        let mut cluster = Cluster::start(&programs, folder.path(), &data, first, asked.hangs.as_ref())?;
        let mut random = Random::seeded(1);
        let mut stills = Vec::new();
        for time in 0..asked.times {
            let still = cluster.lose(loss, &mut random).await;
            stills.push(still.with_context(|| format!("{loss:?}, number {}", time + 1))?);
        }
        stills.sort();
        let at = |share: f64| stills[((stills.len() - 1) as f64 * share).round() as usize].as_secs_f64();
        println!(
            "{loss:?}: {} times; standstill p50 {:.3} s, p99 {:.3} s, longest {:.3} s; promised: below {:.0} s",
            asked.times,
            at(0.5),
            at(0.99),
            at(1.0),
            bound.as_secs_f64()
        );
        is_kept &= at(0.99) < bound.as_secs_f64();
    }
    ensure!(is_kept, "a promised bound was missed");
    Ok(())
}

struct Cluster<'a> {
    programs: &'a Programs,
    folder: &'a Path,
    hangs: Option<&'a Hangs>,
    clients: Masters,
    pservers: Vec<Pserver>,
    /// The number of the next pserver, which no cluster before has used.
    next: usize,
    /// The master, then trainers.
    _others: Vec<Running>,
}

struct Pserver {
    name: String,
    /// The bridge's end of its cable.
    cable: String,
    process: Running,
    /// Keeps the namespace when its process is killed, as a pod keeps its own: the dead one's connections are reset.
    _namespace: File,
}

impl<'a> Cluster<'a> {
    fn start(
        programs: &'a Programs,
        folder: &'a Path,
        data: &str,
        first: usize,
        hangs: Option<&'a Hangs>,
    ) -> anyhow::Result<Cluster<'a>> {
        let address = format!("{BRIDGE}:7400");
        let mut master = Command::new(&programs.shoal);
        master.args(["master", "--plaintext", "--listen", &address, "--data", data, "--epochs", "12"]);
        master.args(["--replicas", "1"]);
        // Many short steps.
        master.args([
            "--microbatch-records",
            "1",
            "--microbatches-per-step",
            "2",
            "--lease-ttl-millis",
            "1000",
        ]);
        master.args(["--pservers", &PSERVERS.to_string(), "--checkpoint-seconds", "0"]);
        if let Some(hangs) = hangs {
            master.args(["--checkpoint-steps", "2"]);
            hangs.befall(&mut master);
        }
        master.arg("--store").arg(folder.join("state"));
        let mut others = vec![Running::start(master, &folder.join("master.log"))?];
        for at in 0..TRAINERS {
            let mut trainer = Command::new(&programs.digits);
            trainer.env("SHOAL_MASTER", &address).env("SHOAL_TRAINER_NAME", format!("trainer-{at}"));
            trainer.env("SHOAL_PACE_MILLIS", "40").env("SHOAL_PLAINTEXT", "true");
            others.push(Running::start(trainer, &folder.join(format!("trainer-{at}.log")))?);
        }
        let dial = TcpDial { security: Security::Plaintext, ..TcpDial::default() };
        let clients = Masters::new(&address, &dial).map_err(anyhow::Error::msg)?;
        let (pservers, next) = (Vec::new(), first);
        let mut cluster = Cluster { programs, folder, hangs, clients, pservers, next, _others: others };
        (0..PSERVERS).try_for_each(|_| cluster.start_pserver())?;
        Ok(cluster)
    }

    /// A pserver in a namespace of its own, which goes with it.
    fn start_pserver(&mut self) -> anyhow::Result<()> {
        let number = self.next;
        self.next += 1;
        let (name, cable) = (format!("pserver-{number}"), format!("shoal-{number}"));
        let address = format!("10.77.{}.{}", number / 200, number % 200 + 10);
        let inside = format!(
            "read _ && ip link set lo up && ip addr add {address}/16 dev eth0 && ip link set eth0 up && \
             ip addr show eth0 >&2 && exec \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", &inside, "sh"]).arg(&self.programs.shoal);
        command.args(["pserver", "--plaintext", "--master", &format!("{BRIDGE}:7400"), "--name", &name]);
        command.args(["--listen", &format!("{address}:7500")]);
        command.stdin(Stdio::piped());
        self.hangs.iter().for_each(|hangs| hangs.befall(&mut command));
        let mut process = Running::start_piped(command, &self.folder.join(format!("{name}.log")))?;
        let pid = process.pid().to_string();
        // The namespace is there once unshare has become the shell.
        std::fs::read_link(format!("/proc/{pid}/ns/net"))?;
        let until = std::iter::repeat_n(Duration::from_millis(5), 400);
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        for pause in until {
            if std::fs::read_link(format!("/proc/{pid}/ns/net"))? != ours {
                break;
            }
            #[allow(clippy::disallowed_methods, reason = "a script that waits for a process")]
            std::thread::sleep(pause);
        }
        ip(&["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        ip(&["link", "set", &cable, "master", "shoal0", "up"])?;
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        process.stdin()?.write_all(b"\n")?;
        self.pservers.push(Pserver { name, cable, process, _namespace: namespace });
        Ok(())
    }

    async fn status(&self) -> anyhow::Result<StatusReply> {
        let ask = |mut client: MasterClient<_>| async move {
            client.status(StatusRequest { job: String::from("job"), ..Default::default() }).await
        };
        Ok(self.clients.call(Duration::from_secs(1), ask).await?)
    }

    /// Waits until all blocks have their copies on all pservers.
    async fn settled(&self) -> anyhow::Result<StatusReply> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Ok(status) = self.status().await {
                ensure!(status.phase != "done" && status.phase != "failed", "the job is {}", status.phase);
                let live: Vec<_> = status.pservers.iter().filter(|pserver| !pserver.lost).collect();
                let blocks: u64 = live.iter().map(|pserver| u64::from(pserver.blocks)).sum();
                let is_full = blocks > 0 && status.copies_filling == 0 && status.copies_in_sync == blocks;
                let is_spread = live.len() == PSERVERS && live.iter().all(|pserver| pserver.blocks > 0);
                if is_full && is_spread && status.step > 0 {
                    return Ok(status);
                }
            }
            ensure!(Instant::now() < until, "not settled within {PATIENCE:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Loses a pserver, waits until training goes on, and starts another. Returns the longest time between two steps.
    async fn lose(&mut self, loss: Loss, random: &mut Random) -> anyhow::Result<Duration> {
        let before = self.settled().await?;
        let mut lost = self.pservers.swap_remove(random.below(PSERVERS as u64) as usize);
        match loss {
            Loss::Killed => lost.process.kill()?,
            Loss::Stopped => lost.process.stop()?,
            Loss::Cut => ip(&["link", "set", &lost.cable, "down"])?,
        }
        let longest = self.longest_standstill(before.step).await?;
        if lost.process.is_running() {
            lost.process.kill()?;
        }
        let rewinds = self.status().await?.rewind;
        ensure!(rewinds == before.rewind, "the job went back although {} had followers", lost.name);
        self.start_pserver()?;
        Ok(longest)
    }

    /// Watches until three TTLs have passed and steps are made again.
    async fn longest_standstill(&self, step: u64) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let (mut longest, mut at, mut since) = (Duration::ZERO, step, began);
        loop {
            let now = self.status().await?.step;
            let elapsed = since.elapsed();
            if now > at {
                (longest, at, since) = (longest.max(elapsed), now, Instant::now());
                if began.elapsed() > TTL * 3 {
                    return Ok(longest);
                }
            }
            ensure!(elapsed < PATIENCE, "no step for {PATIENCE:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }
}
