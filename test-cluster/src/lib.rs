//! A real Kubernetes control plane on loopback addresses, kubelets that run pods as processes or containers of this machine, and
//! a proxy that misbehaves. For tests of the operator; it must know nothing of what is in the pods.

#![forbid(unsafe_code)]

mod addresses;
mod bundle;
mod container;
mod content;
mod control_groups;
mod control_plane;
mod custom_resources;
mod faults;
mod forward;
mod hosts;
mod images;
mod kubelet;
mod leftovers;
mod logs;
mod machine;
mod metrics;
mod pod;
mod probe;
mod process;
mod seccomp;
mod secrets;
mod servers;
mod spec;

pub use control_plane::{ControlPlane, missing};
pub use custom_resources::{Answer, CustomResources};
pub use faults::{Call, Cut, Faults, Refusal, plain_kubeconfig};
pub use kubelet::{Kubelet, KubeletSettings, Run};
pub use metrics::{Metrics, PodUse};

/// Annotations by which a pod says what is to become of it, all of them optional.
pub mod annotations {
    /// Seconds until it runs, or the least and the most of them, as in `10-30`: what its image takes to come.
    pub const START_SECONDS: &str = "kubelet.shoal.dev/start-seconds";
    /// Pretended pods: seconds that it runs, which may be said while it does; without it until it is deleted.
    pub const RUN_SECONDS: &str = "kubelet.shoal.dev/run-seconds";
    /// Pretended pods: seconds that it takes to end once it is deleted.
    pub const STOP_SECONDS: &str = "kubelet.shoal.dev/stop-seconds";
    /// Pretended pods: what it ends with then.
    pub const EXIT_CODE: &str = "kubelet.shoal.dev/exit-code";
    /// Pretended pods: why its container ended, as in `OOMKilled`.
    pub const REASON: &str = "kubelet.shoal.dev/reason";
    /// Processes: "true" where a process may have no more memory than its container's limit.
    pub const ENFORCE_MEMORY: &str = "kubelet.shoal.dev/enforce-memory";
    /// On a node: "true" for a machine that is lost.
    pub const DEAD: &str = "kubelet.shoal.dev/dead";
}
