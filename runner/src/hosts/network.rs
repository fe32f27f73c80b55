//! A network of the run's own: each process is a host in a namespace of its own, on a bridge in the namespace that this
//! command made for itself. What vanishes, vanishes at its sender and in silence: it is sent to a hardware address that
//! nobody has.

use super::tools::{call, said_to};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A slow link, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// So much gets through, in kbit/s.
    pub kilobits_per_second: u32,
    /// What waits longer is dropped.
    pub queue_millis: u32,
}

const BRIDGE: &str = "shoal0";
const BRIDGE_ADDRESS: &str = "10.77.0.1/16";
const NOBODY: &str = "02:00:00:00:00:99";
/// Of addresses that end in 10 to 209.
const HOSTS_PER_BYTE: u32 = 200;

/// The hosts of a run, until it is dropped.
#[derive(Debug)]
pub struct Network {
    /// A file for each namespace.
    folder: PathBuf,
    hosts: BTreeMap<String, Host>,
    next: u32,
    /// How many partitions there are from one host to another.
    partitions: BTreeMap<(String, String), u32>,
}

/// A host: a namespace, a cable, an address. It outlives its process, as a pod outlives its container.
#[derive(Clone, Debug)]
struct Host {
    namespace: PathBuf,
    /// The bridge's end.
    cable: String,
    address: String,
}

impl Network {
    /// To be called in a network and a mount namespace of the run's own.
    pub fn new(folder: &Path) -> anyhow::Result<Network> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let batch = format!(
            "link add {BRIDGE} type bridge\naddr add {BRIDGE_ADDRESS} dev {BRIDGE}\nlink set {BRIDGE} up\n"
        );
        said_to("ip", &["-batch", "-"], &batch)?;
        Ok(Network {
            folder: folder.to_owned(),
            hosts: BTreeMap::new(),
            next: 0,
            partitions: BTreeMap::new(),
        })
    }

    /// The address of the host of that name, and the beginning of a command line that runs there. Makes it, if it is new.
    pub fn host(&mut self, name: &str) -> anyhow::Result<(String, Vec<OsString>)> {
        if !self.hosts.contains_key(name) {
            let host = self.connect(name).with_context(|| format!("{name} has no network"))?;
            self.hosts.insert(name.to_owned(), host);
        }
        let host = &self.hosts[name];
        Ok((host.address.clone(), vec!["nsenter".into(), namespace_flag(host)]))
    }

    fn connect(&mut self, name: &str) -> anyhow::Result<Host> {
        let number = self.next;
        ensure!(number < 255 * HOSTS_PER_BYTE, "no address is left in {BRIDGE_ADDRESS}");
        self.next += 1;
        let host = Host {
            namespace: std::path::absolute(self.folder.join(name))?,
            cable: format!("shoal-{number}"),
            address: format!("10.77.{}.{}", number / HOSTS_PER_BYTE, number % HOSTS_PER_BYTE + 10),
        };
        std::fs::write(&host.namespace, "")?;
        call("unshare", &[namespace_flag(&host), "true".into()])?;
        let veth = ["link", "add", &host.cable, "type", "veth", "peer", "name", "eth0", "netns"];
        let veth: Vec<_> = veth.iter().map(AsRef::as_ref).chain([host.namespace.as_os_str()]).collect();
        call("ip", &veth)?;
        call("ip", &["link", "set", &host.cable, "master", BRIDGE, "up"])?;
        let address = &host.address;
        host.say("ip", &format!("link set lo up\naddr add {address}/16 dev eth0\nlink set eth0 up\n"))?;
        Ok(host)
    }

    /// The process of that name has ended, and will not come back.
    pub fn forget(&mut self, name: &str) {
        if let Some(host) = self.hosts.remove(name) {
            // What is left goes with this command's own namespaces. A namespace takes its time to go, and its cable's name
            // may be wanted again.
            let _ = call("ip", &["link", "del", &host.cable]);
            let _ = call("umount", &["--lazy".as_ref(), host.namespace.as_os_str()]);
            let _ = std::fs::remove_file(&host.namespace);
        }
        self.partitions.retain(|(from, to), _| from != name && to != name);
    }

    /// From now on, nothing gets from the first to the second of each pair. Those that are not hosts are passed over.
    pub fn partition(&mut self, pairs: &[(String, String)]) -> anyhow::Result<()> {
        for pair in pairs {
            let count = self.partitions.entry(pair.clone()).or_default();
            *count += 1;
            if *count == 1
                && let (Some(from), Some(to)) = (self.hosts.get(&pair.0), self.hosts.get(&pair.1))
            {
                let to = &to.address;
                from.say("ip", &format!("neigh replace {to} lladdr {NOBODY} dev eth0 nud permanent\n"))?;
            }
        }
        Ok(())
    }

    /// One partition between the first and the second of each pair less.
    pub fn heal(&mut self, pairs: &[(String, String)]) -> anyhow::Result<()> {
        for pair in pairs {
            // A host that is gone has taken its partitions with it.
            let Some(count) = self.partitions.get_mut(pair) else { continue };
            *count -= 1;
            if *count > 0 {
                continue;
            }
            self.partitions.remove(pair);
            if let (Some(from), Some(to)) = (self.hosts.get(&pair.0), self.hosts.get(&pair.1)) {
                from.say("ip", &format!("neigh del {} dev eth0\n", to.address))?;
            }
        }
        Ok(())
    }

    /// Makes a host's link slow in both directions. Returns the means: `netem` where the kernel has it, else `tbf`.
    pub fn throttle(&self, name: &str, link: LinkLimits) -> anyhow::Result<Option<&'static str>> {
        let Some(host) = self.hosts.get(name) else { return Ok(None) };
        let LinkLimits { kilobits_per_second, queue_millis } = link;
        let delay = queue_millis / 4;
        let netem = format!("netem delay {delay}ms {delay}ms loss 5% rate {kilobits_per_second}kbit");
        if host.shape(&netem).is_ok() {
            return Ok(Some("netem"));
        }
        host.shape(&format!("tbf rate {kilobits_per_second}kbit burst 2kb latency {queue_millis}ms"))?;
        Ok(Some("tbf"))
    }

    /// Makes it as fast as it was.
    pub fn unthrottle(&self, name: &str) -> anyhow::Result<()> {
        let Some(host) = self.hosts.get(name) else { return Ok(()) };
        said_to("tc", &["-batch", "-"], &format!("qdisc del dev {} root\n", host.cable))?;
        host.say("tc", "qdisc del dev eth0 root\n")
    }
}

impl Host {
    /// Has a batch of commands carried out there.
    fn say(&self, program: &str, batch: &str) -> anyhow::Result<()> {
        said_to("nsenter", &[namespace_flag(self), program.into(), "-batch".into(), "-".into()], batch)
    }

    /// One queueing discipline for both ends of the cable.
    fn shape(&self, discipline: &str) -> anyhow::Result<()> {
        let batch = |device: &str| format!("qdisc replace dev {device} root {discipline}\n");
        said_to("tc", &["-batch", "-"], &batch(&self.cable))?;
        self.say("tc", &batch("eth0"))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        names.iter().for_each(|name| self.forget(name));
        // Another job of this command makes its own.
        let _ = call("ip", &["link", "del", BRIDGE]);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn namespace_flag(host: &Host) -> OsString {
    let mut flag = OsString::from("--net=");
    flag.push(&host.namespace);
    flag
}
