//! What a container runtime is told of a container (`config.json` of the OCI runtime specification), from its pod and its image, as
//! a kubelet and its runtime do it between them. Pure.

use super::seccomp;
use super::spec::{Mount, Place, environment, expanded};
use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use shoal_operator::api::{bytes, quantity_value};
use std::path::Path;

/// What root may without being asked for: the runtimes' common choice.
const CAPABILITIES: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Of /proc and /sys, what a container does not see.
const MASKED: [&str; 8] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/firmware",
];
/// And what it only reads.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// Thousandths of a processor are shares of 1,024 for each, and microseconds of this period.
const CPU_PERIOD_MICROS: u64 = 100_000;

/// What has been made for a container.
pub(super) struct Made<'a> {
    pub(super) root: &'a Path,
    /// Its pod's network.
    pub(super) network: &'a Path,
    pub(super) control_group: &'a str,
    pub(super) mounts: &'a [Mount],
    /// What its image says of it.
    pub(super) image: &'a Value,
    /// The profile that bounds its system calls; none where its pod does not ask for the runtime's.
    pub(super) seccomp: Option<&'a Value>,
}

/// The whole of it.
///
/// # Errors
/// What a kubelet refuses to make a container of, in its words.
pub(super) fn config(
    pod: &Pod,
    container: &Container,
    place: &Place<'_>,
    made: &Made<'_>,
) -> Result<Value, String> {
    let own = container.security_context.clone().unwrap_or_default();
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    if own.privileged == Some(true) {
        return Err("privileged containers are not run here".to_owned());
    }
    let capabilities = capabilities(&own);
    let args = arguments(container, place, made.image, pod)?;
    let directory = container.working_dir.as_deref().or(made.image["WorkingDir"].as_str());
    Ok(json!({
        "ociVersion": "1.0.2",
        "hostname": pod.metadata.name,
        "process": {
            "user": user(&own, &of_pod, made.image)?,
            "args": args,
            "env": variables(pod, container, place, made.image),
            "cwd": directory.filter(|path| !path.is_empty()).unwrap_or("/"),
            "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
            "noNewPrivileges": own.allow_privilege_escalation == Some(false),
        },
        "root": { "path": made.root, "readonly": own.read_only_root_filesystem == Some(true) },
        "mounts": mounts(place, made.mounts),
        "linux": {
            "cgroupsPath": made.control_group,
            "namespaces": [
                { "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
                { "type": "network", "path": made.network },
            ],
            "resources": resources(container),
            "seccomp": made.seccomp.map(|profile| seccomp::bounds(profile, &capabilities)),
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
        },
    }))
}

/// Whether its system calls are to be bounded by the runtime's profile.
pub(super) fn is_bounded(pod: &Pod, container: &Container) -> bool {
    let own = container.security_context.as_ref().and_then(|own| own.seccomp_profile.as_ref());
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let of_pod = of_pod.and_then(|of_pod| of_pod.seccomp_profile.as_ref());
    own.or(of_pod).is_some_and(|profile| profile.type_ == "RuntimeDefault")
}

fn arguments(
    container: &Container,
    place: &Place<'_>,
    image: &Value,
    pod: &Pod,
) -> Result<Vec<String>, String> {
    let variables = environment(pod, container, place);
    let said = |words: &Option<Vec<String>>| {
        words
            .as_ref()
            .map(|words| words.iter().map(|word| expanded(word, &variables)).collect::<Vec<String>>())
    };
    let (command, args) = (said(&container.command), said(&container.args));
    // A command of the pod's leaves nothing of the image's; arguments alone leave its entry point.
    let own_args = if command.is_none() && args.is_none() { texts(&image["Cmd"]) } else { Vec::new() };
    let mut all = command.unwrap_or_else(|| texts(&image["Entrypoint"]));
    all.extend(args.unwrap_or(own_args));
    if all.is_empty() { Err("no command specified".to_owned()) } else { Ok(all) }
}

/// The image's, then the pod's.
fn variables(pod: &Pod, container: &Container, place: &Place<'_>, image: &Value) -> Vec<String> {
    let own = environment(pod, container, place);
    let name = pod.metadata.name.clone().unwrap_or_default();
    let mut all = vec![format!("HOSTNAME={name}"), "HOME=/".to_owned()];
    all.extend(texts(&image["Env"]));
    all.retain(|one| one.split_once('=').is_none_or(|(name, _)| !own.contains_key(name)));
    all.extend(own.iter().map(|(name, value)| format!("{name}={value}")));
    all
}

/// By numbers alone: who has which name is in an image's files.
fn user(own: &SecurityContext, of_pod: &PodSecurityContext, image: &Value) -> Result<Value, String> {
    let named = image["User"].as_str().unwrap_or_default();
    let (user, group) = named.split_once(':').unwrap_or((named, ""));
    let number = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<i64>() };
    let stated = own.run_as_user.or(of_pod.run_as_user);
    let is_to_be_checked = own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true);
    let uid = match (stated, number(user)) {
        (Some(0), _) if is_to_be_checked => {
            return Err("container's runAsUser breaks non-root policy".to_owned());
        }
        (Some(uid), _) => uid,
        (None, Ok(0)) if is_to_be_checked => {
            return Err("container has runAsNonRoot and image will run as root".to_owned());
        }
        (None, Ok(uid)) => uid,
        (None, Err(_)) => {
            return Err(format!("container has runAsNonRoot and image has non-numeric user ({user})"));
        }
    };
    let gid = own.run_as_group.or(of_pod.run_as_group).unwrap_or(number(group).unwrap_or(0));
    let mut groups = of_pod.supplemental_groups.clone().unwrap_or_default();
    groups.extend(of_pod.fs_group);
    Ok(json!({ "uid": uid, "gid": gid, "additionalGids": groups }))
}

