//! What is watched beside pods and jobs: nodes and priority classes for the planner, and the leases of other operators. Decides nothing.

use super::index::named;
use super::others::Others;
use super::planner::{Planner, class};
use crate::api::TrainingJob;
use crate::inventory::Site;
use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Keeps what a planner knows of nodes and priority classes up to date.
pub(super) async fn of_planner(planner: Option<Arc<Planner>>, client: Client) -> Infallible {
    let Some(planner) = planner else { return std::future::pending().await };
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default()).default_backoff();
    let classes = watcher(Api::<PriorityClass>::all(client), watcher::Config::default()).default_backoff();
    let noted = |what: &'static str, error: &watcher::Error| {
        tracing::warn!(what, %error, "not seen: nothing new is planned until they are");
    };
    let nodes = nodes.for_each(async |event| match event {
        Ok(event) => {
            planner.nodes.note(&event, named, |node| Some(Site::of(node)));
            planner.changed.notify_one();
        }
        Err(error) => noted("nodes", &error),
    });
    let classes = classes.for_each(async |event| match event {
        Ok(event) => planner.classes.note(&event, named, |one| Some(class(one))),
        Err(error) => noted("priority classes", &error),
    });
    tokio::join!(nodes, classes);
    std::future::pending().await
}

/// Keeps what is known of other operators up to date, by their leases; an operator of one namespace looks at none.
pub(super) async fn of_others(others: Option<Arc<Others>>, client: Client, name: String) -> Infallible {
    let Some(others) = others else { return std::future::pending().await };
    // Rights may be for leases of this name alone, which this asks for.
    let which = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let leases = watcher(Api::<Lease>::all(client), which).default_backoff();
    let noted = leases.for_each(async |event| match event {
        Ok(event) => others.note(&event),
        Err(error) if is_forbidden(&error) => {
            others.need_not_be_waited_for();
            tracing::warn!(%error, "other operators may not be looked at: those that are not known are left no jobs");
        }
        Err(error) => tracing::warn!(%error, "other operators are not seen: this one waits until they are"),
    });
    noted.await;
    std::future::pending().await
}

/// Whether it has no right to that.
fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 403
}

/// Plans for as long as it is polled; an operator of one namespace never does.
pub(super) async fn plan_again(
    planner: Option<Arc<Planner>>,
    to_look_at: mpsc::Sender<ObjectRef<TrainingJob>>,
) -> Infallible {
    match planner {
        Some(planner) => planner.keep(to_look_at).await,
        None => std::future::pending().await,
    }
}
