//! `shoal doctor`: whether jobs run on this machine, and what to do where not. `probe` looks, `judge` and `outcome` are pure, `timed` sees
//! that all of it ends. It changes nothing, and leaves nothing behind.

pub(crate) mod judge;
pub(crate) mod outcome;
mod probe;
mod timed;

#[cfg(feature = "cluster")]
use crate::cluster::ClusterChoice;
use crate::config;
use judge::{build, disk, limits, network, trust};
use outcome::{Checked, Level, Outcome};
use shoal_runtime::host::clock::wall_seconds;
use std::path::PathBuf;
use std::time::Duration;
use timed::Check;

/// Where a master listens that is told no other port.
const MASTER_PORT: u16 = 7400;
/// What the kernel answers at once, or never.
const SHORT: Duration = Duration::from_secs(5);
/// What waits for others: disks, name servers, drivers, interpreters.
const LONG: Duration = Duration::from_secs(10);
/// A cluster is asked a dozen questions.
#[cfg(feature = "cluster")]
const CLUSTER: Duration = Duration::from_secs(20);

/// What is to be checked.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) folder: PathBuf,
    pub(crate) members: u64,
    /// Folders with certificates.
    pub(crate) certificates: Vec<PathBuf>,
    /// The command line, by which files of settings are judged, and the file that was named.
    pub(crate) line: clap::Command,
    pub(crate) config: Option<PathBuf>,
    /// Which cluster, if there is one.
    #[cfg(feature = "cluster")]
    pub(crate) cluster: ClusterChoice,
    /// Whether there has to be one.
    #[cfg(feature = "cluster")]
    pub(crate) insists_on_cluster: bool,
}

/// Checks everything, one after another: a disk that is measured is not to be disturbed by the rest.
pub(crate) fn examine(wanted: &Wanted) -> Vec<Checked> {
    let checks = [machine(wanted), places(wanted), others(wanted)];
    checks.into_iter().flatten().flat_map(timed::run).collect()
}

fn check(
    name: &'static str,
    time: Duration,
    hung: &'static str,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Check {
    Check { name, time, hung, worst: Level::Failed, work: Box::new(move || vec![(name, work())]) }
}

/// A check without which jobs run all the same.
fn minor(check: Check) -> Check {
    Check { worst: Level::Warning, ..check }
}

fn machine(wanted: &Wanted) -> Vec<Check> {
    let Wanted { members, .. } = *wanted;
    let (line, config) = (wanted.line.clone(), wanted.config.clone());
    let hung = "the system itself does not answer: see dmesg";
    vec![
        check("build", SHORT, hung, || build::judge(&probe::machine::build())),
        check("settings", SHORT, "the file's file system, or the pipe, does not answer", move || {
            let files = config::files(&line, config.as_deref());
            let files = files.map(|files| files.iter().map(|one| one.path.display().to_string()).collect());
            let files: Result<Vec<String>, String> = files.map_err(|why| why.to_string());
            build::judge_files(files.as_deref().map_err(String::as_str))
        }),
        check("python", LONG, "python3 --version", || {
            build::judge_python(&probe::python::ask(), env!("CARGO_PKG_VERSION"))
        }),
        check("open files", SHORT, hung, move || limits::judge_files(probe::machine::files(members))),
        check("processes", SHORT, hung, move || limits::judge_processes(probe::machine::processes(members))),
        check("memory", SHORT, hung, move || limits::judge_memory(probe::machine::memory(members))),
        check("processors", SHORT, hung, || limits::judge_processors(probe::machine::processors())),
        check("shared memory", SHORT, hung, || limits::judge_shared_memory(probe::machine::shared_memory())),
        check("clock", SHORT, hung, || trust::judge_clocks(&probe::machine::clocks())),
    ]
}

