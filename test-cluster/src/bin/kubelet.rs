//! A Kubernetes cluster of one machine to play with: a control plane, and kubelets that run pods as processes or containers, or
//! pretend to.
//! It must never be pointed at a cluster that anybody needs.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use anyhow::Context;
use clap::Parser;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_test_cluster::{ControlPlane, Kubelet, KubeletSettings, Run};
use std::path::PathBuf;

/// Start a Kubernetes control plane on loopback addresses, and nodes whose pods are processes or containers of this machine
#[derive(Parser)]
#[command(
    after_help = "Example: KUBEBUILDER_ASSETS=$(bash .ci/control-plane) cargo run -p shoal-test-cluster -- --crds deploy/crds.yaml \\\n\
  --image shoal-master:0.1.0,shoal-pserver:0.1.0,digits --path target/debug,target/debug/examples\n\
  In containers: … --layout $(bash .ci/images) in place of --image and --path; that takes root, runc and buildah.\nCtrl-C ends all of it."
)]
struct Arguments {
    /// Nodes, of 16 cores and 64 GiB each in the scheduler's eyes
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Definitions of resources to begin with
    #[arg(long, default_value = "deploy/crds.yaml", value_name = "FILE")]
    crds: PathBuf,
    /// Run nothing: pods seem to run, for as long as their annotations say
    #[arg(long)]
    pretend: bool,
    /// Run the images of this OCI layout, as containers with networks of their own
    #[arg(long, value_name = "DIR", conflicts_with_all = ["pretend", "image", "path"])]
    layout: Option<PathBuf>,
    /// Images that there are; pods of others cannot be started
    #[arg(long, value_delimiter = ',', value_name = "IMAGES")]
    image: Vec<String>,
    /// Folders in which commands of pods are looked for first
    #[arg(long, value_delimiter = ',', value_name = "DIRS")]
    path: Vec<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut shutdown = Shutdown::on_signal()?;
    let plane = ControlPlane::start(&arguments.crds).await?;
    let run = match (arguments.pretend, &arguments.layout) {
        (true, _) => Run::Pretended,
        (false, Some(_)) => Run::Containers,
        (false, None) => Run::Processes,
    };
    let mut settings = KubeletSettings::of(arguments.nodes, run, &[]);
    (settings.images, settings.layout) = (arguments.image, arguments.layout);
    let absolute =
        |folder: PathBuf| std::path::absolute(&folder).with_context(|| folder.display().to_string());
    settings.path = arguments.path.into_iter().map(absolute).collect::<anyhow::Result<_>>()?;
    let _kubelet = Kubelet::start(plane.client().await?, settings).await?;
    println!("export KUBECONFIG={}", plane.kubeconfig().display());
    shutdown.wait().await;
    Ok(())
}
