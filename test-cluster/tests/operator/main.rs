//! The operator on a real control plane, with kubelets that run pods as processes or containers, or pretend to. One test program, a module for
//! each story; its tests wait more than they compute, one after another.
//!
//! | module | what is tested |
//! | --- | --- |
//! | `jobs` | applied, scaled by kubectl and by plans, suspended, moved: the model that `shoal run` gives |
//! | `commands` | `shoal submit`, `get`, `logs`, `why`, `wait`, `delete`, `doctor` |
//! | `kubectl` | a job applied, compared, waited for, applied by the server, scaled and autoscaled |
//! | `live_page` | `shoal ui JOB`, through the API server |
//! | `plans`, `room` | the plan for all jobs; preemption, quotas, taints |
//! | `faults`, `outage` | lost nodes, killed and paused operators, images and memory that cannot do; an API server that refuses or is away |
//! | `drains` | nodes drained in turn, evictions, each cascade of deletion, a node that starts nothing, containers beside programs |
//! | `autoscaling` | a HorizontalPodAutoscaler, a scheduler that makes room on one of several nodes, two operators |
//! | `names` | objects that have a job's names and are not its own, objects that are refused, what jobs that are over cost |
//! | `hung` | an API server that takes calls and does not answer: of one job, and of the lease |
//! | `containers` | the images that are shipped, in containers with what a pod's spec gives them and no more |
//! | `chart` | what Helm makes of the chart, against what kustomize makes |
//! | `install` | installed twice, taken over by Helm, upgraded, rolled back, uninstalled: what changes and what stays |
//! | `pages` | what Prometheus reads of an operator |
//! | `tls`, `cert_manager` | certificates that the operator issues, changes in time and is itself believed by; jobs that began in plaintext |
//! | `upgrades` | an operator of the last version, this one, and the last one again, over jobs that train |
//! | `rules` | definitions, rules, scale and columns on a server of today's Kubernetes, which has custom resources and nothing else |
//! | `rights` | what the operator and its pods may do, and nothing else |
//!
//! Without a control plane (`KUBEBUILDER_ASSETS`) and root they say so and pass, or fail when `SHOAL_REQUIRE_ALL=1`.
//! One of them: `cargo test -p shoal-test-cluster --test operator plans::`.
#![allow(clippy::print_stderr, reason = "tests say what they leave out")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod autoscaling;
mod cert_manager;
mod chart;
mod commands;
mod containers;
mod drains;
mod faults;
mod hung;
mod install;
mod jobs;
mod kubectl;
mod live_page;
mod names;
mod outage;
mod pages;
mod plans;
mod rendering;
mod rights;
mod room;
mod rules;
mod served;
mod tls;
mod upgrades;
mod world;
