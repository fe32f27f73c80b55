//! What the containers of a kubelet live in: namespaces of processes, mounts and networks, all of them held by one process
//! that ends when its standard input does. Whatever becomes of the kubelet, the kernel then ends and removes what is in them; of
//! control groups, which outlive processes, the next kubelet removes those whose owner is gone.

use super::addresses::Addresses;
use super::control_groups::ControlGroups;
use super::kubelet::locked;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Blocking, Stdio};
use std::sync::Mutex;
use tokio::process::Command;

/// Says which process holds the namespaces, in the eyes of who started it, and holds them.
const HOLD: &str = r#"set -e
read -r pid _ </proc/self/stat
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1/networks" "$1/containers"
ip link set lo up
ip link add pods type bridge
ip link set pods up
echo "$pid"
exec cat >/dev/null"#;

/// The end of a cable on this machine, which the bridge has the other end of.
const PLUG: &str = r#"set -e
ip link del "$1" 2>/dev/null || true
ip link add "$1" type veth peer name machine netns "$2"
ip addr add "$3" dev "$1"
ip link set "$1" up
nsenter --target "$2" --net ip link set machine master pods up"#;

/// A network of its own for a pod: a file to join it by, its number on the bridge, its address.
const JOIN: &str = r#"set -e
touch "$1"
unshare --net="$1" true
ip link add "pod$2" type veth peer name eth0 netns "$1"
ip link set "pod$2" master pods up
nsenter --net="$1" sh -ec 'ip addr add "$0" dev eth0; ip link set eth0 up; ip link set lo up' "$3""#;

/// Where containers are.
pub(super) struct Machine {
    pub(super) groups: ControlGroups,
    /// A folder in memory, which nobody outside sees into.
    pub(super) folder: PathBuf,
    /// The process that holds it, as it is called outside.
    pid: String,
    cable: String,
    prefix: String,
    // It reads from here: closed, it ends. None once it has been ended.
    holder: Mutex<Option<Child>>,
}

impl Machine {
    /// Makes one within `folder`, whose pods have these addresses. It takes some 0.1 s, for which it keeps its thread.
    ///
    /// # Errors
    /// A tool is missing, or this is not root, with what was said.
    pub(super) fn start(folder: &Path, addresses: &Addresses) -> anyhow::Result<Machine> {
        Blocking::new("runc").arg("--version").output().context("runc is missing: apt-get install runc")?;
        let folder = folder.join("machine");
        std::fs::create_dir(&folder)?;
        let mut holder = Blocking::new("unshare");
        holder.args(["--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child"]);
        holder.args(["sh", "-c", HOLD, "machine"]).arg(&folder);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("unshare")?;
        let mut pid = String::new();
        BufReader::new(holder.stdout.take().context("a pipe is there")?).read_line(&mut pid)?;
        let gateway = addresses.gateway();
        let (_, prefix) = gateway.split_once('/').context("a network has a prefix")?;
        let machine = Machine {
            groups: ControlGroups::of_kubelet(addresses.network()),
            folder,
            pid: pid.trim().to_owned(),
            cable: format!("shoal{}", addresses.network()),
            prefix: prefix.to_owned(),
            holder: Mutex::new(Some(holder)),
        };
        ensure!(
            !machine.pid.is_empty(),
            "no namespaces for containers: that takes root, unshare, mount and ip"
        );
        let mut plug = Blocking::new("sh");
        plug.args(["-c", PLUG, "plug", &machine.cable, &machine.pid, &gateway]).stdin(Stdio::null());
        let output = plug.output()?;
        ensure!(output.status.success(), "the bridge of containers: {}", said(&output.stderr));
        Ok(machine)
    }

    /// Ends all that runs in it, and removes it.
    pub(super) fn end(&self) {
        let Some(mut holder) = locked(&self.holder).take() else { return };
        drop(holder.stdin.take());
        // Its end of the cable would go only when the last of it is gone.
        let _ = Blocking::new("ip").args(["link", "del", &self.cable]).stderr(Stdio::null()).status();
        // The first process of a machine takes all others with it.
        let _ = Blocking::new("kill").args(["-KILL", &self.pid]).stderr(Stdio::null()).status();
        let _ = holder.wait();
        self.groups.remove();
    }