fn capabilities(own: &SecurityContext) -> Vec<String> {
    let stated = own.capabilities.clone().unwrap_or_default();
    let (dropped, added) = (stated.drop.unwrap_or_default(), stated.add.unwrap_or_default());
    let is_dropped = |name: &str| dropped.iter().any(|one| one == "ALL" || one == name);
    let kept = CAPABILITIES.into_iter().filter(|name| !is_dropped(name)).map(str::to_owned);
    kept.chain(added).map(|name| format!("CAP_{name}")).collect()
}

fn mounts(place: &Place<'_>, volumes: &[Mount]) -> Vec<Value> {
    let system = |kind: &str, to: &str, options: &str| json!({ "type": kind, "source": kind, "destination": to, "options": options.split(',').collect::<Vec<_>>() });
    let bound = |from: &Path, to: &Path, how: &str| json!({ "type": "bind", "source": from, "destination": to, "options": ["rbind", "rprivate", how] });
    let mut all = vec![
        system("proc", "/proc", "nosuid,noexec,nodev"),
        system("tmpfs", "/dev", "nosuid,strictatime,mode=755,size=65536k"),
        system("devpts", "/dev/pts", "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620"),
        system("tmpfs", "/dev/shm", "nosuid,noexec,nodev,mode=1777,size=65536k"),
        system("mqueue", "/dev/mqueue", "nosuid,noexec,nodev"),
        system("sysfs", "/sys", "nosuid,noexec,nodev,ro"),
        bound(place.hosts, Path::new("/etc/hosts"), "rw"),
    ];
    let how = |mount: &Mount| if mount.is_read_only { "ro" } else { "rw" };
    all.extend(volumes.iter().map(|mount| bound(&mount.from, &mount.to, how(mount))));
    all
}

