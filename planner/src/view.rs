//! What the planner sees: nodes, the pods that are not ours, and jobs; plain values, without Kubernetes' types.

use super::resources::Resources;
use super::speed::SpeedSample;

/// Seconds of any clock that does not go back; the simulator's begins at 0.
pub type Seconds = u64;

/// A cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterView {
    /// Kinds of devices, such as `nvidia.com/gpu`, in the order of [`Resources`].
    pub devices: Vec<String>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Pods of others that no node has yet.
    pub waiting: Vec<WaitingPod>,
    /// All jobs that are to run, waiting ones included.
    pub jobs: Vec<JobView>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it has for pods.
    pub allocatable: Resources,
    /// What pods ask of it that are no trainers, pservers or masters of the jobs of this view. Pods that are being removed do
    /// not count: the plan is for when they are gone.
    pub used: Resources,
    /// Its pool: nodes of one pool suit the same pods.
    pub pool: u32,
    /// Whether it takes new pods.
    pub is_open: bool,
}

/// The pools in which a pod may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pools {
    /// All.
    #[default]
    Any,
    /// These.
    Of(Vec<u32>),
}

impl Pools {
    /// Whether a node of that pool suits.
    pub fn has(&self, pool: u32) -> bool {
        match self {
            Pools::Any => true,
            Pools::Of(some) => some.contains(&pool),
        }
    }
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Of a node.
    pub request: Resources,
    /// Where it may be.
    pub pools: Pools,
}

/// A pod of others that waits for a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingPod {
    /// Its name, for reasons.
    pub name: String,
    /// What it asks for.
    pub ask: Ask,
    /// Its priority.
    pub priority: i32,
    /// Since when it waits.
    pub since: Seconds,
}

/// A job that is to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobView {
    /// What no other job is called: `NAMESPACE/NAME`.
    pub name: String,
    /// Its priority: who has more is given room first.
    pub priority: i32,
    /// Since when it is there: of two of one priority the older is first.
    pub since: Seconds,
    /// Whether it was let in already: then its least is its own for as long as it lasts.
    pub is_admitted: bool,
    /// Its master.
    pub master: Servers,
    /// Its pservers.
    pub pservers: Servers,
    /// Its trainers.
    pub trainers: Trainers,
    /// Whether more may be asked for than there are nodes: something brings them.
    pub allows_new_nodes: bool,
}

/// The master, or the pservers, of a job: never given up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Servers {
    /// What each asks for.
    pub ask: Ask,
    /// How many there must be.
    pub count: u32,
    /// The nodes of those that have one, by index. May be more than `count` while some leave.
    pub nodes: Vec<usize>,
}

/// The trainers of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trainers {
    /// What each asks for.
    pub ask: Ask,
    /// The least.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// How many were wanted last; 0 for a job that was not let in.
    pub wanted: u32,
    /// The nodes of those that have one, by index, the lowest ordinal first, without those beyond `wanted` and those that are
    /// being removed.
    pub nodes: Vec<usize>,
    /// Whether its author said what one asks for. If not, the job starts small and grows as long as it is measured to help.
    pub is_stated: bool,
    /// Speeds that were measured, the newest last.
    pub speeds: Vec<SpeedSample>,
    /// When it last gave trainers up to something that is no training job; it grows again a while later.
    pub yielded: Option<Seconds>,
}