    /// A command within it.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid, "--mount", "--net", "--pid", "--", program])
            .stdin(Stdio::null());
        command
    }

    /// A network of its own for a pod, by a file, with that address.
    pub(super) async fn join(&self, pod: &str, ip: &str) -> anyhow::Result<PathBuf> {
        let network = self.network(pod);
        // The last two bytes are the pod's number among those of this network, in no more letters than an interface may have.
        let number: String = ip.split('.').skip(2).collect::<Vec<_>>().join("-");
        let mut join = self.command("sh");
        join.args(["-c", JOIN, "join"]).arg(&network).args([&number, &format!("{ip}/{}", self.prefix)]);
        ran(join).await.with_context(|| format!("the network of pod {pod}"))?;
        Ok(network)
    }

    /// Removes it again, with the cable that led there.
    pub(super) async fn leave(&self, pod: &str) -> anyhow::Result<()> {
        let mut leave = self.command("sh");
        leave.args(["-c", r#"umount "$1" && rm "$1""#, "leave"]).arg(self.network(pod));
        ran(leave).await
    }

    fn network(&self, pod: &str) -> PathBuf {
        self.folder.join("networks").join(pod)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a command to its end.
///
/// # Errors
/// It failed; the message has what it said.
async fn ran(mut command: Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().await?;
    ensure!(output.status.success(), "{}", said(&output.stderr));
    Ok(())
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::addresses::Range;
    use super::*;
    use std::net::TcpStream;
    use std::time::Duration;

    fn is_missing() -> bool {
        if rustix::process::geteuid().is_root() {
            return false;
        }
        let why = "namespaces and control groups need root";
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{why}");
        eprintln!("nothing was tested: {why}");
        true
    }

    fn interfaces() -> String {
        String::from_utf8(Blocking::new("ip").args(["-br", "link"]).output().unwrap().stdout).unwrap()
    }

    fn is_refused(ip: &str) -> bool {
        let tried = TcpStream::connect_timeout(&format!("{ip}:9").parse().unwrap(), Duration::from_secs(5));
        tried.unwrap_err().kind() == std::io::ErrorKind::ConnectionRefused
    }

    #[tokio::test]
    async fn pods_have_addresses_that_this_machine_reaches_and_all_of_it_goes_with_who_holds_it() {
        if is_missing() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut addresses = Addresses::claim(Range::Bridge).unwrap();
        let cable = format!("shoal{}", addresses.network());
        let machine = Machine::start(folder.path(), &addresses).unwrap();
        let [one, other] = [addresses.next(), addresses.next()];
        machine.join("one", &one).await.unwrap();
        machine.join("other", &other).await.unwrap();
        // A host that is there refuses, where nobody listens; one that is not is silent.
        assert!(is_refused(&one) && is_refused(&other));
        assert!(interfaces().contains(&format!("{cable}@")), "{}", interfaces());
        machine.leave("one").await.unwrap();

        // As when the kubelet is killed: nobody is there to tidy up.
        drop(locked(&machine.holder).as_mut().unwrap().stdin.take());
        let is_gone =
            || !Path::new(&format!("/proc/{}", machine.pid)).exists() && !interfaces().contains(&cable);
        for _ in 0..100 {
            let holder = locked(&machine.holder).as_mut().unwrap().try_wait().unwrap();
            if holder.is_some() && is_gone() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(is_gone(), "{}", interfaces());
        assert_eq!(std::fs::read_dir(folder.path().join("machine")).unwrap().count(), 0);
    }

    #[test]
    fn control_groups_of_a_kubelet_that_was_killed_are_removed_by_the_next_and_its_own_when_it_ends() {
        if is_missing() {
            return;
        }
        let mut dead = Blocking::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let memory = Path::new("/sys/fs/cgroup/memory");
        let root = if memory.is_dir() { memory } else { Path::new("/sys/fs/cgroup") };
        let left = root.join(format!("shoal-kubelet-{}-64", dead.id()));
        std::fs::create_dir_all(left.join("container")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let addresses = Addresses::claim(Range::Bridge).unwrap();
        let machine = Machine::start(folder.path(), &addresses).unwrap();
        assert!(!left.exists());
        let own = root.join(machine.groups.of_container("container").trim_start_matches('/'));
        std::fs::create_dir_all(&own).unwrap();
        drop(machine);
        assert!(!own.exists() && !own.parent().unwrap().exists());
    }
}
