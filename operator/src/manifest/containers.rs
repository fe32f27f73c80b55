//! The containers of a job's pods: their commands, environments and probes. The author's template has the last word on
//! everything that the protocol does not rest on.

use super::{Defaults, HTTP_PORT, MASTER_PORT, PSERVER_PORT, identity, service_name};
use crate::api::{TlsMode, TrainingJob};
use crate::decide::{PodPlan, Role, pod_name};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector, Probe,
    SecurityContext, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use shoal_job::spec::Document;

/// Where certificates are mounted.
pub(super) const TLS_FOLDER: &str = "/var/run/shoal/tls";
/// The volume with them.
pub(super) const TLS_VOLUME: &str = "shoal-tls";
/// Where a master finds what it shows to an etcd, and the volume with it.
pub(super) const STORE_FOLDER: &str = "/var/run/shoal/store";
pub(super) const STORE_VOLUME: &str = "shoal-store";
/// How long a master of a job that is done stays, so that late trainers hear of it.
const LINGER_SECONDS: &str = "60";
/// How long pservers stay after SIGTERM, for their blocks to go elsewhere.
const PSERVER_GRACE_SECONDS: i64 = 120;

/// How long a pod of the role may take to end.
pub(super) fn grace_seconds(role: Role) -> i64 {
    match role {
        Role::Master => 5,
        Role::Pserver => PSERVER_GRACE_SECONDS + 5,
        Role::Trainer => 30,
    }
}

/// Two seconds each: half an hour, which no program needs until it listens. One that hangs before is started again then.
const STARTUP_FAILURES: i32 = 900;

/// What the container of that role is, but for its resources and what its template adds.
pub(super) fn container(job: &TrainingJob, defaults: &Defaults, plan: &PodPlan) -> Container {
    let (image, command, args, port) = match plan.role {
        Role::Master => (
            Some(&defaults.master_image),
            Some("shoal-master"),
            master_arguments(job, defaults, plan),
            Some(MASTER_PORT),
        ),
        Role::Pserver => {
            (Some(&defaults.pserver_image), Some("shoal-pserver"), pserver_arguments(job), Some(PSERVER_PORT))
        }
        Role::Trainer => (None, None, Vec::new(), None),
    };
    let ports = port.map(|port| ("rpc", port)).into_iter().chain([("http", HTTP_PORT)]);
    Container {
        name: plan.role.name().to_owned(),
        image: image.cloned(),
        command: command.map(|command| vec![command.to_owned()]),
        args: Some(args).filter(|args| !args.is_empty()),
        env: Some(environment(job, plan)),
        ports: Some(
            ports
                .map(|(name, port)| ContainerPort {
                    name: Some(name.to_owned()),
                    container_port: port.into(),
                    ..ContainerPort::default()
                })
                .collect(),
        ),
        // A process that runs answers this page whatever it reads meanwhile, so a scan of hours is no reason to end it. What
        // takes its time is to begin: an interpreter and its libraries, from an image or a volume that was never read before.
        startup_probe: Some(probe("/healthz", 2, STARTUP_FAILURES)),
        readiness_probe: Some(probe("/readyz", 2, 3)),
        liveness_probe: Some(probe("/healthz", 10, 6)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        // The end of its log is kept in its status, where it outlives the pod in the job's own.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts(job, defaults, plan.role)).filter(|mounts| !mounts.is_empty()),
        ..Container::default()
    }
}

/// Where a container finds what it shows to others.
fn mounts(job: &TrainingJob, defaults: &Defaults, role: Role) -> Vec<VolumeMount> {
    let tls = (job.tls() != TlsMode::Plaintext).then_some((TLS_VOLUME, TLS_FOLDER));
    let store = is_store_over_tls(job, defaults, role).then_some((STORE_VOLUME, STORE_FOLDER));
    let mount = |(name, path): (&str, &str)| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    tls.into_iter().chain(store).map(mount).collect()
}

/// Whether a pod of that role keeps the job's state in an etcd over TLS.
pub(super) fn is_store_over_tls(job: &TrainingJob, defaults: &Defaults, role: Role) -> bool {
    let store = job.spec.master.store.as_ref().or(defaults.store.as_ref());
    role == Role::Master && store.is_some_and(|store| store.starts_with("etcds://"))
}

/// A page that answers within so many seconds, and may fail so many times.
fn probe(path: &str, period_seconds: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(HTTP_PORT.into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// What every container of a job has in its environment: names before the author's own, so that those may refer to them.
pub(super) fn environment(job: &TrainingJob, plan: &PodPlan) -> Vec<EnvVar> {
    let name = pod_name(plan.role, &job.name_any(), plan.ordinal);
    let master = format!("{}.{}.svc:{MASTER_PORT}", service_name(job), job.namespace().unwrap_or_default());
    let values = [
        ("SHOAL_JOB", identity(job)),
        ("SHOAL_LOG_FORMAT", "json".to_owned()),
        ("SHOAL_HTTP", format!("$(SHOAL_POD_IP):{HTTP_PORT}")),
        match job.tls() {
            TlsMode::Issued | TlsMode::Given => ("SHOAL_TLS", TLS_FOLDER.to_owned()),
            TlsMode::Plaintext => ("SHOAL_PLAINTEXT", "true".to_owned()),
        },
    ];
    let of_role: &[(&str, String)] = match plan.role {
        Role::Master => &[],
        Role::Pserver => &[("SHOAL_MASTER", master), ("SHOAL_PSERVER_NAME", name)],
        Role::Trainer => &[("SHOAL_MASTER", master), ("SHOAL_TRAINER_NAME", name)],
    };
    let ip = EnvVar {
        name: "SHOAL_POD_IP".to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: "status.podIP".to_owned(), api_version: None }),
            ..EnvVarSource::default()
        }),
        value: None,
    };
    let plain = values.iter().chain(of_role);
    let plain = plain.map(|(name, value)| EnvVar {
        name: (*name).to_owned(),
        value: Some(value.clone()),
        value_from: None,
    });
    std::iter::once(ip).chain(plain).collect()
}