fn resources(container: &Container) -> Value {
    let stated = container.resources.clone().unwrap_or_default();
    let limits = stated.limits.unwrap_or_default();
    let requests = stated.requests.unwrap_or_default();
    let memory = limits.get("memory").and_then(|limit| bytes(&limit.0));
    let millis = |amount: Option<&Quantity>| {
        amount.and_then(|amount| quantity_value(&amount.0)).map(|cores| (cores * 1_000.0).ceil() as u64)
    };
    let quota = millis(limits.get("cpu")).map(|millis| millis * CPU_PERIOD_MICROS / 1_000);
    let shares =
        millis(requests.get("cpu").or(limits.get("cpu"))).map(|millis| (millis * 1_024 / 1_000).max(2));
    json!({
        "devices": [{ "allow": false, "access": "rwm" }],
        "memory": { "limit": memory },
        "cpu": { "shares": shares, "quota": quota, "period": quota.map(|_| CPU_PERIOD_MICROS) },
    })
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// What the runtime is told of a container of an image with user 65532 and an entry point.
    fn told(of_pod: Value, container: Value) -> Result<Value, String> {
        let spec = json!({ "securityContext": of_pod, "containers": [] });
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap();
        let mut container = container;
        container["name"] = json!("c");
        let container: Container = serde_json::from_value(container).unwrap();
        let place = Place { ip: "198.18.0.2", hosts: Path::new("/h"), folder: Path::new("/f"), path: &[] };
        let image = json!({ "User": "65532:65532", "Env": ["PATH=/usr/bin"], "Entrypoint": ["program"], "Cmd": ["--help"] });
        let volume = Mount { from: PathBuf::from("/a"), to: PathBuf::from("/b"), is_read_only: true };
        let made = Made {
            root: Path::new("/r"),
            network: Path::new("/n"),
            control_group: "/g",
            mounts: &[volume],
            image: &image,
            seccomp: None,
        };
        config(&pod, &container, &place, &made)
    }

    #[test]
    fn the_command_is_the_images_where_the_pod_says_nothing_and_none_of_it_where_it_has_a_command() {
        let args = |container: Value| told(json!({}), container).unwrap()["process"]["args"].clone();
        assert_eq!(args(json!({})), json!(["program", "--help"]));
        assert_eq!(
            args(json!({ "args": ["$(A)"], "env": [{ "name": "A", "value": "1" }] })),
            json!(["program", "1"])
        );
        assert_eq!(args(json!({ "command": ["other"] })), json!(["other"]));
        assert_eq!(args(json!({ "command": ["other"], "args": ["2"] })), json!(["other", "2"]));
    }

    #[test]
    fn the_user_is_the_containers_the_pods_or_the_images_and_root_where_that_is_allowed_alone() {
        let uid = |of_pod: Value, own: Value| {
            told(of_pod, json!({ "securityContext": own })).map(|told| told["process"]["user"]["uid"].clone())
        };
        let none = json!({});
        assert_eq!(uid(none.clone(), none.clone()), Ok(json!(65532)));
        assert_eq!(uid(json!({ "runAsUser": 7 }), none.clone()), Ok(json!(7)));
        assert_eq!(uid(json!({ "runAsUser": 7 }), json!({ "runAsUser": 0 })), Ok(json!(0)));
        let refused = uid(json!({ "runAsNonRoot": true }), json!({ "runAsUser": 0 }));
        assert_eq!(refused, Err("container's runAsUser breaks non-root policy".to_owned()));
        let groups = told(json!({ "fsGroup": 5, "supplementalGroups": [6] }), none).unwrap();
        assert_eq!(groups["process"]["user"]["additionalGids"], json!([6, 5]));
    }

    #[test]
    fn capabilities_limits_and_volumes_are_what_the_container_says() {
        let plain = told(json!({}), json!({})).unwrap();
        assert_eq!(
            plain["process"]["capabilities"]["bounding"].as_array().unwrap().len(),
            CAPABILITIES.len()
        );
        assert_eq!(
            (&plain["process"]["noNewPrivileges"], &plain["root"]["readonly"]),
            (&json!(false), &json!(false))
        );
        let bound =
            plain["mounts"].as_array().unwrap().iter().find(|mount| mount["destination"] == "/b").unwrap();
        assert_eq!(bound["options"], json!(["rbind", "rprivate", "ro"]));
        let own = json!({
            "capabilities": { "drop": ["ALL"], "add": ["KILL"] }, "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
        });
        let limits = json!({ "limits": { "memory": "1Mi", "cpu": "1500m" }, "requests": { "cpu": "500m" } });
        let bounded = told(json!({}), json!({ "securityContext": own, "resources": limits })).unwrap();
        assert_eq!(bounded["process"]["capabilities"]["effective"], json!(["CAP_KILL"]));
        assert_eq!(
            (&bounded["process"]["noNewPrivileges"], &bounded["root"]["readonly"]),
            (&json!(true), &json!(true))
        );
        let resources = &bounded["linux"]["resources"];
        assert_eq!(resources["memory"]["limit"], 1 << 20);
        assert_eq!(resources["cpu"], json!({ "shares": 512, "quota": 150_000, "period": 100_000 }));
        assert!(told(json!({}), json!({ "securityContext": { "privileged": true } })).is_err());
    }
}