fn places(wanted: &Wanted) -> Vec<Check> {
    let hung = "the file system does not answer: see mount, and its server; keep runs on a local disk (shoal run --folder DIR)";
    let (at, measured) = (wanted.folder.clone(), wanted.folder.clone());
    vec![
        check("folder", LONG, hung, move || match probe::disk::place(&at) {
            Ok(place) => disk::judge_place(&place),
            Err(why) => Outcome::failed(why, "name another by --folder"),
        }),
        check("disk", LONG, hung, move || {
            let times = probe::disk::times(&measured);
            disk::judge_times(times.as_ref().map_err(String::as_str))
        }),
    ]
}

fn others(wanted: &Wanted) -> Vec<Check> {
    let certificates = wanted.certificates.clone();
    let name_server = "a name server does not answer: resolvectl status, or put the name into /etc/hosts";
    let mut checks = vec![
        check("loopback", SHORT, "see nft list ruleset: something swallows what 127.0.0.1 sends", || {
            let found = probe::machine::loopback();
            network::judge_loopback(found.as_ref().copied().map_err(String::as_str))
        }),
        check("port", SHORT, "ss -ltnp", || {
            network::judge_port(MASTER_PORT, probe::machine::taken(MASTER_PORT).as_deref())
        }),
        minor(check("host name", LONG, name_server, || {
            let (name, found) = probe::machine::name();
            network::judge_name(&name, found.as_deref().map_err(String::as_str))
        })),
        minor(check("device", LONG, "the driver does not answer: nvidia-smi, dmesg", || {
            trust::judge_device(&probe::trust::device())
        })),
        check("certificates", LONG, "the folder's file system does not answer: see mount", move || {
            let read: Vec<_> = certificates.iter().map(|folder| probe::trust::certificate(folder)).collect();
            trust::judge_certificates(&read, wall_seconds())
        }),
    ];
    checks.push(cluster(wanted));
    checks
}

/// Names of the checks of a cluster.
#[cfg(feature = "cluster")]
const CLUSTER_CHECKS: [&str; 4] = ["cluster", "definitions", "rights", "operator"];

#[cfg(feature = "cluster")]
fn cluster(wanted: &Wanted) -> Check {
    use judge::cluster::{judge_definitions, judge_operator, judge_rights, judge_server};
    let hung = "kubectl cluster-info; another cluster by --context or KUBECONFIG";
    let [name, definitions, rights, operator] = CLUSTER_CHECKS;
    let (choice, insists) = (wanted.cluster.clone(), wanted.insists_on_cluster);
    let work = move || {
        if !insists && !probe::cluster::is_configured() {
            let why = "no kubeconfig and no pod's account is here: --cluster insists";
            return vec![(name, Outcome::not_applicable(why))];
        }
        let found = match probe::cluster::ask(&choice) {
            Err(why) => return vec![(name, judge_server(Err(&why)))],
            Ok(found) => found,
        };
        let (major, minor) = &found.version;
        let unasked = |why: &String| Outcome::not_applicable(format!("cannot be asked: {why}"));
        vec![
            (name, judge_server(Ok((major, minor)))),
            (
                definitions,
                found.served.as_ref().map_or_else(unasked, |served| {
                    judge_definitions(shoal_operator::api::VERSION, served, found.unknown_fields.as_deref())
                }),
            ),
            (
                rights,
                found.rights.as_ref().map_or_else(unasked, |rights| judge_rights(&found.namespace, rights)),
            ),
            (operator, judge_operator(found.operators.as_deref().map_err(String::as_str))),
        ]
    };
    // A cluster that nobody has asked for may be anybody's: jobs run on this machine without it.
    let worst = if insists { Level::Failed } else { Level::Warning };
    Check { name, time: CLUSTER, hung, worst, work: Box::new(work) }
}

#[cfg(not(feature = "cluster"))]
fn cluster(_: &Wanted) -> Check {
    let why = "this build does not speak with Kubernetes: cargo install --path cli --features full";
    check("cluster", SHORT, why, move || Outcome::not_applicable(why))
}