fn master_arguments(job: &TrainingJob, defaults: &Defaults, plan: &PodPlan) -> Vec<String> {
    let place = &job.spec.training.checkpoint.place;
    let name = identity(job);
    let namespace = job.namespace().unwrap_or_default();
    let store = match (&job.spec.master.store, &defaults.store) {
        (Some(store), _) => store.clone(),
        (None, Some(store)) => format!("{}/{namespace}/{name}", store.trim_end_matches('/')),
        (None, None) => format!("{}/state/{name}", place.trim_start_matches("file://").trim_end_matches('/')),
    };
    let fixed = [
        ("--listen", everywhere(MASTER_PORT)),
        ("--store", unexpanded(store)),
        ("--pservers", plan.pservers.to_string()),
        ("--trainers", plan.trainers.to_string()),
        ("--linger-seconds", LINGER_SECONDS.to_owned()),
    ];
    let spec = Document(job.spec.training.clone()).parts();
    let spec = std::iter::once("--spec".to_owned()).chain(spec.into_iter().map(unexpanded));
    let tls =
        is_store_over_tls(job, defaults, Role::Master).then(|| ("--store-tls", STORE_FOLDER.to_owned()));
    let fixed = fixed.into_iter().chain(tls);
    fixed.flat_map(|(flag, value)| [flag.to_owned(), value]).chain(spec).collect()
}

fn pserver_arguments(job: &TrainingJob) -> Vec<String> {
    let (listen, address) = (everywhere(PSERVER_PORT), format!("$(SHOAL_POD_IP):{PSERVER_PORT}"));
    let grace = PSERVER_GRACE_SECONDS.to_string();
    let device = job.spec.pserver.device.clone();
    ["--listen", &listen, "--advertise", &address, "--grace-seconds", &grace]
        .into_iter()
        .map(str::to_owned)
        .chain(device.into_iter().flat_map(|device| ["--device".to_owned(), device]))
        .collect()
}

/// All of a pod's addresses: the one that others know, and its loopback, which is where a node forwards ports to.
fn everywhere(port: u16) -> String {
    format!("0.0.0.0:{port}")
}

/// Kubernetes replaces $(NAME) in arguments, and $$ by $; what the author wrote is to come as it is.
fn unexpanded(text: String) -> String {
    text.replace('$', "$$")
}
