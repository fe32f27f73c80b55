//! What the planner sees of a cluster, made of what Kubernetes says of nodes, pods and jobs. Pure.
//!
//! [`Site`] is a node and [`Tenant`] a pod, each cut down to what counts for room; [`JobFacts`] is a job that is to run.
//! [`cluster_view`] makes the planner's view of them. Of where a pod may be, node selectors, required node affinity and taints
//! count; what pods ask of one another (affinity, spreading) and volumes do not.

mod amounts;
mod facts;
mod site;
mod suit;
mod tenant;
mod view;

pub use amounts::Amounts;
pub use facts::{Asks, JobFacts, PodAsk, asks};
pub use site::Site;
pub use suit::Wish;
pub use tenant::{Member, PodPlace, Tenant};
pub use view::{Inventory, cluster_view};
